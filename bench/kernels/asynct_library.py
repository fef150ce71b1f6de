"""The kernels of libasynct_kernels.so (asynct_kernels.cc), on torch's tensors and its current stream."""

import ctypes

import torch


class _Attention(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int32) for name in
          ("sequences", "heads", "kv_heads", "head_dim", "pool_size", "block_size", "blocks", "max_blocks")),
        ("query_start", ctypes.POINTER(ctypes.c_int32)),
        ("context_length", ctypes.POINTER(ctypes.c_int32)),
        *((name, ctypes.POINTER(ctypes.c_float)) for name in ("sigma", "slope", "bias", "gain")),
        ("scale", ctypes.c_float),
    ]  # fmt: skip


def _array(kind, values):
    return (kind * len(values))(*values) if values is not None else None


class Library:
    READ_SETTINGS = 4

    def __init__(self, path: str):
        self.c = ctypes.CDLL(path)
        self.c.asynct_last_error.restype = ctypes.c_char_p
        self.c.asynct_attention_create.restype = ctypes.c_void_p
        self.c.asynct_attention_create.argtypes = [ctypes.c_char_p, ctypes.POINTER(_Attention)]
        self.c.asynct_attention_run.argtypes = [ctypes.c_void_p] * 7
        self.c.asynct_attention_destroy.argtypes = [ctypes.c_void_p]
        self.c.asynct_read.argtypes = [ctypes.c_int, *[ctypes.c_void_p, ctypes.c_size_t] * 2, ctypes.c_void_p]

    def read(self, setting: int, first, second):
        """Reads both tensors; nothing is computed. setting: below READ_SETTINGS."""
        stream = torch.cuda.current_stream().cuda_stream
        if self.c.asynct_read(setting, first.data_ptr(), first.nbytes, second.data_ptr(), second.nbytes, stream):
            raise self.error()

    def attention(self, kernel: str, **step):
        """A Kernel: call it with (query, key, value, table, out)."""
        return Kernel(self, kernel, **step)

    def error(self) -> RuntimeError:
        return RuntimeError(self.c.asynct_last_error().decode())


class Kernel:
    """One step's plan. kernel: decode, prefill or cuda_core_decode; cache [blocks, block_size, kv_heads, head_dim]."""

    def __init__(self, library, kernel, *, heads, kv_heads, head_dim, block_size, blocks, max_blocks, query_start,
                 context_length, scale, sigma, slope=None, bias=None, gain=None, pool_size=3):  # fmt: skip
        self.library = library
        floats = {"sigma": sigma, "slope": slope, "bias": bias, "gain": gain}
        given = _Attention(
            sequences=len(context_length), heads=heads, kv_heads=kv_heads, head_dim=head_dim, pool_size=pool_size,
            block_size=block_size, blocks=blocks, max_blocks=max_blocks, query_start=_array(ctypes.c_int32, query_start),
            context_length=_array(ctypes.c_int32, context_length), scale=scale,
            **{name: _array(ctypes.c_float, values) for name, values in floats.items()},
        )  # fmt: skip
        self.handle = library.c.asynct_attention_create(kernel.encode(), ctypes.byref(given))
        if not self.handle:
            raise library.error()

    def __call__(self, query, key, value, table, out):
        stream = torch.cuda.current_stream().cuda_stream
        tensors = (query, key, value, table, out)
        if self.library.c.asynct_attention_run(self.handle, *(t.data_ptr() for t in tensors), stream):
            raise self.library.error()
        return out

    def __del__(self):
        if getattr(self, "handle", None):
            self.library.c.asynct_attention_destroy(self.handle)
