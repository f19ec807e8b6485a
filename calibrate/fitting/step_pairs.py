"""How far the difference of two training steps may be off: widths from pairs of rows of one source.

Two rows of one source, stack and GPU share the site and most of what is not known of software and device. What is left
is each configuration's own, and the less so the more alike the two spend their time. How much of it two configurations
have in common is estimated as the other widths are (`step_errors`): by the interval score of the differences of all
pairs, with their groups left out of the fit.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from scipy.optimize import minimize

from ...simulator.base.arrays import Floats
from ...simulator.costs import PHASES
from ...simulator.profile import Z90
from ...simulator.systems.train_step.errors import of_routing, of_site
from ...simulator.uncertainty import Budget, Fit, phase_errors, ratio_deviation
from .step_slopes import Slopes, fit_of

_MOST = 300
"""Pairs of one source, stack and GPU, drawn at random: the largest group has a hundred thousand."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of rows: budgets without `common`, the difference of their log errors, and a weight for each pair.

    All pairs of a group weigh as much as the root of their number.
    """

    budgets: Sequence[tuple[Budget, Budget]]
    error: Floats
    weight: Floats

    def deviation(self, fit: Fit) -> Floats:
        """The standard deviation of each difference by the widths of a fit."""
        common = np.sqrt(max(fit.floor**2 - fit.twin**2, 0.0))
        return np.array(
            [ratio_deviation(replace(a, common=common), replace(b, common=common), fit) for a, b in self.budgets]
        )

    def coverage(self, fit: Fit) -> float:
        """The share of differences inside their 90 % intervals."""
        return float(np.mean(np.abs(self.error) <= Z90 * self.deviation(fit)))


def pairs_of(
    slopes: Slopes, groups: Sequence[object], error: Floats, spreads: Mapping[str, float], widths: Fit
) -> Pairs:
    """Pairs of rows that are left out of the fit together; `error` is the log error of each row then."""
    budgets: list[tuple[Budget, Budget]] = []
    rows: list[tuple[int, int]] = []
    weights: list[float] = []
    draw = np.random.default_rng(0)
    for group in dict.fromkeys(groups):
        out = np.array([of == group for of in groups])
        fit = replace(
            fit_of(slopes, ~out, spreads),
            site=widths.site, novelty=widths.novelty, routing=widths.routing, floor=widths.floor,
        )  # fmt: skip
        mine = {row: _budget(slopes, row, fit) for row in np.flatnonzero(out).tolist()}
        for alike in _by_source(slopes, [*mine]):
            every = list(combinations(alike, 2))
            some = draw.permutation(len(every))[:_MOST].tolist()
            rows += [every[at] for at in some]
            budgets += [(mine[a], mine[b]) for a, b in (every[at] for at in some)]
            weights += [max(len(some), 1) ** -0.5] * len(some)
    return Pairs(budgets, np.array([error[b] - error[a] for a, b in rows]), np.array(weights))


def _budget(slopes: Slopes, row: int, fit: Fit) -> Budget:
    share, case = slopes.by_phase[row], slopes.cases[row]
    terms = (*slopes.terms[row], *of_site(case.resolved, fit, case.cells.text("source")))
    errors = phase_errors(terms, fit).join(of_routing(fit))
    shared = dict(zip(errors.names, (errors.sizes @ share).tolist(), strict=True))
    own = float(np.sqrt(fit.floor**2 + slopes.others[row]))
    return Budget(shared, own, shares=dict(zip(PHASES, share.tolist(), strict=True)))


def _by_source(slopes: Slopes, rows: Sequence[int]) -> Iterator[list[int]]:
    """Rows of one source, stack and GPU together."""
    found: dict[tuple[str, ...], list[int]] = {}
    for row in rows:
        case = slopes.cases[row]
        found.setdefault((case.cells.text("source"), case.stack, case.cells.text("gpu")), []).append(row)
    yield from found.values()


def estimate_alike(pairs: Pairs, widths: Fit) -> Fit:
    """The widths with the `twin` and `alike` that score best."""

    def changed(logs: Floats) -> Fit:
        twin, alike = np.exp(logs).tolist()
        return replace(widths, twin=min(twin, widths.floor), alike=alike)

    def score(logs: Floats) -> float:
        reach = Z90 * pairs.deviation(changed(logs))
        return float(np.average(2 * reach + 2 / 0.1 * np.maximum(np.abs(pairs.error) - reach, 0), weights=pairs.weight))

    start = np.log([0.03, 0.05])
    return changed(minimize(score, start, method="Nelder-Mead", options={"xatol": 0.005, "fatol": 1e-5}).x)
