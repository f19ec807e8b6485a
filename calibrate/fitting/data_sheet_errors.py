"""What is missed on a GPU that only a data sheet describes: one width from the ledger's GPUs, each left out in turn.

Each row on a GPU is predicted with the profile of another one, scaled by data sheets: what `runcast device add` does.
The median of ln(measured / predicted) of a GPU's rows is its offset. Offsets are not predicted, so they are a width,
the error that all steps on such a GPU have in common: the root mean square over GPUs, times the ratio of the 95 %
quantiles of Student's t and the normal, since few GPUs tell of it (as `memory_errors` does for sources). Stacks were
fitted to all rows, those of the GPU that is left out too, so offsets are rather too small.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t as student

from ...simulator.answers.validate.steps import StepCase, read_cases
from ...simulator.base.arrays import Floats
from ...simulator.base.errors import UserError
from ...simulator.base.files import digest
from ...simulator.costs import PHASES
from ...simulator.hardware import device_keys
from ...simulator.profile import Z90

LIKE = {
    "H100 SXM": "A100 SXM 80GB",  # not H200 SXM: its profile rests on that of H100
    "H200 SXM": "H100 SXM", "B200 SXM": "H100 SXM", "A100 SXM 80GB": "H100 SXM", "A100 SXM 40GB": "H100 SXM",
    "GB200": "B200 SXM", "GB300": "B200 SXM", "B300 SXM": "B200 SXM", "V100 SXM2 32GB": "A100 SXM 80GB",
    "V100 SXM2 16GB": "A100 SXM 80GB", "V100 SXM3 32GB": "A100 SXM 80GB",
}  # fmt: skip
"""GPUs of the ledger, each with the most similar one on which kernels were measured."""

_SHARE = 0.02
"""Phases that take less of all steps on a GPU are not listed."""


@dataclass(frozen=True, eq=False)
class Miss:
    """A row on a GPU: ln(measured / predicted) by data sheet, and seconds by phase with its own profile and without."""

    device: str
    error: float
    own_s: Floats
    sheet_s: Floats


def data_sheet_case(case: StepCase, like: str) -> StepCase:
    """A row whose GPU is known by data sheet alone, and has the profile of the device `like`."""
    assert case.scenario is not None
    named, cluster = case.resolved.devices[0].name, case.scenario["cluster"]
    sheet = {**device_keys(named), "name": "a device nobody measured", "like": like}
    sheet.pop("aliases", None)
    described = {**(cluster if isinstance(cluster, dict) else {"base": cluster}), "device": sheet}
    return replace(case, scenario={**case.scenario, "cluster": described, "profile": None})


def misses(path: Path) -> Iterator[Miss]:
    """The rows of a table on GPUs of `LIKE`; some minutes for the shipped ledger.

    Raises:
        UserError: the table cannot be read.
    """
    for case in read_cases(path):
        if case.scenario is None or not case.seconds:
            continue
        with suppress(UserError):  # a scenario that does not fit, or a type that the other GPU has no kernels of
            if (name := case.resolved.devices[0].name) in LIKE:
                own, sheet = case.answer(memory=False), data_sheet_case(case, LIKE[name]).answer(memory=False)
                error = float(np.log(case.cells.number("iter_time_s") / sheet.seconds))
                yield Miss(name, error, own.phase_s, sheet.phase_s)


def common_width(offsets: Sequence[float]) -> float:
    """The standard deviation of the logarithm that all steps on a GPU have in common, from the offsets of GPUs."""
    many = len(offsets)
    return float(np.sqrt(np.mean(np.square(offsets)))) * float(student.ppf(0.95, many)) / Z90


def fit_data_sheet_errors(path: Path, tell: Callable[[str], None] = print) -> dict[str, Any]:
    """The content of data/validation/data_sheet_errors.json for a table of training steps.

    Raises:
        UserError: the table cannot be read, or none of its rows is on a known GPU.
    """
    found: dict[str, list[Miss]] = {}
    for miss in misses(path):
        found.setdefault(miss.device, []).append(miss)
    if not found:
        raise UserError(f"{path}: no row that can be predicted is on one of {', '.join(LIKE)}")
    devices = {name: _summary(name, rows) for name, rows in sorted(found.items())}
    for name, of in devices.items():
        tell(f"{name} like {of['like']}: {of['rows']} rows, bias {of['bias']:+.3f}, spread {of['spread']:.3f}")
    width = common_width([of["bias"] for of in devices.values()])
    why = f"offsets of {len(devices)} GPUs, each left out of the profiles: root mean square, widened by Student's t"
    return {
        "about": {"command": "runcast calibrate data-sheets", "file": path.name, "sha256": digest(path),
                  "rows": sum(map(len, found.values()))},
        "widths": {"data_sheet": {"value": _round(width), "source": why}},
        "devices": devices,
    }  # fmt: skip


def _summary(name: str, rows: Sequence[Miss]) -> dict[str, Any]:
    """Median and deviation of ln(measured / predicted), and ln of each phase's seconds of all rows over its own."""
    errors = np.array([row.error for row in rows])
    own, sheet = (np.sum(parts, axis=0) for parts in zip(*((row.own_s, row.sheet_s) for row in rows), strict=True))
    listed = [at for at in range(len(PHASES)) if min(own[at], sheet[at]) > _SHARE * own.sum()]
    phases = {PHASES[at]: _round(float(np.log(own[at] / sheet[at]))) for at in listed}
    bias, spread = float(np.median(errors)), float(errors.std())
    return {"like": LIKE[name], "rows": len(rows), "bias": _round(bias), "spread": _round(spread), "phases": phases}


def _round(value: float) -> float:
    return float(f"{value:.3g}")
