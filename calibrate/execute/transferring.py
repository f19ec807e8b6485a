"""An update that starts at trainers: what a rank does for the ops of each kind, for real.

Nobody serves requests, so there is nothing to pause. What a sender says to engines goes through the key-value store of
the rendezvous, in place of a remote call.
"""

import gc
from collections.abc import Mapping
from queue import SimpleQueue
from typing import Any

import torch
import torch.distributed as dist

from ...simulator.systems.weight_update.methods import methods
from .acts import Actor, Address, GroupKey, NearMemory, SharedMemory, map_memory, open_memory
from .backend import all_gather
from .content import Meta, TransferContent, share
from .far import FarMemory

WEIGHTS = -1  # key of what an engine keeps, which is no buffer of a Program


class TransferActor(Actor[TransferContent]):
    """One rank: a trainer, a worker of an engine, or both. How bytes get from one to the other is for subclasses."""

    shards_on_host = False
    collective: tuple[str, ...] = ("init_group", "allocate", "broadcast", "wait_worker", "barrier")

    def prepare(self) -> None:
        """The shards that this rank has trained."""
        device = torch.device("cpu") if self.shards_on_host else self.backend.device
        content = self.content
        self.shards = {
            tensor: torch.from_numpy(content.tensor_bytes(tensor)[content.shard(self.rank, tensor)].copy()).to(device)
            for tensor in content.train_tensors(self.rank).tolist()
        }
        self.staged: dict[int, torch.Tensor] = {}  # a bucket's shards, packed before they are gathered

    def do_pause(self, op: int) -> None:
        """Do nothing: there are no requests, no caches, and no NIC to register memory with."""

    do_begin = do_resume = do_register_tensors = do_pause
    do_wait_worker = Actor.do_barrier

    def do_post_hook(self, op: int) -> None:
        """The worker has nothing to process after loading: it collects garbage."""
        gc.collect()

    def do_gather(self, op: int) -> None:
        """All-gather of the group's shards; whoever sends the bucket puts its tensors together in its buffer."""
        bucket = self._bucket(op)
        group = self._gathering(bucket)
        mine = self.staged.pop(bucket) if bucket in self.staged else self._packed(bucket)
        parts = all_gather(mine, group, self.groups["comm", group]) if len(group) > 1 else [mine]
        for access in self._accesses(op, write=True):
            for number, part in enumerate(parts):
                at = 0
                for meta in self._mine(bucket):
                    place = share(meta.size, number, len(parts))
                    size = place.stop - place.start
                    self.backend.copy(self._range(access)[meta.offset :][place], part[at:][:size])
                    at += size

    def do_send_meta(self, op: int) -> None:
        """The sender tells the engines which tensors the bucket holds."""
        bucket = self._bucket(op)
        self.store.post(f"metas/{bucket}", self.content.metas(bucket))

    def _sent_metas(self, bucket: int) -> list[Meta]:
        """What the sender says of the tensors of a bucket."""
        metas: list[Meta] = self.store.read(f"metas/{bucket}")
        return metas

    def _gathering(self, bucket: int) -> tuple[int, ...]:
        """The ranks that hold these tensors with this one."""
        return self.content.group(self.rank, self.content.plan.buckets[bucket].phase)

    def _mine(self, bucket: int) -> list[Meta]:
        """The tensors of a bucket that this rank gathers with others."""
        return self.content.gather_metas(bucket, self.rank)

    def _packed(self, bucket: int) -> torch.Tensor:
        """This rank's shards of a bucket, one after the other; as long as on any other rank of its group."""
        packed, at = self._unpacked(bucket), 0
        for meta in self._mine(bucket):
            shard = self.shards[meta.tensor]
            self.backend.copy(packed[at:][: len(shard)], shard)
            at += len(shard)
        self.backend.finish()
        return packed

    def _unpacked(self, bucket: int) -> torch.Tensor:
        """Memory for the shards of a bucket."""
        ranks = len(self._gathering(bucket))
        most = sum(-(-meta.size // ranks) for meta in self._mine(bucket))
        return torch.empty(most, dtype=torch.uint8, device=self.backend.device)

    def _keep(self, meta: Meta, whole: torch.Tensor) -> None:
        """The worker copies its share of a tensor."""
        self.backend.copy(self.weights[meta.tensor], whole[self.content.slice_of(self.rank, meta.tensor)])

    def _keys(self) -> set[GroupKey]:
        plan = self.content.plan
        groups = {self.content.group(rank, phase) for rank in plan.trainers for phase in plan.phases}
        return super()._keys() | {("comm", group) for group in groups}


class BroadcastActor(TransferActor):
    """Senders broadcast to all engines, a bucket or a tensor at a time; engines load what has arrived."""

    def prepare(self) -> None:
        """Shards, and a queue of what has arrived of each bucket."""
        super().prepare()
        self.arrived: list[SimpleQueue[list[Meta]]] = [SimpleQueue() for _ in self.content.plan.buckets]

    def do_broadcast(self, op: int) -> None:
        """The bucket's bytes from its sender to all receivers, and to what relays them."""
        bucket, root = self._bucket(op), int(self.program.root[op])
        (here,) = [*self._accesses(op, write=False), *self._accesses(op, write=True)]
        memory, metas = self._range(here), self._sent_metas(bucket)
        for message in [[meta] for meta in metas] if self.program.shape[op][0] > 1 else [metas]:
            first, last = message[0], message[-1]
            dist.broadcast(memory[first.offset : last.offset + last.size], src=root, group=self.groups[self._key(op)])
            self.backend.finish()
            self.arrived[bucket].put(message)

    def do_reload(self, op: int) -> None:
        """The worker copies its share of every tensor as they arrive: the broadcast may run beside it."""
        bucket = self._bucket(op)
        (read,) = self._accesses(op, write=False)
        left = len(self._sent_metas(bucket))
        while left:
            message = self.arrived[bucket].get()
            for meta in message:
                self._keep(meta, self._range(read)[meta.offset :])
            left -= len(message)


class WriteActor(TransferActor):
    """Trainers write into the memory of engines, which have no part in it: there is nothing to load."""

    def prepare(self) -> None:
        """Shards, and what is known of receivers."""
        super().prepare()
        self.replicas: dict[tuple[int, int], torch.Tensor] = {}  # by source op and tensor
        self.theirs: dict[int, NearMemory | FarMemory] = {}  # memory of the receivers to which this rank writes
        self.places: dict[int, dict[int, slice]] = {}  # of each tensor in it

    def resident(self) -> dict[int, torch.Tensor]:
        """The resident tensors in memory that others can map, one after another."""
        if not (size := self.content.bytes_on(self.rank)):
            return super().resident()
        memory = self.shared[WEIGHTS] = SharedMemory(size)
        return {tensor: memory.tensor[place] for tensor, place in self.content.places(self.rank).items()}

    def meet(self) -> None:
        """Engines say where their weights lie, once, when trainers connect."""
        addresses: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(addresses, self.shared[WEIGHTS].address if WEIGHTS in self.shared else None)
        for target in sorted({target for write in self._ops("write") for target in self._targets(write)}):
            self.theirs[target] = open_memory(addresses[target], writable=True)
            self.places[target] = self.content.places(target)

    def do_stage_in(self, op: int) -> None:
        """Every rank's shards, from host memory."""
        self.staged[self._bucket(op)] = self._packed(self._bucket(op))

    def do_replicate(self, op: int) -> None:
        """Into host memory, what the receiver keeps to which the next writes go."""
        bucket = self._bucket(op)
        writes = [write for write in self._ops("write") if op in self.program.deps[write]]
        if targets := [target for write in writes for target in self._targets(write)]:
            (gather,) = (other for other in self._ops("gather") if self._bucket(other) == bucket)
            (written,) = self._accesses(gather, write=True)
            gathered = self._range(written)
            for meta in self._mine(bucket):
                kept = gathered[meta.offset :][self.content.slice_of(targets[0], meta.tensor)]
                self.replicas[op, meta.tensor] = torch.empty(len(kept), dtype=torch.uint8)
                self.backend.copy(self.replicas[op, meta.tensor], kept)

    def do_write(self, op: int) -> None:
        """Out of the replica or of what was gathered, straight to where the receiver keeps it."""
        bucket = self._bucket(op)
        for target in self._targets(op):
            for meta in self._mine(bucket):
                self.theirs[target].write(self.places[target][meta.tensor], self._source(op, meta, target))

    def _source(self, write: int, meta: Meta, target: int) -> torch.Tensor:
        replicated = [dep for dep in self.program.deps[write].tolist() if self.program.kind_of(dep) == "replicate"]
        if replicated:
            return self.replicas[replicated[0], meta.tensor]
        (read,) = self._accesses(write, write=False)
        return self._range(read)[meta.offset :][self.content.slice_of(target, meta.tensor)]

    def _targets(self, write: int) -> list[int]:
        """The ranks to which this rank writes."""
        flat = self.program.groups[self.program.group[write]]
        return [target for source, target in zip(flat[::2], flat[1::2], strict=True) if source == self.rank]


class StagedWriteActor(WriteActor):
    """As WriteActor, for trainers that hold the new weights in host memory."""

    shards_on_host = True


class ColocatedActor(TransferActor):
    """Trainer and worker of an engine in one rank: handles are addresses of memory, which the worker maps."""

    collective = tuple(kind for kind in TransferActor.collective if kind != "broadcast")

    def prepare(self) -> None:
        """Shards, and what the worker has mapped."""
        super().prepare()
        self.opened: dict[int, torch.Tensor] = {}  # of the bucket that is on its way, by offset

    def device_memory(self, buffer: int, size_bytes: int) -> torch.Tensor:
        """Memory that has a handle."""
        self.shared[buffer] = SharedMemory(size_bytes)
        return self.shared[buffer].tensor

    def do_broadcast(self, op: int) -> None:
        """A rank of the bucket's stage sends its shards to the ranks at its position in the other stages."""
        bucket = self._bucket(op)
        stage, peers = self.content.plan.buckets[bucket].stage, self._peers(self.rank)
        packed = self._packed(bucket) if self.rank in stage.ranks else self._unpacked(bucket)
        (root,) = set(peers) & set(stage.ranks)
        dist.broadcast(packed, src=root, group=self.groups["comm", peers])
        self.staged[bucket] = packed

    def do_flatten(self, op: int) -> None:
        """Tensor by tensor into one buffer."""
        (source,), (target,) = self._accesses(op, write=False), self._accesses(op, write=True)
        for meta in self.content.metas(self._bucket(op)):
            place = slice(meta.offset, meta.offset + meta.size)
            self.backend.copy(self._range(target)[place], self._range(source)[place])

    def do_export_handles(self, op: int) -> None:
        """One handle for the bucket, or one per tensor: (address, offset, bytes)."""
        (read,), bucket = self._accesses(op, write=False), self._bucket(op)
        address = self.shared[read.buffer].address
        each = [(address, meta.offset, meta.size) for meta in self.content.metas(bucket)]
        handles = each if self.program.shape[op][0] > 1 else [(address, 0, read.bytes)]
        self.store.post(f"handles/{bucket}/{self.rank}", handles)

    def do_open_handles(self, op: int) -> None:
        """The worker maps what its trainer exported."""
        handles: list[tuple[Address, int, int]] = self.store.read(f"handles/{self._bucket(op)}/{self.rank}")
        self.opened = {offset: map_memory(address)[offset:][:size] for address, offset, size in handles}

    def do_reload(self, op: int) -> None:
        """The worker copies its share of every tensor, and lets go of the memory."""
        for meta in self._sent_metas(self._bucket(op)):
            whole = self.opened[meta.offset] if meta.offset in self.opened else self.opened[0][meta.offset :]
            self._keep(meta, whole)
        self.backend.finish()
        self.opened.clear()

    def _peers(self, rank: int) -> tuple[int, ...]:
        """The ranks at one position in all stages."""
        stages = self.content.plan.stages
        position = next(stage.ranks.index(rank) for stage in stages if rank in stage.ranks)
        return tuple(stage.ranks[position] for stage in stages)

    def _keys(self) -> set[GroupKey]:
        return super()._keys() | {("comm", self._peers(rank)) for rank in self.content.plan.trainers}


ACTORS: Mapping[str, type[TransferActor]] = {
    "single_sender": BroadcastActor,
    "relays": BroadcastActor,
    "all_senders": BroadcastActor,
    "stage_heads": BroadcastActor,
    "replica_writes": WriteActor,
    "static_writes": StagedWriteActor,
    "colocated": ColocatedActor,
}
MAPS_MEMORY = methods(lambda method: not method.buffers)
"""Methods in which ranks map memory that others own."""
