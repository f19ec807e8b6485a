import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from runcast.kernels.reload import CHUNK, Scatter
from torch import Tensor

from ..examples import examples

DTYPES = [torch.uint8, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn]
MARGIN = 16  # bytes around a target that must stay as they are
POISON = 0xA5


class Target:
    """A tensor of so many elements that starts `shift` elements behind a multiple of 16 bytes."""

    def __init__(self, elements: int, dtype: torch.dtype, shift: int, device: str):
        size = dtype.itemsize
        self.memory = torch.full([2 * MARGIN + (elements + shift) * size], POISON, dtype=torch.uint8, device=device)
        self.inside = slice(MARGIN + shift * size, MARGIN + (shift + elements) * size)
        self.tensor = self.memory[self.inside].view(dtype)

    def holds(self, expected: Tensor) -> bool:
        whole = torch.full_like(self.memory, POISON)
        whole[self.inside] = expected
        return torch.equal(self.memory, whole)


sizes = st.one_of(st.integers(0, 70), st.integers(0, 3 * CHUNK // 2))
shapes = st.lists(
    st.tuples(sizes, st.sampled_from(DTYPES), st.integers(0, 17), st.integers(0, 20)), min_size=1, max_size=6
)


@examples(25)
@given(shapes=shapes, spare=st.integers(0, 9), seed=st.integers(0, 2**32))
def test_every_byte_arrives_and_no_other_changes(device, shapes, spare, seed):
    targets = [Target(elements, dtype, shift, device) for elements, dtype, shift, _ in shapes]
    offsets, end = [], 0
    for target, (_, _, _, gap) in zip(targets, shapes, strict=True):
        offsets.append(end + gap)
        end = offsets[-1] + target.tensor.nbytes
    bucket = fresh_bytes(end + spare, device, seed)
    Scatter(bucket, [target.tensor for target in targets], offsets).scatter()
    for target, offset in zip(targets, offsets, strict=True):
        assert target.holds(bucket[offset : offset + target.tensor.nbytes])


def fresh_bytes(count: int, device: str, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, [count], generator=generator, dtype=torch.uint8).to(device)


def test_one_huge_and_many_tiny_tensors_of_a_packed_bf16_bucket(device):
    counts = [150_001, *range(1, 40)]
    targets = [Target(count, torch.bfloat16, 0, device) for count in counts]
    bucket = torch.randn(sum(counts), device=device).bfloat16()
    Scatter(bucket, [target.tensor for target in targets]).scatter()
    for target, expected in zip(targets, bucket.split(counts), strict=True):
        assert target.holds(expected.view(torch.uint8))


def test_a_refilled_bucket_is_scattered_again(device):
    bucket, target = torch.zeros(100, device=device), torch.empty(10, 10, device=device)
    scatter = Scatter(bucket, [target])
    bucket.copy_(torch.randn(100))
    scatter.scatter()
    assert torch.equal(target.view(-1), bucket)
    assert scatter.nbytes == 400


def test_nothing_to_scatter(device):
    Scatter(torch.empty(0, device=device), []).scatter()
    Scatter(torch.empty(4, device=device), [torch.empty(0, 3, device=device)]).scatter()


def test_a_scalar_is_a_target(device):
    target = torch.empty((), device=device)
    Scatter(torch.tensor([1.5], device=device), [target]).scatter()
    assert target.item() == 1.5


def test_chunks_are_equal_but_for_the_last_of_each_target(device):
    targets = [torch.empty(size, dtype=torch.uint8, device=device) for size in (2 * CHUNK + 5, 0, 7)]
    table = Scatter(torch.empty(2 * CHUNK + 12, dtype=torch.uint8, device=device), targets)._table().tolist()
    assert [size for _, _, size in table] == [CHUNK, CHUNK, 5, 7]
    assert [offset for offset, _, _ in table] == [0, CHUNK, 2 * CHUNK, 2 * CHUNK + 5]


@pytest.mark.parametrize(
    ("targets", "offsets", "message"),
    [
        ([torch.empty(4, 2).T], None, r"targets\[0\]: strides"),
        ([torch.empty(1), torch.empty(3)], None, r"targets\[1\]: bytes 4 to 16 of a bucket of 12"),
        ([torch.empty(1)], [-1], r"targets\[0\]: bytes -1 to 3 of a bucket of 12"),
        ([torch.empty(1)], [0, 4], "offsets: 2 for 1 targets"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(targets, offsets, message):
    with pytest.raises(ValueError, match=message):
        Scatter(torch.empty(3), targets, offsets)
