"""Prices of the ops of a training step on one rank: kernels, exchanges, copies, host work, whole actions."""

from dataclasses import replace

from ..collectives import Price
from ..profile import PROVENANCE, Parameter
from .kernels import Kernels
from .pricing import Pricing
from .sheet import Ops


def kernel(pricing: Pricing, op: int, rank: int) -> Price:
    """The price of a kernel, or of the host's op that issues kernels, by the profile's models."""
    program = pricing.program
    shape, dtype = tuple(program.shape[op].tolist()), program.dtypes[program.dtype[op]]
    key, machine = (program.kind_of(op), shape, int(program.bytes[op]), dtype), pricing.machines.machine_of(rank)
    found = machine.once(key, lambda: Kernels(machine.profile, machine.limits).estimate(*key))
    return Price(float(found.seconds[0]), float(found.spread[0]), int(found.provenance[0]))


def idle(_pricing: Pricing, _op: int, _rank: int) -> Price:
    """The price of an action without work."""
    return Price(0.0, 0.0, PROVENANCE.index("exact"))


def exchange(pricing: Pricing, op: int, rank: int) -> Price:
    """The price of an exchange seen from one of its ranks, by the algorithm that the system names."""
    return pricing.exchanges.price(pricing.collective(op), rank)


def actions(pricing: Pricing, ops: Ops) -> None:
    """Set the prices of whole actions, which were simulated alone; their shape is their number."""
    assert pricing.actions is not None
    shape = pricing.program.shape
    pricing.sheet.enter_all(ops, pricing.actions, shape.values[shape.start[ops]])


def copy(pricing: Pricing, op: int, rank: int) -> Price:
    """The price of a copy to or from host memory; the slowest link of its route sets the rate."""
    kind, size = pricing.kind_of(op).name, float(pricing.program.bytes[op])
    route = pricing.host_route(kind, rank)
    narrowest = min(route, key=lambda link: pricing.capacity[link])
    start = pricing.machines.machine_of(rank).profile["h2d.latency_s"].value
    seconds = start + size / (pricing.copy_share(kind) * float(pricing.capacity[narrowest]))
    return _resting_on(_sustained(pricing, narrowest, rank), seconds, dict.fromkeys(route, size / seconds))


def step_on_host(pricing: Pricing, op: int, rank: int) -> Price:
    """The price of Adam on the host: bound by host memory, which GPUs of a socket share (arXiv 2101.06840)."""
    cluster, size = pricing.cluster, float(pricing.program.bytes[op])
    memory, near = cluster.h2d_route(rank)[0], cluster.gpus_of(cluster.node_of(rank))
    sharing = sum(cluster.h2d_route(other)[0] == memory for other in near)
    return _resting_on(_sustained(pricing, memory, rank), size * sharing / float(pricing.capacity[memory]))


def cycle(pricing: Pricing, op: int, rank: int) -> Price:
    """The price of a tick of the thread that fuses gradients (Horovod)."""
    tick = pricing.profile["fusion.cycle_s"]
    return replace(_resting_on(tick, tick.value), by_formula=True)


def _sustained(pricing: Pricing, link: int, rank: int) -> Parameter:
    return pricing.machines.machine_of(rank).profile[f"link_fraction.{pricing.cluster.links[link].kind}"]


def _resting_on(parameter: Parameter, seconds: float, demand: dict[int, float] | None = None) -> Price:
    return Price(seconds, parameter.spread, PROVENANCE.index(parameter.provenance), demand or {})
