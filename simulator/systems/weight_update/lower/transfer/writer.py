"""The ops of an update from trainers to engines, one method each: which lanes they hold, which buffers they touch.

Methods (`programs`) decide what waits for what. A trainer's host thread is `trainer`, an engine's `worker`; `comm`
carries collectives and copies of one process. Ops of ranks that act alike are written once, per class of ranks.
"""

from collections.abc import Sequence
from typing import Any

from .....program import Program
from ..writer import ClassWriter
from .plan import Bucket, TransferPlan

Pairs = Sequence[tuple[int, int]]
Slots = Sequence[int]
Range = tuple[int, int, int]  # buffer, offset, bytes


class TransferWriter(ClassWriter):
    """Writes the ops of one plan into a Program; `trainers` and `receivers` are their places.

    `striped`: the ranks of a stage send its buckets in turn, all trainers at once, and receivers have a buffer for
    each. Without `lands`, receivers have no buffers, as bytes are written where they are used. `flattens`: trainers
    have a buffer in which they pack tensors.
    """

    def __init__(self, plan: TransferPlan, *, striped: bool = False, lands: bool = True, flattens: bool = False):
        super().__init__(_classes_by_role(plan))
        self.plan, self.transport, size = plan, plan.transport, plan.bucket_bytes
        self.trainers, self.receivers = self.places(plan.trainers), self.places(plan.receivers)
        self._senders = len(plan.stages[0].ranks) if striped else 1
        slots = self.transport.slots
        sent, landed = (len(plan.stages), len(plan.trainers)) if striped else (0, 0)
        self._send = [self.buffers(f"send{i}", self.trainers, size) for i in range(max(sent, slots))]
        landings = range(lands * max(landed, slots))
        self._receive = [self.buffers(f"receive{i}", self.receivers, size) for i in landings]
        self._flat = self.buffers("flat", self.trainers, size) if flattens else {}

    def places(self, ranks: Sequence[int]) -> list[int]:
        """The places of these ranks, each once."""
        return sorted({self.place[rank] for rank in ranks})

    def lanes_of_rank(self, rank: int, name: str) -> list[int]:
        """A lane at the place of one rank."""
        return [self.builder.lane(self.place[rank], name)]

    def pool(self, name: str, rank: int, slots: int) -> int:
        """Slots at the place of a rank."""
        return self.builder.pool(name, self.place[rank], slots)

    def gang(self, kind: str, lane: str, places: Sequence[int], after: Sequence[int], **fields: Any) -> int:
        """One op at all these places."""
        return self.builder.op(kind, self.lanes(places, lane), after, name=kind, **fields)

    def op(self, kind: str, bucket: Bucket, lanes: Sequence[int], after: Sequence[int], **fields: Any) -> int:
        """One op for a bucket."""
        tags = {"bucket": bucket.number, "round": bucket.round}
        return self.builder.op(kind, lanes, after, **({"name": f"{kind} b{bucket.number}", "tags": tags} | fields))

    def _walk(self, kind: str, bucket: Bucket, lanes: Sequence[int], after: Sequence[int], size: int) -> int:
        """An op that walks the tensors of a bucket that a group has."""
        return self.op(kind, bucket, lanes, after, size_bytes=size, shape=(bucket.part_tensors,))

    # Around the transfer

    def begin(self) -> int:
        """Requests are paused (and drained), caches flushed, the group made, the buffers allocated."""
        everyone = [*self.trainers, *self.receivers]
        after = self.gang("pause", "worker", self.receivers, ())
        after = self.gang("begin", "worker", self.receivers, [after])
        if self.transport.new_group:
            ranks = len(self.plan.trainers) + len(self.plan.receivers)
            after = self.gang("init_group", "trainer", everyone, [after], shape=(ranks,))
        if self.transport.registers:
            kept = sum(bucket.kept_tensors for bucket in self.plan.buckets)
            after = self.gang("register_tensors", "worker", self.receivers, [after], shape=(kept,))
        buffers = [table[place] for table in (*self._send, *self._receive, self._flat) for place in table]
        return self.gang(
            "allocate", "trainer", everyone, [after], size_bytes=self.plan.bucket_bytes * self.transport.slots,
            shape=(sum(bucket.tensors for bucket in self.plan.buckets),),
            writes=[(buffer, 0, self.plan.bucket_bytes) for buffer in buffers],
        )  # fmt: skip

    def finish(self, after: Sequence[int]) -> Program:
        """Post-hook on all engines, a barrier, requests resume."""
        hooked = self.gang("post_hook", "worker", self.receivers, after, dtype=self.transport.dtype)
        met = self.gang("barrier", "comm", [*self.trainers, *self.receivers], [hooked])
        self.gang("resume", "worker", self.receivers, [met])
        return self.builder.build()

    # At the trainers

    def gather(
        self, bucket: Bucket, after: Sequence[int], *, into: Sequence[int] = (), everywhere: bool = False,
        acquires: Slots = (),
    ) -> int:  # fmt: skip
        """The stage's ranks (or all trainers) gather full tensors, rename and convert them.

        Into the send buffers of `into` (default: of all of them). The op's group are the groups that gather, one after
        the other. Shape is (tensors, ranks of a group, tensors of which a rank holds a part). Quantising and encoding
        before the wire follow.
        """
        ranks = self.plan.trainers if everywhere else bucket.stage.ranks
        op = self.op(
            "gather", bucket, self.lanes(self.places(ranks), "trainer", "comm"), after,
            size_bytes=round(bucket.part * self.transport.gathered), group=bucket.gatherers,
            shape=(self._gathered(bucket.part_tensors), bucket.phase.mesh.size, self._gathered(bucket.local_tensors)),
            writes=self.source_ranges(bucket, into or ranks), acquires=acquires,
        )  # fmt: skip
        return self.prepare(bucket, op)

    def prepare(self, bucket: Bucket, after: int, shares: int = 1) -> int:
        """Quantise and encode before the wire: every rank of the stage its part, or 1 / `shares` of it."""
        lanes = self.lanes(self.places(bucket.stage.ranks), "trainer")
        if self.transport.quantize == "before":
            size = round(bucket.part * self.transport.gathered) // shares
            tensors = self._gathered(bucket.part_tensors)
            after = self.op("quantize", bucket, lanes, [after], size_bytes=size, shape=(tensors,))
        if self.transport.delta:
            after = self._walk("encode", bucket, lanes, [after], bucket.part // shares)
        return after

    def _gathered(self, tensors: int) -> int:
        """Of so many tensors on the wire those that are gathered: scales are not, where these are made of them."""
        return max(round(tensors * self.transport.gathered_tensors), 1)

    def send_meta(self, bucket: Bucket, after: Sequence[int]) -> int:
        """The sender names the bucket's tensors to the engines."""
        return self.op(
            "send_meta", bucket, self.lanes_of_rank(bucket.stage.head, "trainer"), after, shape=(bucket.tensors,)
        )

    def replicate(self, bucket: Bucket, shape: int, after: Sequence[int]) -> int:
        """Every source loads its share into a host replica shaped like a receiver's; `shape` counts these.

        Shape is (tensors walked, tensors kept, whether they are experts').
        """
        return self.op(
            "replicate", bucket, self.lanes(self.places(bucket.stage.ranks), "trainer"), after,
            name=f"replicate b{bucket.number} shape {shape}", size_bytes=bucket.kept,
            shape=(bucket.tensors, bucket.kept_tensors, int(bucket.phase.expert)),
        )  # fmt: skip

    # On the wire

    def broadcast(
        self, bucket: Bucket, sender: int, after: Sequence[int], *, relays: Sequence[int] = (), lane: str = "comm",
        **slots: Slots,
    ) -> int:  # fmt: skip
        """Write a broadcast from the sender to all receivers, also through `relays`; shape is (messages,)."""
        lanes = self.lanes([*self.places([sender, *relays]), *self.receivers], lane)
        return self.op(
            "broadcast", bucket, lanes, after, name=f"broadcast b{bucket.number} from r{sender}", root=sender,
            size_bytes=self.wire_bytes(bucket.bytes), group=(sender, *relays, *self.plan.receivers),
            shape=(bucket.tensors if self.transport.messages == "tensor" else 1,),
            reads=self.source_ranges(bucket, [sender]),
            writes=[*self.source_ranges(bucket, relays), *self.landed(bucket)], **slots,
        )  # fmt: skip

    def write(
        self, kind: str, bucket: Bucket, lanes: Sequence[int], after: Sequence[int], pairs: Pairs, size_bytes: int,
        *, from_host: bool = False, reads: Sequence[Range] = (), writes: Sequence[Range] = (), **slots: Slots,
    ) -> int:  # fmt: skip
        """One-sided writes of `size_bytes` for each pair (source, target), all at once; shape is (messages, host?)."""
        return self.op(
            kind, bucket, lanes, after, name=f"{kind} b{bucket.number} to {len(pairs)}", reads=reads, writes=writes,
            size_bytes=self.wire_bytes(size_bytes), group=tuple(rank for pair in pairs for rank in pair),
            shape=(bucket.kept_tensors if self.transport.messages == "tensor" else 1, int(from_host)), **slots,
        )  # fmt: skip

    def wire_bytes(self, size_bytes: int) -> int:
        """Bytes on the wire for these bytes of a bucket."""
        return max(round(size_bytes * self.transport.share), 1)

    # At the engines

    def reload(
        self, bucket: Bucket, after: Sequence[int], releases: Slots = (), reads: Sequence[Range] | None = None
    ) -> int:
        """Every worker walks the bucket's tensors and keeps its share; shape is (tensors, bytes kept).

        It reads them where they landed, unless `reads` says elsewhere.
        """
        lanes, transport = self.lanes(self.receivers, "worker"), self.transport
        if transport.delta:
            after = [self._walk("apply", bucket, lanes, after, bucket.kept)]
        if not transport.load:
            return self.op("hold", bucket, lanes, after, shape=(bucket.part_tensors,), releases=releases)
        quantizes = transport.quantize == "after"
        op = self.op(
            "reload", bucket, lanes, after, size_bytes=bucket.bytes, shape=(bucket.tensors, bucket.kept),
            reads=self.landed(bucket) if reads is None else reads, releases=() if quantizes else releases,
        )  # fmt: skip
        if not quantizes:
            return op
        return self.op(
            "quantize", bucket, lanes, [op], size_bytes=bucket.kept, shape=(bucket.part_tensors,), releases=releases
        )

    def wait(self, bucket: Bucket, after: Sequence[int]) -> int:
        """The sender hears that all engines have the bucket."""
        lanes = [*self.lanes_of_rank(bucket.stage.head, "trainer"), *self.lanes(self.receivers, "worker")]
        return self.op("wait_worker", bucket, lanes, after)

    # Where a bucket lies

    def source_ranges(self, bucket: Bucket, ranks: Sequence[int]) -> list[Range]:
        """The ranges of a bucket on the ranks that send it."""
        table = self._send[bucket.turn // self._senders % len(self._send)]
        return [(table[place], 0, bucket.part) for place in self.places(ranks)]

    def flat(self, bucket: Bucket) -> list[Range]:
        """The ranges of a packed bucket on all trainers."""
        return [(buffer, 0, bucket.bytes) for buffer in self._flat.values()]

    def landed(self, bucket: Bucket) -> list[Range]:
        """The ranges of a bucket on all receivers."""
        table = self._receive[bucket.number % len(self._receive)]
        return [(table[place], 0, bucket.bytes) for place in self.receivers]


def _classes_by_role(plan: TransferPlan) -> list[tuple[int, ...]]:
    """Classes of ranks, split by role: the head of each stage, its other ranks, receivers.

    Sorted by rank: the order breaks ties between ops, so it must not depend on the classes.
    """
    role: dict[int, tuple[int, bool]] = {}
    for number, stage in enumerate(plan.stages):
        role |= {rank: (number, rank == stage.head) for rank in stage.ranks}
    parts: dict[tuple[int, tuple[int, bool] | None], list[int]] = {}
    for number, ranks in enumerate(plan.classes):
        for rank in ranks:
            parts.setdefault((number, role.get(rank)), []).append(rank)
    return sorted(tuple(ranks) for ranks in parts.values())
