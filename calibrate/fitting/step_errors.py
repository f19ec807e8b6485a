"""How sure training steps are: what a fit left open, how far stacks are apart, and widths that make intervals hold.

Leaving rows out leaves them out of the covariance (`step_slopes`), so each row has the interval of a fit that never saw
its group, its stack or its source. Spreads of single numbers stay as they are shipped, independent from op to op; of a
device whose only rows are left out they would be shared by a class.

Some numbers are not in the fit. How far the load of experts throws a step off (`routing`), and how far a configuration
is from its stack's factors (`floor`), are estimated from rows with their groups left out. The error that all runs of a
source share (`site`), and how much of the distance between parameters a step of new software is off by (`novelty`), are
estimated from rows with their sources left out: known software elsewhere, and new software, count alike. Each pair
minimises the mean interval score (Gneiting and Raftery, JASA 102, 2007), a proper score of 90 % intervals. A source
counts as the root of its rows, so that large ones do not drown small ones. How much of its own error a configuration
shares with others is estimated from pairs of rows (`step_pairs`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize

from ...simulator.answers.validate.steps import StepCase
from ...simulator.answers.validate.steps.pairs import OUTCOMES
from ...simulator.base.arrays import Floats
from ...simulator.base.errors import UserError
from ...simulator.base.files import digest, read_json
from ...simulator.costs import PHASES
from ...simulator.profile import Z90
from ...simulator.systems.train_step.distance import sizes_of
from ...simulator.systems.train_step.errors import ROUTED
from ...simulator.uncertainty import Fit
from ...simulator.uncertainty.factors import split_covariance
from .step_ledger import groups_of
from .step_pairs import Pairs, estimate_alike, pairs_of
from .step_slopes import Key, Slopes, apart_of, devices_of, fit_of, slopes_of
from .steps import Bools, source_weights

_SOURCE_POWER = -0.5
"""Of the number of rows of a source, its rows' weight: half-way between counting rows and counting sources.

It was chosen with the intervals in view: of rows with their source left out they hold 88.6 % with it, 88.4 with the
fit's own -0.35, 87.6 where all rows weigh alike, and 90.7 where sources do, whose groups left out are 91.6.
"""

_ROUNDS = 3
"""Of widths that are estimated in turn; a fourth one changes no digit that is written."""


@dataclass(frozen=True, eq=False)
class Variances:
    """Of ln(seconds) of each row if its like were never seen, and its `error`.

    `known` is what the fit left open and what files state, `new` what is new, `site` how many times site^2, `routed`
    the same of routing^2. `heard` says whether other sources ran the stack on the device.
    """

    known: Floats
    new: Floats
    site: Floats
    routed: Floats
    heard: Bools
    error: Floats

    def of(self, widths: Fit) -> Floats:
        """The whole variance with these widths."""
        drawn = widths.novelty**2 * self.new + widths.site**2 * self.site + widths.routing**2 * self.routed
        found: Floats = self.known + drawn + widths.floor**2
        return found


def leave_out(slopes: Slopes, groups: Sequence[object], error: Floats, apart: Mapping[str, float]) -> Variances:
    """With each group out of the fit in turn."""
    known, new, site, sites = np.zeros((4, len(groups)))
    for group in dict.fromkeys(groups):
        out = np.array([of == group for of in groups])
        fit = fit_of(slopes, ~out, apart)
        for row in np.flatnonzero(out).tolist():
            share, case = slopes.by_phase[row], slopes.cases[row]
            left, apart_by, stated = split_covariance(slopes.terms[row], fit)
            known[row], new[row] = share @ (left + stated) @ share, share @ apart_by @ share
            site[row] = fit.site_weight(case.stack, devices_of(case), case.cells.text("source"))
            sites[row] = fit.sites(case.stack, devices_of(case))
    return Variances(known + slopes.others, new, site, _routed(slopes), sites > 0, error)


def widths(group: Variances, source: Variances, weight: Floats) -> Fit:
    """A fit with the widths that score best: `routing` and `floor` on groups left out, the others on sources.

    `weight` is that of each row; rows of software that other sources ran, and the others, weigh alike as a whole.
    """
    heard = float(np.average(source.heard, weights=weight))
    alike = np.where(source.heard, heard, 1 - heard)
    fit = Fit(np.zeros((0, 0)), {}, {}, frozenset(), site=0.1, novelty=0.3, routing=0.2, floor=0.05)
    for _ in range(_ROUNDS):
        fit = _best(fit, ("routing", "floor"), group, weight)
        fit = _best(fit, ("site", "novelty"), source, weight / alike)
    return fit


def _best(fit: Fit, names: Sequence[str], seen: Variances, weight: Floats) -> Fit:
    """The fit with those of these widths that give the best weighted mean of interval scores."""

    def changed(logs: Floats) -> Fit:
        return replace(fit, **dict(zip(names, np.exp(logs).tolist(), strict=True)))

    def score(logs: Floats) -> float:
        reach = Z90 * np.sqrt(seen.of(changed(logs)))
        return float(np.average(2 * reach + 2 / 0.1 * np.maximum(np.abs(seen.error) - reach, 0), weights=weight))

    start = np.log([getattr(fit, name) for name in names])
    return changed(minimize(score, start, method="Nelder-Mead").x)


def _routed(slopes: Slopes) -> Floats:
    share: Floats = slopes.by_phase[:, [PHASES.index(phase) for phase in ROUTED]].sum(axis=1) ** 2
    return share


def fit_errors(path: Path, tell: Callable[[str], None] = print) -> dict[str, Any]:
    """The content of data/validation/training_errors.json for the table that the shipped stacks were fitted to.

    Raises:
        UserError: the table cannot be read, or it is another one than was fitted.
    """
    shipped = read_json(path.with_name("training_fit.json"))
    if shipped["about"]["sha256"] != digest(path):
        raise UserError(f"{path}: is not the table that training_fit.json beside it was fitted to")
    slopes = slopes_of(path)
    apart = apart_of(slopes)
    stored = [shipped["left_out"][case.key] for case in slopes.cases]
    without = {
        name: leave_out(slopes, groups, np.log1p([errors[name] for errors in stored]), apart)
        for name, groups in groups_of(slopes.cases).items()
    }
    best = widths(without["group"], without["source"], source_weights(slopes.cases, _SOURCE_POWER))
    pairs = {name: _pairs(slopes, name, stored, apart, best) for name in ("group", "source")}
    best = estimate_alike(pairs["group"], best)
    repeated, rows = run_to_run(slopes.cases)
    whole = replace(
        fit_of(slopes, np.ones(len(slopes.cases), bool), apart),
        site=best.site, novelty=best.novelty, routing=best.routing, floor=best.floor, twin=best.twin, alike=best.alike,
    )  # fmt: skip
    deviation = {name: np.sqrt(seen.of(best)) for name, seen in without.items()}
    for name, seen in without.items():
        tell(f"{name} left out: {np.mean(np.abs(seen.error) <= Z90 * deviation[name]):.1%} in the 90 % interval")
    held = {name: one.coverage(best) for name, one in pairs.items()}
    for name, share in held.items():
        tell(f"{name} left out: {share:.1%} of {len(pairs[name].error)} differences in the 90 % interval")
    differences = {name: (len(pairs[name].error), share) for name, share in held.items()}
    return _content(path, slopes, whole, deviation, (repeated, rows), differences)


def _pairs(
    slopes: Slopes, name: str, stored: Sequence[Mapping[str, float]], apart: Mapping[str, float], best: Fit
) -> Pairs:
    error = np.log1p([errors[name] for errors in stored])
    return pairs_of(slopes, groups_of(slopes.cases)[name], error, apart, best)


def _content(
    path: Path,
    slopes: Slopes,
    fit: Fit,
    deviation: Mapping[str, Floats],
    repeated: tuple[float, int],
    differences: Mapping[str, tuple[int, float]],
) -> dict[str, Any]:
    best = "out of the fit: the best mean interval score at 90 %"
    group, source = (f"{len(slopes.cases)} rows, each with its {name} {best}" for name in ("group", "source"))
    pairs = f"differences of {differences['group'][0]} pairs of one source, stack and GPU, {best}"
    told = {
        "site": (fit.site, source), "novelty": (fit.novelty, source),
        "routing": (fit.routing, group), "floor": (fit.floor, group),
        "twin": (fit.twin, pairs), "alike": (fit.alike, pairs),
        "run_to_run": (repeated[0], f"{repeated[1]} rows that stand beside others of equal configuration"),
    }  # fmt: skip
    order = np.tril_indices(len(fit.index))
    return {
        "about": {"command": "runcast calibrate errors", "file": path.name, "sha256": digest(path),
                  "rows": len(slopes.cases)},
        "widths": {name: {"value": float(f"{value:.3g}"), "source": source} for name, (value, source) in told.items()},
        "apart": {name: float(f"{spread:.3g}") for name, spread in fit.apart.items()},
        "heard": sorted(fit.heard),
        "sources": _by_stack(fit.sources),
        "ranges": _ranges(slopes.cases),
        "parameters": [list(key) for key in fit.index],
        "root": [float(f"{value:.3g}") for value in np.linalg.cholesky(fit.covariance)[order]],
        "differences": {
            name: {"pairs": many, "held": float(f"{share:.3g}")} for name, (many, share) in differences.items()
        },
        "left_out": {
            case.key: {name: float(f"{of[row]:.3g}") for name, of in deviation.items()}
            for row, case in enumerate(slopes.cases)
        },
    }  # fmt: skip


def _by_stack(sources: Mapping[Key, frozenset[str]]) -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = {}
    for (stack, device), names in sorted(sources.items()):
        found.setdefault(stack, {})[device] = sorted(names)
    return found


def _ranges(cases: Sequence[StepCase]) -> dict[str, tuple[float, float]]:
    sizes = [sizes_of(case.resolved) for case in cases]
    return {name: (min(of[name] for of in sizes), max(of[name] for of in sizes)) for name in sizes[0]}


def run_to_run(cases: Sequence[StepCase]) -> tuple[float, int]:
    """Standard deviation of ln(seconds) among rows of equal configuration, and how many rows those are.

    All that rows say is compared, source and release included, but for what came out. Pooled over configurations, each
    with its own mean.
    """
    alike: dict[tuple[tuple[str, str], ...], list[float]] = {}
    for case in cases:
        said = tuple((name, value) for name, value in case.cells.items() if name not in OUTCOMES)
        alike.setdefault(said, []).append(float(np.log(case.cells.number("iter_time_s"))))
    repeated = [np.array(logs) for logs in alike.values() if len(logs) > 1]
    freedom = sum(len(logs) - 1 for logs in repeated)
    squares = sum(float(((logs - logs.mean()) ** 2).sum()) for logs in repeated)
    return (squares / freedom) ** 0.5 if freedom else 0.0, sum(map(len, repeated))
