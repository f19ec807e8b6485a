"""The error model of a training step (`uncertainty`): the errors of its phases and of the times of its ops.

Errors of phases are those of the parameters in `terms`, of the site, and of the load of experts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from ...base.arrays import Floats
from ...costs import EXCHANGES, GEMM_PHASES, PHASES, phase_of_op
from ...profile import FACTORS, load_stack, shipped_base
from ...uncertainty import Errors, Fit, PhaseErrors, Term, errors_of_costs, phase_errors, shipped_fit
from .resolve import ResolvedTrain
from .terms import ARCHITECTURE, data_sheets, shipped_stack, stack_of, terms_of

SITE = "site"
ROUTED = ("experts", "ep")
"""Phases that take the time of the rank with the most tokens."""


def step_errors(resolved: ResolvedTrain, fit: Fit | None = None, source: str = "") -> Errors:
    """The error model of a step's prediction; `fit` is the result of a fit to the ledger (default: the shipped one).

    `source` is where the step ran, as the ledger names it; a scenario's site is none of the ledger's.

    Raises:
        UserError: the scenario's stack or profile cannot be read.
    """
    costs = resolved.costs
    fit = fit or shipped_fit()
    phase = phase_of_op(resolved.program)
    shared = _shared(resolved, phase, fit)
    own = np.zeros(len(phase)) if shared.all() else resolved.own_spread  # which prices all ops once more
    return replace(
        errors_of_costs(costs, resolved.profile.name),
        of_phases=errors_of_phases(resolved, fit, source),
        phase=phase,
        part=_parts(resolved, phase),
        mix=resolved.mix if resolved.mix is not None else np.zeros((0, len(PHASES))),
        of_class=np.where(shared, costs.spread, np.hypot(own, _of_shapes(resolved))),
        of_op=np.where(shared, 0.0, _without(resolved.neat_costs.spread, own)),
        floor=fit.floor,
        common=sqrt(max(fit.floor**2 - fit.twin**2, 0.0)),
    )


def errors_of_phases(resolved: ResolvedTrain, fit: Fit, source: str = "") -> PhaseErrors:
    """The errors of the logarithms of phases' times: software, device, site, load of experts.

    A stack that was learned from runs of one's own (`calibrate runs`) says it itself; what these runs had no part of,
    such as another device or data type, adds to it.
    """
    terms = (*_parameter_terms(resolved, fit), *_new_device_terms(resolved, fit), *of_site(resolved, fit, source))
    if (said := own_run_errors(resolved)) is not None:
        known, left = said
        own = stack_of(resolved)
        others = [term for term in terms if (term.of, term.name) not in known and term.of != own]
        return left.join(phase_errors(others, fit))
    if fit is not shipped_fit():
        return phase_errors(terms, fit).join(of_routing(fit))
    return resolved.memo.get("errors of phases", terms, lambda: phase_errors(terms, fit).join(of_routing(fit)))


def own_run_errors(resolved: ResolvedTrain) -> tuple[frozenset[tuple[str, str]], PhaseErrors] | None:
    """(the parameters and sites that its runs had, the errors that they leave) if the stack's file states it."""
    stack, where = resolved.scenario.stack, resolved.where
    said = resolved.memo.get("stack", (stack, where), lambda: load_stack(stack, where)).about.get("covariance")
    if said is None:
        return None
    root = np.array(said["root"], np.float64)
    sizes = root.T @ moved_phases(resolved, said["of"]).T
    left = PhaseErrors(tuple(f"own runs: {stack} {number}" for number in range(len(sizes))), sizes)
    return frozenset((of, name) for of, name in said["terms"]), left


def moved_phases(resolved: ResolvedTrain, factors: Sequence[str]) -> Floats:
    """1 where a factor is one of a phase of this step, else 0; shape [len(PHASES), factors].

    A factor of products in another data type moves no phase.
    """
    typed = f"gemm.{resolved.gemm_type}"
    phases = [GEMM_PHASES if name == typed else (name,) for name in factors]
    return np.array([[float(phase in moved) for moved in phases] for phase in PHASES])


def of_routing(fit: Fit) -> PhaseErrors:
    """Experts and their exchanges take longer than evenly chosen ones would, everywhere alike."""
    return PhaseErrors(("routing: experts",), np.array([[fit.routing * (phase in ROUTED) for phase in PHASES]]))


def _parameter_terms(resolved: ResolvedTrain, fit: Fit) -> Iterator[Term]:
    """The terms of parameters; an architecture without rows in the fit is as far off as its file states."""
    for term in terms_of(resolved):
        if term.name == ARCHITECTURE and (term.of, term.name) not in fit.index:
            term = replace(term, stated=resolved.profile[ARCHITECTURE].spread, kind="new architecture")
        yield term


def _new_device_terms(resolved: ResolvedTrain, fit: Fit) -> list[Term]:
    """The terms of `data_sheets` for devices without rows in the ledger."""
    return [term for term in data_sheets(resolved, fit.data_sheet) if term.of not in fit.heard]


def of_site(resolved: ResolvedTrain, fit: Fit, source: str) -> list[Term]:
    """The error of all phases that runs of one site share beside other runs of the stack on the device.

    Another data type of products has another one: of three stacks at one site of the ledger, steps in bf16 and in fp8
    were off by 20 to 40 % from each other.
    """
    weight = fit.site_weight(shipped_stack(resolved), [device.name for device in resolved.devices], source)
    of, spread = site_of(resolved), fit.site * sqrt(weight)
    return [Term(PHASES.index(phase), of, SITE, 1.0, spread, SITE) for phase in FACTORS if weight]


def site_of(resolved: ResolvedTrain) -> str:
    """What steps of one site have to have in common to share its error."""
    return f"{shipped_stack(resolved)} on {device_names(resolved)} in {resolved.gemm_type}"


def device_names(resolved: ResolvedTrain) -> str:
    """All devices of a step, in words."""
    return " and ".join(device.name for device in resolved.devices)


def _parts(resolved: ResolvedTrain, phase: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each op that is a whole action the number in its shape, for other ops -1."""
    shape, whole = resolved.program.shape, phase == PHASES.index("coarse")
    found = np.full(len(phase), -1, np.int64)
    found[whole] = shape.values[shape.start[:-1][whole]]
    return found


def _of_shapes(resolved: ResolvedTrain) -> Floats:
    """The spread of each op that awkward shapes add. No step of the ledger has such shapes, so no fit includes it."""
    return _without(resolved.costs.spread, resolved.neat_costs.spread)


def _without(spread: Floats, part: Floats) -> Floats:
    """What of a spread is left without an independent part of it."""
    left: Floats = np.sqrt(np.maximum(spread**2 - part**2, 0.0))
    return left


def _shared(resolved: ResolvedTrain, phase: NDArray[np.int64], fit: Fit) -> NDArray[np.bool_]:
    """A mask of ops whose spread no fit includes: a device without rows, a phase without a factor, another network.

    A user's own profile is of the device of its shipped base.
    """
    if shipped_base(resolved.profile_name, resolved.where) not in fit.heard:
        return np.ones(len(phase), bool)
    without = np.array([name not in (*FACTORS, "coarse") for name in PHASES])
    return without[phase] | (_between_nodes(resolved) if resolved.networks.differing else False)


def _between_nodes(resolved: ResolvedTrain) -> NDArray[np.bool_]:
    """A mask of exchanges between ranks on several nodes (or NVLink domains)."""
    program = resolved.program
    island = {rank: resolved.cluster.island(rank) for group in program.groups for rank in group}
    several = [len({island[rank] for rank in group}) > 1 for group in program.groups]
    return np.array([*several, False])[program.group] & program.is_kind(*EXCHANGES)  # -1: no group
