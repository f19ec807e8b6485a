import pytest

pytest.importorskip("torch", reason="measuring needs the [calibrate] extra")

import torch
from runcast.calibrate.measure.cases.exact import Stretch, message, summands, sums

MANY = 300_000  # several rows of a pattern and a rest


@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 16, 17, 34, 72, 256, 4352])
def test_sums_are_exact_in_bf16_and_need_every_rank(ranks):
    assert 0 < max(sums(ranks)) <= 256
    assert sums(ranks) == [sum(column) for column in zip(*(summands(r, ranks) for r in range(ranks)), strict=True)]
    assert any(summands(ranks - 1, ranks))


def test_written_out_for_two_ranks():
    assert summands(0, 2) == list(range(17))
    assert summands(1, 2) == [*range(1, 17), 0]
    assert sums(2) == [*range(1, 33, 2), 16]


def test_messages_differ_by_who_sends_and_who_receives():
    pairs = [message(source, to) for source in range(8) for to in range(2)]
    assert len({tuple(pair) for pair in pairs}) == 16
    assert max(map(max, pairs)) <= 250


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.uint8])
@pytest.mark.parametrize("start", [0, 5, 251])
def test_every_element_is_known(dtype, start):
    stretch = Stretch(torch.empty(MANY, dtype=dtype), message(3), start)
    stretch.write()
    assert stretch.memory[:3].tolist() == [(start + j + 21) % 251 for j in range(3)]
    assert stretch.memory[-1] == (start + MANY - 1 + 21) % 251
    assert stretch.wrong() == 0


@pytest.mark.parametrize("at", [0, 100_000, MANY - 1])
def test_one_wrong_element_is_counted_wherever_it_is(at):
    stretch = Stretch(torch.empty(MANY, dtype=torch.bfloat16), sums(2))
    stretch.write()
    stretch.memory[at] += 1
    assert stretch.wrong() == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.uint8])
def test_what_is_spoilt_is_wrong_everywhere(dtype):
    stretch = Stretch(torch.empty(MANY, dtype=dtype), message(0))
    stretch.spoil()
    assert stretch.wrong() == MANY


def test_nothing_is_never_wrong():
    stretch = Stretch(torch.empty(0), message(0))
    stretch.write()
    assert stretch.wrong() == 0
