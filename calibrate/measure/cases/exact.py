"""Checks of results: integers in known patterns for copies and exchanges, references for kernels.

Integers up to 256 are exact in bf16. They lie in patterns of which every element is known after any exchange or sum. A
speed counts only with a correct result. Patterns repeat after a prime number of elements, so that a block that ends up
in the wrong place, or comes from the wrong rank, is off nearly everywhere.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ....kernels import dispatch
from ..case import Facts
from ..device import Act
from ..timing import Bench, Checked

_MESSAGE, _SUM = 251, 17  # elements after which patterns repeat
_LARGEST = 256  # integers up to it are exact in bf16, and all partial sums with them
_REPEATS = 64  # of a pattern that are written at once
_PIECE = 1 << 24  # elements compared at once: a mask of all would need half as much memory again


def message(source: int, destination: int = 0) -> list[int]:
    """What one rank sends another, one period of it."""
    return [(j + 7 * source + 3 * destination) % _MESSAGE for j in range(_MESSAGE)]


def summands(rank: int, ranks: int) -> list[int]:
    """What one of so many ranks adds to a sum, one period of it."""
    # 0 to `top` in 17 steps: they add up to 8.5 top at the most for every 17 ranks, 256 for all
    top = max(min(_LARGEST // (9 * math.ceil(ranks / _SUM)), _SUM - 1), 1)
    return [(j + rank) % _SUM * top // (_SUM - 1) for j in range(_SUM)]


def sums(ranks: int) -> list[int]:
    """What the summands of all ranks come to, in whichever order they are added."""
    return [sum(column) for column in zip(*(summands(rank, ranks) for rank in range(ranks)), strict=True)]


@dataclass(frozen=True)
class Stretch:
    """Memory of one dimension, whose element j is to be `period[(start + j) % len(period)]`."""

    memory: torch.Tensor
    period: Sequence[int]
    start: int = 0

    def write(self) -> None:
        """Write the pattern."""
        for piece, due in self._pieces():
            piece.copy_(due)

    def spoil(self) -> None:
        """Write what is wrong everywhere."""
        self.memory.fill_(math.nan if self.memory.is_floating_point() else 255)

    def wrong(self) -> int:
        """How many elements differ from the pattern."""
        return sum(int(torch.count_nonzero(piece != due)) for piece, due in self._pieces())

    def _pieces(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Rows of a multiple of the period, so many at a time, and what is left; each with what a row is to be."""
        period = torch.tensor(self.period, dtype=self.memory.dtype, device=self.memory.device)
        due = period.roll(-self.start).repeat(_REPEATS)
        whole = len(self.memory) // len(due) * len(due)
        for piece in self.memory[:whole].view(-1, len(due)).split(_PIECE // len(due)):
            yield piece, due
        yield self.memory[whole:], due[: len(self.memory) - whole]


def check_stretches(bench: Bench, act: Act, inputs: Sequence[Stretch], results: Sequence[Stretch]) -> Checked:
    """The act on these inputs; its results are checked after one more run, for which they were spoilt before."""
    for stretch in inputs:
        stretch.write()

    def wrong() -> int:
        bench.device.synchronize()
        for stretch in results:
            stretch.spoil()
        for stretch in inputs:  # may be the same memory
            stretch.write()
        act()
        bench.device.synchronize()
        return sum(stretch.wrong() for stretch in results)

    return Checked(act, wrong)


def check_rows(
    kernel: Callable[..., Any],
    reference: Callable[..., Any],
    rows: Sequence[torch.Tensor],
    *others: torch.Tensor,
    seen: int = 64,
) -> Checked:
    """A kernel on tensors of many rows and others; the first rows of its results are compared with the reference's."""
    act = lambda: kernel(*rows, *others)  # noqa: E731

    def wrong() -> int:
        results, expected = act(), reference(*(tensor[:seen] for tensor in rows), *others)
        pairs = zip(results, expected, strict=True) if isinstance(expected, tuple) else [(results, expected)]
        return sum(count_differences(result[: len(well)], well) for result, well in pairs)

    return Checked(act, wrong)


def count_differences(result: torch.Tensor, expected: torch.Tensor, relative: float = 0.02) -> int:
    """Elements that differ by more than this share of the expected one, or of 1 where that is smaller.

    Of fp8 (e4m3, which has three bits and one) an eighth counts as equal.
    """
    allowed = 0.13 if expected.dtype == torch.float8_e4m3fn else relative
    far = (result.float() - expected.float()).abs() > allowed * expected.float().abs().clamp(min=1.0)
    return int(far.sum().item())


def kernels_library(facts: Facts) -> str:
    """What runs the kernels of `runcast.kernels` on such a device."""
    return "triton" if facts.cuda and dispatch.has_triton() else "torch reference"
