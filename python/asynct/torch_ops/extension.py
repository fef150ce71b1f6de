"""Where the compiled part comes from. Importing asynct.torch_ops does without it, so that operators can be traced and
exported on a machine that has no GPU."""

import functools
import importlib


@functools.cache
def extension():
    """The module _C of a wheel, or the one that CMake left in built/; ImportError with what to do where there is none."""
    problems = []
    for name in ("asynct.torch_ops._C", "asynct.torch_ops.built._C"):
        try:
            return importlib.import_module(name)
        except ImportError as error:
            problems.append(str(error))
    raise ImportError(
        f"asynct.torch_ops: its extension cannot be loaded ({'; '.join(problems)}). It is built by `pip install ./python` "
        "where nvcc 13 is, or in place by `cmake -DASYNCT_PYTHON=ON` and its target asynct_torch_ops."
    )
