"""The error model of a training step (`uncertainty`): the parameters of each phase, and their powers.

The time of a phase is proportional to a power of each of its parameters. A stack's factor of a phase is its base's
factor times its own; devices and networks work the same way. The fit of training steps (calibrate/fitting/steps)
determines these parameters. The error of a parameter is common to all phases and steps that use it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import hypot, log2, sqrt

import numpy as np
from numpy.typing import NDArray

from ...base.files import path_beside
from ...costs import EXCHANGES, OF_LAYERS, PHASES, PRODUCT_TYPE, phase_of_op
from ...hardware import Device, Limits
from ...profile import FACTORS, SIBLING_WIDER, TP_EXPOSED, Parameter, Profile, load_network, load_profile, load_stack
from ...uncertainty import (
    DOUBLING,
    Errors,
    Fit,
    PhaseErrors,
    Term,
    errors_of_costs,
    phase_errors,
    shipped_fit,
    size_error,
)
from .resolve import ResolvedTrain

Floats = NDArray[np.float64]

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
    return replace(
        errors_of_costs(costs, resolved.profile.name),
        of_phases=errors_of_phases(resolved, fit, source),
        phase=phase,
        part=_parts(resolved, phase),
        mix=resolved.mix if resolved.mix is not None else np.zeros((0, len(PHASES))),
        of_class=np.where(shared, costs.spread, _of_shapes(resolved)),
        of_op=np.where(shared, 0.0, resolved.neat_costs.spread),
        floor=fit.floor,
        common=sqrt(max(fit.floor**2 - fit.twin**2, 0.0)),
    )


def errors_of_phases(resolved: ResolvedTrain, fit: Fit, source: str = "") -> PhaseErrors:
    """The errors of the logarithms of phases' times: software, device, site, load of experts.

    A stack that was learned from runs of one's own (`calibrate runs`) says it itself; what these runs had no part of,
    such as another device or data type, adds to it.
    """
    terms = (*terms_of(resolved), *_strange(resolved, fit))
    if (said := _left_open(resolved)) is not None:
        known, left = said
        others = [term for term in terms if (term.of, term.name) not in known and term.of != resolved.scenario.stack]
        return left.join(phase_errors(others, fit))
    terms = (*terms, *of_site(resolved, fit, source))
    if fit is not shipped_fit():
        return phase_errors(terms, fit).join(of_routing(fit))
    return resolved.memo.get("errors of phases", terms, lambda: phase_errors(terms, fit).join(of_routing(fit)))


def _left_open(resolved: ResolvedTrain) -> tuple[frozenset[tuple[str, str]], PhaseErrors] | None:
    """(the parameters that its runs had, the errors that they leave) if the stack's file states it."""
    stack, where = resolved.scenario.stack, resolved.where
    said = resolved.memo.get("stack", (stack, where), lambda: load_stack(stack, where)).about.get("covariance")
    if said is None:
        return None
    at, root = [PHASES.index(phase) for phase in said["of"]], np.array(said["root"], np.float64)
    sizes = np.zeros((root.shape[1], len(PHASES)))
    sizes[:, at] = root.T
    left = PhaseErrors(tuple(f"own runs: {stack} {number}" for number in range(len(sizes))), sizes)
    return frozenset((of, name) for of, name in said["terms"]), left


def of_routing(fit: Fit) -> PhaseErrors:
    """Experts and their exchanges take longer than evenly chosen ones would, everywhere alike."""
    return PhaseErrors(("routing: experts",), np.array([[fit.routing * (phase in ROUTED) for phase in PHASES]]))


def _strange(resolved: ResolvedTrain, fit: Fit) -> list[Term]:
    """The terms of `data_sheets` for devices without rows in the ledger."""
    return [term for term in data_sheets(resolved, fit.data_sheet) if term.of not in fit.heard]


def of_site(resolved: ResolvedTrain, fit: Fit, source: str) -> list[Term]:
    """The error of all phases that runs of one site share beside other runs of the stack on the device.

    Another data type of products has another one: of three stacks at one site of the ledger, steps in bf16 and in fp8
    were off by 20 to 40 % from each other.
    """
    stack, devices = shipped_stack(resolved), [device.name for device in resolved.devices]
    weight = fit.site_weight(stack, devices, source)
    of = f"{stack} on {' and '.join(devices)} in {_type_of_gemms(resolved)}"
    return [Term(PHASES.index(phase), of, SITE, 1.0, fit.site * sqrt(weight), SITE) for phase in FACTORS if weight]


def shipped_stack(resolved: ResolvedTrain) -> str:
    """The scenario's stack, or the shipped one that a user's own rests on."""
    return next((link.of for link in _software(resolved) if link.shipped), "")


def _parts(resolved: ResolvedTrain, phase: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each op that is a whole action the number in its shape, for other ops -1."""
    shape, whole = resolved.program.shape, phase == PHASES.index("coarse")
    found = np.full(len(phase), -1, np.int64)
    found[whole] = shape.values[shape.start[:-1][whole]]
    return found


def _of_shapes(resolved: ResolvedTrain) -> Floats:
    """The spread of each op that awkward shapes add. No step of the ledger has such shapes, so no fit includes it."""
    more: Floats = resolved.costs.spread**2 - resolved.neat_costs.spread**2
    return np.sqrt(np.maximum(more, 0.0))


def _shared(resolved: ResolvedTrain, phase: NDArray[np.int64], fit: Fit) -> NDArray[np.bool_]:
    """A mask of ops whose spread no fit includes: a device without rows, a phase without a factor, another network."""
    if resolved.profile_name not in fit.heard:
        return np.ones(len(phase), bool)
    without = np.array([name not in (*FACTORS, "coarse") for name in PHASES])
    return without[phase] | (_between_nodes(resolved) if resolved.networks.differing else False)


def _between_nodes(resolved: ResolvedTrain) -> NDArray[np.bool_]:
    """A mask of exchanges between ranks on several nodes (or NVLink domains)."""
    program = resolved.program
    island = {rank: resolved.cluster.island(rank) for group in program.groups for rank in group}
    several = [len({island[rank] for rank in group}) > 1 for group in program.groups]
    return np.array([*several, False])[program.group] & program.is_kind(*EXCHANGES)  # -1: no group


RATE = "gemm.training_rate"
GROUPED = "grouped_gemm.training_rate"
FLASH2 = "attention.flash2_factor"
CLOCK = "gemm.clock"
"""The rate of all GEMMs of a device relative to its sibling, from clocks and power. It exists only in the fit."""

SITE = "site"
BLOCKED, EXCHANGE = "layer.tp_s", "exchange.s"
FAR = "time_factor.tp.network"
MESSAGE, STEP = "network.message_s", "network.step_s"
ARCHITECTURE = "architecture.factor"
_OWN_RATE = ("fp8", "fp4")
"""Types whose GEMMs have their own training rate."""

_SIBLING, _PER_DOUBLING = 0.08, 0.17
"""The spread of a device's kernels around the profile that it borrows: for a sibling of the same generation, and
additionally for each doubling of the rate that differs most. H100's models need 0.08 for samples of H200, and 0.25 for
those of B200 and A100, which are 1.2 and 1.7 doublings away (docs/profiles.md, borrowed models).
"""


@dataclass(frozen=True)
class Link:
    """One file in a chain of files, each the base of the previous one, with the parameters that it states itself.

    `sibling` says whether a device is of the same generation as its base.
    """

    of: str
    own: dict[str, Parameter]
    shipped: bool
    sibling: bool


Chain = tuple[Link, ...]


def terms_of(resolved: ResolvedTrain) -> tuple[Term, ...]:
    """The parameters of each phase of a training step, as terms.

    A network has terms only if the ledger determines its numbers; else its error is part of the ops' spread.

    Raises:
        UserError: the scenario's stack or profile cannot be read.
    """
    numbers, network = resolved.networks.parameters, resolved.cluster.fabric.network
    told = [name for name in (MESSAGE, STEP) if name in numbers and numbers[name].provenance == "fitted"]
    return (
        *(term for term in fit_terms(resolved) if term.name not in (MESSAGE, STEP)
          or (term.of == network and term.name in told)),
        *_of_exposed(resolved),
        *_of_size(resolved),
    )  # fmt: skip


def fit_terms(resolved: ResolvedTrain) -> Iterator[Term]:
    """The terms of all parameters that the fit of training steps determines."""
    where = resolved.where
    yield from _of_software(resolved, _software(resolved))
    yield from _of_device(resolved, resolved.memo.get("devices", (resolved.profile_name, where), lambda: chain_of(
        partial(load_profile, fitted=False), resolved.profile_name, where)))  # fmt: skip
    yield from _of_network(resolved)
    if resolved.spec.architecture:
        yield from (Term(PHASES.index(p), resolved.spec.architecture, ARCHITECTURE, 1.0) for p in OF_LAYERS)


def _software(resolved: ResolvedTrain) -> Chain:
    stack, where = resolved.scenario.stack, resolved.where
    return resolved.memo.get("stacks", (stack, where), lambda: chain_of(
        partial(load_stack, fitted=False), stack, where))  # fmt: skip


def _of_software(resolved: ResolvedTrain, chain: Chain) -> Iterator[Term]:
    for phase in FACTORS:
        yield from _down(chain, f"time_factor.{phase}", phase, 1.0)
    if resolved.tp_in_far_pipeline:
        yield from _stating(chain, BLOCKED, "host", 1.0)
    if resolved.tp_between_nodes:
        yield from _down(chain, FAR, "tp", 1.0)
    for phase in _far(resolved):
        yield from _stating(chain, EXCHANGE, phase, 0.5)


def _far(resolved: ResolvedTrain) -> tuple[str, ...]:
    """Phases with collectives between nodes."""
    return ("tp", "dp", "fsdp") if resolved.tp_between_nodes else ("dp", "fsdp")


def _of_device(resolved: ResolvedTrain, chain: Chain) -> Iterator[Term]:
    kept = _type_of_gemms(resolved)
    own = f"{RATE}.{kept}" if kept in _OWN_RATE else RATE
    for phase, name in (("gemm", own), ("experts", own), ("experts", GROUPED)):
        yield from _to_first_stated(chain, name, phase, -1.0)
    for phase in ("gemm", "experts"):
        yield from (Term(PHASES.index(phase), link.of, CLOCK, -1.0) for link in chain if link.sibling and link.shipped)
    if resolved.scenario.attention == "flash-2":
        yield from _to_first_stated(chain, FLASH2, "attention", 1.0)


def _of_network(resolved: ResolvedTrain) -> Iterator[Term]:
    """Terms for the time of a message, on another network than the profile was measured on."""
    network = resolved.cluster.fabric.network
    for name in (MESSAGE, STEP):
        if name in resolved.networks.differing:
            chain = resolved.memo.get("networks", network, lambda: chain_of(_load_network, network, ""))
            for phase in (*_far(resolved), "pipeline"):
                yield from _to_first_stated(chain, name, phase, 0.2)


def _load_network(kind: str, _where: str) -> Profile:
    return load_network(kind, fitted=False)


def _of_exposed(resolved: ResolvedTrain) -> Iterator[Term]:
    if resolved.scenario.overlap.tp and resolved.scenario.overlap.tp_exposed is None:
        yield Term(PHASES.index("tp"), resolved.scenario.stack, TP_EXPOSED, 1.0, resolved.profile[TP_EXPOSED].spread)


def _of_size(resolved: ResolvedTrain) -> Iterator[Term]:
    """Terms of one common error of all phases, which grows with the number of GPUs."""
    if error := size_error(resolved.profile, resolved.dims.world_size):
        yield from (Term(PHASES.index(phase), "all", DOUBLING, 1.0, error, "size") for phase in FACTORS)


def data_sheets(resolved: ResolvedTrain, common: float = 0.0) -> Iterator[Term]:
    """Terms for devices that are known by data sheet only and use another device's profile (`like`).

    `common` is the standard deviation of one error of the whole step.
    """
    for device in resolved.devices:
        profile = resolved.profile.device_profile(device.name)
        far = _doublings(device, profile.limits, _type_of_gemms(resolved))
        if device.like is not None and device.name not in profile.devices and far:
            spread = hypot(_SIBLING, _PER_DOUBLING * far)
            for phase, name in (("gemm", "gemm"), ("experts", "gemm"), ("attention", "attention")):
                yield Term(PHASES.index(phase), device.name, name, 1.0, spread, "data sheet")
            yield from (Term(PHASES.index(phase), device.name, "step", 1.0, common, "data sheet") for phase in FACTORS)


def _doublings(device: Device, served: Limits | None, dtype: str) -> float:
    """Doublings between a device's rates and those of the measured device: the larger one of GEMMs and memory."""
    if served is None:
        return 0.0
    rates = [(device.memory_bytes_per_s, served.memory_bytes_per_s)]
    if dtype in device.peak_flop_per_s and dtype in served.flop_per_s:
        rates.append((device.peak_flop_per_s[dtype], served.flop_per_s[dtype]))
    return max(abs(log2(here / there)) for here, there in rates)


def _type_of_gemms(resolved: ResolvedTrain) -> str:
    """The data type under which the profile has models of this step's GEMMs."""
    computed = resolved.scenario.precision.compute
    return PRODUCT_TYPE.get(computed, computed)


def _down(chain: Chain, name: str, phase: str, power: float) -> Iterator[Term]:
    """A term for each link of the chain, down to the root or to a user's file that states the parameter."""
    for link in chain:
        stated = link.own.get(name) if not link.shipped else None
        yield Term(PHASES.index(phase), link.of, name, power, None if stated is None else stated.spread)
        if stated is not None:
            return


def _stating(chain: Chain, name: str, phase: str, power: float) -> Iterator[Term]:
    """Terms for host work and exchanges, only where a stack or one of its bases states a number."""
    last = max((place for place, link in enumerate(chain) if name in link.own), default=-1)
    for term, link in zip(_down(chain, name, phase, power), chain[: last + 1], strict=False):
        if link.shipped or name in link.own:
            yield term


def _to_first_stated(chain: Chain, name: str, phase: str, power: float) -> Iterator[Term]:
    """A term for each device of the chain, down to the first one whose file states the parameter."""
    for link in chain:
        stated = link.own.get(name)
        spread = stated.spread if stated is not None and not link.shipped else None
        yield Term(PHASES.index(phase), link.of, name, power, spread)
        if stated is not None:
            return


def chain_of(load: Callable[[str, str], Profile], name: str, where: str) -> Chain:
    """The chain of a stack, profile, network or architecture: itself, its base, the base of that, and so on.

    `load(name, where)` reads one without fitted values; `where` is the file that names it.
    """
    chain: list[Link] = []
    here: Profile | None = load(name, where)
    while here is not None:
        shipped = not name.endswith((".json", ".toml"))
        file = where if shipped else str(path_beside(name, where))
        base = here.about.get("base")
        below = load(base, file) if base else None
        chain.append(Link(name, _own(here, below), shipped, here.about.get("wider", 1.0) <= SIBLING_WIDER))
        name, where, here = str(base), file, below
    return tuple(chain)


def _own(here: Profile, below: Profile | None) -> dict[str, Parameter]:
    """The parameters of a file that its base lacks or states differently."""
    theirs = below.parameters if below is not None else {}
    return {
        name: said
        for name, said in here.parameters.items()
        if name not in theirs or (said.value, said.source) != (theirs[name].value, theirs[name].source)
    }
