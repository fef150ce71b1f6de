"""The element-wise operators of a layer."""

import torch

import asynct.torch_ops.operators  # noqa: F401  (defines torch.ops.asynct)


def dyht(x, alpha, gamma, beta=None, low=-1.0, high=1.0):
    """gamma * clamp(alpha * x + beta, low, high) over the last dimension. x: bf16, fp16 or fp32; alpha, gamma and beta:
    fp32, of one element or one a channel."""
    return torch.ops.asynct.dyht(x, alpha, gamma, beta, low, high)


def reglu(gate, up):
    """relu(gate) * up, one rounding; a gate at or below zero gives zero whatever its up is."""
    return torch.ops.asynct.reglu(gate, up)
