"""The kernels as operators of torch, with their shapes for tracing: torch.compile takes them whole, and in eager mode
nothing lies between a call and its launch but the checks. No gradients."""

import contextlib
import itertools
import math
import weakref

import torch

from asynct.torch_ops.extension import extension

_library = torch.library.Library("asynct", "DEF")  # noqa: TOR901: lives as long as the module
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
    torch.library.register_fake(f"asynct::{name}", fake, lib=_library)


def _device(tensor):
    """The tensor's device made current, as DLPack asks for; one that is current costs nothing."""
    if not tensor.is_cuda or tensor.device.index == torch.cuda.current_device():
        return contextlib.nullcontext()
    return torch.cuda.device(tensor.device)


def _stream(tensor):
    return torch.cuda.current_stream(tensor.device).cuda_stream if tensor.is_cuda else 0


def _data(tensor):
    return tensor.detach() if tensor.requires_grad else tensor


def _paged_attention_out(query, key, value, factors, plan, pool_size, pool_relu, most, plain, out):
    planned = _plans.get(plan)
    if planned is None or planned.step is None:
        raise RuntimeError("paged_attention: run before plan" if planned else "paged_attention: its wrapper is gone")
    tensors = (_data(tensor) for tensor in (query, key, value, factors, out))
    floor = 0.0 if pool_relu else -math.inf
    with _device(query):
        planned.step.run(*tensors, pool_size, floor, most, plain, planned.one_launch, _stream(query))


def _paged_attention(query, *arguments):
    out = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    _paged_attention_out(query, *arguments, out)
    return out


def _same(query, *_arguments):
    return torch.empty(query.shape, dtype=query.dtype, device=query.device)


_ATTENTION = (
    "Tensor query, Tensor key, Tensor value, Tensor factors, SymInt plan, int pool_size, bool pool_relu, float most, "
    "bool plain"
)
_define(f"paged_attention({_ATTENTION}) -> Tensor", _paged_attention, _same)
_define(f"paged_attention_out({_ATTENTION}, Tensor(a!) out) -> ()", _paged_attention_out, lambda *_arguments: None)


def _dyht(x, alpha, gamma, beta, low, high):
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    rows = _data(x).reshape(-1, x.shape[-1])
    with _device(x):
        extension().dyht(
            rows, y.view(rows.shape), _data(alpha), _data(gamma), None if beta is None else _data(beta), low, high, _stream(x)
        )
    return y


def _reglu(gate, up):
    out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    rows = (-1, gate.shape[-1])
    with _device(gate):
        extension().reglu(_data(gate).reshape(rows), _data(up).reshape(rows), out.view(rows), _stream(gate))
    return out


_define("dyht(Tensor x, Tensor alpha, Tensor gamma, Tensor? beta, float low, float high) -> Tensor", _dyht, _same)
_define("reglu(Tensor gate, Tensor up) -> Tensor", _reglu, _same)
