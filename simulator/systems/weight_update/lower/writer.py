"""The ops of a broadcast update, one method each: which lanes they hold, which buffers they touch.

Pipelines decide what waits for what. Names as in the source (checkpoint-engine's ps.py and worker.py): the parameter
server process (`ps`) of a rank copies and broadcasts; its inference `worker` reloads from the shared IPC halves.

An op of every rank is written once per class of ranks that act alike; the methods that do so return one op per class.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ....program import Program, ProgramBuilder
from .plan import UpdatePlan

HOST_LANES = ("ps", "worker", "trainer", "meet")
Pools = Sequence[int]
Ops = list[int]  # one op per class of ranks, unless the text says otherwise


class UpdateWriter:
    """Writes the ops of one plan into a Program."""

    def __init__(self, plan: UpdatePlan):
        self.plan, self.builder = plan, ProgramBuilder()
        self.world = tuple(range(plan.listed))
        places = {ranks: self.builder.place(_class_name(ranks), ranks) for ranks in plan.classes}
        self.classes = [place for ranks, place in places.items() if ranks[0] < plan.listed]
        self._others = [place for ranks, place in places.items() if ranks[0] >= plan.listed]
        self._class_of = {rank: place for ranks, place in places.items() for rank in ranks}
        self._alone = {ranks[0]: self._class_of[ranks[0]] for ranks in plan.classes if len(ranks) == 1}
        size = plan.size.bytes
        self._halves = [{place: self.builder.buffer(f"ipc{i}", place, size) for place in self.classes} for i in (0, 1)]
        staged = self.classes if plan.size.buffers == 3 else []
        self._h2d_buffers = {place: self.builder.buffer("h2d", place, size) for place in staged}
        self._owned_bytes = plan.buckets.owned_bytes(plan.ranks)
        self._host_buffers: dict[int, int] = {}

    def build(self) -> Program:
        """The Program written so far."""
        return self.builder.build()

    def prepare(self) -> Ops:
        """Gather the metadata of all ranks, create the process group, plan the buckets and allocate the buffers."""
        plan = self.plan
        tensors = int(plan.buckets.tensors.sum())
        everyone = [self.builder.lane(place, "ps") for place in (*self.classes, *self._others)]
        gathered = self.builder.op(
            "gather_metas", everyone, name="gather_metas", group=tuple(range(plan.ranks)), shape=(tensors, plan.ranks)
        )
        joined = self._gang("init_group", "ps", [gathered], shape=(plan.ranks,)) if plan.new_group else gathered
        size = plan.size.bytes * plan.size.buffers
        allocated = self._gang(
            "allocate", "ps", [joined], shape=(tensors,), size_bytes=size, writes=self._every_buffer()
        )
        ready = [allocated] * len(self.classes)
        return self._registered("register", ready) if plan.reads else ready

    def _registered(self, kind: str, after: Ops) -> Ops:
        """The buffers into which ranks read become known to the NICs, or are forgotten."""
        landing = self.plan.size.bytes * (1 if self.plan.size.buffers == 3 else 2)
        return self._each(kind, "ps", after, size_bytes=landing)

    def handle(self, after: Ops) -> Ops:
        """The worker opens the IPC handle of its parameter server's buffer."""
        return self._each("open_handle", "worker", after)

    def each(self, op: int) -> Ops:
        """The same op for every class, where each of them waits for it."""
        return [op] * len(self.classes)

    def of_root(self, bucket: int, ops: Ops) -> int:
        """Of one op per class, the one on the bucket's root."""
        return ops[self.classes.index(self._class_of[self._root(bucket)])]

    def h2d(self, bucket: int, after: Ops, *, into: str = "h2d", blocks_host: bool = True, acquires: Pools = ()) -> int:
        """The root takes a bucket from pinned host memory into its H2D buffer, or into an IPC half.

        From its own by a copy; in P2P mode from the owner's by an RDMA read, in which the owner has no part. With
        `blocks_host` its host thread issues the copy and waits for it, as a device synchronise does.
        """
        root, owner, size = self._root(bucket), int(self.plan.buckets.owner[bucket]), self._size(bucket)
        half = self._halves[bucket % 2][self._class_of[root]]
        target = self._h2d_buffers[self._class_of[root]] if into == "h2d" else half
        place = self._place_of(root)
        kind = "read" if self.plan.reads else "h2d"
        return self.builder.op(
            kind,
            [self.builder.lane(place, lane) for lane in (("h2d", "ps") if blocks_host else ("h2d",))],
            after,
            name=f"{kind} b{bucket} on r{root}" + f" from r{owner}" * self.plan.reads,
            size_bytes=size,
            shape=(owner,),
            root=root,
            reads=[(self._host_buffer(owner), int(self.plan.buckets.offset_bytes[bucket]), size)],
            writes=[(target, 0, size)],
            acquires=acquires,
            tags=self._tags(bucket),
        )

    def copy(self, bucket: int, after: Ops, acquires: Pools = (), releases: Pools = ()) -> int:
        """On the root, from the H2D buffer to the IPC half."""
        root, size = self._root(bucket), self._size(bucket)
        place = self._class_of[root]
        return self.builder.op(
            "copy",
            [self.builder.lane(self._place_of(root), "copy")],
            after,
            name=f"copy b{bucket} on r{root}",
            size_bytes=size,
            root=root,
            reads=[(self._h2d_buffers[place], 0, size)],
            writes=[(self._halves[bucket % 2][place], 0, size)],
            acquires=acquires,
            releases=releases,
            tags=self._tags(bucket),
        )

    def broadcast(
        self, bucket: int, after: Ops, *, out_of: str = "ipc", acquires: Pools = (), releases: Pools = ()
    ) -> int:
        """The bucket's bytes into the IPC half of every rank, out of the root's own half or its H2D buffer."""
        size, root = self._size(bucket), self._class_of[self._root(bucket)]
        source = self._halves[bucket % 2][root] if out_of == "ipc" else self._h2d_buffers[root]
        return self._gang(
            "broadcast",
            "comm",
            after,
            name=f"broadcast b{bucket} from r{self._root(bucket)}",
            size_bytes=size,
            root=self._root(bucket),
            reads=[(source, 0, size)],
            writes=[(half, 0, size) for half in self._halves[bucket % 2].values()],
            acquires=acquires,
            releases=releases,
            tags=self._tags(bucket),
        )

    def wait(self, bucket: int, loaded: Ops, copied: Mapping[int, int]) -> Ops:
        """The parameter server hears from its worker that the previous bucket is loaded (ZMQ reply).

        `copied` are the H2D ops of the round by bucket: each server's host waits for its own first.
        """
        own = {place: [op for g, op in copied.items() if self._class_of[self._root(g)] == place]
               for place in (self.classes if copied else ())}  # fmt: skip
        return [
            self._one("wait_worker", "ps", place, [loaded[i], *own.get(place, ())], bucket)
            for i, place in enumerate(self.classes)
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

    def reload(self, bucket: int, told: Ops, before: Ops, pools: Pools = ()) -> Ops:
        """Each worker walks all tensors of the bucket and keeps its share; shape is (tensors, bytes kept).

        `before` are its previous reloads; `pools`, one per class, get back the slot of the IPC half that was read.
        """
        size, tensors = self._size(bucket), int(self.plan.buckets.tensors[bucket])
        shape = (tensors, round(size * self.plan.kept_fraction))
        half = self._halves[bucket % 2]
        return [
            self._one("reload", "worker", place, (told[i], before[i]), bucket, shape=shape, size_bytes=size,
                      reads=((half[place], 0, size),), releases=pools[i : i + 1])
            for i, place in enumerate(self.classes)
        ]  # fmt: skip

    def release(self, after: Ops) -> int:
        """Workers drop the handle and empty their cache, servers free the buffers, post-hook, barrier, group gone."""
        dropped = self._each("drop_handle", "worker", after)
        if self.plan.reads:
            dropped = self._registered("unregister", dropped)
        freed = [
            self._one("free_buffers", "ps", place, [dropped[i]], reads=self._buffers_of(place))
            for i, place in enumerate(self.classes)
        ]
        hooked = self._each("post_hook", "worker", freed, dtype=self.plan.dtype)
        barrier = self._gang("barrier", "comm", hooked)
        return self._gang("destroy_group", "ps", [barrier])

    def ipc_pools(self) -> Ops:
        """A pool of two halves per class."""
        return [self.builder.pool("ipc", place, 2) for place in self.classes]

    def h2d_pool(self, owner: int) -> int:
        """The single H2D buffer of a rank as a pool."""
        return self.builder.pool(f"h2d of r{owner}", self._place_of(owner), 1)

    def _gang(self, kind: str, lane: str, after: Sequence[int], **fields: Any) -> int:
        lanes = [self.builder.lane(place, lane) for place in self.classes]
        return self.builder.op(kind, lanes, after, group=self.world, **{"name": kind} | fields)

    def _each(self, kind: str, lane: str, *after: Ops, bucket: int = -1, **fields: Any) -> Ops:
        return [
            self._one(kind, lane, place, [ops[i] for ops in after], bucket, **fields)
            for i, place in enumerate(self.classes)
        ]

    def _one(self, kind: str, lane: str, place: int, after: Sequence[int], bucket: int = -1, **fields: Any) -> int:
        where = self.builder.place_name(place)
        name = f"{kind} b{bucket} on {where}" if bucket >= 0 else f"{kind} on {where}"
        lanes = [self.builder.lane(place, lane)]
        return self.builder.op(kind, lanes, after, name=name, tags=self._tags(bucket), **fields)

    def _place_of(self, rank: int) -> int:
        """The place of one rank: its class if it is alone there, else one of its own, made on first use."""
        if rank not in self._alone:
            self._alone[rank] = self.builder.place(f"r{rank}", (rank,))
        return self._alone[rank]

    def _host_buffer(self, owner: int) -> int:
        if owner not in self._host_buffers:
            owned = int(self._owned_bytes[owner])
            self._host_buffers[owner] = self.builder.buffer("weights", self._place_of(owner), owned, "host")
        return self._host_buffers[owner]

    def _buffers_of(self, place: int) -> list[tuple[int, int, int]]:
        """The whole of every device buffer of a place: what allocating and freeing touch."""
        tables = (*self._halves, self._h2d_buffers)
        return [(table[place], 0, self.plan.size.bytes) for table in tables if place in table]

    def _every_buffer(self) -> list[tuple[int, int, int]]:
        return [access for place in self.classes for access in self._buffers_of(place)]

    def _tags(self, bucket: int) -> dict[str, int]:
        return {"bucket": bucket, "round": int(self.plan.buckets.round[bucket])} if bucket >= 0 else {}

    def _root(self, bucket: int) -> int:
        return int(self.plan.buckets.root[bucket])

    def _size(self, bucket: int) -> int:
        return int(self.plan.buckets.bytes[bucket])


def _class_name(ranks: tuple[int, ...]) -> str:
    return f"r{ranks[0]}" if len(ranks) == 1 else f"r{ranks[0]}..r{ranks[-1]} ({len(ranks)})"
