"""Exchanges between ranks: who takes part in an op, the process groups, and what each kind does with rows of tensors.

Every lane has process groups of its own, so that the order of one lane's exchanges cannot block another's; so has every
direction between two pipeline ranks.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from math import gcd

import torch
import torch.distributed as dist
from torch import Tensor

from ....simulator.program import Program
from ....simulator.systems.train_step.lower import TrainPlan
from ..backend import all_gather

GroupKey = tuple[str, tuple[int, ...]]  # lane, ranks
_AXES = {"tp": "tp", "cp": "cp", "ep": "ep", "etp": "etp", "rows": "dp_cp", "compute": "world"}
EXPERT_LANE = "edp"
_GROUPS = {name: (name,) for name in (*_AXES, "dp", EXPERT_LANE)} | {"fsdp": ("fsdp", EXPERT_LANE)}
"""The groups that exchange on a lane; other lanes have none."""


@dataclass(frozen=True)
class Peers:
    """Who takes part in the exchanges of a Program in which a place stands for all ranks of a pipeline rank."""

    program: Program
    plan: TrainPlan

    @cached_property
    def lanes_of(self) -> list[list[tuple[int, str]]]:
        """Per op, the places and names of its lanes."""
        lanes = self.program.lanes
        return [[(lanes[lane].place, lanes[lane].name) for lane in row.tolist()] for row in self.program.lanes_of]

    def channel(self, op: int) -> tuple[str, int, int] | None:
        """(way, sending place, receiving place) of a send between pipeline ranks; None of other ops."""
        found = [(place, name) for place, name in self.lanes_of[op] if " to " in name or " from " in name]
        if not found:
            return None
        ((sender, name),) = ((place, name) for place, name in found if " to " in name)
        (receiver,) = (place for place, name in found if " from " in name)
        return name.partition(" ")[0], sender, receiver

    def partner(self, rank: int, place: int, other: int) -> int:
        """The rank at the same position of another place."""
        places = self.program.places
        return places[other].ranks[places[place].ranks.index(rank)]

    def group(self, lane: str, rank: int, *, replicas: bool = False) -> tuple[int, ...]:
        """The ranks with which a rank exchanges on a lane; with `replicas`, those that hold the same shard."""
        dims = self.plan.dims
        if lane in _AXES:
            return dims.group(_AXES[lane], rank)
        if lane == EXPERT_LANE:
            return self._mirrored(self._expert_group(rank, replicas=replicas), replicas)
        group = dims.group("dp_replicate" if replicas else "dp_shard", rank)
        return group if replicas else self._mirrored(group, replicas)

    def _expert_group(self, rank: int, *, replicas: bool) -> tuple[int, ...]:
        group = self.plan.dims.group("edp", rank)
        size = len(group) // gcd(len(group), self.plan.dims.size("dp_replicate"))
        at = group.index(rank)
        return group[at % size :: size] if replicas else group[at - at % size :][:size]

    def _mirrored(self, group: tuple[int, ...], replicas: bool) -> tuple[int, ...]:
        """With those of the other pipeline rank that holds the same stages (DualPipe)."""
        if replicas or not self.plan.is_mirrored:
            return group
        pp = self.plan.dims.pp
        places = self.program.places
        at = next(i for i, place in enumerate(places) if group[0] in place.ranks)
        return tuple(sorted({*group, *(self.partner(rank, at, pp - 1 - at) for rank in group)}))

    def keys(self) -> list[GroupKey]:
        """The process groups of all ranks, in one order for all of them."""
        found = {*self._channel_keys(), *self._lane_keys()}
        return sorted(key for key in found if len(key[1]) > 1)

    def _channel_keys(self) -> Iterator[GroupKey]:
        for channel in filter(None, {self.channel(op) for op in range(len(self.program))}):
            way, sender, receiver = channel
            for rank in self.program.places[sender].ranks:
                yield self.channel_key(way, sender, receiver, rank, self.partner(rank, sender, receiver))

    def _lane_keys(self) -> Iterator[GroupKey]:
        for lane in self.program.lanes:
            for axis in _GROUPS.get(lane.name, ()):
                for rank in self.program.places[lane.place].ranks:
                    yield lane.name, self.group(axis, rank)
                    if lane.name in ("dp", EXPERT_LANE):
                        yield lane.name, self.group(axis, rank, replicas=True)

    @staticmethod
    def channel_key(way: str, sender: int, receiver: int, a: int, b: int) -> GroupKey:
        """The process group of sends from one place to another, of rank a to rank b."""
        return f"{way} {sender} to {receiver}", tuple(sorted((a, b)))


class Exchanges:
    """The process groups of this rank, and what is done in them."""

    def __init__(self, keys: Sequence[GroupKey], rank: int, library: str, timeout: timedelta):
        self.rank = rank
        made: Mapping[GroupKey, dist.ProcessGroup] = {
            key: dist.new_group(list(key[1]), timeout, library) for key in keys
        }
        self._groups = {key: group for key, group in made.items() if rank in key[1]}

    def meet(self) -> None:
        """Connect all groups, so that no exchange pays for it."""
        for key in sorted(self._groups):
            dist.barrier(self._groups[key])

    def close(self) -> None:
        """Leave all groups: each has a thread that wakes a hundred times a second."""
        while self._groups:
            _, group = self._groups.popitem()
            dist.destroy_process_group(group)

    def gather(self, key: GroupKey, rows: Tensor) -> Tensor:
        """The rows of all ranks, one after another."""
        if len(key[1]) == 1:
            return rows
        return torch.cat(all_gather(rows.contiguous(), key[1], self._groups[key]))

    def reduce_scatter(self, key: GroupKey, rows: Tensor) -> Tensor:
        """This rank's even share of the rows, summed over ranks."""
        ranks = len(key[1])
        if ranks == 1:
            return rows
        parts = [part.contiguous() for part in rows.chunk(ranks)]
        own = torch.empty_like(parts[0])
        dist.reduce_scatter(own, parts, group=self._groups[key])
        return own

    def all_reduce(self, key: GroupKey, values: Tensor) -> Tensor:
        """The sum over ranks."""
        total = values.clone()
        if len(key[1]) > 1:
            dist.all_reduce(total, group=self._groups[key])
        return total

    def gather_uneven(self, key: GroupKey, rows: Tensor) -> tuple[Tensor, list[int]]:
        """The rows of all ranks, whose numbers may differ, and these numbers."""
        if len(key[1]) == 1:
            return rows, [len(rows)]
        counts = self.gather(key, torch.tensor([len(rows)], device=rows.device)).tolist()
        if not any(counts):
            return rows, counts
        padded = rows.new_zeros((max(counts), *rows.shape[1:]))
        padded[: len(rows)] = rows
        parts = self.gather(key, padded).split(max(counts))
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)]), counts

    def reduce_uneven(self, key: GroupKey, rows: Tensor, counts: Sequence[int]) -> Tensor:
        """This rank's rows summed over ranks; `counts` are the rows of each."""
        if len(key[1]) == 1 or not any(counts):
            return rows
        padded = rows.new_zeros((len(counts), max(counts), *rows.shape[1:]))
        for part, own in zip(padded, rows.split(list(counts)), strict=True):
            part[: len(own)] = own
        own = self.reduce_scatter(key, padded.flatten(0, 1))
        return own[: counts[key[1].index(self.rank)]]

    def exchange(self, key: GroupKey, rows: Tensor, sent: Sequence[int], received: Sequence[int]) -> Tensor:
        """All-to-all: `sent[i]` rows go to the i-th rank, in order, and `received[i]` come from it."""
        if len(key[1]) == 1:
            return rows
        out = rows.new_empty((sum(received), *rows.shape[1:]))
        dist.all_to_all_single(out, rows.contiguous(), list(received), list(sent), group=self._groups[key])
        return out

    def swap(self, key: GroupKey, to: int, of: int, rows: Tensor) -> Tensor:
        """Send to one rank, and receive as much from another, at once."""
        found, group = torch.empty_like(rows), self._groups[key]
        sent, came = dist.isend(rows.contiguous(), to, group=group), dist.irecv(found, of, group=group)
        for each in (sent, came):
            assert each is not None
            each.wait()
        return found

    def send(self, key: GroupKey, to: int, rows: Tensor) -> None:
        """Send rows whose shape the receiver knows."""
        dist.send(rows.contiguous(), to, group=self._groups[key])

    def receive(self, key: GroupKey, of: int, rows: Tensor) -> Tensor:
        """Receive rows into `rows`."""
        dist.recv(rows, of, group=self._groups[key])
        return rows
