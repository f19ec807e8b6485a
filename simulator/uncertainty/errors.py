"""The model of error: what the seconds of ops may be off by, and which of them are off together.

The time of an op is off by the product of
- the factor of its phase, one error per parameter of software and device (`factors`);
- the error of its cost class, one for all ops of the class, each as far as its own spread says (`of_class`);
- its own error (`of_op`), independent from op to op.
Steps of the ledger fitted the factors, and so took in what kernels of a device share; there what is left of a spread
differs from op to op, but for what awkward shapes add, which no step of the ledger had. A device that no step ran on,
phases without a factor, and updates have no such fit: there a spread is shared by the class.

Beside that the uneven load of experts is one error of their phases, and the step as a whole is off by `floor`.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..costs import EXCHANGES, PHASES, Costs, phase_of_op
from ..profile import FACTORS
from ..scenario import Resolved, ResolvedTrain
from .factors import Fit, factor_covariance, shipped_fit
from .terms import Term, data_sheets, terms_of

Floats = NDArray[np.float64]

ROUTED = ("experts", "ep")
"""Phases that take as long as the rank with most tokens."""


@dataclass(frozen=True, eq=False)
class Errors:
    """One entry per op unless said otherwise. `by_phase` and `floor` are of logarithms, `of_class` and `of_op` relative
    standard deviations about a mean of 1.

    `by_phase` is the covariance of the factors of phases, shape [len(PHASES), len(PHASES)]. `phase` indexes PHASES; an
    op that is a whole action has its number in `part`, others -1, and `mix` the shares of phases in the time of each
    part, shape [parts, len(PHASES)]. `of_class` is shared by ops of one `cost_class`, `of_op` by none. `floor` is of
    the whole.
    """

    by_phase: Floats
    phase: NDArray[np.int64]
    part: NDArray[np.int64]
    mix: Floats
    of_class: Floats
    cost_class: NDArray[np.int64]
    of_op: Floats
    floor: float

    def seconds_by_phase(self, ops: NDArray[np.int64], seconds: Floats) -> Floats:
        """Seconds of some ops by phase, whole actions by their mix."""
        part = self.part[ops]
        found = np.bincount(self.phase[ops], seconds * (part < 0), minlength=len(PHASES))
        mixed: Floats = found + seconds[part >= 0] @ self.mix[part[part >= 0]]
        return mixed

    def factor_of_op(self, factor: Floats) -> Floats:
        """How many times as long each op takes if phases take so many times as long."""
        found = factor[self.phase]
        whole = self.part >= 0
        found[whole] = (self.mix @ factor)[self.part[whole]]
        return found


def errors_of(resolved: Resolved | ResolvedTrain, fit: Fit | None = None) -> Errors:
    """What the prediction of a scenario may be off by; `fit` is what steps of the ledger told (default: as shipped).

    Raises:
        UserError: the scenario's stack or profile cannot be read.
    """
    costs = resolved.costs
    if isinstance(resolved, Resolved):
        return of_spreads(costs)
    fit = fit or shipped_fit()
    phase = phase_of_op(resolved.program)
    shared = _shared(resolved, phase, fit)
    return replace(
        of_spreads(costs),
        by_phase=phase_covariance(resolved, fit),
        phase=phase,
        part=_parts(resolved, phase),
        mix=resolved.mix if resolved.mix is not None else np.zeros((0, len(PHASES))),
        of_class=np.where(shared, costs.spread, _of_shapes(resolved)),
        of_op=np.where(shared, 0.0, resolved.neat_costs.spread),
        floor=fit.floor,
    )


def of_spreads(costs: Costs) -> Errors:
    """Of costs alone: ops of a class share one error, each as far as its own spread says."""
    ops = len(costs.spread)
    return Errors(
        by_phase=np.zeros((len(PHASES), len(PHASES))),
        phase=np.zeros(ops, np.int64),
        part=np.full(ops, -1, np.int64),
        mix=np.zeros((0, len(PHASES))),
        of_class=costs.spread,
        cost_class=costs.cost_class,
        of_op=np.zeros(ops),
        floor=0.0,
    )


def phase_covariance(resolved: ResolvedTrain, fit: Fit) -> Floats:
    """Of software, device and the load of experts."""
    terms = (*terms_of(resolved), *_strange(resolved, fit))
    if fit is not shipped_fit():
        return _phase_covariance(terms, fit)
    return resolved.memo.get("phase covariance", terms, lambda: _phase_covariance(terms, fit))


def _phase_covariance(terms: tuple[Term, ...], fit: Fit) -> Floats:
    routed = np.array([fit.routing * (phase in ROUTED) for phase in PHASES])
    found: Floats = factor_covariance(terms, fit) + np.outer(routed, routed)
    return found


def _strange(resolved: ResolvedTrain, fit: Fit) -> list[Term]:
    """Data sheets of devices that no row ran on."""
    return [term for term in data_sheets(resolved) if term.of not in fit.heard]


def _parts(resolved: ResolvedTrain, phase: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of ops that are whole actions their number, of others -1."""
    shape, whole = resolved.program.shape, phase == PHASES.index("coarse")
    found = np.full(len(phase), -1, np.int64)
    found[whole] = shape.values[shape.start[:-1][whole]]
    return found


def _of_shapes(resolved: ResolvedTrain) -> Floats:
    """What awkward shapes add to the spread of ops: no step had such shapes, so no fit took it in."""
    more: Floats = resolved.costs.spread**2 - resolved.neat_costs.spread**2
    return np.sqrt(np.maximum(more, 0.0))


def _shared(resolved: ResolvedTrain, phase: NDArray[np.int64], fit: Fit) -> NDArray[np.bool_]:
    """Ops whose spread no fit took in: of a device without steps, a phase without a factor, or another network."""
    if resolved.profile_name not in fit.heard or _strange(resolved, fit):
        return np.ones(len(phase), bool)
    without = np.array([name not in (*FACTORS, "coarse") for name in PHASES])
    return without[phase] | (_between_nodes(resolved) if resolved.networks.differing else False)


def _between_nodes(resolved: ResolvedTrain) -> NDArray[np.bool_]:
    """Exchanges of ranks on several nodes (or NVLink domains)."""
    program = resolved.program
    island = {rank: resolved.cluster.island(rank) for group in program.groups for rank in group}
    several = [len({island[rank] for rank in group}) > 1 for group in program.groups]
    return np.array([*several, False])[program.group] & program.of_kind(*EXCHANGES)  # no group is -1
