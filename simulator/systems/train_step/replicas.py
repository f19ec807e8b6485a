"""How work is split: layers over stages, and micro-batches over data-parallel replicas on unequal machines.

A replica is the set of ranks at one position along dp. Replicas on equal machines act alike and are simulated once.
Replicas on other machines have separate places in the Program, and meet the others in their common exchanges.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np

from ...base.arrays import Floats, Ints
from ...base.errors import UserError, fault
from ...costs import COMPUTE, Costs
from ...hardware import Cluster
from ...models import ModelSpec
from ...program import Program
from ...program.parallel import ParallelDims
from .lower import Stage
from .scenario import TrainScenario

Replicas = tuple[int, ...]
"""Positions along dp."""

_INSIDE = (COMPUTE, "tp", "tp_row", "tp_col", "cp", "ep", "etp")
"""Lanes that a micro-batch uses inside its layers."""

MOST = 16
"""The largest number of classes that are simulated separately. With more, each stage is as slow as its slowest node."""


def alike(dims: ParallelDims, machines: Cluster, slowness: Floats) -> tuple[Replicas, ...]:
    """Classes of replicas on equal machines, the one with the slowest GPU first.

    Replicas whose ranks share experts stay in one class. `slowness` is the factor of every rank's own work.
    """
    kind = _kinds(machines, slowness)
    if not kind.any():
        return (tuple(range(dims.dp)),)
    together = _together(dims)
    ranks = np.arange(dims.world_size)
    key = (together[dims.place("dp", ranks)] * dims.pp + dims.place("pp", ranks)) * (kind.max() + 1) + kind
    there: dict[int, list[int]] = {}
    for one in np.unique(key).tolist():  # (stage, kind of machine) of every set of replicas that stay together
        unit, stage_and_kind = divmod(one, dims.pp * (int(kind.max()) + 1))
        there.setdefault(unit, []).append(stage_and_kind)
    classes: dict[tuple[int, ...], list[int]] = {}
    for place, unit in enumerate(together.tolist()):
        classes.setdefault(tuple(there[unit]), []).append(place)
    if len(classes) > MOST:
        return (tuple(range(dims.dp)),)
    speed = _speeds(machines, slowness)
    at = dims.place("dp", ranks)
    return tuple(sorted(map(tuple, classes.values()), key=lambda of: (float(speed[np.isin(at, of)].min()), of)))


def differ(machines: Cluster, slowness: Floats) -> bool:
    """Whether ranks are on several kinds of machines."""
    return bool(_kinds(machines, slowness).any())


def _kinds(machines: Cluster, slowness: Floats) -> Ints:
    """A number for every rank that identifies its node type and slowness."""
    nodes = dict.fromkeys(map(id, machines.nodes))
    if len(nodes) == 1 and (slowness == slowness[:1]).all():
        return np.zeros(len(slowness), np.int64)
    node = np.repeat([list(nodes).index(id(one)) for one in machines.nodes], machines.gpus_per_node)
    _, slow = np.unique(slowness, return_inverse=True)
    _, kind = np.unique(node * (int(slow.max(initial=0)) + 1) + slow, return_inverse=True)
    return np.asarray(kind, np.int64)


def _together(dims: ParallelDims) -> Ints:
    """For each position along dp the first position with which it shares an expert-parallel group."""
    first = np.arange(dims.dp)
    if dims.ep > 1:
        for places in np.unique(np.sort(dims.place("dp", dims.table("ep")), axis=1), axis=0):
            first[places] = first[places].min()
    return first


def _speeds(machines: Cluster, slowness: Floats) -> Floats:
    """The dense peak of every rank's GPU over its slowness; used only to sort."""
    peaks = [_peak(machines, node) for node in range(machines.n_nodes)]
    return np.asarray(np.repeat(peaks, machines.gpus_per_node) / slowness)


def _peak(machines: Cluster, node: int) -> float:
    peaks = machines.nodes[node].device.peak_flop_per_s
    return peaks.get("bf16", peaks.get("fp16", 0.0))


def share(sizes: Sequence[int], seconds: Sequence[float], total: int, unit: int = 1) -> tuple[int, ...]:
    """The micro-batches of each replica, by class, so that the last class ends as early as possible.

    `sizes` are the numbers of replicas, `seconds` the times of a micro-batch by class, and `total` the micro-batches
    of all replicas together. Every replica gets a multiple of `unit`. An equal split must be possible.
    """
    units_s, units = [each_s * unit for each_s in seconds], total // unit
    ends = sorted({many * unit_s for size, unit_s in zip(sizes, units_s, strict=True)
                   for many in range(1, units // size + 1)})  # fmt: skip
    soonest = bisect_left(ends, 1, key=lambda end: _sums(sizes, units_s, units, end)[0] >> units)
    sums, counts, left = _sums(sizes, units_s, units, ends[soonest]), [], units
    for size, rest in zip(sizes, sums[1:], strict=True):
        counts.append(next(many for many in range(1, left // size + 1) if rest >> left - many * size & 1))
        left -= counts[-1] * size
    return tuple(many * unit for many in counts)


def _sums(sizes: Sequence[int], units_s: Sequence[float], units: int, end: float) -> list[int]:
    """For each class, the numbers of units that it and later classes can finish until `end`: bit i for i units."""
    found = [1]
    for size, unit_s in zip(reversed(sizes), reversed(units_s), strict=True):
        most = bisect_right(range(1, units // size + 1), end, key=unit_s.__mul__)
        bits, done = (found[0] << size if most else 0), 1
        while done < most:
            bits |= bits << min(done, most - done) * size
            done *= 2
        found.insert(0, bits & (2 << units) - 1)
    return found


def seconds_of_microbatch(program: Program, costs: Costs, microbatches: int) -> float:
    """Seconds per micro-batch of the busiest pipeline rank: its kernels, and exchanges inside layers."""
    inside = np.array([lane.name in _INSIDE for lane in program.lanes], bool)
    lane, op = program.lanes_of.values, program.lanes_of.row_of_value()
    counted = inside[lane] & (program.tags["microbatch"][op] >= 0)
    place = np.array([one.place for one in program.lanes], np.int64)[lane]
    busy = np.bincount(place[counted], costs.uncontended_s[op[counted]], minlength=len(program.places))
    return float(busy.max()) / microbatches


def note_on(
    classes: Sequence[Replicas], shares: Sequence[int], dims: ParallelDims, machines: Cluster, slowness: Floats
) -> str:
    """The report's note on the micro-batches and GPUs of each class of replicas."""
    at, parts = dims.place("dp", np.arange(dims.world_size)), []
    for of, count in zip(classes, shares, strict=True):
        ranks = np.flatnonzero(np.isin(at, of))
        devices = " and ".join(dict.fromkeys(machines.device(rank).name for rank in ranks.tolist()))
        slow = float(slowness[ranks].max())
        told = f"{len(of)} from dp {of[0]} on {devices}" + f", slow by {slow:g}," * (slow > 1)
        parts.append(f"{told} take {count} micro-batches")
    return f"replicas on unequal machines: {'; '.join(parts)}"


def split_layers(scenario: TrainScenario, spec: ModelSpec, stages: int, where: str) -> tuple[Stage, ...]:
    """The layers of each stage in model order: as given, else even with fuller first stages; MTP layers on the last.

    Raises:
        UserError: the given layers do not sum to the model's, or there are more stages than layers.
    """
    given, layers = scenario.parallel.layers, spec.n_layers
    counts = _even(scenario, spec, stages, where) if given is None else list(given)
    if len(counts) != stages or sum(counts) != layers:
        ahead = "".join(f", {tower.num_hidden_layers} of {tower.name} first" for tower in spec.towers)
        raise UserError(fault(where, "parallel.layers", list(counts), f"{stages} numbers that sum to {layers}{ahead}"))
    if (again := scenario.recompute.layers) is not None and again > max(counts):
        raise UserError(fault(where, "recompute.layers", again, f"a chunk has at most {max(counts)}"))
    mtp = tuple(range(layers, layers + spec.num_nextn_predict_layers * scenario.model.mtp))
    found, first = [], 0
    for i, count in enumerate(counts):
        last = i == stages - 1
        found.append(Stage(tuple(range(first, first + count)), i == 0, last, mtp if last else ()))
        first += count
    return tuple(found)


def _even(scenario: TrainScenario, spec: ModelSpec, stages: int, where: str) -> list[int]:
    """Split layers as evenly as possible; with `embedding_as_layer` the first and last stage have one layer less.

    Towers of other media lie on the first stage beside its share of the layers, as Megatron-LM places them.
    """
    layers, extra = spec.divided_layers, 2 * scenario.parallel.embedding_as_layer
    if layers + extra < stages:
        vpp, pp = scenario.schedule.vpp, scenario.parallel.pp
        key, value = ("parallel.pp", pp) if vpp is None else ("schedule.vpp", vpp)
        allowed = f"{stages} stages; at most {layers + extra} for the layers of {spec.name}"
        raise UserError(fault(where, key, value, allowed))
    counts = [(layers + extra) // stages + (i < (layers + extra) % stages) for i in range(stages)]
    if extra:
        counts[0] -= 1
        counts[-1] -= 1  # of one stage the same
    counts[0] += spec.n_layers - layers
    return counts
