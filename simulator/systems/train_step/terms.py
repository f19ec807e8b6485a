"""The parameters that the time of each phase of a training step depends on, as terms of the error model (`errors`).

The time of a phase is proportional to a power of each of its parameters. A stack's factor of a phase is its base's
factor times its own; devices and networks work the same way. The fit of training steps (calibrate/fitting/steps)
determines these parameters. The error of a parameter is common to all phases and steps that use it.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import hypot, log2

from ...base.files import path_beside
from ...costs import GEMM_PHASES, OF_LAYERS, PHASES
from ...hardware import Device, Limits
from ...profile import (
    FACTORS,
    SIBLING_WIDER,
    TP_EXPOSED,
    Parameter,
    Profile,
    load_network,
    load_profile,
    load_stack,
)
from ...uncertainty import DOUBLING, Term, size_error
from .flash_attention import slower_by
from .resolve import ResolvedTrain

RATE = "gemm.training_rate"
GROUPED = "grouped_gemm.training_rate"
CLOCK = "gemm.clock"
"""The rate of all GEMMs of a device relative to its sibling, from clocks and power. It exists only in the fit."""

BLOCKED, EXCHANGE = "layer.tp_s", "exchange.s"
OF_EXPERTS = "layer.experts_s"
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

    `sibling` says whether a device is of the same generation as its base, and `measured` the families of kernels that
    the file has models of its own for, such as "gemm".
    """

    of: str
    own: dict[str, Parameter]
    shipped: bool
    sibling: bool
    measured: frozenset[str] = frozenset()


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
        *_of_stated_hosts(resolved),
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


def stack_of(resolved: ResolvedTrain) -> str:
    """The name by which errors of the scenario's own stack are known again."""
    return _software(resolved)[0].of


def shipped_stack(resolved: ResolvedTrain) -> str:
    """The scenario's stack, or the shipped one that a user's own rests on."""
    return next((link.of for link in _software(resolved) if link.shipped), "")


def _of_software(resolved: ResolvedTrain, chain: Chain) -> Iterator[Term]:
    for phase, name in zip(FACTORS, resolved.factors, strict=True):
        terms = _down(chain, name, phase, 1.0)
        dwarfed = phase == "host" and _hosts_of_experts(resolved) is not None
        yield from (term for term in terms if term.stated is not None or not dwarfed)
    for phase in GEMM_PHASES:
        yield from _stating(chain, f"time_factor.gemm.{resolved.gemm_type}", phase, 1.0)
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
    kept = resolved.gemm_type
    own = f"{RATE}.{kept}" if kept in _OWN_RATE else RATE
    for phase, name in (("gemm", own), ("experts", own), ("experts", GROUPED)):
        yield from _to_first_stated(chain, name, phase, -1.0)
    for phase in GEMM_PHASES:
        yield from (Term(PHASES.index(phase), link.of, CLOCK, -1.0) for link in chain if link.sibling and link.shipped)
    for name in slower_by(resolved.scenario.attention, resolved.profile):
        yield from _to_first_stated(chain, name, "attention", 1.0)


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


def _hosts_of_experts(resolved: ResolvedTrain) -> Parameter | None:
    """What hosts do for layers with experts, where the stack states it: it dwarfs all other host work."""
    stated = resolved.profile.parameters.get(OF_EXPERTS) if resolved.spec.moe is not None else None
    return stated if stated is not None and stated.value else None


def _of_stated_hosts(resolved: ResolvedTrain) -> Iterator[Term]:
    """The error of the hosts of layers with experts, where a stack states them; that of other host work is left out."""
    if (stated := _hosts_of_experts(resolved)) is not None:
        of = next(link.of for link in _software(resolved) if OF_EXPERTS in link.own)
        yield Term(PHASES.index("host"), of, OF_EXPERTS, 1.0, stated.spread)


def _of_exposed(resolved: ResolvedTrain) -> Iterator[Term]:
    if resolved.scenario.overlap.tp and resolved.scenario.overlap.tp_exposed is None:
        yield Term(PHASES.index("tp"), stack_of(resolved), TP_EXPOSED, 1.0, resolved.profile[TP_EXPOSED].spread)


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
        far = _doublings(device, profile.limits, resolved.gemm_type)
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
    """A term for each device of the chain, down to the first one whose file states the parameter.

    A user's own profile that measured no such kernels has those of its base, and no error beside that.
    """
    for link in chain:
        stated = link.own.get(name)
        if stated is None and not link.shipped and name.partition(".")[0] not in link.measured:
            continue
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
        of = name if shipped else os.path.realpath(file)  # one file, whatever folder it is named from
        sibling = here.about.get("wider", 1.0) <= SIBLING_WIDER
        chain.append(Link(of, _own(here, below), shipped, sibling, _measured(here, below)))
        name, where, here = str(base), file, below
    return tuple(chain)


def _measured(here: Profile, below: Profile | None) -> frozenset[str]:
    """The families of the cost classes that a file has models for, and not its base."""
    theirs = below.models if below is not None else {}
    return frozenset(kind.partition(".")[0] for kind, of in here.models.items() if of != theirs.get(kind))


def _own(here: Profile, below: Profile | None) -> dict[str, Parameter]:
    """The parameters of a file that its base lacks or states differently."""
    theirs = below.parameters if below is not None else {}
    return {
        name: said
        for name, said in here.parameters.items()
        if name not in theirs or (said.value, said.source) != (theirs[name].value, theirs[name].source)
    }
