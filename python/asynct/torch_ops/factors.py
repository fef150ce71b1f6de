"""AsyncI's parameters of a layer as the kernels take them."""

import dataclasses

import torch

from asynct.torch_ops.extension import extension

DTYPE_NAMES = {torch.bfloat16: "bf16", torch.float16: "fp16"}


@dataclasses.dataclass(frozen=True)
class AttentionFactors:
    """Made by attention_factors(); scale and pool size are multiplied in."""

    heads: torch.Tensor  # fp32 [H, 4] on the device: slope, bias, sigma, gain
    pool_size: int
    pool_relu: bool
    most: float  # where weights are clamped
    plain: bool  # weights are left divided by the scale, a power of two
    dtype: torch.dtype  # of queries, keys and values


def _floats(values):
    if values is None:
        return []
    if isinstance(values, torch.Tensor):
        values = values.detach().float().flatten().tolist()
    return [float(value) for value in values]


def attention_factors(
    sigma, slope=None, bias=None, gain=None, *, scale, pool_size=3, pool_relu=True, dtype=torch.bfloat16, device="cuda"
):
    """Of A = gain * clamp(slope * S + bias - sigma * P, 0, 1), S = scale * <q, k>, P the mean of max(S, 0) over the key
    and its pool_size - 1 predecessors (of S without pool_relu). sigma, slope, bias and gain: a value a query head, as
    tensors or sequences; slope and gain default to 1, bias to 0. Copies to the host: once a layer, not once a step.
    """
    if dtype not in DTYPE_NAMES:
        raise TypeError(f"factors: dtype {dtype}, expected torch.bfloat16 or torch.float16")
    parts = (_floats(values) for values in (sigma, slope, bias, gain))
    rows, most, plain = extension().attention_factors(*parts, scale, pool_size, pool_relu, DTYPE_NAMES[dtype])
    heads = torch.tensor(rows, dtype=torch.float32).view(-1, 4).to(device)
    return AttentionFactors(heads, pool_size, pool_relu, most, plain, dtype)
