"""What the prediction of a training step may be off by: `uncertainty`, with what a step rests on."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ...costs import EXCHANGES, PHASES, phase_of_op
from ...profile import FACTORS
from ...uncertainty import Errors, Fit, Term, factor_covariance, of_spreads, shipped_fit
from .resolve import ResolvedTrain
from .terms import data_sheets, terms_of

Floats = NDArray[np.float64]

ROUTED = ("experts", "ep")
"""Phases that take as long as the rank with most tokens."""


def step_errors(resolved: ResolvedTrain, fit: Fit | None = None) -> Errors:
    """What the prediction of a step may be off by; `fit` is what steps of the ledger told (default: as shipped).

    Raises:
        UserError: the scenario's stack or profile cannot be read.
    """
    costs = resolved.costs
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
