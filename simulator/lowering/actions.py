"""Actions as Pieces: what a forward, backward or weight gradient of a stage, or an overlapped pair, is made of.

Layers come from `layers`; here are embedding and head, whole-layer recomputation, the host that issues everything, and
data-parallel traffic: weights gathered layer by layer, gradients reduced in buckets as they become ready.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from ..workload.blocks import embedding, head, mtp_in
from ..workload.kernels import Kernels
from ..workload.states import Held
from .held import Holdings, Share
from .layers import After, LayerWriter, gradients
from .piece import HOST, Piece, PieceWriter, Tables
from .plan import TrainPlan

Part = Callable[[int, Sequence[int]], After]


@dataclass(frozen=True)
class Pass:
    """One action of a stage: forward "F", backward "B", input gradient "I" or weight gradient "W".

    `first` gathers weights that stay for the whole step, `reduce` sends gradients on their way.
    """

    stage: int
    kind: str
    first: bool = False
    reduce: bool = False


class ActionWriter:
    """Writes the pieces of one pipeline rank."""

    def __init__(self, plan: TrainPlan, pipeline_rank: int, tables: Tables):
        self.plan, self.tables = plan, tables
        self.holdings = Holdings(plan, pipeline_rank)
        self._rank = pipeline_rank
        self._pieces: dict[tuple[Pass, ...], Piece] = {}

    def piece(self, *passes: Pass) -> Piece:
        """The piece of one action, or of a forward and a backward that overlap."""
        if passes not in self._pieces:
            self._pieces[passes] = self._write(passes)
        return self._pieces[passes]

    def _write(self, passes: tuple[Pass, ...]) -> Piece:
        w = PieceWriter(self.tables)
        scripts = [_Script(self, one, LayerWriter(self.plan, self._rank, w)) for one in passes]
        steps = _interleaved(scripts) if len(scripts) == 2 else scripts[0].steps
        for step in steps:
            step()
        return w.piece([script.heads for script in scripts], [script.tail for script in scripts])


class _Script:
    """One action as steps that can be interleaved with another's; `tail` is what its next op waits for."""

    def __init__(self, of: ActionWriter, one: Pass, layers: LayerWriter):
        self.of, self.plan, self.one, self.layers, self.w = of, of.plan, one, layers, layers.w
        self.stage = of.plan.stages[one.stage]
        self.tail: After = []
        self.heads: list[int] = []
        self._ends: list[After] = []
        self._bucket: dict[str, tuple[int, Share]] = {}
        self._host, self._launches = -1, 0

    @cached_property
    def steps(self) -> list[Callable[[], None]]:
        """The whole action."""
        return [step for part in (self.opening, *self.by_layer, self.closing) for step in part]

    @property
    def opening(self) -> list[Callable[[], None]]:
        """Before the first layer: embedding forward, head backward."""
        if self.one.kind == "F":
            return [self._embed] if self.stage.embedding else []
        return [self._head_back] if self.stage.head or self.stage.mtp else []

    @property
    def closing(self) -> list[Callable[[], None]]:
        """Behind the last layer: head forward, embedding backward."""
        if self.one.kind == "F":
            return [self._head] if self.stage.head or self.stage.mtp else []
        return [self._embed_back] if self.stage.embedding else []

    @property
    def by_layer(self) -> list[list[Callable[[], None]]]:
        """The parts of each layer, in order."""
        numbers = list(enumerate(self.stage.layers))
        write = {"F": self._forward, "B": self._backward, "I": self._backward, "W": self._weights}[self.one.kind]
        return [write(i, number) for i, number in (numbers if self.one.kind == "F" else reversed(numbers))]

    # Layers

    def _forward(self, position: int, number: int) -> list[Callable[[], None]]:
        on, last = self.layers, position == len(self.stage.layers) - 1
        return [
            lambda: self._run(on.attention, number, [*self._issued(number), *self._gathered(number)]),
            lambda: self._run(on.dispatch, number),
            lambda: self._run(on.mlp, number),
            lambda: self._run(on.combine, number),
            lambda: self._close(number, last),
        ]

    def _close(self, number: int, last: bool) -> None:
        self._run(self.layers.after, number)
        self._ends.append(list(self.tail))

    def _backward(self, position: int, number: int) -> list[Callable[[], None]]:
        on, weights = self.layers, self.one.kind == "B"
        return [
            lambda: self._begin_back(position, number),
            lambda: self._run(on.combine_back, number),
            lambda: self._then(on.mlp_back, number, on.mlp_weights if weights else None),
            lambda: self._run(on.dispatch_back, number),
            lambda: self._end_back(number, weights),
        ]

    def _begin_back(self, position: int, number: int) -> None:
        extra = [*self._issued(number), *self._gathered(number)]
        if self.plan.again.whole(position):
            self._run(self.layers.again, number, extra)
            extra = []
        self._run(self.layers.after_back, number, extra)

    def _end_back(self, number: int, weights: bool) -> None:
        self._then(self.layers.attention_back, number, self.layers.attention_weights if weights else None)
        self._ends.append(list(self.tail))
        if weights:
            self._reduce(number)

    def _weights(self, position: int, number: int) -> list[Callable[[], None]]:
        def write() -> None:
            self._issued(number)
            began = len(self.w)
            self.layers.mlp_weights(number)
            self.layers.attention_weights(number)
            self._launched(began)
            if len(self.w) > began:
                self.tail = [len(self.w) - 1]
            self._reduce(number)

        return [write]

    def _run(self, part: Part, number: int, extra: Sequence[int] = ()) -> None:
        began = len(self.w)
        self.tail = part(number, [*self.tail, *extra])
        self._launched(began)

    def _then(self, part: Part, number: int, weights: Callable[[int], None] | None) -> None:
        self._run(part, number)
        if weights:
            began = len(self.w)
            weights(number)
            self._launched(began)

    def _head_at(self, began: int) -> None:
        """The first op of an action waits for its input."""
        if not self.heads and len(self.w) > began:
            self.heads = [began]

    # Embedding and head

    def _embed(self) -> None:
        self.w.layer = -1
        began = len(self.w)
        self.tail = self.w.compute(embedding(self.plan.spec, self.layers.shard), self.tail)
        self.tail = self.layers.scattered(self.tail)
        self._head_at(began)

    def _embed_back(self) -> None:
        self.w.layer = -1
        kernels = embedding(self.plan.spec, self.layers.shard)
        if self.one.kind != "W":
            self.tail = self.w.compute(() if self.plan.lora else gradients(kernels), self.layers.collected(self.tail))

    def _head_kernels(self) -> list[tuple[int, Kernels]]:
        """(MTP layer or -1, kernels) of each loss, in forward order."""
        spec, shard = self.plan.spec, self.layers.shard
        main = [(-1, head(spec, shard))] if self.stage.head else []
        return [*main, *((number, head(spec, shard)) for number in self.stage.mtp)]

    def _head(self) -> None:
        for number, kernels in self._head_kernels():
            began = len(self.w)
            if number >= 0:
                self.w.layer = number
                self.tail = self.w.compute(mtp_in(self.plan.spec, self.layers.shard), self.tail)
                self.tail = self.layers.forward(number, self.tail)
            self.tail = self.layers.loss(number, kernels, self.tail)
            self._head_at(began)

    def _head_back(self) -> None:
        for number, kernels in reversed(self._head_kernels()):
            began = len(self.w)
            if self.one.kind != "W":
                self.tail = self.layers.loss_back(number, kernels, self.tail)
            if self.one.kind != "I":
                self.layers.loss_weights(number, kernels)
            if number >= 0:
                self._mtp_back(number)
            self._head_at(began)
            if self.one.kind == "W" and len(self.w) > began:
                self.tail = [len(self.w) - 1]

    def _mtp_back(self, number: int) -> None:
        into = mtp_in(self.plan.spec, self.layers.shard)
        if self.one.kind != "W":
            self.tail = self.layers.backward(number, self.tail, weights=self.one.kind == "B")
            self.tail = self.w.compute(gradients(into), self.tail)
        else:
            self.layers.mlp_weights(number)
            self.layers.attention_weights(number)
        if self.one.kind != "I":
            self.layers.plain_weights(into)
            self._reduce(number)

    # Host

    def _issued(self, number: int) -> list[int]:
        """The host issues a layer before its first op can start; it runs ahead as far as its own time allows."""
        self.w.layer, self._launches = number, 0
        self._host = self.w.op("issue", HOST, name="issue", shape=(0,))
        return [self._host]

    def _launched(self, began: int) -> None:
        """The ops from `began` on are the host's to issue, and an action's first ones wait for its input."""
        self._head_at(began)
        self._launches += len(self.w) - began
        self.w.reshape(self._host, (self._launches,))

    # Data parallelism

    def _gathered(self, number: int) -> list[int]:
        """ZeRO-3: this layer's weights, gathered while the layers before it run."""
        sharding = self.plan.sharding
        if sharding.level < 3 or not (sharding.reshard or self.one.first):
            return []
        back = len(self._ends) - 1 - sharding.prefetch
        after = self._ends[back] if back >= 0 else []
        held = self._unit(number)
        return [
            self.w.op("all_gather", "fsdp", after, name="gather weights", group=share.group,
                      size_bytes=share.parameters * self.plan.types.weights)
            for share in self.of.holdings.shares(held)
            if len(share.group) > 1
        ]  # fmt: skip

    def _unit(self, number: int) -> Held:
        return dict(self.of.holdings.units(self.stage)).get(number, Held(0, 0))

    def _reduce(self, number: int) -> None:
        """Gradients of a layer join their bucket, which goes when it is full or the stage is done."""
        if not self.one.reduce:
            return
        units = self.of.holdings.units(self.stage)
        done = number == units[0][0]
        held = self.of.holdings.trained(number, self._unit(number))
        for share in self.of.holdings.shares(held):
            size, _ = self._bucket.get(share.lane, (0, share))
            self._bucket[share.lane] = (size + share.parameters, share)
        for lane, (size, share) in list(self._bucket.items()):
            if size and (done or size >= self.plan.sharding.bucket or self.plan.sharding.level >= 3):
                self._send(size, share)
                self._bucket[lane] = (0, share)

    def _send(self, size: int, share: Share) -> None:
        """Sharded gradients are scattered, replicated ones all-reduced; hybrid sharding does both."""
        after = [len(self.w) - 1]
        sharded, total = self.plan.sharding.level >= 1, size * self.plan.types.reduced
        kind = "reduce_scatter" if sharded else "all_reduce"
        if len(share.group) > 1:
            after = [self.w.op(kind, share.lane, after, name="reduce gradients", size_bytes=total, group=share.group)]
        if len(share.replicas) > 1:
            part = total / len(share.group)
            self.w.op("all_reduce", share.lane, after, name="reduce replicas", size_bytes=part, group=share.replicas)


def _interleaved(scripts: Sequence[_Script]) -> list[Callable[[], None]]:
    """A forward and a backward, layer by layer, in the issue order of systems.md 2.3: the exchanges of one of them lie
    under the computation of the other.

        comm   combine_back(b)        | dispatch(f) -> dispatch_back(b)              | combine(f)
        comp   attention(f)           | mlp_back(b) -> mlp_weights(b) -> mlp(f)      | attention_back(b) -> weights(b)
    """
    forward, backward = scripts
    steps = [*backward.opening, *forward.opening]
    f_layers, b_layers = forward.by_layer, backward.by_layer
    both = min(len(f_layers), len(b_layers))
    for (attention, dispatch, mlp, combine, close), (begin, combine_back, mlp_back, dispatch_back, end) in zip(
        f_layers[:both], b_layers[:both], strict=True
    ):
        steps += [begin, combine_back, attention, dispatch, mlp_back, dispatch_back, mlp, combine, end, close]
    for rest in (*f_layers[both:], *b_layers[both:]):
        steps += rest
    return [*steps, *forward.closing, *backward.closing]
