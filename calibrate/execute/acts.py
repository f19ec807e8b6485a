"""What a rank does for the ops of each kind: one method per kind, the real thing each time.

Collectives of host lanes run on Gloo, those of other lanes on the device's library. Each lane has process groups of
its own, so that the order of one lane's collectives cannot block another's.
"""

import gc
import pickle
from collections.abc import Callable, Iterator
from queue import SimpleQueue

import torch
import torch.distributed as dist

from ...simulator.program import Access
from .backend import Backend
from .content import Content, Meta
from .parts import Parts
from .shared import Address, SharedMemory, mapped

HOST_LANES = ("ps", "worker")
GroupKey = tuple[str, tuple[int, ...]]  # lane, ranks


class Actor:
    """One rank: its memory, its groups, and the queues between its parameter server and its worker."""

    def __init__(self, parts: Parts, rank: int, content: Content, backend: Backend):
        self.parts, self.program, self.rank = parts, parts.program, rank
        self.content, self.backend = content, backend
        self.shared: dict[int, SharedMemory] = {}  # what this rank owns, where others may read it
        self.buffers = {buffer: self._host_memory(buffer) for buffer in self._host_buffers()}
        self.weights = {i: self._resident(i) for i in content.received(rank)}
        self.metas: dict[int, list[Meta]] = {}  # of every bucket, once gathered
        self.addresses: dict[int, Address] = {}  # of what all ranks share, once gathered
        self.mapped: dict[int, torch.Tensor] = {}  # what this rank reads of it
        self.latest: dict[int, torch.Tensor] = {}  # where a bucket's bytes were put last on this rank
        self.opened: dict[int, torch.Tensor] = {}  # the worker's view of the shared halves
        self.requests: SimpleQueue[bytes] = SimpleQueue()
        self.replies: SimpleQueue[bytes] = SimpleQueue()
        self.groups: dict[GroupKey, dist.ProcessGroup] = {}
        self._join_groups(host=True)
        if not any(rank in self.parts.ranks[op] for op in self._ops("init_group")):
            self._join_groups(host=False)

    def act(self, op: int) -> None:
        """Do this rank's part of an op, and wait until it is done."""
        KINDS[self.program.kind_of(op)](self, op)
        self.backend.finish()

    def wrong(self) -> list[str]:
        """The names of the tensors whose bytes are not what they must be."""
        names = self.content.resolved.weights.names
        return [names[i] for i, held in self.weights.items() if not self._right(i, held)]

    def _right(self, tensor: int, held: torch.Tensor) -> bool:
        return torch.equal(held.cpu(), torch.from_numpy(self.content.expected(self.rank, tensor)))

    def close(self) -> None:
        """Nobody reads what this rank owns any more."""
        for memory in self.shared.values():
            memory.close()

    # Setup and release

    def gather_metas(self, op: int) -> None:
        """Every rank tells every other what it owns, and where it lies if others may read it."""
        metas = {bucket: self.content.metas(bucket) for bucket in self.content.owned(self.rank)}
        mine = metas, {buffer: memory.address for buffer, memory in self.shared.items()}
        told = [mine for _ in self.parts.ranks[op]]
        dist.all_gather_object(told, mine, group=self.groups[self._key(op)])
        for metas, addresses in told:
            self.metas |= metas
            self.addresses |= addresses

    def init_group(self, op: int) -> None:
        """Make the process groups of the device lanes, and connect them."""
        self._join_groups(host=False)
        for key, group in self.groups.items():
            if key[0] not in HOST_LANES and self.rank in key[1]:
                dist.barrier(group)

    def allocate(self, op: int) -> None:
        """Agree on the size of the buffers, then allocate them."""
        sizes = {access.buffer: access.bytes for access in self._accesses(op, write=True)}
        self._reduced(op, sum(sizes.values()), dist.ReduceOp.MIN)
        for buffer, size in sizes.items():
            self.buffers[buffer] = torch.empty(size, dtype=torch.uint8, device=self.backend.device)

    def register(self, op: int) -> None:
        """Get access to the memory of the owners from whom this rank reads; they have no part in it."""
        reads = [read for read in self._ops("read") if self.program.root[read] == self.rank]
        owned = {self._source(read).buffer for read in reads}
        self.mapped = {buffer: mapped(self.addresses[buffer]) for buffer in sorted(owned)}

    def unregister(self, op: int) -> None:
        """Give the access up."""
        self.mapped.clear()

    def open_handle(self, op: int) -> None:
        """The worker takes hold of the parameter server's buffers."""
        self.opened = {buffer: held for buffer, held in self.buffers.items() if self._is_device(buffer)}
        self.replies.put(pickle.dumps("opened"))

    def drop_handle(self, op: int) -> None:
        """The worker lets them go."""
        self.opened.clear()
        gc.collect()
        self.backend.free()

    def free_buffers(self, op: int) -> None:
        """The parameter server frees them."""
        self.latest.clear()
        for access in self._accesses(op, write=False):
            del self.buffers[access.buffer]
        gc.collect()
        self.backend.free()

    def post_hook(self, op: int) -> None:
        """The worker has nothing to process after loading: it forgets what it was told, and collects garbage."""
        self.metas.clear()
        gc.collect()

    def destroy_group(self, op: int) -> None:
        """Leave the process groups of the device lanes."""
        for key in [key for key in self.groups if key[0] not in HOST_LANES and self.rank in key[1]]:
            dist.destroy_process_group(self.groups.pop(key))

    # One bucket

    def copy(self, op: int) -> None:
        """From one buffer to another: host to device, or inside the device."""
        (source,), (target,) = self._accesses(op, write=False), self._accesses(op, write=True)
        self._put(op, self._range(target), self._range(source))

    def read(self, op: int) -> None:
        """From the memory of the bucket's owner, which may be another rank and has no part in it."""
        (target,), source = self._accesses(op, write=True), self._source(op)
        there = self.mapped[source.buffer][source.offset :][: source.bytes]
        self._put(op, self._range(target), there)

    def broadcast(self, op: int) -> None:
        """The bucket's bytes from its root to the shared half of every rank; the root's may lie elsewhere yet."""
        (target,) = (self._range(access) for access in self._accesses(op, write=True))
        root = int(self.program.root[op])
        if root == self.rank and self.latest[self._bucket(op)].data_ptr() != target.data_ptr():
            self._put(op, target, self.latest[self._bucket(op)])
        dist.broadcast(target, src=root, group=self.groups[self._key(op)])

    def agree(self, op: int) -> None:
        """All-reduce of the error code; an error would have ended this rank before, so it is zero."""
        failed = self._reduced(op, 0, dist.ReduceOp.SUM)
        assert failed == 0, f"{failed} ranks failed"

    def sync(self, op: int) -> None:
        """Wait for the device."""
        self.backend.synchronize()

    def barrier(self, op: int) -> None:
        """Wait for all ranks."""
        dist.barrier(self.groups[self._key(op)])

    def wait_worker(self, op: int) -> None:
        """The parameter server reads the worker's reply."""
        pickle.loads(self.replies.get())

    def send_meta(self, op: int) -> None:
        """The parameter server tells the worker which tensors the bucket holds."""
        bucket = self._bucket(op)
        self.requests.put(pickle.dumps((bucket, self.metas[bucket])))

    def reload(self, op: int) -> None:
        """The worker copies its share of every tensor of the bucket out of the shared half."""
        bucket, metas = pickle.loads(self.requests.get())
        assert bucket == self._bucket(op), "requests come in order"
        (read,) = self._accesses(op, write=False)
        half = self.opened[read.buffer][read.offset :]
        for meta in metas:
            kept = self.content.kept(self.rank, meta.size)
            self.backend.copy(self.weights[meta.tensor], half[meta.offset :][kept])
        self.backend.finish()
        self.replies.put(pickle.dumps(bucket))

    # What they share

    def _put(self, op: int, target: torch.Tensor, source: torch.Tensor) -> None:
        self.backend.copy(target, source)
        self.latest[self._bucket(op)] = target

    def _bucket(self, op: int) -> int:
        return int(self.program.tags["bucket"][op])

    def _range(self, access: Access) -> torch.Tensor:
        return self.buffers[access.buffer][access.offset :][: access.bytes]

    def _ops(self, *kinds: str) -> list[int]:
        found: list[int] = self.program.of_kind(*kinds).nonzero()[0].tolist()
        return found

    def _accesses(self, op: int, *, write: bool) -> list[Access]:
        """What the op reads or writes on this rank."""
        return [access for access in self._everywhere(op, write=write) if self._is_here(access.buffer)]

    def _everywhere(self, op: int, *, write: bool) -> list[Access]:
        found = [self.program.access_table[i] for i in self.program.accesses[op].tolist()]
        return [access for access in found if access.write == write]

    def _source(self, read: int) -> Access:
        """What a `read` reads, on whichever rank."""
        (source,) = self._everywhere(read, write=False)
        return source

    def _is_here(self, buffer: int) -> bool:
        return self.rank in self.program.places[self.program.buffers[buffer].place].ranks

    def _is_device(self, buffer: int) -> bool:
        return self.program.buffers[buffer].memory == "device"

    def _host_buffers(self) -> Iterator[int]:
        for buffer in range(len(self.program.buffers)):
            if self._is_here(buffer) and not self._is_device(buffer):
                yield buffer

    def _host_memory(self, buffer: int) -> torch.Tensor:
        """The weights that this rank owns."""
        memory = self._sendable(buffer, self.program.buffers[buffer].bytes)
        self.content.fill(self.rank, memory.numpy())
        return memory

    def _sendable(self, buffer: int, size_bytes: int) -> torch.Tensor:
        """Memory from which this rank copies, or from which others read."""
        if not self._ops("read"):
            return self.backend.host(size_bytes)
        self.shared[buffer] = SharedMemory(size_bytes)
        return self.shared[buffer].tensor

    def _resident(self, tensor: int) -> torch.Tensor:
        """The inference engine's own copy of its share, still without content."""
        kept = self.content.kept(self.rank, int(self.content.resolved.weights.nbytes[tensor]))
        return torch.zeros(kept.stop - kept.start, dtype=torch.uint8, device=self.backend.device)

    def _reduced(self, op: int, value: int, how: dist.ReduceOp) -> int:
        key = self._key(op)
        device = "cpu" if key[0] in HOST_LANES else self.backend.device
        number = torch.tensor([value], dtype=torch.int64, device=device)
        dist.all_reduce(number, how, group=self.groups[key])
        return int(number.item())

    def _key(self, op: int) -> GroupKey:
        lane = self.program.lanes[self.program.lanes_of[op][0]]
        return lane.name, tuple(self.parts.ranks[op])

    def _join_groups(self, *, host: bool) -> None:
        """Make the groups of all collectives on host lanes, or on the others.

        Every rank must do so, in the same order, also for groups without it: torch names groups by counting them.
        """
        for key in sorted({self._key(op) for op in self._ops(*COLLECTIVE)}):
            if host == (key[0] in HOST_LANES):
                self.groups[key] = dist.new_group(list(key[1]), backend="gloo" if host else self.backend.collectives)


COLLECTIVE = ("gather_metas", "init_group", "allocate", "broadcast", "agree", "barrier", "destroy_group")
KINDS: dict[str, Callable[[Actor, int], None]] = {
    "gather_metas": Actor.gather_metas,
    "init_group": Actor.init_group,
    "allocate": Actor.allocate,
    "register": Actor.register,
    "open_handle": Actor.open_handle,
    "h2d": Actor.copy,
    "read": Actor.read,
    "copy": Actor.copy,
    "broadcast": Actor.broadcast,
    "wait_worker": Actor.wait_worker,
    "agree": Actor.agree,
    "sync": Actor.sync,
    "send_meta": Actor.send_meta,
    "reload": Actor.reload,
    "drop_handle": Actor.drop_handle,
    "unregister": Actor.unregister,
    "free_buffers": Actor.free_buffers,
    "post_hook": Actor.post_hook,
    "barrier": Actor.barrier,
    "destroy_group": Actor.destroy_group,
}
