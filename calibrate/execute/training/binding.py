"""Binds the ops of a Program on one rank: reads them in the order in which a host would issue them, and says of each
which values it takes and gives, and what it does with them.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import cached_property, partial
from heapq import heappop, heappush
from typing import NamedTuple

import torch

from ....simulator.base.op_kinds import EXCHANGE, op_kind
from ....simulator.systems.train_step.lower import ACTIONS
from ....simulator.systems.train_step.lower.held import AMONG_REPLICAS
from .backward import Backward
from .exchanges import Exchanges
from .flow import Flow, Step
from .forward import Forward
from .offload import Trip
from .slots import Act, Slot, act, nothing
from .states import Gradients, Piece, Weights, copies, shares_of, update
from .view import RankView
from .weights import EXPERT

_TAGS = re.compile(r"( L\d+)?( s\d+)?( m\d+)?$")
_AGAIN = " again"


class Tag(NamedTuple):
    """What a Program says of an op: label, stage, micro-batch, layer, and kind of action ("" outside actions)."""

    label: str
    stage: int
    microbatch: int
    layer: int
    action: str


class Binder:
    """Binds the ops of one rank. Afterwards `gradients.pieces()` are what the step has learnt, once it has run."""

    def __init__(self, view: RankView, exchanges: Exchanges):
        self.view, self.program, self.exchanges = view, view.program, exchanges
        self.weights = Weights(view, exchanges)
        self.gradients = Gradients(view, exchanges, self.weights)
        self.forward = Forward(view, exchanges, self.weights.held)
        self.backward = Backward(view, exchanges, self.forward, self.gradients.learn)
        self._flows: dict[tuple[int, int], Flow] = {}
        self._again: dict[int, Step] = {}  # by the op that runs it again
        self._trips: dict[tuple[int, int, int], Trip] = {}
        self._arrived: dict[tuple[str, int, int], Slot] = {}
        self._messages = Counter[object]()
        self._updates = iter(shares_of(view))
        self._units_gathered = Counter[object]()
        self._norm, self._agreed = Slot(), Slot()
        self._owned: Slot | None = None  # gradients where the optimizer runs, if they are elsewhere
        self._updated: Slot | None = None
        self.new_weights: list[Piece] = []  # of what this rank owns, after the optimizer

    def bind(self) -> Mapping[int, Act]:
        """What each op does on this rank."""
        return {op: self._bind(op) for op in self.order}

    @cached_property
    def ours(self) -> list[int]:
        """The ops in which this rank has a part."""
        return [op for op, lanes in enumerate(self.view.peers.lanes_of) if any(p == self.view.place for p, _ in lanes)]

    @cached_property
    def order(self) -> list[int]:
        """These ops, each behind what it waits for and what is before it on its lanes; else as they were issued."""
        mine, after, waits = set(self.ours), defaultdict[int, list[int]](list), Counter[int]()
        edges = {(dep, op) for op in self.ours for dep in self.program.deps[op].tolist() if dep in mine}
        for lane, order in zip(self.program.lanes, self.program.order, strict=True):
            if lane.place == self.view.place:
                edges |= set(zip(order[:-1].tolist(), order[1:].tolist(), strict=True))
        for before, op in edges:
            after[before].append(op)
            waits[op] += 1
        ready, found = sorted(op for op in self.ours if not waits[op]), list[int]()
        while ready:
            found.append(op := heappop(ready))
            for other in after[op]:
                waits[other] -= 1
                if not waits[other]:
                    heappush(ready, other)
        return found

    @cached_property
    def consumers(self) -> Mapping[int, list[int]]:
        """For each op, those of ours that wait for it."""
        found = defaultdict[int, list[int]](list)
        for op in self.ours:
            for dep in self.program.deps[op].tolist():
                found[dep].append(op)
        return found

    @cached_property
    def tags(self) -> list[Tag]:
        """What the Program says of each op."""
        tags, names = self.program.tags, self.program.names
        labels = [_TAGS.sub("", names[op]) for op in range(len(self.program))]
        columns = zip(*(tags[name].tolist() for name in ("stage", "microbatch", "layer", "action")), strict=True)
        return [Tag(label, stage, microbatch, layer, ACTIONS[action] if action >= 0 else "")
                for label, (stage, microbatch, layer, action) in zip(labels, columns, strict=True)]  # fmt: skip

    @cached_property
    def _totals(self) -> Counter[object]:
        """The number of messages of each bucket."""
        return Counter(self._bucket(op) for op in self.ours if self.tags[op].label == "reduce gradients")

    def _bucket(self, op: int) -> tuple[object, ...]:
        return self.tags[op], self._lane(op), self.program.kind_of(op)

    def _lane(self, op: int) -> str:
        """The first of an op's lanes on this rank; what replicas add up is of the parameters of the lane beside it."""
        own = next(name for place, name in self.view.peers.lanes_of[op] if place == self.view.place)
        return own.removesuffix(AMONG_REPLICAS)

    def _bind(self, op: int) -> Act:
        tag, kind = self.tags[op], self.program.kind_of(op)
        self.weights.action = tag.action, tag.stage, tag.microbatch
        if (channel := self.view.peers.channel(op)) is not None:
            return self._send(op, *channel)
        if tag.label in _ENDS:
            return self._end(op, tag)
        if tag.label == "gather weights":
            return self._gather(tag)
        if tag.label == "reduce gradients":
            return self._reduce(op, tag, kind)
        if tag.label == "issue":
            return nothing
        if tag.label in ("offload", "onload"):
            return self._move(tag)
        flow = self._flow(tag)
        if tag.action == "F":
            return self.forward.bind(flow, tag.layer, tag.label)
        return self._backward(op, tag, flow, op_kind(kind).form == EXCHANGE)

    # Actions

    def _flow(self, tag: Tag) -> Flow:
        """The state of the micro-batch; what came from another stage is put there first."""
        key = tag.stage, tag.microbatch
        if key not in self._flows:
            self._flows[key] = Flow(*key)
            if tag.stage:
                self._flows[key].at["x"] = self._from("x", tag.stage - 1, tag)
        flow = self._flows[key]
        if tag.action in ("B", "I") and "dx" not in flow.at and not self.view.plan.stages[tag.stage].head:
            flow.at["dx"] = self._from("dx", tag.stage + 1, tag)
        return flow

    def _from(self, name: str, stage: int, tag: Tag) -> Slot:
        """What another stage gives to the one of a tag: it has arrived, or the stage is on this rank, too."""
        arrived = self._arrived.get((name, tag.stage, tag.microbatch))
        return arrived or self._flows[stage, tag.microbatch].at[name]

    def _backward(self, op: int, tag: Tag, flow: Flow, exchanges: bool) -> Act:
        label, layer = tag.label, tag.layer
        if label.endswith("_dgrad"):
            return self.backward.input_gradient(flow, layer, label.removesuffix("_dgrad"))
        if label.endswith("_wgrad"):
            return self.backward.weight_gradient(flow, layer, label.removesuffix("_wgrad"))
        if not exchanges or label.removesuffix(_AGAIN) in ("dispatch", "combine"):
            self._again[op] = flow.steps[flow.next_key("again", layer, label.removesuffix(_AGAIN))]
            return flow.run_again(self._again[op])
        followers = self._followers(op)
        for other in followers:
            if self._runs_again(other):
                return flow.run_again(self._exchange_before(flow, self.tags[other], tag))
        if (last := self._last_exchange(flow, op)) is not None:
            return flow.run_again(last)
        if followers and all(self.tags[other].label.endswith("_wgrad") for other in followers):
            of = flow.peek_key("weights", layer, self.tags[followers[0]].label.removesuffix("_wgrad"))
            return self.backward.gather_input(flow, flow.steps[of])
        return self.backward.exchange(flow, layer, label)

    def _followers(self, op: int) -> list[int]:
        """The ops of the same micro-batch, stage and kind of action that wait for this one."""
        own = self.tags[op]
        same = own.stage, own.microbatch, own.action
        tags = ((other, self.tags[other]) for other in self.consumers[op])
        return [other for other, tag in tags if (tag.stage, tag.microbatch, tag.action) == same]

    def _runs_again(self, op: int) -> bool:
        """Whether an op of a backward is one of the forward, run again."""
        label = self.tags[op].label.removesuffix(_AGAIN)
        if label.endswith(("_dgrad", "_wgrad", "_back")):
            return False
        if op_kind(self.program.kind_of(op)).form != EXCHANGE or label in ("dispatch", "combine"):
            return True
        return any(map(self._runs_again, self._followers(op)))

    def _exchange_before(self, flow: Flow, reader: Tag, exchange: Tag) -> Step:
        """The exchange whose output an op reads that runs again next; behind the experts another one may come next."""
        step = flow.steps[flow.peek_key("again", reader.layer, reader.label.removesuffix(_AGAIN))]
        givers = [flow.giver(slot) for slot in step.takes]
        only = flow.steps.get((exchange.layer, exchange.label, 0))
        found = next((giver for giver in givers if giver is not None and giver.exchanges), only)
        assert found is not None
        return found

    def _last_exchange(self, flow: Flow, op: int) -> Step | None:
        """The exchange that sums the output of a recomputed network; None if the op exchanges gradients.

        Nothing that runs again reads this sum. What a gather gives, something always reads.
        """
        if self.program.kind_of(op) == "all_gather":
            return None
        dependencies = self.program.deps[op].tolist()
        outputs = [slot for dep in dependencies if dep in self._again for slot in self._again[dep].gives]
        found = [step for step in flow.steps.values() if step.exchanges and flow.newest(step.takes[0]) in outputs]
        assert len(found) < 2
        return found[0] if found else None

    # Between stages

    def _send(self, op: int, way: str, sender: int, receiver: int) -> Act:
        tag, view = self.tags[op], self.view
        name, to = ("x", tag.stage + 1) if way == "forward" else ("dx", tag.stage - 1)
        sends = view.place == sender
        peer = view.peers.partner(view.rank, view.place, receiver if sends else sender)
        key = view.peers.channel_key(way, sender, receiver, view.rank, peer)
        if sends:
            slot = self._flows[tag.stage, tag.microbatch].at[name]
            return act(lambda rows: self.exchanges.send(key, peer, rows), [slot])
        self._arrived[name, to, tag.microbatch] = slot = Slot()
        shape = view.plan.shard.own_tokens, view.plan.spec.hidden_size
        return act(lambda: self.exchanges.receive(key, peer, torch.empty(shape, device=view.device)), [], [slot])

    # Weights and gradients

    def _gather(self, tag: Tag) -> Act:
        if tag.stage < 0:
            where, share = next(self._updates)
            return self.weights.gather(where, self.view.key(share.lane), updated=self._updated)
        number = next(i for i, unit in enumerate(self.view.units[tag.stage]) if unit.number == tag.layer)
        shares = [(where, share) for where, share in shares_of(self.view) if where[:2] == (tag.stage, number)]
        where, _ = shares[self._units_gathered[tag] % len(shares)]
        self._units_gathered[tag] += 1
        lane = "fsdp edp" if where[2] == EXPERT else "fsdp"
        return self.weights.gather(where, self.view.key(lane), of=self.weights.action)

    def _reduce(self, op: int, tag: Tag, kind: str) -> Act:
        bucket, lane = self._bucket(op), self._lane(op)
        number, of = self._messages[bucket], (tag, lane)
        self._messages[bucket] += 1
        return self.gradients.reduce(kind, lane, tag.stage, tag.layer, of, number, self._totals[bucket])

    def _move(self, tag: Tag) -> Act:
        """A layer's activations to the host, or back."""
        place = tag.stage, tag.microbatch, tag.layer
        if tag.label == "offload":
            self._trips[place] = Trip(self._flows[place[:2]], tag.layer, self.view.plan.offloaded)
            return self._trips[place].leave
        trip = self._trips.pop(place)
        trip.bind_return()
        return trip.come_back

    def _end(self, op: int, tag: Tag) -> Act:
        if tag.label == "agree on norm":
            return act(partial(self.exchanges.all_reduce, self.view.key("compute")), [self._norm], [self._agreed])
        if tag.label == "gradient norm":
            return act(self.gradients.square, [], [self._norm])
        if tag.label == "replicated gradients":
            return self.gradients.sum_copies
        return self._update(tag.label)

    def _update(self, label: str) -> Act:
        """The optimizer's step, and the copies around it where it runs on the host."""
        if label == "gradients to host":
            self._owned = Slot()
            return act(lambda _: copies(self.gradients.pieces()), [self._agreed], [self._owned])
        before, given = self._updated, Slot()
        self._updated = given
        if label == "weights to device":
            assert before is not None
            return act(lambda new: self._keep(copies(new)), [before], [given])
        if self._owned is not None:
            return act(lambda own: self._keep(update(own, self.weights)), [self._owned], [given])
        return act(lambda _: self._keep(update(self.gradients.pieces(), self.weights)), [self._agreed], [given])

    def _keep(self, new: list[Piece]) -> list[Piece]:
        self.new_weights = new
        return new


_ENDS = ("gradient norm", "agree on norm", "optimizer", "replicated gradients", "gradients to host",
         "weights to device")  # fmt: skip
