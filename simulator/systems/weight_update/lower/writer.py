"""The ops of a broadcast update, one method each: which lanes they hold, which buffers they touch.

Pipelines decide what waits for what. As in checkpoint-engine's ps.py and worker.py, the parameter server process (`ps`)
of a rank copies and broadcasts, and its inference `worker` reloads from the shared IPC halves. Ops of all ranks are
written once per class of ranks that act alike; those methods return one op per class.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ....program import Program, ProgramBuilder
from .plan import UpdatePlan

HOST_LANES = ("ps", "worker", "trainer", "meet")
Ops = list[int]  # one op per class of ranks, unless the text says otherwise


class ClassWriter:
    """Writes ops of classes of ranks that act alike; each class is a place of the Program."""

    def __init__(self, classes: Iterable[Sequence[int]]):
        self.builder = ProgramBuilder()
        self.place: dict[int, int] = {}
        for ranks in classes:
            name = f"r{ranks[0]}" if len(ranks) == 1 else f"r{ranks[0]}..r{ranks[-1]} ({len(ranks)})"
            self.place |= dict.fromkeys(ranks, self.builder.place(name, ranks))

    def lanes(self, places: Iterable[int], *names: str) -> list[int]:
        """These lanes of all places."""
        return [self.builder.lane(place, name) for place in dict.fromkeys(places) for name in names]

    def buffers(self, name: str, places: Iterable[int], size_bytes: int) -> dict[int, int]:
        """A buffer at each of these places."""
        return {place: self.builder.buffer(name, place, size_bytes) for place in places}


class UpdateWriter(ClassWriter):
    """Writes the ops of one plan into a Program."""

    def __init__(self, plan: UpdatePlan):
        super().__init__(plan.classes)
        self.plan, self.world = plan, tuple(range(plan.listed))
        self.classes = [self.place[ranks[0]] for ranks in plan.classes if ranks[0] < plan.listed]
        self._alone = {ranks[0]: self.place[ranks[0]] for ranks in plan.classes if len(ranks) == 1}
        size = plan.size.bytes
        self._halves = [self.buffers(f"ipc{i}", self.classes, size) for i in (0, 1)]
        self._h2d_buffers = self.buffers("h2d", self.classes if plan.size.buffers == 3 else (), size)
        self._owned_bytes = plan.buckets.owned_bytes(plan.ranks)
        self._host_buffers: dict[int, int] = {}

    def prepare(self) -> Ops:
        """Gather the metadata of all ranks, create the process group, plan the buckets and allocate the buffers."""
        plan = self.plan
        tensors = int(plan.buckets.tensors.sum())
        everyone = self.lanes([*self.classes, *self.place.values()], "ps")
        last = self.builder.op(
            "gather_metas", everyone, name="gather_metas", group=tuple(range(plan.ranks)), shape=(tensors, plan.ranks)
        )
        if plan.new_group:
            last = self._gang("init_group", "ps", [last], shape=(plan.ranks,))
        buffers = [access for place in self.classes for access in self._buffers_of(place)]
        size = plan.size.bytes * plan.size.buffers
        last = self._gang("allocate", "ps", [last], shape=(tensors,), size_bytes=size, writes=buffers)
        return self._register("register", self.repeat(last)) if plan.reads else self.repeat(last)

    def _register(self, kind: str, after: Ops) -> Ops:
        """The NICs register or forget the buffers into which ranks read."""
        landing = self.plan.size.bytes * (1 if self.plan.size.buffers == 3 else 2)
        return self._each(kind, "ps", after, size_bytes=landing)

    def open_handle(self, after: Ops) -> Ops:
        """The worker opens the IPC handle of its parameter server's buffer."""
        return self._each("open_handle", "worker", after)

    def repeat(self, op: int) -> Ops:
        """An op that every class waits for, once per class."""
        return [op] * len(self.classes)

    def root_op(self, bucket: int, ops: Ops) -> int:
        """The op of the class of the bucket's root."""
        return ops[self.classes.index(self.place[self._root(bucket)])]

    def h2d(
        self, bucket: int, after: Ops, *, into: str = "h2d", blocks_host: bool = True, acquires: Sequence[int] = ()
    ) -> int:
        """The root takes a bucket from pinned host memory into its H2D buffer, or into an IPC half.

        A copy from its own memory, or in P2P mode an RDMA read of the owner's, which does not involve the owner. With
        `blocks_host` the host thread waits for it, as in a device synchronise.
        """
        root, owner, size = self._root(bucket), int(self.plan.buckets.owner[bucket]), self._size(bucket)
        table = self._h2d_buffers if into == "h2d" else self._halves[bucket % 2]
        self._place_of(root)  # places are numbered on first use: the root's before the owner's
        kind = "read" if self.plan.reads else "h2d"
        return self._of_root(
            kind, ("h2d", "ps") if blocks_host else ("h2d",), bucket, after, shape=(owner,), acquires=acquires,
            name=f"{kind} b{bucket} on r{root}" + f" from r{owner}" * self.plan.reads,
            reads=[(self._host_buffer(owner), int(self.plan.buckets.offset_bytes[bucket]), size)],
            writes=[(table[self.place[root]], 0, size)],
        )  # fmt: skip

    def copy(self, bucket: int, after: Ops, **slots: Sequence[int]) -> int:
        """Write the copy on the root, from the H2D buffer to the IPC half."""
        root, size = self._root(bucket), self._size(bucket)
        place = self.place[root]
        return self._of_root(
            "copy", ("copy",), bucket, after, name=f"copy b{bucket} on r{root}",
            reads=[(self._h2d_buffers[place], 0, size)], writes=[(self._halves[bucket % 2][place], 0, size)], **slots,
        )  # fmt: skip

    def _of_root(self, kind: str, lanes: Sequence[str], bucket: int, after: Ops, **fields: Any) -> int:
        root = self._root(bucket)
        place = self._place_of(root)
        return self.builder.op(
            kind, self.lanes([place], *lanes), after, size_bytes=self._size(bucket), root=root,
            tags=self._tags(bucket), **fields,
        )  # fmt: skip

    def broadcast(self, bucket: int, after: Ops, *, out_of: str = "ipc", **slots: Sequence[int]) -> int:
        """The bucket's bytes into the IPC half of every rank, out of the root's own half or its H2D buffer."""
        size, root = self._size(bucket), self._root(bucket)
        halves = self._halves[bucket % 2]
        source = (halves if out_of == "ipc" else self._h2d_buffers)[self.place[root]]
        return self._gang(
            "broadcast", "comm", after, name=f"broadcast b{bucket} from r{root}", size_bytes=size, root=root,
            reads=[(source, 0, size)], writes=[(half, 0, size) for half in halves.values()],
            tags=self._tags(bucket), **slots,
        )  # fmt: skip

    def wait(self, bucket: int, loaded: Ops, copied: Mapping[int, int]) -> Ops:
        """The parameter server hears from its worker that the previous bucket is loaded (ZMQ reply).

        `copied` are the H2D ops of the round by bucket: each server's host waits for its own first.
        """
        own: dict[int, list[int]] = {}
        for number, op in copied.items():
            own.setdefault(self.place[self._root(number)], []).append(op)
        return [
            self._one("wait_worker", "ps", place, [op, *own.get(place, ())], bucket)
            for place, op in zip(self.classes, loaded, strict=True)
        ]

    def agree(self, bucket: int, after: Ops) -> int:
        """All-reduce of the error code: the slowest worker gates everybody."""
        return self._gang("agree", "comm", after, name=f"agree b{bucket}", size_bytes=8, tags=self._tags(bucket))

    def sync(self, bucket: int, after: Ops) -> Ops:
        """Device synchronise: the broadcast is complete."""
        return self._each("sync", "ps", after, bucket=bucket)

    def send_meta(self, bucket: int, after: Ops) -> Ops:
        """The bucket's tensor metadata goes to the worker (ZMQ request); shape is (tensors,)."""
        return self._each("send_meta", "ps", after, bucket=bucket, shape=(int(self.plan.buckets.tensors[bucket]),))

    def reload(self, bucket: int, sent: Ops, before: Ops, pools: Sequence[int] = ()) -> Ops:
        """Each worker walks all tensors of the bucket and keeps its share; shape is (tensors, bytes kept).

        `before` are its previous reloads; `pools`, one per class, get back the slot of the IPC half that was read.
        """
        size, half = self._size(bucket), self._halves[bucket % 2]
        shape = (int(self.plan.buckets.tensors[bucket]), round(size * self.plan.kept_fraction))
        return [
            self._one(
                "reload", "worker", place, (sent[i], before[i]), bucket, shape=shape, size_bytes=size,
                reads=((half[place], 0, size),), releases=pools[i : i + 1],
            )
            for i, place in enumerate(self.classes)
        ]  # fmt: skip

    def finish(self, after: Ops) -> Program:
        """Workers drop the handle and empty their cache, servers free the buffers, post-hook, barrier, group gone."""
        last = self._each("drop_handle", "worker", after)
        if self.plan.reads:
            last = self._register("unregister", last)
        last = [
            self._one("free_buffers", "ps", place, [op], reads=self._buffers_of(place))
            for place, op in zip(self.classes, last, strict=True)
        ]
        last = self._each("post_hook", "worker", last, dtype=self.plan.dtype)
        barrier = self._gang("barrier", "comm", last)
        self._gang("destroy_group", "ps", [barrier])
        return self.builder.build()

    def ipc_pools(self) -> Ops:
        """A pool of two halves per class."""
        return [self.builder.pool("ipc", place, 2) for place in self.classes]

    def h2d_pool(self, owner: int) -> int:
        """The single H2D buffer of a rank as a pool."""
        return self.builder.pool(f"h2d of r{owner}", self._place_of(owner), 1)

    def _gang(self, kind: str, lane: str, after: Sequence[int], **fields: Any) -> int:
        return self.builder.op(kind, self.lanes(self.classes, lane), after, group=self.world, **{"name": kind} | fields)

    def _each(self, kind: str, lane: str, after: Ops, bucket: int = -1, **fields: Any) -> Ops:
        pairs = zip(self.classes, after, strict=True)
        return [self._one(kind, lane, place, [op], bucket, **fields) for place, op in pairs]

    def _one(self, kind: str, lane: str, place: int, after: Sequence[int], bucket: int = -1, **fields: Any) -> int:
        where = self.builder.place_name(place)
        name = f"{kind} b{bucket} on {where}" if bucket >= 0 else f"{kind} on {where}"
        return self.builder.op(kind, self.lanes([place], lane), after, name=name, tags=self._tags(bucket), **fields)

    def _place_of(self, rank: int) -> int:
        """The place of one rank: its class if it is alone in it, else a new one."""
        if rank not in self._alone:
            self._alone[rank] = self.builder.place(f"r{rank}", (rank,))
        return self._alone[rank]

    def _host_buffer(self, owner: int) -> int:
        if owner not in self._host_buffers:
            owned = int(self._owned_bytes[owner])
            self._host_buffers[owner] = self.builder.buffer("weights", self._place_of(owner), owned, "host")
        return self._host_buffers[owner]

    def _buffers_of(self, place: int) -> list[tuple[int, int, int]]:
        """All device buffers of a place, whole: what allocating and freeing touch."""
        tables = (*self._halves, self._h2d_buffers)
        return [(table[place], 0, self.plan.size.bytes) for table in tables if place in table]

    def _tags(self, bucket: int) -> dict[str, int]:
        return {"bucket": bucket, "round": int(self.plan.buckets.round[bucket])} if bucket >= 0 else {}

    def _root(self, bucket: int) -> int:
        return int(self.plan.buckets.root[bucket])

    def _size(self, bucket: int) -> int:
        return int(self.plan.buckets.bytes[bucket])
