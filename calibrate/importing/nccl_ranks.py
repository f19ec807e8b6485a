"""How many ranks took part, read off busbw / algbw = f(op, n): posts leave out command lines and lists of ranks.

f is 2(n-1)/n for an all-reduce, (n-1)/n for all-gather, reduce-scatter and all-to-all (nccl-tests, doc/PERFORMANCE.md);
for broadcast, reduce and send and receive it is 1 and says nothing.
"""

import numpy as np
import numpy.typing as npt

from ...simulator.base.errors import UserError
from ...simulator.profile.forms.collective import BUS_FACTOR
from .printed import Printed

Pairs = list[tuple[Printed, Printed]]
"""algbw and busbw of each row."""

_SAYS_NOTHING = ("broadcast", "reduce")
_MOST = 1 << 16
_AGREE = 0.5
"""Share of the rows that must allow a stated count; one odd row is no contradiction."""


def inferred_ranks(op: str, pairs: Pairs, file: str) -> int:
    """The one count that all rows allow.

    Raises:
        UserError: the ratio says nothing for this op, or several counts or none agree with all rows.
    """
    counts = np.arange(1, _MOST + 1)
    telling = op in BUS_FACTOR and op not in _SAYS_NOTHING
    fit = counts[_allowed(op, counts, pairs).all(axis=0)] if telling else counts
    if len(fit) == 1:
        return int(fit[0])
    raise UserError(f"{file}: does not say how many ranks ran{_candidates(fit)}; give --gpus")


def check_ranks(op: str, gpus: int, pairs: Pairs, file: str) -> None:
    """Whether most rows allow this count.

    Raises:
        UserError: they do not; the line says what they allow.
    """
    if op not in BUS_FACTOR:
        return
    allowed = _allowed(op, np.array([gpus]), pairs)[:, 0]
    if not len(allowed) or allowed.mean() >= _AGREE:
        return
    counts = np.arange(1, _MOST + 1)
    fit = counts[_allowed(op, counts, pairs).mean(axis=0) > _AGREE]
    raise UserError(f"{file}: {gpus} ranks contradict busbw / algbw{_candidates(fit)}; give --gpus")


def _allowed(op: str, counts: npt.NDArray[np.int_], pairs: Pairs) -> npt.NDArray[np.bool_]:
    """[row, count]: whether the row's ratio, as rounded, may come from so many ranks. Rows of 0 GB/s are left out."""
    telling = [(algbw, busbw) for algbw, busbw in pairs if algbw.low > 0]
    low = np.array([busbw.low / algbw.high for algbw, busbw in telling]).reshape(-1, 1)
    high = np.array([busbw.high / algbw.low for algbw, busbw in telling]).reshape(-1, 1)
    factor = np.asarray(BUS_FACTOR[op](counts.astype(float)))
    return (low <= factor) & (factor <= high)


def _candidates(fit: npt.NDArray[np.int_]) -> str:
    if not len(fit) or len(fit) == _MOST:
        return ""
    return f", which fits {fit[0]}" if len(fit) == 1 else f", which fits {fit[0]} to {fit[-1]}"
