"""The ops of an update from trainers to engines, one method each: which lanes they hold, which buffers they touch.

Methods decide what waits for what. A trainer's host thread is `trainer`, an engine's `worker`; `comm` carries
collectives and copies of one process. Ops of ranks that act alike are written once, per class of ranks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from .....program import Program, ProgramBuilder
from .meshes import EVERY
from .plan import Phase, Stage, TransferPlan

Pairs = Sequence[tuple[int, int]]
Slots = Sequence[int]
Range = tuple[int, int, int]  # buffer, offset, bytes
Accesses = Sequence[Range]


@dataclass(frozen=True)
class Bucket:
    """One bucket on its way: `number` counts all of them, `turn` those of its stage; `bytes` is what receivers get
    before it is kept.
    """

    number: int
    turn: int
    phase: Phase
    stage: Stage
    index: int
    round: int

    @property
    def bytes(self) -> int:
        """Its weights."""
        return int(self.phase.buckets.bytes[self.index])

    @property
    def tensors(self) -> int:
        """Its tensors."""
        return int(self.phase.buckets.tensors[self.index])

    @property
    def kept(self) -> int:
        """Bytes that a receiver keeps."""
        return round(self.bytes * self.phase.kept_bytes)

    @property
    def kept_tensors(self) -> int:
        """Tensors of which a receiver keeps something."""
        return max(round(self.tensors * self.phase.kept_tensors), 1)

    @property
    def groups(self) -> list[tuple[int, ...]]:
        """The groups of trainers that gather it, or their parts of it, at the same time."""
        return self.phase.at_work(self.stage, self.index)

    @property
    def is_everywhere(self) -> bool:
        """Whether every one of them gathers all of it, to send it to some of the receivers."""
        return bool(self.phase.part[self.phase.buckets.first_tensor[self.index]] == EVERY)

    @property
    def gatherers(self) -> tuple[int, ...]:
        """Their ranks, group after group."""
        return tuple(chain.from_iterable(self.groups))

    @property
    def part(self) -> int:
        """Bytes that one of them gathers, at most."""
        return int(self.phase.most_bytes[self.index])

    @property
    def part_tensors(self) -> int:
        """Tensors that one of them gathers, at most."""
        return int(self.phase.most_tensors[self.index])

    @property
    def local_tensors(self) -> int:
        """Tensors of which a trainer holds a part: what one of its gathers is called for."""
        return max(round(self.part_tensors * self.phase.local_tensors), 1)


class TransferWriter:
    """Writes the ops of one plan into a Program.

    With `striped`, the ranks of a stage send its buckets in turn, all trainers at once, and receivers have a buffer for
    each; without `lands`, bytes end where they are used, and receivers have no buffers; with `flattens`, trainers have
    one for tensors that are put together.
    """

    def __init__(self, plan: TransferPlan, *, striped: bool = False, lands: bool = True, flattens: bool = False):
        self.plan, self.builder = plan, ProgramBuilder()
        self._senders = len(plan.stages[0].ranks) if striped else 1
        self._at: dict[int, int] = {}
        for ranks in _by_role(plan):
            self._at |= dict.fromkeys(ranks, self.builder.place(_name(ranks), ranks))
        self.receivers = self.places(plan.receivers)
        sent, landed = (len(plan.stages), len(plan.trainers)) if striped else (0, 0)
        self._send = [self._buffer(f"send{i}", plan.trainers) for i in range(max(sent, plan.slots))]
        self._receive = [self._buffer(f"receive{i}", plan.receivers) for i in range(lands * max(landed, plan.slots))]
        self._flat = self._buffer("flat", plan.trainers) if flattens else {}

    def build(self) -> Program:
        """The Program written so far."""
        return self.builder.build()

    def buckets(self) -> list[Bucket]:
        """All buckets in the order in which they go out: phase by phase, round by round, stage by stage."""
        found: list[Bucket] = []
        turns = dict.fromkeys(self.plan.stages, -1)
        before = 0
        for phase in self.plan.phases:
            columns = zip(phase.buckets.owner.tolist(), phase.buckets.round.tolist(), strict=True)
            for index, (owner, round_) in enumerate(columns):
                stage = self.plan.stages[owner]
                turns[stage] += 1
                found.append(Bucket(len(found), turns[stage], phase, stage, index, before + round_))
            before += phase.buckets.rounds
        return found

    def places(self, ranks: Sequence[int]) -> list[int]:
        """The places of these ranks, each once."""
        return sorted({self._at[rank] for rank in ranks})

    # Around the transfer

    def begin(self) -> int:
        """Requests are paused (and drained), caches flushed, the group made, the buffers allocated."""
        everyone = [*self.places(self.plan.trainers), *self.receivers]
        after = self._gang("pause", "worker", self.receivers, ())
        after = self._gang("begin", "worker", self.receivers, [after])
        if self.plan.new_group:
            ranks = len(self.plan.trainers) + len(self.plan.receivers)
            after = self._gang("init_group", "trainer", everyone, [after], shape=(ranks,))
        if self.plan.registers:
            kept = sum(bucket.kept_tensors for bucket in self.buckets())
            after = self._gang("register_tensors", "worker", self.receivers, [after], shape=(kept,))
        held = [table[place] for table in (*self._send, *self._receive, self._flat) for place in table]
        size, tensors = self.plan.bucket_bytes * self.plan.slots, self.tensors
        return self._gang(
            "allocate", "trainer", everyone, [after], size_bytes=size, shape=(tensors,),
            writes=[(buffer, 0, self.plan.bucket_bytes) for buffer in held],
        )  # fmt: skip

    def finish(self, after: Sequence[int]) -> Program:
        """Post-hook on all engines, a barrier, requests resume."""
        hooked = self._gang("post_hook", "worker", self.receivers, after, dtype=self.plan.dtype)
        met = self._gang("barrier", "comm", [*self.places(self.plan.trainers), *self.receivers], [hooked])
        self._gang("resume", "worker", self.receivers, [met])
        return self.build()

    @property
    def tensors(self) -> int:
        """Tensors of all buckets."""
        return sum(int(phase.buckets.tensors.sum()) for phase in self.plan.phases)

    # At the trainers

    def gather(
        self,
        bucket: Bucket,
        after: Sequence[int],
        acquires: Slots = (),
        *,
        into: Sequence[int] = (),
        ranks: Sequence[int] = (),
    ) -> int:
        """The stage's ranks (or `ranks`) gather full tensors, rename and convert them: into send buffers of `into`.

        Without `into` all of them keep what they gather. The group of the op are all that gather parts of the bucket,
        one after the other. Shape is (tensors, ranks of a group, tensors of which a rank holds a part);
        quantising and encoding before the wire follow.
        """
        ranks = ranks or bucket.stage.ranks
        places = self.places(ranks)
        shape = (bucket.part_tensors, bucket.phase.mesh.size, bucket.local_tensors)
        op = self._bucket_op(
            "gather", bucket, self.lanes(places, "trainer", "comm"), after,
            size_bytes=round(bucket.part * self.plan.payload.gathered),
            shape=shape, group=bucket.gatherers,
            acquires=acquires, writes=self.sent_from(bucket, into or ranks),
        )  # fmt: skip
        return self.prepare(bucket, op)

    def prepare(self, bucket: Bucket, after: int, shares: int = 1) -> int:
        """Quantise and encode before the wire: every rank of the stage its part, or one of so many shares of that."""
        places, payload = self.places(bucket.stage.ranks), self.plan.payload
        if payload.quantize == "before":
            size = round(bucket.part * payload.gathered) // shares
            after = self._local("quantize", bucket, places, "trainer", [after], size)
        if payload.delta:
            after = self._local("encode", bucket, places, "trainer", [after], bucket.part // shares)
        return after

    def tell(self, bucket: Bucket, after: Sequence[int]) -> int:
        """The sender names the bucket's tensors to the engines."""
        lanes = self.lanes([self._at[bucket.stage.head]], "trainer")
        return self._bucket_op("send_meta", bucket, lanes, after, shape=(bucket.tensors,))

    def replicate(self, bucket: Bucket, shape: int, after: Sequence[int]) -> int:
        """Every source loads its share into a host replica shaped like a receiver's; `shape` counts several of them.

        Shape is (tensors walked, tensors kept, whether they are experts').
        """
        lanes = self.lanes(self.places(bucket.stage.ranks), "trainer")
        kept = (bucket.tensors, bucket.kept_tensors, int(bucket.phase.expert))
        name = f"replicate b{bucket.number} shape {shape}"
        return self._bucket_op("replicate", bucket, lanes, after, name=name, size_bytes=bucket.kept, shape=kept)

    # On the wire

    def broadcast(
        self,
        bucket: Bucket,
        sender: int,
        after: Sequence[int],
        *,
        relays: Sequence[int] = (),
        lane: str = "comm",
        acquires: Slots = (),
        releases: Slots = (),
    ) -> int:
        """From the sender to all receivers, through `relays` beside it; shape is (messages,)."""
        places = [*self.places([sender, *relays]), *self.receivers]
        return self._bucket_op(
            "broadcast", bucket, self.lanes(places, lane), after, name=f"broadcast b{bucket.number} from r{sender}",
            size_bytes=self.sent(bucket.bytes), group=(sender, *relays, *self.plan.receivers), root=sender,
            shape=(self._messages(bucket),), acquires=acquires, releases=releases,
            reads=self.sent_from(bucket, [sender]),
            writes=[*self.sent_from(bucket, relays), *self._landed(bucket)],
        )  # fmt: skip

    def write(
        self,
        bucket: Bucket,
        pairs: Pairs,
        size_bytes: int,
        after: Sequence[int],
        *,
        lanes: Sequence[int],
        kind: str = "write",
        from_host: bool = False,
        reads: Accesses = (),
        acquires: Slots = (),
        releases: Slots = (),
    ) -> int:
        """One-sided writes of `size_bytes` for each pair (source, target), all at once; shape is (messages, host?)."""
        flat = tuple(rank for pair in pairs for rank in pair)
        return self._bucket_op(
            kind, bucket, lanes, after, name=f"{kind} b{bucket.number} to {len(pairs)}", acquires=acquires,
            size_bytes=self.sent(size_bytes), group=flat, shape=(self._messages(bucket, kept=True), int(from_host)),
            reads=reads, releases=releases,
        )  # fmt: skip

    def sent(self, size_bytes: int) -> int:
        """Bytes on the wire for so many of a bucket."""
        return max(round(size_bytes * self.plan.payload.share), 1)

    # At the engines

    def reload(self, bucket: Bucket, after: Sequence[int], releases: Slots = (), reads: Accesses | None = None) -> int:
        """Every worker walks the bucket's tensors and keeps its share; shape is (tensors, bytes kept).

        It reads them where they landed, unless `reads` says elsewhere.
        """
        if self.plan.payload.delta:
            after = [self._local("apply", bucket, self.receivers, "worker", after, bucket.kept)]
        if not self.plan.payload.load:
            return self._local("hold", bucket, self.receivers, "worker", after, 0, releases=releases)
        last = () if self.plan.payload.quantize == "after" else releases
        op = self._bucket_op(
            "reload", bucket, self.lanes(self.receivers, "worker"), after, size_bytes=bucket.bytes,
            shape=(bucket.tensors, bucket.kept), releases=last,
            reads=self._landed(bucket) if reads is None else reads,
        )  # fmt: skip
        if self.plan.payload.quantize == "after":
            op = self._local("quantize", bucket, self.receivers, "worker", [op], bucket.kept, releases=releases)
        return op

    def heard(self, bucket: Bucket, after: Sequence[int]) -> int:
        """The sender hears that all engines have the bucket."""
        lanes = [*self.lanes([self._at[bucket.stage.head]], "trainer"), *self.lanes(self.receivers, "worker")]
        return self._bucket_op("wait_worker", bucket, lanes, after)

    # What they share

    def sent_from(self, bucket: Bucket, ranks: Sequence[int]) -> list[Range]:
        """Where the bucket, or their part of it, lies on the ranks that send it."""
        table = self._send[bucket.turn // self._senders % len(self._send)]
        return [(table[place], 0, bucket.part) for place in self.places(ranks)]

    def flat(self, bucket: Bucket) -> list[Range]:
        """Where it lies on all trainers once its tensors are put together."""
        return [(buffer, 0, bucket.bytes) for buffer in self._flat.values()]

    def lanes(self, places: Sequence[int], *names: str) -> list[int]:
        """These lanes of all places."""
        return [self.builder.lane(place, name) for place in dict.fromkeys(places) for name in names]

    def at(self, rank: int) -> int:
        """The place of a rank."""
        return self._at[rank]

    def pool(self, name: str, rank: int, slots: int) -> int:
        """Slots at the place of a rank."""
        return self.builder.pool(name, self._at[rank], slots)

    def gang(self, kind: str, lane: str, ranks: Sequence[int], after: Sequence[int], **fields: Any) -> int:
        """One op of all these ranks."""
        return self._gang(kind, lane, self.places(ranks), after, **fields)

    def bucket_op(
        self, kind: str, bucket: Bucket, ranks: Sequence[int], lane: str, after: Sequence[int], **fields: Any
    ) -> int:
        """One op of all these ranks for a bucket."""
        return self._bucket_op(kind, bucket, self.lanes(self.places(ranks), lane), after, **fields)

    def _gang(self, kind: str, lane: str, places: Sequence[int], after: Sequence[int], **fields: Any) -> int:
        return self.builder.op(kind, self.lanes(places, lane), after, name=kind, **fields)

    def _local(
        self,
        kind: str,
        bucket: Bucket,
        places: Sequence[int],
        lane: str,
        after: Sequence[int],
        size: int,
        releases: Slots = (),
    ) -> int:
        shape = (bucket.part_tensors,)
        lanes = self.lanes(places, lane)
        return self._bucket_op(kind, bucket, lanes, after, size_bytes=size, shape=shape, releases=releases)

    def _bucket_op(self, kind: str, bucket: Bucket, lanes: Sequence[int], after: Sequence[int], **fields: Any) -> int:
        tags = {"bucket": bucket.number, "round": bucket.round}
        return self.builder.op(kind, lanes, after, **({"name": f"{kind} b{bucket.number}", "tags": tags} | fields))

    def _messages(self, bucket: Bucket, kept: bool = False) -> int:
        """One, or one per tensor, or per tensor that a receiver keeps."""
        if self.plan.payload.messages != "tensor":
            return 1
        return bucket.kept_tensors if kept else bucket.tensors

    def _buffer(self, name: str, ranks: Sequence[int]) -> dict[int, int]:
        return {place: self.builder.buffer(name, place, self.plan.bucket_bytes) for place in self.places(ranks)}

    def _landed(self, bucket: Bucket) -> list[Range]:
        table = self._receive[bucket.number % len(self._receive)]
        return [(table[place], 0, bucket.bytes) for place in self.receivers]


def _by_role(plan: TransferPlan) -> list[tuple[int, ...]]:
    """Classes of ranks apart by what they do: the head of each stage, its other ranks, receivers; by lowest rank.

    Their order breaks ties between ops that could start at once, so it must not depend on the classes.
    """
    role: dict[int, tuple[int, bool]] = {}
    for number, stage in enumerate(plan.stages):
        role |= {rank: (number, rank == stage.head) for rank in stage.ranks}
    parts: dict[tuple[int, tuple[int, bool] | None], list[int]] = {}
    for number, ranks in enumerate(plan.classes):
        for rank in ranks:
            parts.setdefault((number, role.get(rank)), []).append(rank)
    return sorted(tuple(ranks) for ranks in parts.values())


def _name(ranks: Sequence[int]) -> str:
    return f"r{ranks[0]}" if len(ranks) == 1 else f"r{ranks[0]}..r{ranks[-1]} ({len(ranks)})"
