import pytest
import torch
from runcast.kernels.swiglu import swiglu, swiglu_backward
from torch.nn.functional import silu

SHAPES = [(1, 1), (5, 7), (3, 1024), (4, 1025), (2, 2500), (0, 8), (3, 0)]


def exact(x: torch.Tensor) -> torch.Tensor:
    gate, up = x.chunk(2, dim=1)
    return silu(gate) * up


@pytest.mark.parametrize(("rows", "hidden"), SHAPES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_forward(device, assert_close, rows, hidden, dtype):
    x = (torch.randn(rows, 2 * hidden, device=device) * 4).to(dtype)
    result = swiglu(x)
    assert result.dtype == dtype
    assert_close(result, exact(x.double()))


@pytest.mark.parametrize(("rows", "hidden"), SHAPES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_backward_is_what_autograd_finds(device, assert_close, rows, hidden, dtype):
    x = (torch.randn(rows, 2 * hidden, device=device) * 4).to(dtype)
    gradient = torch.randn(rows, hidden, device=device).to(dtype)
    wide = x.double().requires_grad_()
    exact(wide).backward(gradient.double())
    result = swiglu_backward(x, gradient)
    assert result.dtype == dtype
    assert_close(result, wide.grad)


@pytest.mark.filterwarnings("ignore:overflow encountered in exp")  # exp(200), of which 1 / (1 + inf) is taken
def test_large_gates_stay_finite(device):
    x = torch.tensor([[-200.0, 200.0, 3.0, 3.0]], device=device)
    assert swiglu(x).tolist() == [[0, 600]]
    assert swiglu_backward(x, torch.ones(1, 2, device=device)).tolist() == [[0, 3, 0, 200]]


@pytest.mark.parametrize("shape", [(3, 5), (6,)])
def test_halves_are_needed(shape):
    with pytest.raises(ValueError, match="x: shape"):
        swiglu(torch.empty(shape))
