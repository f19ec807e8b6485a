import pytest
import torch
from runcast.kernels.rmsnorm import WIDEST, add_rmsnorm

SHAPES = [(1, 1), (7, 3), (5, 1000), (3, 4096), (2, 7168), (1, WIDEST), (0, 64)]


@pytest.mark.parametrize(("rows", "hidden"), SHAPES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_sum_and_norm(device, assert_close, rows, hidden, dtype):
    x, residual = (torch.randn(rows, hidden, device=device).to(dtype) for _ in range(2))
    weight = torch.randn(hidden, device=device).to(dtype)
    summed, normed = add_rmsnorm(x, residual, weight, 1e-5)
    assert_close(summed, x.double() + residual.double())
    wide = summed.double()
    expected = wide / (wide.square().mean(1, keepdim=True) + 1e-5).sqrt() * weight.double()
    assert normed.dtype == dtype
    assert_close(normed, expected)


def test_epsilon_keeps_zeros_finite(device):
    zeros = torch.zeros(2, 100, device=device)
    for result in add_rmsnorm(zeros, zeros, torch.ones(100, device=device)):
        assert not result.any()


def test_rows_beyond_the_registers_are_refused():
    wide = torch.empty(1, WIDEST + 1)
    with pytest.raises(ValueError, match="32769 columns, at most 32768"):
        add_rmsnorm(wide, wide, wide[0])
