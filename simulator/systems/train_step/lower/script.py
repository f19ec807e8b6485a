"""Writes an action (a forward, backward or weight gradient of a stage) as steps that can interleave with another's.

`layers` writes the layers, `buckets` how gradients are reduced. This module adds embedding and head, whole-layer
recomputation, the host that issues the ops, and weights that are gathered layer by layer.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from ....models.blocks import embedding, head, mtp_in
from ....models.kernels import Kernels
from .buckets import Buckets
from .held import Holdings, Unit
from .layers import After, LayerWriter, gradients
from .piece import BEHIND, COMPUTE, HOST, Fragment, LayerPass, PieceWriter
from .plan import TrainPlan

Part = Callable[[int, Sequence[int]], After]
Fragments = dict[Hashable, Fragment]
"""Layers that are already written, by everything that distinguishes layers within a plan."""


@dataclass(frozen=True)
class Pass:
    """One action of a stage: forward "F", backward "B", input gradient "I" or weight gradient "W".

    `first`: it gathers the weights that stay for the whole step. `reduce`: it sends the stage's gradients.
    """

    stage: int
    kind: str
    first: bool = False
    reduce: bool = False


class Script:
    """One action as steps that can be interleaved with those of another; the next op waits for the ops in `tail`."""

    def __init__(self, plan: TrainPlan, holdings: Holdings, one: Pass, layers: LayerWriter, number: int):
        self._number = number
        self.plan, self.holdings, self.one, self.layers, self.w = plan, holdings, one, layers, layers.w
        self.stage = plan.stages[one.stage]
        self.tail: After = []
        self.heads: list[int] = []
        self._ends: list[After] = []
        self._there: set[int] = set()
        self._held_back: int | None = None
        self._passes: dict[int, LayerPass] = {}
        self._buckets = Buckets(plan, holdings, self.w)
        self._host, self._launches = -1, 0

    @property
    def ends(self) -> list[After]:
        """The ops at the end of each layer, last layer first. For the last layer, the ops at the end of the action."""
        return [self.tail, *reversed(self._ends[:-1])]

    @property
    def passes(self) -> list[LayerPass]:
        """The layers of the action, in the order in which they run."""
        return list(self._passes.values())

    def write(self, fragments: Fragments) -> None:
        """Write the whole action alone. Equal layers are written once and then copied from `fragments`."""
        plan = self.plan
        independent = plan.sharding.level < 3 and not plan.hold_wgrad  # one layer of another
        alike = independent and plan.shard.side == 1
        for step in self.opening:
            step()
        for (position, number), steps in zip(self._order, self.by_layer, strict=True):
            if alike and self._works_on(number):
                self._append(position, number, fragments)
            else:
                for step in steps:
                    step()
        for step in self.closing:
            step()

    def _append(self, position: int, number: int, fragments: Fragments) -> None:
        """Write a layer as a copy of its fragment, which is written first if it is new."""
        key = self.one.kind, self.plan.kind_of(number), self.plan.again.whole(position)
        if key not in fragments:
            fragments[key] = self._fragment(position, number)
        found, begin, embedded = fragments[key], len(self.w), self._embedded
        self.w.layer, self.w.action = number, self._number
        self.tail = self.w.append(found, self.tail)
        self.heads = self.heads or [begin + op for op in found.heads]
        if found.one is not None:
            first = self.heads[0] if embedded else begin + found.one.first
            self._passes[number] = LayerPass(number, first, tuple(self.tail), begin + found.one.last)
        if self.one.kind != "F":
            self._reduce_layer(number)
        if self.one.kind != "W":
            self._ends.append(list(self.tail))

    def _fragment(self, position: int, number: int) -> Fragment:
        """A layer as a Fragment, which any op may precede."""
        layers = LayerWriter(self.plan, PieceWriter(), self.one.kind == "B")
        alone = Script(self.plan, self.holdings, replace(self.one, reduce=False), layers, 0)
        alone.tail = [BEHIND]
        for step in alone._parts(position, number):
            step()
        return alone.w.fragment(alone.tail, alone.heads, alone._passes.get(number))

    def _works_on(self, number: int) -> bool:
        """Whether the action has anything to do in a layer: none in a backward where nothing is trained so far."""
        layer = self.plan.layer(number)
        return self.one.kind == "F" or (layer.learns if self.one.kind == "W" else layer.has_gradients)

    @property
    def opening(self) -> list[Callable[[], None]]:
        """The steps before the first layer: the embedding of a forward, the head of a backward."""
        if self.one.kind == "F":
            return self._own([self._embed] if self.stage.embedding else [])
        return self._own([self._head_back] if self.stage.head or self.stage.mtp else [])

    @property
    def closing(self) -> list[Callable[[], None]]:
        """The steps after the last layer: the head of a forward, the embedding of a backward."""
        if self.one.kind == "F":
            return self._own([*([self._head] if self.stage.head or self.stage.mtp else []), self._idle])
        return self._own([*([self._embed_back] if self.stage.embedding else []), self._idle])

    @property
    def by_layer(self) -> list[list[Callable[[], None]]]:
        """The steps of each layer, in order."""
        return [self._own(self._parts(position, number)) for position, number in self._order]

    @property
    def _order(self) -> list[tuple[int, int]]:
        """(position in the stage, number) of each layer, in the order in which they run."""
        numbers = list(enumerate(self.stage.layers))
        return numbers if self.one.kind == "F" else numbers[::-1]

    def _parts(self, position: int, number: int) -> list[Callable[[], None]]:
        write = {"F": self._forward, "B": self._backward, "I": self._backward, "W": self._weights}[self.one.kind]
        return write(position, number) if self._works_on(number) else self._pass_over(number)

    def _own(self, steps: Sequence[Callable[[], None]]) -> list[Callable[[], None]]:
        """The same steps, whose ops are tagged with this action's number in the piece."""

        def of(step: Callable[[], None]) -> None:
            self.w.action = self._number
            step()

        return [partial(of, step) for step in steps]

    # Layers

    def _forward(self, _position: int, number: int) -> list[Callable[[], None]]:
        on = self.layers
        return [
            lambda: self._begin(number),
            lambda: self._run(on.dispatch, number),
            lambda: self._run(on.mlp, number),
            lambda: self._run(on.combine, number),
            lambda: self._close(number),
        ]

    def _begin(self, number: int) -> None:
        extra = [*self._issued(number), *self._gathered(number)]
        self._enter(number)
        self._run(self.layers.attention, number, extra)

    def _close(self, number: int) -> None:
        self._run(self.layers.add_up, number)
        self._leave(number)

    def _backward(self, position: int, number: int) -> list[Callable[[], None]]:
        on, weights, last = self.layers, self.one.kind == "B", position == 0
        return [
            lambda: self._begin_back(position, number),
            lambda: self._run(on.combine_back, number),
            lambda: self._then(on.mlp_back, number, on.mlp_weights if weights else None),
            lambda: self._run(on.dispatch_back, number),
            lambda: self._end_back(number, weights, last),
        ]

    def _pass_over(self, number: int) -> list[Callable[[], None]]:
        """A layer without work: what waits to be written is, and gradients that wait for their bucket may go."""

        def leave() -> None:
            self._write_held_back()
            self._ends.append(list(self.tail))
            self._reduce_layer(number)

        return [leave] if self.one.kind == "W" else [*[_nothing] * 4, leave]

    def _idle(self) -> None:
        """Write an empty op where an action has none, so that what follows it waits for what it waits for."""
        if not self.tail and not self.heads:
            self.w.layer = -1
            self.heads = self.tail = [self.w.op("idle", COMPUTE)]

    def _enter(self, number: int) -> None:
        """Begin a layer with the next op. The embedding counts as part of the layer after it."""
        first = self.heads[0] if self._embedded else len(self.w)
        self._passes[number] = LayerPass(number, first, (), first)

    @property
    def _embedded(self) -> bool:
        """Whether the next layer follows the embedding."""
        return self.one.kind == "F" and not self._passes and bool(self.heads)

    def _leave(self, number: int) -> None:
        """End a layer. Weight gradients that are held back may follow later."""
        self._ends.append(list(self.tail))
        found = self._passes[number]
        self._passes[number] = found._replace(tails=tuple(self.tail), last=max(found.last, *self.tail))

    def _begin_back(self, position: int, number: int) -> None:
        extra = [*self._issued(number), *self._gathered(number)]
        self._enter(number)
        if self.plan.again.whole(position):
            self._run(self.layers.forward_again, number, extra)
            extra = []
        self._run(self.layers.add_up_back, number, extra)
        self._write_held_back()

    def _end_back(self, number: int, weights: bool, last: bool) -> None:
        self._run(self.layers.attention_back, number)
        if weights:
            self._held_back = number
        if last or not self.plan.hold_wgrad:
            self._write_held_back()
        self._leave(number)

    def _write_held_back(self) -> None:
        """Write attention's weight gradients. If held back, they run beside the first exchange of the next layer."""
        if (number := self._held_back) is not None:
            self._held_back = None
            self._weights_of(self.layers.attention_weights, number)
            self._reduce_layer(number)

    def _weights(self, _position: int, number: int) -> list[Callable[[], None]]:
        def write() -> None:
            issued, began = self._issued(number), len(self.w)
            self.layers.mlp_weights(number)
            self.layers.attention_weights(number)
            self._launched(began)
            if len(self.w) > began:
                self.w.wait(began, issued)
                self.tail = [len(self.w) - 1]
                self._passes[number] = LayerPass(number, began, tuple(self.tail), self.tail[0])
            self._reduce_layer(number)

        return [write]

    def _run(self, part: Part, number: int, extra: Sequence[int] = ()) -> None:
        began = len(self.w)
        self.tail = part(number, [*self.tail, *extra])
        self._launched(began)

    def _then(self, part: Part, number: int, weights: Callable[[int], None] | None) -> None:
        """Write input gradients, then weight gradients. Later ops wait for both unless weights are held back."""
        self._run(part, number)
        if weights:
            self._weights_of(weights, number)

    def _weights_of(self, write: Callable[[int], None], number: int) -> None:
        began = len(self.w)
        write(number)
        self._launched(began)
        if (last := len(self.w) - 1) < began:
            return
        self._passes[number] = self._passes[number]._replace(last=last)
        if not self.plan.hold_wgrad:
            self.tail = [*self.tail, last]

    def _head_at(self, began: int) -> None:
        """Make the first op of the action a head, which waits for the action's input."""
        if not self.heads and len(self.w) > began:
            self.heads = [began]

    # Embedding and head

    def _embed(self) -> None:
        extra = [*self._issued(-1), *self._gathered(self._units[0])]
        self.w.layer = -1
        began = len(self.w)
        self.tail = self.layers.embed(embedding(self.plan.spec, self.plan.shard), [*self.tail, *extra])
        self._launched(began)
        self._first_use(self._units[0], began)

    def _embed_back(self) -> None:
        if self.one.kind != "W" and self.plan.trains_embedding:
            kernels, issued = embedding(self.plan.spec, self.plan.shard), self._issued(-1)
            began = len(self.w)
            self.tail = self.layers.embed_back(kernels, [*self.tail, *issued])
            self.layers.plain_weights(kernels)
            self._launched(began)
        self._reduce(self._units[0])

    def _first_use(self, unit: int, op: int) -> None:
        """Mark an op as the first one that needs the weights of a unit, if no earlier op is marked."""
        self.w.layer = unit
        self.w.mark("weights", op)

    def _head_kernels(self) -> list[tuple[int, Kernels]]:
        """(MTP layer or -1, kernels) of each loss, in forward order."""
        spec, shard = self.plan.spec, self.plan.shard
        main = [(-1, head(spec, shard))] if self.stage.head else []
        return [*main, *((number, head(spec, shard)) for number in self.stage.mtp)]

    def _head(self) -> None:
        for number, kernels in self._head_kernels():
            unit = self._units[-1] if number < 0 else number
            extra = [*self._issued(number), *self._gathered(unit)]
            began = len(self.w)
            self._first_use(unit, began)
            self.tail = [*self.tail, *extra]
            if number >= 0:
                self._mtp(number)
            self.tail = self.layers.loss(number, kernels, self.tail)
            self._launched(began)

    def _head_back(self) -> None:
        for number, kernels in reversed(self._head_kernels()):
            if self.one.kind == "W" and number < 0 and not self.plan.trains_head:
                continue
            issued, began = self._issued(number), len(self.w)
            if self.one.kind != "W":  # weight gradients read no weights
                extra = [*issued, *self._gathered(self._units[-1] if number < 0 else number)]
                began = len(self.w)
                self.tail = self.layers.loss_back(number, kernels, [*self.tail, *extra])
            if self.one.kind != "I":
                self.layers.loss_weights(number, kernels)
            if number >= 0:
                self._mtp_back(number)
            self._launched(began)
            if self.one.kind == "W" and len(self.w) > began:
                self.w.wait(began, issued)
                self.tail = [len(self.w) - 1]
        for number in reversed(self._units):
            if number not in self.stage.layers:
                self._reduce_layer(number)

    def _mtp(self, number: int) -> None:
        """Write the forward of an MTP layer. It looks up the next tokens, in the embedding or its copy."""
        spec, shard = self.plan.spec, self.plan.shard
        self.w.layer = number
        looked_up = self.layers.embed(embedding(spec, shard), self.tail)
        self.tail = self.layers.forward(number, self.w.compute(mtp_in(spec, shard), looked_up))

    def _mtp_back(self, number: int) -> None:
        into = mtp_in(self.plan.spec, self.plan.shard)
        if self.one.kind != "W" and self.plan.again.whole_mtp:
            self.tail = self.layers.forward_again(number, self.w.compute(into, self.tail))
        if self.one.kind != "W":
            self.tail = self.layers.backward(number, self.tail, weights=self.one.kind == "B")
            self.tail = self.w.compute(gradients(into), self.tail)
            if self.plan.trains_embedding:
                self.tail = self.layers.embed_back(embedding(self.plan.spec, self.plan.shard), self.tail)
        else:
            self.layers.mlp_weights(number)
            self.layers.attention_weights(number)
        if self.one.kind != "I":
            self.layers.plain_weights(into)

    # Host

    def _issued(self, number: int) -> list[int]:
        """Write the host's op that issues a layer; the layer's first op waits for it.

        The host runs ahead of the device as far as its own time allows.
        """
        self.w.layer, self._launches = number, 0
        self._host = self.w.op("issue", HOST, name="issue", shape=(0,))
        return [self._host]

    def _launched(self, began: int) -> None:
        """Count the ops from `began` on as launches of the host; an action's first op waits for the action's input."""
        self._head_at(began)
        self._launches += len(self.w) - began
        self.w.reshape(self._host, (self._launches,))

    # Data parallelism

    @cached_property
    def _unit_of(self) -> dict[int, Unit]:
        """What is reduced and gathered together, by layer, in model order."""
        return {unit.layer: unit for unit in self.holdings.units(self.stage)}

    @cached_property
    def _units(self) -> list[int]:
        return list(self._unit_of)

    def _gathered(self, number: int) -> list[int]:
        """ZeRO-3: write the gather of a unit's weights, beside earlier units of this or of earlier actions."""
        sharding = self.plan.sharding
        if sharding.level < 3 or number in self._there or not (sharding.reshard or self.one.first):
            return []
        self._there.add(number)
        ahead = sharding.prefetch if self.one.kind == "F" else sharding.prefetch_backward
        self.w.layer, back = number, len(self._ends) - 1 - ahead
        after = self._ends[back] if back >= 0 else []
        found = [
            self.w.op("all_gather", "fsdp", after, name="gather weights", group=share.group,
                      size_bytes=self.holdings.gathered_bytes(number, share.parameters, share.lane))
            for share in self.holdings.shares(self._unit_of[number].held)
            if len(share.group) > 1
        ]  # fmt: skip
        if back < 0 and found:
            self.w.wait_before(found[0], -1 - back)
        return found

    def _reduce_layer(self, number: int) -> None:
        """Reduce the gradients of a layer, unless they travel with those of the embedding, which come later."""
        if not (self.stage.embedding and number == self._units[0]):
            self._reduce(number)

    def _reduce(self, number: int) -> None:
        """Add a unit's gradients to their bucket. It is sent when it is full or the stage is done."""
        if not self.one.reduce:
            return
        if not len(self.w):
            self._idle()
        self._buckets.add(self._unit_of[number], last=number == self._units[0])


def _nothing() -> None:
    """A step without ops."""
