"""Data-parallel replicas on unequal machines: which of them act alike, and how many micro-batches each takes.

A replica is what lies at one place along dp. Replicas whose ranks are on equal machines act alike and are simulated
once; those of other machines are places of their own in the Program, and meet in the exchanges that they share.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...costs import COMPUTE, Costs
from ...hardware import Cluster
from ...program import Program
from ...program.parallel import ParallelDims

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Replicas = tuple[int, ...]
"""Places along dp."""

_INSIDE = (COMPUTE, "tp", "tp_row", "tp_col", "cp", "ep", "etp")
"""Lanes that a micro-batch holds from its first layer to its last."""

MOST = 16
"""Kinds of replicas that are simulated apart; where there are more, each stage is as slow as its slowest node."""


def alike(dims: ParallelDims, machines: Cluster, slowness: Floats) -> tuple[Replicas, ...]:
    """Replicas by the machines of their ranks, those with the slowest GPU first.

    Replicas whose ranks share experts stay together. `slowness` says of every rank how many times longer its own work
    takes.
    """
    kind = _kinds(machines, slowness)
    if not kind.any():
        return (tuple(range(dims.dp)),)
    together = _together(dims)
    ranks = np.arange(dims.world_size)
    key = (together[dims.place("dp", ranks)] * dims.pp + dims.place("pp", ranks)) * (kind.max() + 1) + kind
    there: dict[int, list[int]] = {}
    for one in np.unique(key).tolist():  # of every set of replicas that stay together: stage and kind of machine
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
    """A number for the node type and the slowness of every rank."""
    nodes = dict.fromkeys(map(id, machines.nodes))
    if len(nodes) == 1 and (slowness == slowness[:1]).all():
        return np.zeros(len(slowness), np.int64)
    node = np.repeat([list(nodes).index(id(one)) for one in machines.nodes], machines.gpus_per_node)
    _, slow = np.unique(slowness, return_inverse=True)
    _, kind = np.unique(node * (int(slow.max(initial=0)) + 1) + slow, return_inverse=True)
    return np.asarray(kind, np.int64)


def _together(dims: ParallelDims) -> Ints:
    """For each place along dp the first one with which it shares an expert-parallel group."""
    first = np.arange(dims.dp)
    if dims.ep > 1:
        for places in np.unique(np.sort(dims.place("dp", dims.table("ep")), axis=1), axis=0):
            first[places] = first[places].min()
    return first


def _speeds(machines: Cluster, slowness: Floats) -> Floats:
    """Dense peak of every rank's GPU over its slowness: only an order, not a time."""
    peaks = [_peak(machines, node) for node in range(machines.n_nodes)]
    return np.asarray(np.repeat(peaks, machines.gpus_per_node) / slowness)


def _peak(machines: Cluster, node: int) -> float:
    peaks = machines.nodes[node].device.peak_flop_per_s
    return peaks.get("bf16", peaks.get("fp16", 0.0))


def share(sizes: Sequence[int], seconds: Sequence[float], total: int, unit: int = 1) -> tuple[int, ...]:
    """Micro-batches for each replica of each class, so that the class that is done last is done soonest.

    `sizes` are the replicas of each class, `seconds` what a micro-batch takes there, and `total` the micro-batches of
    all replicas together. Every replica gets a multiple of `unit`; equal numbers must make up the total.
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
    """What classes from each one on can take until then, all replicas of a class equally many: bit i is for i units."""
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
    """What one of so many micro-batches takes the busiest pipeline rank: its kernels, and exchanges inside layers."""
    inside = np.array([lane.name in _INSIDE for lane in program.lanes], bool)
    lane, op = program.lanes_of.values, program.lanes_of.row_of_value()
    counted = inside[lane] & (program.tags["microbatch"][op] >= 0)
    place = np.array([one.place for one in program.lanes], np.int64)[lane]
    busy = np.bincount(place[counted], costs.uncontended_s[op[counted]], minlength=len(program.places))
    return float(busy.max()) / microbatches


def note_on(
    classes: Sequence[Replicas], shares: Sequence[int], dims: ParallelDims, machines: Cluster, slowness: Floats
) -> str:
    """How many micro-batches the replicas of each class take, and on which GPUs."""
    at, parts = dims.place("dp", np.arange(dims.world_size)), []
    for of, count in zip(classes, shares, strict=True):
        ranks = np.flatnonzero(np.isin(at, of))
        devices = " and ".join(dict.fromkeys(machines.device(rank).name for rank in ranks.tolist()))
        slow = float(slowness[ranks].max())
        told = f"{len(of)} from dp {of[0]} on {devices}" + f", slow by {slow:g}," * (slow > 1)
        parts.append(f"{told} take {count} micro-batches")
    return f"replicas on unequal machines: {'; '.join(parts)}"
