"""Where the compiled part comes from. Importing asynct.torch_ops does without it, so that operators can be traced and
exported on a machine that has no GPU."""

import functools
import importlib


@functools.cache
def extension():
    """The module _C; ImportError with what to do where it was not built."""
    try:
        return importlib.import_module("asynct.torch_ops._C")
    except ImportError as error:
        raise ImportError(
            f"asynct.torch_ops: its extension _C cannot be loaded ({error}). It is built by `pip install ./python` where "
            "nvcc 13 is, or in place by `cmake -DASYNCT_PYTHON=ON` and its target asynct_torch_ops."
        ) from error
