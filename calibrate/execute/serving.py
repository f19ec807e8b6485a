"""An update by parameter servers beside the engines: what a rank does for the ops of each kind, for real.

A rank's parameter server and its worker are threads of one process: their messages are pickled and queued instead of
sent through ZeroMQ, and the shared halves are plain memory instead of a CUDA IPC handle.
"""

import gc
import pickle
from queue import SimpleQueue

import torch
import torch.distributed as dist

from ...simulator.program import Access
from .acts import HOST_LANES, Actor, Address, NearMemory, SharedMemory, open_memory
from .content import Meta, ServedContent
from .far import FarMemory


class ServedActor(Actor[ServedContent]):
    """One rank: a parameter server, its worker, and the queues between them."""

    collective = ("gather_metas", "init_group", "allocate", "broadcast", "agree", "barrier", "destroy_group")

    def prepare(self) -> None:
        """Host memory with the weights that this rank owns, from which it copies or others read; and the queues."""
        for number, buffer in enumerate(self.program.buffers):
            if self._is_here(number) and buffer.memory != "device":
                if self._ops("read"):
                    self.shared[number] = SharedMemory(buffer.bytes)
                    self.buffers[number] = self.shared[number].tensor
                else:
                    self.buffers[number] = self.backend.host(buffer.bytes)
                self.content.fill(self.rank, self.buffers[number].numpy())
        self.metas: dict[int, list[Meta]] = {}  # of every bucket, once gathered
        self.addresses: dict[int, Address] = {}  # of what all ranks share, once gathered
        self.mapped: dict[int, NearMemory | FarMemory] = {}  # what this rank reads of it
        self.latest: dict[int, torch.Tensor] = {}  # where a bucket's bytes were put last on this rank
        self.opened: dict[int, torch.Tensor] = {}  # the worker's view of the shared halves
        self.requests: SimpleQueue[bytes] = SimpleQueue()
        self.replies: SimpleQueue[bytes] = SimpleQueue()

    def do_gather_metas(self, op: int) -> None:
        """Every rank tells every other what it owns, and where it lies if others may read it."""
        metas = {bucket: self.content.metas(bucket) for bucket in self.content.buckets_of(self.rank)}
        mine = metas, {buffer: memory.address for buffer, memory in self.shared.items()}
        every = [mine for _ in self.parts.ranks[op]]
        dist.all_gather_object(every, mine, group=self.groups[self._key(op)])
        for metas, addresses in every:
            self.metas |= metas
            self.addresses |= addresses

    def do_register(self, op: int) -> None:
        """Get access to the memory of the owners from whom this rank reads; they have no part in it."""
        reads = [read for read in self._ops("read") if self.program.root[read] == self.rank]
        owned = {self._source(read).buffer for read in reads}
        self.mapped = {buffer: open_memory(self.addresses[buffer]) for buffer in sorted(owned)}

    def do_unregister(self, op: int) -> None:
        """Give the access up."""
        self.mapped.clear()

    def do_open_handle(self, op: int) -> None:
        """The worker takes hold of the parameter server's buffers."""
        on_device = [buffer for buffer in self.buffers if self.program.buffers[buffer].memory == "device"]
        self.opened = {buffer: self.buffers[buffer] for buffer in on_device}
        self.replies.put(pickle.dumps("opened"))

    def do_drop_handle(self, op: int) -> None:
        """The worker lets them go, once nothing reads them any more."""
        self.backend.synchronize()
        self.opened.clear()
        gc.collect()
        self.backend.free()

    def do_free_buffers(self, op: int) -> None:
        """The parameter server frees them, once nothing reads them any more."""
        self.backend.synchronize()
        self.latest.clear()
        for access in self._accesses(op, write=False):
            del self.buffers[access.buffer]
        gc.collect()
        self.backend.free()

    def do_post_hook(self, op: int) -> None:
        """The worker has nothing to process after loading: it forgets what it was told, and collects garbage."""
        self.metas.clear()
        gc.collect()

    def do_destroy_group(self, op: int) -> None:
        """Leave the process groups of the device lanes."""
        for key in [key for key in self.groups if key[0] not in HOST_LANES and self.rank in key[1]]:
            dist.destroy_process_group(self.groups.pop(key))

    def do_copy(self, op: int) -> None:
        """Copy one buffer to another: host to device, or inside the device."""
        (source,), (target,) = self._accesses(op, write=False), self._accesses(op, write=True)
        self._put(op, self._range(target), self._range(source))

    do_h2d = do_copy

    def do_read(self, op: int) -> None:
        """Read from the memory of the bucket's owner, which may be another rank and does nothing for it."""
        (target,), source = self._accesses(op, write=True), self._source(op)
        self.latest[self._bucket(op)] = into = self._range(target)
        self.mapped[source.buffer].read(slice(source.offset, source.offset + source.bytes), into)

    def do_broadcast(self, op: int) -> None:
        """The bucket's bytes from its root to the shared half of every rank; the root's may lie elsewhere yet."""
        (target,) = (self._range(access) for access in self._accesses(op, write=True))
        root = int(self.program.root[op])
        if root == self.rank and self.latest[self._bucket(op)].data_ptr() != target.data_ptr():
            self._put(op, target, self.latest[self._bucket(op)])
        dist.broadcast(target, src=root, group=self.groups[self._key(op)])

    def do_agree(self, op: int) -> None:
        """All-reduce of the error code; an error would have ended this rank before, so it is zero."""
        failed = self._all_reduce(op, 0, dist.ReduceOp.SUM)
        assert failed == 0, f"{failed} ranks failed"

    def do_sync(self, op: int) -> None:
        """Wait for the device."""
        self.backend.synchronize()

    def do_wait_worker(self, op: int) -> None:
        """The parameter server reads the worker's reply."""
        pickle.loads(self.replies.get())

    def do_send_meta(self, op: int) -> None:
        """The parameter server tells the worker which tensors the bucket holds."""
        bucket = self._bucket(op)
        self.requests.put(pickle.dumps((bucket, self.metas[bucket])))

    def do_reload(self, op: int) -> None:
        """The worker copies its share of every tensor of the bucket out of the shared half."""
        bucket, metas = pickle.loads(self.requests.get())
        assert bucket == self._bucket(op), "requests come in order"
        (read,) = self._accesses(op, write=False)
        half = self.opened[read.buffer][read.offset :]
        for meta in metas:
            kept = self.content.slice_of(self.rank, meta.tensor)
            self.backend.copy(self.weights[meta.tensor], half[meta.offset :][kept])
        self.backend.finish()
        self.replies.put(pickle.dumps(bucket))

    def _put(self, op: int, target: torch.Tensor, source: torch.Tensor) -> None:
        self.backend.copy(target, source)
        self.latest[self._bucket(op)] = target

    def _source(self, read: int) -> Access:
        """What a `read` reads, on whichever rank."""
        (source,) = self._accesses_of_all(read, write=False)
        return source
