"""What travels: pseudo-random bytes for every tensor, made again where they are compared; who has and gets which."""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...simulator.base.errors import UserError
from ...simulator.base.units import format_bytes
from ...simulator.systems.weight_update.lower import TransferPlan, UpdatePlan
from ...simulator.systems.weight_update.lower.transfer import Bucket, Phase
from ...simulator.systems.weight_update.methods import SERVED, methods
from ...simulator.systems.weight_update.resolve import Resolved

Bytes = NDArray[np.uint8]
Counts = NDArray[np.int64]
NOT_EXECUTED = ("reshard", "chain", "file_system")
FROM_TRAINERS = methods(lambda method: method.starts_at_trainers and method.name not in NOT_EXECUTED)


class Meta(NamedTuple):
    """What a sender says about a tensor: `offset` and `size` are bytes, of its bucket and without padding."""

    tensor: int
    name: str
    shape: tuple[int, ...]
    dtype: str
    offset: int
    size: int


def share(size: Any, part: Any, parts: Any) -> slice:
    """One of `parts` even parts of `size` bytes; they differ by a byte where it does not divide. Arrays give arrays."""
    return slice(size * part // parts, size * (part + 1) // parts)


def content_of(resolved: Resolved) -> "ServedContent | TransferContent":
    """What travels in this scenario.

    Raises:
        UserError: an update that can be simulated, but not executed.
    """
    update = resolved.scenario.update
    refused = {"quantize": update.quantize != "none", "delta": update.delta is not None, "load": not update.load}
    if update.method not in SERVED + FROM_TRAINERS:
        known = ", ".join(SERVED + FROM_TRAINERS)
        raise UserError(f"{resolved.where}: update.method: cannot execute {update.method!r}; expected {known}")
    if keys := [key for key, asked in refused.items() if asked]:
        text = "bytes are sent and loaded as they are"
        raise UserError(*(f"{resolved.where}: update.{key}: is simulated only: where it runs, {text}" for key in keys))
    plan, weights, tp = resolved.plan, resolved.weights, update.inference.tp
    if isinstance(plan, TransferPlan):
        parts = np.where(weights.expert, plan.engine_ranks, tp)
        return TransferContent(resolved, plan.receivers, plan.engine_ranks, parts, plan)
    return ServedContent(resolved, range(plan.listed), tp, np.full(len(weights), tp), plan)


@dataclass(frozen=True, eq=False)
class Content:
    """The tensors of a scenario: their bytes, and what every rank must hold in the end.

    `receivers` are the ranks that receive all tensors; `engine` of them, one after the other, are an engine. `parts` is
    into how many parts engines split each tensor: a rank keeps the part that goes by its place in its engine.
    """

    resolved: Resolved
    receivers: Sequence[int]
    engine: int
    parts: Counts

    def tensor_bytes(self, tensor: int) -> Bytes:
        """The bytes of a tensor."""
        seed = (self.resolved.scenario.seed, tensor)
        return np.random.default_rng(seed).integers(0, 256, self.size(tensor), dtype=np.uint8)

    def size(self, tensor: int) -> int:
        """The bytes of a tensor, without padding."""
        return int(self.resolved.weights.nbytes[tensor])

    def shard_bytes(self, rank: int) -> int:
        """What a rank holds of the new weights beside the buffers of the Program."""
        return 0

    def slice_of(self, rank: int, tensor: int) -> slice:
        """The bytes of a tensor that an inference rank keeps."""
        return self._share_of(rank, self.size(tensor), int(self.parts[tensor]))

    def sizes_on(self, rank: int) -> Counts:
        """Bytes of each tensor that a rank keeps; of ranks that receive none, nothing."""
        if rank not in self.receivers:
            return np.zeros(0, np.int64)
        kept = self._share_of(rank, self.resolved.weights.nbytes, self.parts)
        sizes: Counts = kept.stop - kept.start
        return sizes

    def _share_of(self, rank: int, size: Any, parts: Any) -> slice:
        return share(size, self.receivers.index(rank) % self.engine % parts, parts)

    def bytes_on(self, rank: int) -> int:
        """Bytes of all tensors that a rank keeps."""
        return int(self.sizes_on(rank).sum())

    def _metas(self, tensors: Sequence[int]) -> list[Meta]:
        weights = self.resolved.weights
        sizes = weights.aligned_bytes()[list(tensors)]
        offsets = (np.cumsum(sizes) - sizes).tolist()
        return [
            Meta(i, weights.names[i], weights.shapes[i], weights.dtypes[i], offset, self.size(i))
            for i, offset in zip(tensors, offsets, strict=True)
        ]


@dataclass(frozen=True, eq=False)
class ServedContent(Content):
    """Parameter servers own whole tensors, beside engines of which every listed rank keeps 1/tp."""

    plan: UpdatePlan

    def metas(self, bucket: int) -> list[Meta]:
        """Buckets hold consecutive tensors of the checkpoint."""
        first = int(self.plan.buckets.first_tensor[bucket])
        return self._metas(range(first, first + int(self.plan.buckets.tensors[bucket])))

    def buckets_of(self, rank: int) -> list[int]:
        """The buckets whose tensors a rank owns."""
        owned: list[int] = np.flatnonzero(self.plan.buckets.owner == rank).tolist()
        return owned

    def fill(self, rank: int, host: Bytes) -> None:
        """Write all tensors that a rank owns to their places in its host memory."""
        for bucket in self.buckets_of(rank):
            base = int(self.plan.buckets.offset_bytes[bucket])
            for meta in self.metas(bucket):
                host[base + meta.offset :][: meta.size] = self.tensor_bytes(meta.tensor)


@dataclass(frozen=True, eq=False)
class TransferContent(Content):
    """Each trainer holds a slice of the bytes of its stage's tensors; an engine keeps 1/tp of a tensor on each rank.

    Of an expert's tensor, each rank of an engine keeps an equal part: as many bytes as the whole experts that expert
    parallelism would give it.
    """

    plan: TransferPlan

    def metas(self, bucket: int) -> list[Meta]:
        """Buckets hold tensors in the order of their phase: stage by stage."""
        return self._metas(self.plan.buckets[bucket].contents.tolist())

    def gather_metas(self, bucket: int, rank: int) -> list[Meta]:
        """The tensors of a bucket that a trainer and its group gather, and where they lie in their buffers."""
        return self._metas(self._gathered(self.plan.buckets[bucket], rank).tolist())

    def group(self, rank: int, phase: Phase) -> tuple[int, ...]:
        """The ranks that hold the tensors of a phase with this one, between them."""
        return next(group for group in self._groups(rank, phase) if rank in group)

    def _groups(self, rank: int, phase: Phase) -> list[tuple[int, ...]]:
        stage = next(stage for stage in self.plan.stages if rank in stage.ranks)
        return phase.mesh.split(stage.ranks)

    def _gathered(self, bucket: Bucket, rank: int) -> Counts:
        """All, or where groups work apart, those of the rank's group."""
        if bucket.is_everywhere or not bucket.phase.apart:
            return bucket.contents
        groups = self._groups(rank, bucket.phase)
        return bucket.contents[bucket.parts == groups.index(self.group(rank, bucket.phase))]

    def train_tensors(self, rank: int) -> Counts:
        """The tensors that a trainer's group gathers, in the order of its buckets; none of any other rank."""
        mine = [self._gathered(bucket, rank) for bucket in self.plan.buckets if rank in bucket.stage.ranks]
        return np.concatenate([np.empty(0, np.int64), *mine])

    def shard(self, rank: int, tensor: int) -> slice:
        """The bytes that a trainer holds of a tensor that its group gathers."""
        expert = bool(self.resolved.weights.expert[tensor])
        group = self.group(rank, next(phase for phase in self.plan.phases if phase.expert == expert))
        return share(self.size(tensor), group.index(rank), len(group))

    def shard_bytes(self, rank: int) -> int:
        """What it trains, and where it writes from host memory, what it puts together for a receiver."""
        if rank not in self.plan.trainers:
            return 0
        copied = self.resolved.scenario.update.method == "replica_writes"
        replica = max(map(self.bytes_on, self.plan.receivers)) if copied else 0
        shards = (self.shard(rank, tensor) for tensor in self.train_tensors(rank).tolist())
        return replica + sum(shard.stop - shard.start for shard in shards)

    def places(self, rank: int) -> dict[int, slice]:
        """The slice of a receiver's memory for its part of each tensor, one after another."""
        ends = np.cumsum(self.sizes_on(rank)).tolist()
        return {tensor: slice(*place) for tensor, place in enumerate(pairwise([0, *ends]))}


PROCESS_BYTES = 300 * 2**20  # of Python and torch

_CGROUP = Path("/sys/fs/cgroup")  # of the container that this process is in


def check_memory(resolved: Resolved, ranks: Sequence[int], device: str = "cpu") -> None:
    """Compare what the given ranks will allocate in host memory with what this machine has, where that is known.

    Raises:
        UserError: it has less, or the update cannot be executed at all.
    """
    needed, available = host_bytes(resolved, ranks, device), available_bytes()
    needed["processes"] = len(ranks) * PROCESS_BYTES
    if available is None or sum(needed.values()) <= available:
        return
    parts = ", ".join(f"{format_bytes(size)} of {what}" for what, size in needed.items())
    smaller = "model.overrides, as in the tiny scenarios" if resolved.spec is not None else "model.bytes"
    raise UserError(
        f"{resolved.where}: {len(ranks)} ranks on this machine need {format_bytes(sum(needed.values()))} of memory "
        f"({parts}), but {format_bytes(available)} are available: take a smaller model ({smaller}), smaller buckets "
        "(update.bucket) or fewer ranks (nodes, cluster.gpus_per_node)"
    )


def host_bytes(resolved: Resolved, ranks: Sequence[int], device: str = "cpu") -> dict[str, int]:
    """Host bytes by purpose of the given ranks of an unfolded scenario; on CUDA, only what they send is there."""
    content, program = content_of(resolved), resolved.executed
    here = [buffer for buffer in program.buffers if program.places[buffer.place].ranks[0] in ranks]
    needed = {"weights to send": sum(buffer.bytes for buffer in here if buffer.memory != "device")}
    if device == "cpu":
        needed["weights to send"] += sum(content.shard_bytes(rank) for rank in ranks)
        needed["buffers"] = sum(buffer.bytes for buffer in here if buffer.memory == "device")
        needed["weights to receive"] = sum(content.bytes_on(rank) for rank in ranks)
    return needed


def available_bytes() -> int | None:
    """What can be allocated without swapping: of Linux what is free, elsewhere all there is; None where unknown."""
    bounds = []
    with suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        bounds.append(1024 * int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1]))
    with suppress(OSError, ValueError):  # ValueError: "max", no limit
        bounds.append(int((_CGROUP / "memory.max").read_text()) - _used_in_cgroup())
    if not bounds:
        with suppress(OSError, ValueError, AttributeError):
            bounds.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(bounds, default=None)


def _used_in_cgroup() -> int:
    """Bytes that the container uses, without pages of files that it can drop."""
    with suppress(OSError, ValueError):
        statistics = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
        return int((_CGROUP / "memory.current").read_text()) - int(statistics.get("inactive_file", 0))
    return 0
