"""DyHT and ReGLU against float64."""

import pytest
import torch
from asynct.torch_ops import dyht, reglu

TOLERANCE = {torch.bfloat16: 2**-8, torch.float16: 2**-11, torch.float32: 2**-22}


@pytest.mark.parametrize("dtype", sorted(TOLERANCE, key=str))
@pytest.mark.parametrize("shape", ((1, 64), (33, 512), (2, 5, 128), (0, 64)))
def test_dyht(shape, dtype):
    torch.manual_seed(0)
    x = torch.randn(shape, device="cuda").to(dtype)
    alpha, gamma = torch.rand(1, device="cuda"), torch.rand(shape[-1], device="cuda")
    for beta in (None, torch.randn(shape[-1], device="cuda")):
        y = dyht(x, alpha, gamma, beta, -0.7, 0.4)
        linear = alpha.double() * x.double() + (0 if beta is None else beta.double())
        want = gamma.double() * linear.clamp(-0.7, 0.4)
        assert y.dtype == dtype and y.shape == x.shape
        torch.testing.assert_close(y.double(), want, rtol=TOLERANCE[dtype], atol=2**-22)


@pytest.mark.parametrize("dtype", sorted(TOLERANCE, key=str))
def test_reglu(dtype):
    torch.manual_seed(0)
    gate_up = torch.randn(37, 1024, device="cuda").to(dtype)
    gate, up = gate_up.chunk(2, -1)  # halves of one row, as a product leaves them
    want = gate.double().relu() * up.double()
    torch.testing.assert_close(reglu(gate, up).double(), want, rtol=TOLERANCE[dtype], atol=2**-24)
    closed = torch.where(gate > 0, gate, -1)
    assert (reglu(closed, torch.full_like(up, torch.inf))[gate <= 0] == 0).all()
