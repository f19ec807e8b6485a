"""How sure the peak memory of training steps is: three widths from the ledger's rows that state a peak.

A row's residual is ln(measured / predicted). The median of a source's residuals is its own offset, and what is left is
the error of its configurations: one part grows with the share of activations, one is the allocator's (rows that count
only what torch allocated have none). Both minimise the mean interval score (Gneiting and Raftery, JASA 102, 2007), as
the widths of step times do (`step_errors`). Offsets are not predicted, so they are a width too: their root mean square,
times the ratio of the 95 % quantiles of Student's t and the normal, since few sources tell of it.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.stats import t as student

from ...simulator.answers.validate.ledger import CellError
from ...simulator.answers.validate.steps import read_cases
from ...simulator.answers.validate.steps.cases import StepCase
from ...simulator.answers.validate.steps.ledger import is_memory_scored
from ...simulator.base.arrays import Floats
from ...simulator.base.errors import UserError
from ...simulator.base.files import digest
from ...simulator.profile import Z90
from ...simulator.uncertainty import MemoryErrors
from .steps import Bools

_STARTS = (0.03, 0.1, 0.3)
"""Standard deviations from which the search for the two widths of configurations begins."""


@dataclass(frozen=True, eq=False)
class Peaks:
    """Rows with a measured peak: residuals, shares of activations, and whether what is reserved was counted."""

    keys: Sequence[str]
    sources: Sequence[str]
    residual: Floats
    share: Floats
    reserved: Bools

    def only(self, kept: Bools) -> "Peaks":
        """The rows of the mask."""
        at = np.flatnonzero(kept).tolist()
        keys, sources = ([names[row] for row in at] for names in (self.keys, self.sources))
        return Peaks(keys, sources, self.residual[kept], self.share[kept], self.reserved[kept])

    def offsets(self) -> dict[str, float]:
        """The median residual of each source."""
        of = np.array(self.sources)
        return {name: float(np.median(self.residual[of == name])) for name in dict.fromkeys(self.sources)}


def peaks_of(path: Path) -> Peaks:
    """Simulate the rows of a table that state a peak which counts; about a minute for the shipped ledger.

    Raises:
        UserError: the table or a peak cannot be read, or no row states a peak and can be predicted.
    """
    found = []
    for case in read_cases(path):
        if case.scenario is not None and (measured := _measured_bytes(case)):
            with suppress(UserError):  # a scenario that does not fit
                peak = case.peak(case.answer().memory)
                error = float(np.log(measured / peak.bytes))
                found.append((case.key, case.cells.text("source"), error, peak.share, peak.reserved))
    if not found:
        raise UserError(f"{path}: no row has a peak_mem_gib and can be predicted")
    keys, sources, residual, share, reserved = zip(*found, strict=True)
    return Peaks(keys, sources, np.array(residual), np.array(share), np.array(reserved))


def _measured_bytes(case: StepCase) -> float:
    """Bytes of the measured peak; 0 if there is none, or none that is scored."""
    try:
        gib = case.cells.time("peak_mem_gib") or 0.0
    except CellError as error:
        raise UserError(f"{case.where}: {error}") from None
    return gib * 2**30 * is_memory_scored(case.cells.text("mem_convention"))


def memory_widths(peaks: Peaks) -> MemoryErrors:
    """The widths that these rows tell; an allocator that no row counts has none."""
    offsets = peaks.offsets()
    apart = np.abs(peaks.residual - np.array([offsets[source] for source in peaks.sources]))
    rms, many = float(np.sqrt(np.mean(np.square(list(offsets.values()))))), len(offsets)

    def score(logs: Floats) -> float:
        activations, allocator = np.exp(2 * logs)
        reach = Z90 * np.sqrt(activations * peaks.share**2 + allocator * peaks.reserved)
        return float(np.mean(2 * reach + 2 / 0.1 * np.maximum(apart - reach, 0)))

    tried = [minimize(score, np.log([start, start]), method="Nelder-Mead") for start in _STARTS]
    activations, allocator = np.exp(min(tried, key=lambda one: float(one.fun)).x).tolist()
    allocator *= bool(peaks.reserved.any())
    return MemoryErrors(activations, allocator, rms * float(student.ppf(0.95, many)) / Z90)


def deviations(errors: MemoryErrors, peaks: Peaks) -> Floats:
    """The standard deviation of each row's residual."""
    both = zip(peaks.share.tolist(), peaks.reserved.tolist(), strict=True)
    return np.array([errors.deviation(share, reserved) for share, reserved in both])


def without_source(peaks: Peaks) -> Floats:
    """The deviation of each row, from the rows of all other sources.

    Raises:
        UserError: all rows are of one source.
    """
    found, of = np.zeros(len(peaks.keys)), np.array(peaks.sources)
    if len(names := set(peaks.sources)) < 2:
        raise UserError(f"source = {peaks.sources[0]!r} in every row with a peak: expected two sources or more")
    for name in names:
        out = of == name
        found[out] = deviations(memory_widths(peaks.only(~out)), peaks.only(out))
    return found


def fit_memory_errors(path: Path, tell: Callable[[str], None] = print) -> dict[str, Any]:
    """The content of data/validation/memory_errors.json for a table of training steps.

    Raises:
        UserError: as `peaks_of` and `without_source`.
    """
    peaks = peaks_of(path)
    widths = memory_widths(peaks)
    found = {"shipped": deviations(widths, peaks), "source": without_source(peaks)}
    for name, words in (("shipped", "as fitted"), ("source", "source left out")):
        tell(f"{words}: {np.mean(np.abs(peaks.residual) <= Z90 * found[name]):.1%} in the 90 % interval")
    offsets, rows = peaks.offsets(), f"{len(peaks.keys)} rows"
    told = {
        "activations": f"{rows} about the median of their source: the best mean interval score at 90 %",
        "allocator": f"{int(peaks.reserved.sum())} of them that count what is reserved: the same score",
        "source": f"the medians of {len(offsets)} sources: root mean square, widened by Student's t",
    }
    return {
        "about": {"command": "runcast calibrate memory", "file": path.name, "sha256": digest(path),
                  "rows": len(peaks.keys)},
        "widths": {name: {"value": _round(getattr(widths, name)), "source": why} for name, why in told.items()},
        "sources": {name: {"rows": peaks.sources.count(name), "median_residual": _round(value)}
                    for name, value in offsets.items()},
        "deviations": {key: {name: _round(of[row]) for name, of in found.items()}
                       for row, key in enumerate(peaks.keys)},
    }  # fmt: skip


def _round(value: float) -> float:
    return float(f"{value:.3g}")
