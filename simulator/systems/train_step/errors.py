"""What the prediction of a training step may be off by (`uncertainty`): what its phases rest on, and with what power.

Parameters of software and device are those of the fit of training steps (calibrate/fitting/steps): a stack's factor of
a phase is its base's times its own, and so for devices. An error in one of them is one error wherever that software, or
device, is.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import hypot, log2

import numpy as np
from numpy.typing import NDArray

from ...base.files import beside
from ...costs import EXCHANGES, OF_LAYERS, PHASES, PRODUCT_TYPE, phase_of_op
from ...hardware import Device, Limits
from ...profile import FACTORS, SIBLING_WIDER, TP_EXPOSED, Parameter, Profile, load_profile, load_stack
from ...uncertainty import Errors, Fit, Term, factor_covariance, of_spreads, shipped_fit, size_error
from .resolve import ResolvedTrain

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


_RATE = "gemm.training_rate"
_OWN_RATE = ("fp8", "fp4")
_GROUPED = "grouped_gemm.training_rate"
_FLASH2 = "attention.flash2_factor"
_MESSAGE, _STEP = "network.message_s", "network.step_s"
_BETWEEN = ("dp", "fsdp", "pipeline")
_CLOCK = "gemm.clock"

_SIBLING, _PER_DOUBLING = 0.08, 0.17
"""How far kernels of a device are from those of the one whose profile serves it: a sibling of its generation, and more
for each doubling of the rate that differs most. Models of H100 asked for samples of H200 need 0.08, for those of B200
and A100, 1.2 and 1.7 doublings away, 0.25 (docs/profiles.md, borrowed models).
"""


@dataclass(frozen=True)
class _Link:
    """A file of a chain, and the parameters that it states itself."""

    of: str
    own: dict[str, Parameter]
    shipped: bool
    sibling: bool


def terms_of(resolved: ResolvedTrain) -> tuple[Term, ...]:
    """What the phases of a training step rest on.

    Raises:
        UserError: the scenario's stack or profile cannot be read.
    """
    where = resolved.where
    stacks = resolved.memo.get("stacks", (resolved.scenario.stack, where), lambda: tuple(
        _chain(resolved.scenario.stack, where, "stack")))  # fmt: skip
    devices = resolved.memo.get("devices", (resolved.profile_name, where), lambda: tuple(
        _chain(resolved.profile_name, where, "profile")))  # fmt: skip
    return (
        *_of_software(resolved, stacks), *_of_device(resolved, devices), *_of_network(resolved),
        *_of_architecture(resolved), *_of_size(resolved),
    )  # fmt: skip


def _of_software(resolved: ResolvedTrain, chain: tuple[_Link, ...]) -> Iterator[Term]:
    for phase in FACTORS:
        yield from _down(chain, f"time_factor.{phase}", phase, 1.0)
    if resolved.tp_in_far_pipeline:
        yield from _stating(chain, "layer.tp_s", "host", 1.0)
    if resolved.tp_between_nodes:
        yield from _down(chain, "time_factor.tp.network", "tp", 1.0)
        yield from _stating(chain, "exchange.s", "tp", 0.5)
    if resolved.scenario.overlap.tp and resolved.scenario.overlap.tp_exposed is None:
        yield Term(PHASES.index("tp"), chain[0].of, TP_EXPOSED, 1.0, resolved.profile[TP_EXPOSED].spread)
    for phase in ("dp", "fsdp"):
        yield from _stating(chain, "exchange.s", phase, 0.5)


def _of_network(resolved: ResolvedTrain) -> Iterator[Term]:
    """Messages of a network that the ledger tells of; those of others count with the ops that they are part of."""
    networks, far = resolved.networks, ("tp", "dp", "fsdp", "pipeline") if resolved.tp_between_nodes else _BETWEEN
    for name in (_MESSAGE, _STEP):
        if name in networks.differing and networks.parameters[name].provenance == "fitted":
            yield from (Term(PHASES.index(phase), resolved.cluster.fabric.network, name, 0.2) for phase in far)


def _of_architecture(resolved: ResolvedTrain) -> Iterator[Term]:
    if resolved.spec.architecture:
        for phase in OF_LAYERS:
            yield Term(PHASES.index(phase), resolved.spec.architecture, "architecture.factor", 1.0)


def _of_size(resolved: ResolvedTrain) -> Iterator[Term]:
    """One error of all phases, which grows with the number of GPUs."""
    if error := size_error(resolved.profile, resolved.dims.world_size):
        yield from (Term(PHASES.index(phase), "all", "scale.doubling_fraction", 1.0, error) for phase in FACTORS)


def _of_device(resolved: ResolvedTrain, chain: tuple[_Link, ...]) -> Iterator[Term]:
    kept = _type_of_gemms(resolved)
    own = f"{_RATE}.{kept}" if kept in _OWN_RATE else _RATE
    for phase, name in (("gemm", own), ("experts", own), ("experts", _GROUPED)):
        yield from _to_first_stated(chain, name, phase, -1.0)
    for phase in ("gemm", "experts"):
        yield from (Term(PHASES.index(phase), link.of, _CLOCK, -1.0) for link in chain if link.sibling and link.shipped)
    if resolved.scenario.attention == "flash-2":
        yield from _to_first_stated(chain, _FLASH2, "attention", 1.0)


def data_sheets(resolved: ResolvedTrain) -> Iterator[Term]:
    """Devices that a data sheet alone tells from the one whose profile serves them."""
    for device in resolved.devices:
        far = _doublings(device, resolved.profile.on(device.name).limits, _type_of_gemms(resolved))
        if device.like is not None and far:
            spread = hypot(_SIBLING, _PER_DOUBLING * far)
            for phase, name in (("gemm", "gemm"), ("experts", "gemm"), ("attention", "attention")):
                yield Term(PHASES.index(phase), device.name, name, 1.0, spread)


def _doublings(device: Device, served: Limits | None, dtype: str) -> float:
    """Of the rate that differs most from that of the device that was measured, of GEMMs and of memory."""
    if served is None:
        return 0.0
    rates = [(device.memory_bytes_per_s, served.memory_bytes_per_s)]
    if dtype in device.peak_flop_per_s and dtype in served.flop_per_s:
        rates.append((device.peak_flop_per_s[dtype], served.flop_per_s[dtype]))
    return max(abs(log2(here / there)) for here, there in rates)


def _type_of_gemms(resolved: ResolvedTrain) -> str:
    """The type of the models of its GEMMs."""
    computed = resolved.scenario.precision.compute
    return PRODUCT_TYPE.get(computed, computed)


def _down(chain: tuple[_Link, ...], name: str, phase: str, power: float) -> Iterator[Term]:
    """A factor of each stack down to the root, or to a user's file that says it itself."""
    for link in chain:
        stated = link.own.get(name) if not link.shipped else None
        yield Term(PHASES.index(phase), link.of, name, power, None if stated is None else stated.spread)
        if stated is not None:
            return


def _stating(chain: tuple[_Link, ...], name: str, phase: str, power: float) -> Iterator[Term]:
    """Host work and exchanges are free only where a stack says a number."""
    if any(name in link.own for link in chain):
        yield from (term for term in _down(chain, name, phase, power) if any(
            link.of == term.of and name in link.own for link in chain))  # fmt: skip


def _to_first_stated(chain: tuple[_Link, ...], name: str, phase: str, power: float) -> Iterator[Term]:
    """A factor of each device down to the first one whose file has a number."""
    for link in chain:
        stated = link.own.get(name)
        spread = stated.spread if stated is not None and not link.shipped else None
        yield Term(PHASES.index(phase), link.of, name, power, spread)
        if stated is not None:
            return


def _chain(name: str, where: str, kind: str) -> Iterator[_Link]:
    """A stack or profile and those that it rests on, itself first."""
    load = load_stack if kind == "stack" else load_profile
    here: Profile | None = load(name, where, fitted=False)
    while here is not None:
        shipped = not name.endswith((".json", ".toml"))
        file = where if shipped else str(beside(name, where))
        base = here.about.get("base")
        below = load(base, file, fitted=False) if base else None
        yield _Link(name, _own(here, below), shipped, here.about.get("wider", 1.0) <= SIBLING_WIDER)
        name, where, here = str(base), file, below


def _own(here: Profile, below: Profile | None) -> dict[str, Parameter]:
    """What a file says and its base does not, or says otherwise."""
    theirs = below.parameters if below is not None else {}
    return {
        name: said
        for name, said in here.parameters.items()
        if name not in theirs or (said.value, said.source) != (theirs[name].value, theirs[name].source)
    }
