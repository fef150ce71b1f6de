import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
try:
    import asynct.torch_ops  # noqa: F401  (one that is installed comes first)
except ImportError:
    sys.path.insert(0, str(ROOT / "python"))

from asynct.torch_ops.extension import extension  # noqa: E402


def pytest_configure():
    """These tests are asked for by name: without a GPU or the extension they fail and are not skipped."""
    extension()
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
        pytest.exit("tests/python_gpu: no GPU of compute capability 9.0", returncode=1)
