"""The kernels as operators of torch, with their shapes for tracing: torch.compile takes them whole, and in eager mode
nothing lies between a call and its launch but the checks. No gradients."""

import itertools
import weakref

import torch
from torch.utils.dlpack import to_dlpack  # a tenth of what Tensor.__dlpack__ takes, which an extension would call

from asynct.torch_ops.extension import extension

_library = torch.library.Library("asynct", "DEF")
# Strides are part of a cache's layout; a compiler must not change them.
_tags = (torch.Tag.pt2_compliant_tag, getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order))

# A plan is host state that is replaced every step, so operators get its number and not its contents: a graph that was
# traced with one plan runs with the next.
_plans = weakref.WeakValueDictionary()
_numbers = itertools.count(1)


def register_plan(plan):
    """The plan's number, valid as long as it lives."""
    number = next(_numbers)
    _plans[number] = plan
    return number


def _define(schema, kernel, fake):
    name = schema.partition("(")[0]
    _library.define(schema, tags=_tags)
    _library.impl(name, kernel, "CompositeExplicitAutograd")
    _library.impl(name, torch.library.fallthrough_kernel, "Autograd")
    torch.library.register_fake(f"asynct::{name}", fake, lib=_library)


def _expect_no_gradients(*tensors):
    """A gradient must not be lost in silence."""
    if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors):
        raise RuntimeError("asynct.torch_ops: no gradients, expected a call under torch.no_grad() or inference_mode()")


def _stream(tensor):
    return torch.cuda.current_stream(tensor.device).cuda_stream if tensor.is_cuda else 0


# Keys and values are a paged cache, or of plans without pages in one piece.
def _paged_attention_out(query, key, value, factors, plan, pool_size, pool_relu, most, plain, out):
    _expect_no_gradients(query, key, value, factors)
    planned = _plans.get(plan)
    if planned is None or planned.step is None:
        raise RuntimeError("paged_attention: run before plan" if planned else "paged_attention: its wrapper is gone")
    planned.step.run(
        to_dlpack(query), to_dlpack(key), to_dlpack(value), to_dlpack(factors), to_dlpack(out), pool_size, pool_relu,
        most, plain, planned.one_launch, _stream(query),
    )  # fmt: skip


def _paged_attention(query, *arguments):
    out = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    _paged_attention_out(query, *arguments, out)
    return out


def _fake_paged_attention(query, key, value, factors, *_arguments):
    _expect_no_gradients(query, key, value, factors)
    return torch.empty(query.shape, dtype=query.dtype, device=query.device)


def _fake_paged_attention_out(query, key, value, factors, *_arguments):
    _expect_no_gradients(query, key, value, factors)


_ATTENTION = (
    "Tensor query, Tensor key, Tensor value, Tensor factors, SymInt plan, int pool_size, bool pool_relu, float most, "
    "bool plain"
)
_define(f"paged_attention({_ATTENTION}) -> Tensor", _paged_attention, _fake_paged_attention)
_define(f"paged_attention_out({_ATTENTION}, Tensor(a!) out) -> ()", _paged_attention_out, _fake_paged_attention_out)


def _dyht(x, alpha, gamma, beta, low, high):
    y = _fake_dyht(x, alpha, gamma, beta, low, high)
    shape = (-1, x.shape[-1]) if x.numel() > 0 else (0, x.shape[-1])
    rows, into = to_dlpack(x.reshape(shape)), to_dlpack(y.view(shape))
    shift = None if beta is None else to_dlpack(beta)
    extension().dyht(rows, into, to_dlpack(alpha), to_dlpack(gamma), shift, low, high, _stream(x))
    return y


def _fake_dyht(x, alpha, gamma, beta, low, high):
    _expect_no_gradients(x, alpha, gamma, beta)
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def _reglu(gate, up):
    out = _fake_reglu(gate, up)
    shape = (-1, gate.shape[-1]) if gate.numel() > 0 else (0, gate.shape[-1])
    rows = (to_dlpack(tensor.reshape(shape)) for tensor in (gate, up, out))
    extension().reglu(*rows, _stream(gate))
    return out


def _fake_reglu(gate, up):
    _expect_no_gradients(gate, up)
    if gate.shape != up.shape:
        raise ValueError(f"up: shape {list(up.shape)}, expected {list(gate.shape)} as gate's")
    return torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)


_define("dyht(Tensor x, Tensor alpha, Tensor gamma, Tensor? beta, float low, float high) -> Tensor", _dyht, _fake_dyht)
_define("reglu(Tensor gate, Tensor up) -> Tensor", _reglu, _fake_reglu)
