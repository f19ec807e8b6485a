import pytest
import torch
from runcast.kernels.cross_entropy import cross_entropy
from torch import Tensor
from torch.nn.functional import cross_entropy as torch_cross_entropy

SHAPES = [(1, 1), (5, 7), (3, 8192), (4, 8193), (2, 20001), (0, 9)]


@pytest.fixture
def check(assert_close):
    """`check(logits, labels, losses, gradient)`: against torch and its autograd, in float64."""

    def compare(logits: Tensor, labels: Tensor, losses: Tensor, gradient: Tensor) -> None:
        wide = logits.double().requires_grad_()
        expected = torch_cross_entropy(wide, labels.long(), reduction="none")
        expected.sum().div(max(len(logits), 1)).backward()
        assert (losses.dtype, gradient.dtype) == (torch.float32, logits.dtype)
        assert_close(losses, expected.detach())
        assert_close(gradient, wide.grad)

    return compare


@pytest.mark.parametrize(("rows", "vocabulary"), SHAPES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_loss_and_gradient(device, check, rows, vocabulary, dtype, index):
    logits = (torch.randn(rows, vocabulary, device=device) * 3).to(dtype)
    labels = torch.randint(0, vocabulary, [rows], device=device, dtype=index)
    check(logits, labels, *cross_entropy(logits, labels))


def test_the_gradient_may_take_the_place_of_the_logits(device, check):
    logits = torch.randn(3, 9001, device=device).bfloat16()
    labels = torch.randint(0, 9001, [3], device=device)
    place = logits.clone()
    losses, gradient = cross_entropy(place, labels, into=place)
    assert gradient.data_ptr() == place.data_ptr()
    check(logits, labels, losses, place)


@pytest.mark.parametrize("far", [1e4, -1e4, float("-inf")])
def test_blocks_of_extreme_logits(device, check, far):
    logits = torch.randn(2, 20000, device=device)
    logits[0, :9000] = far
    logits[1, 10000:] = far
    labels = torch.tensor([19999, 0], device=device)
    check(logits, labels, *cross_entropy(logits, labels))


def test_gradients_of_a_row_sum_to_nothing(device):
    logits = torch.randn(4, 5000, device=device)
    _, gradient = cross_entropy(logits, torch.randint(0, 5000, [4], device=device))
    assert (gradient.double().sum(1).abs() < 1e-6).all()
