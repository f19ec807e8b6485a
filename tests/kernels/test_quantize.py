import pytest
import torch
from runcast.kernels.quantize import LEAST, quantize_by, quantize_by_reference, quantize_tiles, quantize_tiles_reference
from torch import Tensor

SHAPES = [(1, 1), (3, 128), (5, 129), (17, 300), (2, 7168), (0, 128), (3, 0)]


@pytest.fixture
def rounds(interpreted):
    if interpreted:
        pytest.skip("Triton's interpreter rounds to e4m3 wrongly (1.99 becomes 1): needs a CUDA device")


def same(left: Tensor, right: Tensor) -> bool:
    return left.dtype == right.dtype and torch.equal(left.cpu().float(), right.cpu().float())


@pytest.mark.parametrize(("rows", "hidden"), SHAPES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_what_needs_no_rounding_is_found_again(device, rows, hidden, dtype):
    """e4m3 values times a power of two for each tile, in which 448 occurs."""
    values = torch.randint(0, 0x7F, [rows, hidden], dtype=torch.uint8, device=device)
    values[:, ::128] = 0x7E  # 448
    values += torch.randint(0, 2, [rows, hidden], dtype=torch.uint8, device=device) * 0x80  # the sign
    values = values.view(torch.float8_e4m3fn)
    scales = torch.randint(-9, 10, [rows, -(-hidden // 128)], device=device).float().exp2()
    x = (values.float() * scales.repeat_interleave(128, 1)[:, :hidden]).to(dtype)
    found, by = quantize_tiles(x)
    assert torch.equal(found.float(), values.float())
    assert torch.equal(by, scales)


@pytest.mark.parametrize(("rows", "hidden"), SHAPES)
def test_the_largest_of_a_tile_becomes_448(device, rows, hidden):
    x = torch.randn(rows, hidden, device=device)
    values, scales = quantize_tiles(x)
    assert values.dtype == torch.float8_e4m3fn
    assert scales.shape == (rows, -(-hidden // 128))
    for first in range(0, hidden, 128):
        tile = x[:, first : first + 128].double()
        torch.testing.assert_close(scales[:, first // 128].double(), tile.abs().amax(1) / 448, rtol=1e-6, atol=0)
        assert (values[:, first : first + 128].float().abs().amax(1) == 448).all()


@pytest.mark.parametrize(("rows", "hidden"), SHAPES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.usefixtures("rounds")
def test_values_times_scales_are_the_input_to_half_a_step(device, rows, hidden, dtype):
    x = (torch.randn(rows, hidden, device=device) * torch.rand(rows, 1, device=device).exp2() ** 20).to(dtype)
    values, scales = quantize_tiles(x)
    of_columns = scales.double().repeat_interleave(128, 1)[:, :hidden]
    half_step = torch.maximum(x.double().abs() * 2**-4, of_columns * 2**-10)  # 3 bits of fraction; the least number
    assert ((values.double() * of_columns - x.double()).abs() <= half_step * (1 + 1e-6)).all()


@pytest.mark.parametrize(("rows", "hidden"), SHAPES)
@pytest.mark.usefixtures("rounds")
def test_every_value_is_that_of_torch(device, rows, hidden):
    """On the CPU: on CUDA, torch divides by a number as it multiplies by its rounded inverse."""
    x, scale = torch.randn(rows, hidden), torch.rand(1) / 100
    tiles = quantize_tiles(x.to(device))
    assert all(map(same, tiles, quantize_tiles_reference(x)))
    assert same(quantize_by(x.to(device), scale.to(device)), quantize_by_reference(x, scale))


def test_tiles_of_zeros_stay_zeros(device):
    values, scales = quantize_tiles(torch.zeros(2, 200, device=device))
    assert not values.float().any()
    assert torch.equal(scales, torch.full_like(scales, LEAST) / 448)


@pytest.mark.parametrize("shape", [(), (1,), (4097,), (3, 5, 700), (0,)])
def test_a_given_scale_divides_and_saturates(device, shape):
    values = torch.randint(0, 0x7F, shape, dtype=torch.uint8, device=device).view(torch.float8_e4m3fn)
    beyond = torch.rand(shape, device=device) < 0.1
    x = torch.where(beyond, -1e6, values.float() * 4)
    found = quantize_by(x, torch.tensor([4.0], device=device))
    assert found.dtype == torch.float8_e4m3fn
    assert torch.equal(found.float(), torch.where(beyond, -448.0, values.float()))
