"""The coarser level: one op per action, which takes as long as its kernels take alone.

An action that sends gradients on their way, or whose layers wait for weights, is a few ops in a row: it is cut where a
bucket is ready and where a layer first needs its weights, and the real messages hang on to the cuts. Of many cuts some
are kept, closest at both ends, where messages or kernels that nothing hides lie: what is ready between two goes at the
later one, and what waits between two waits at the earlier one. Where activations are offloaded it is cut between all
its layers too, as their copies hang on to these.

`coarse` gives the step and, as a second Program, the distinct actions kernel by kernel, each at a place of its own:
what a part takes is what lies between two moments there. Actions of equal layers on equal machines are one of them.
Sends and the end of the step are those of the finer level.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby, pairwise
from math import cos, pi
from typing import NamedTuple

import numpy as np

from ....program import Place, Program, Ragged, join
from ....schedules.grid import Cell
from .assembly import Assembly
from .held import LANES
from .piece import COMPUTE, Ints, LayerPass, Piece
from .plan import TrainPlan
from .script import Pass
from .step import Placed, PlainOps, Step

KIND = "actions"
TRAFFIC = LANES
"""Lanes of an action whose ops are ops of the step, and take no time where the action is run alone."""
_MOST_CUTS = 32  # of each sort


class Moment(NamedTuple):
    """Where an op starts or ends."""

    op: int
    starts: bool


class Part(NamedTuple):
    """What an action does between two moments: from its start and to its end where there is none."""

    action: int
    since: Moment | None
    until: Moment | None

    def moved(self, actions: int, ops: Ints) -> "Part":
        """The same behind so many actions, its ops renumbered."""
        since, until = (at and Moment(int(ops[at.op]), at.starts) for at in (self.since, self.until))
        return Part(self.action + actions, since, until)


class Alike(NamedTuple):
    """An action as the one at a place of `actions`, on ranks with numbers larger by so much."""

    place: int
    ranks: int


@dataclass(frozen=True)
class Coarse:
    """A step whose ops of kind `actions` have as shape the number of the part that they are.

    `actions` has a place for every distinct action, with the ranks of the stage that it was written for, and moments
    number its ops. `alike` are all actions, which parts number. `times` says how often the exchange that an op is runs
    in a row, one part of its bytes after the other.
    """

    program: Program
    actions: Program
    alike: tuple[Alike, ...]
    parts: tuple[Part, ...]
    times: Ints


def coarse(plan: TrainPlan) -> Coarse:
    """The step with one op per action; not for sharded weights (ZeRO-3), whose gathers run from action to action."""
    assert plan.sharding.level < 3, "weights are gathered across actions"
    step = _CoarseStep(plan)
    program = step.program()
    actions, parts = step.actions()
    alike = tuple(step.alike)
    times = np.ones(len(program), np.int64)
    times[list(step.times)] = list(step.times.values())
    return Coarse(program, actions, alike, parts, times)


def join_coarse(steps: Sequence[Coarse]) -> Coarse:
    """The steps of replicas on unequal machines as one; see `program.join`."""
    if len(steps) == 1:
        return steps[0]
    before = [0, *accumulate(len(step.parts) for step in steps)]
    program, numbers = join([_renumbered(step.program, by) for step, by in zip(steps, before, strict=False)])
    actions, at = join([step.actions for step in steps], share=False)
    places = [0, *accumulate(len(step.actions.places) for step in steps)]
    first = [0, *accumulate(len(step.alike) for step in steps)]
    alike = [Alike(one.place + by, one.ranks) for step, by in zip(steps, places, strict=False) for one in step.alike]
    parts = [part.moved(by, ops) for step, by, ops in zip(steps, first, at, strict=False) for part in step.parts]
    times = np.ones(len(program), np.int64)
    for step, own in zip(steps, numbers, strict=True):
        times[own] = step.times
    return Coarse(program, actions, tuple(alike), tuple(parts), times)


def _renumbered(program: Program, by: int) -> Program:
    """The same Program whose parts of actions are numbered behind so many others."""
    of_action = program.of_kind(KIND)[program.shape.row_of_value()]
    return replace(program, shape=Ragged(program.shape.start, program.shape.values + by * of_action))


class _Message(NamedTuple):
    """Equal messages of gradients in a row, as one: columns of a piece, how many there are, the last layer in them."""

    lane: int
    kind: int
    group: int
    bytes: int
    times: int
    layer: int


@dataclass(frozen=True)
class _Cut:
    """A piece as parts in a row, between `moments`: what each sends behind it, at which one each layer waits, and
    behind which one it has its gradients where another rank waits for them. Of each action, its layers by parts.
    """

    moments: tuple[Moment, ...]
    sends: tuple[tuple[_Message, ...], ...]
    weights: Mapping[int, int]
    grads: Mapping[int, int]
    layers: tuple[tuple[LayerPass, ...], ...]


class _Used(NamedTuple):
    """A cut where it is used: the number of its first part, and by how much layers and ranks have larger numbers."""

    cut: _Cut
    first: int
    layers: int
    ranks: int


class _CoarseStep(Step):
    """A step that stamps a few ops where another stamps a piece."""

    def __init__(self, plan: TrainPlan):
        super().__init__(plan)
        self.times: dict[int, int] = {}
        self.alike: list[Alike] = []
        self._alone: list[tuple[Piece, int]] = []  # what actions are alike to, and the first rank of its stage
        self._places: dict[tuple[int, int], Alike] = {}  # by identity of a piece and where its ranks are in a period
        self._actions: dict[tuple[int, tuple[Pass, ...]], int] = {}
        self._cuts: dict[tuple[int, tuple[int, ...]], _Cut] = {}  # by identity and the layers that wait
        self._used: dict[tuple[int, tuple[Pass, ...], tuple[int, ...]], _Used] = {}
        self._parts: list[Part] = []  # moments number ops of their piece
        self._begun: set[tuple[int, int]] = set()  # rank and stage
        self._tables = self.assembly.tables

    def actions(self) -> tuple[Program, tuple[Part, ...]]:
        """Every distinct action once, at a place of its own, and the parts of all."""
        ranks = [self.assembly.places[rank].ranks for _, rank in self._alone]
        alone = Assembly(self._tables, [Place(f"action {i}", of) for i, of in enumerate(ranks)])
        began = [
            alone.stamp(piece, number, *[(-1, -1, "F")] * len(piece.heads))
            for number, (piece, _) in enumerate(self._alone)
        ]
        first = [began[one.place] for one in self.alike]
        parts = tuple(
            Part(action, *(one and Moment(one.op + first[action], one.starts) for one in (since, until)))
            for action, since, until in self._parts
        )
        return alone.program(), parts

    def plain(self, rank: int, cell: Cell) -> PlainOps:
        """One op."""
        used = self._use(rank, tuple(Pass(one.stage, one.kind) for one in cell), ())
        assert not used.cut.moments, "nothing hangs on to a plain cell"
        whole = self.assembly.row(KIND, cell_name(cell), 0, "", (), (cell[0].stage, -1, -1), _tag(cell))
        ends = [(0,)] * len(cell)
        return None, ends, ends, [(whole, (used.first,), (self.assembly.lane(rank, COMPUTE),), (), 0)]

    def place(self, rank: int, cell: Cell, passes: tuple[Pass, ...]) -> list[Placed]:
        """One op for the whole cell, or a few."""
        waiting = tuple(layer for one in cell for layer in self._waiting(rank, one.kind, one.stage))
        used, lead = self._use(rank, passes, waiting), cell[0]
        cut, layers_by = used.cut, used.layers
        parts = [
            self.assembly.op(
                KIND, [(rank, COMPUTE)], name=cell_name(cell), shape=(used.first + i,), stage=lead.stage,
                microbatch=lead.microbatch, action=_tag(cell),
            )
            for i in range(len(cut.sends))
        ]  # fmt: skip
        sent = [
            self._send_gradients(rank, message, part, used)
            for part, messages in zip(parts, cut.sends, strict=True)
            for message in messages
        ]
        last = sent[-1][0] if sent else parts[-1]
        weights, grads = (
            {layer + layers_by: parts[i] for layer, i in at.items()} for at in (cut.weights, cut.grads)
        )
        return [
            Placed(parts[:1], parts[-1:], parts[0], last, weights if one.kind == "F" else {}, grads, sent,
                   tuple(layer.moved(parts[0])._replace(layer=layer.layer + layers_by) for layer in layers))
            for one, layers in zip(cell, cut.layers, strict=True)
        ]  # fmt: skip

    def reduce(
        self, kind: str, lanes: Sequence[tuple[int, str]], after: Iterable[int], group: tuple[int, ...], size: float,
        messages: int,
    ) -> None:  # fmt: skip
        """All messages as one op."""
        op = self.assembly.op(kind, lanes, after, name="reduce gradients", size_bytes=size, group=group)
        if messages > 1:
            self.times[op] = messages

    def _waiting(self, rank: int, kind: str, stage: int) -> list[int]:
        """The units of a stage whose weights are on their way: those of its first forward."""
        sharding = self.plan.sharding
        if kind != "F" or (rank, stage) in self._begun or sharding.level == 0 or not sharding.overlap_weights:
            return []
        self._begun.add((rank, stage))
        return [number for number, _ in self.writers[rank].holdings.units(self.plan.stages[stage])]

    def _use(self, rank: int, passes: tuple[Pass, ...], waiting: tuple[int, ...]) -> _Used:
        key = rank, passes, waiting
        if key not in self._used:
            piece, *by = self.writers[rank].written(*passes)
            cut, action = self._cut_of(piece, tuple(layer - by[0] for layer in waiting)), self._action(rank, passes)
            self._used[key] = _Used(cut, len(self._parts), *by)
            self._parts += [Part(action, *ends) for ends in pairwise((None, *cut.moments, None))]
        return self._used[key]

    def _action(self, rank: int, passes: tuple[Pass, ...]) -> int:
        """The number of an action: it is like another one of the same piece that lies in the same place of a period."""
        key = rank, passes
        if key not in self._actions:
            piece, _, ranks = self.writers[rank].written(*passes)
            at = id(piece), ranks % self.plan.period if self.plan.period else ranks
            if at not in self._places:
                self._places[at] = Alike(len(self._alone), ranks)
                self._alone.append((self.writers[rank].piece(*passes), rank))
            place, its_ranks = self._places[at]
            self._actions[key] = len(self.alike)
            self.alike.append(Alike(place, ranks - its_ranks))
        return self._actions[key]

    def _cut_of(self, piece: Piece, waiting: tuple[int, ...]) -> _Cut:
        key = id(piece), waiting
        if key not in self._cuts:
            self._cuts[key] = self._cut(piece, waiting)
        return self._cuts[key]

    def _cut(self, piece: Piece, waiting: Sequence[int]) -> _Cut:
        """Where a piece is cut: moments in the order of their ops."""
        needs = {layer: piece.marks[mark] for layer in waiting if (mark := ("weights", layer)) in piece.marks}
        messages = _messages(piece, [self._tables.lanes(name) for name in TRAFFIC])
        has = {layer: op for (mark, layer), op in piece.marks.items() if mark == "grads" and self.plan.mirrored}
        ready, started = _earliest(needs.values()), _latest((*messages.values(), *has.values()))
        head = min((op for ops in piece.heads for op in ops), default=0)
        waits = {Moment(op, True) for op in ready.values() if op > head}
        goes = {Moment(op, False) for op in started.values()}
        passes = piece.layers if self.plan.offloaded else tuple(() for _ in piece.layers)
        moments = sorted(waits | goes | _between(passes, head), key=_issued)
        behind = {moment: i for i, moment in enumerate(moments)}
        sends: list[list[int]] = [[] for _ in range(len(moments) + 1)]
        for message, op in messages.items():
            sends[behind[Moment(started[op], False)]].append(message)
        weights = {layer: behind.get(Moment(ready[op], True), -1) + 1 for layer, op in needs.items()}
        grads = {layer: behind[Moment(started[op], False)] for layer, op in has.items()}
        sent = tuple(tuple(_in_rows(piece, ops)) for ops in sends)
        return _Cut(tuple(moments), sent, weights, grads, _by_parts(passes, moments))

    def _send_gradients(self, rank: int, message: _Message, after: int, used: _Used) -> tuple[int, str, int]:
        """A message behind a part: its op, lane and last layer."""
        t, lane = self._tables, self._tables.lanes.values[message.lane]
        op = self.assembly.op(
            t.kinds.values[message.kind], [(rank, lane)], [after], name="reduce gradients",
            size_bytes=message.bytes * message.times,
            group=tuple(one + used.ranks for one in t.groups.values[message.group]),
        )  # fmt: skip
        if message.times > 1:
            self.times[op] = message.times
        return op, lane, message.layer + used.layers


def _issued(at: Moment) -> tuple[int, bool]:
    """Moments are in the order of their ops, and ops start before they end."""
    return at.op, not at.starts


def _between(passes: Iterable[Sequence[LayerPass]], head: int) -> set[Moment]:
    """Where layers begin, and where the last one of an action ends."""
    starts = {Moment(one.first, True) for layers in passes for one in layers if one.first > head}
    return starts | {Moment(max(layers[-1].tails), False) for layers in passes if layers}


def _by_parts(passes: Iterable[Sequence[LayerPass]], moments: Sequence[Moment]) -> tuple[tuple[LayerPass, ...], ...]:
    """Layers whose ops are numbers of the parts between moments."""
    keys = [_issued(at) for at in moments]

    def ends(op: int) -> int:
        return bisect_left(keys, (op, True))

    return tuple(
        tuple(
            LayerPass(one.layer, bisect_right(keys, (one.first, False)), (ends(max(one.tails)),), ends(one.last))
            for one in layers
        )
        for layers in passes
    )


def _messages(piece: Piece, lanes: Sequence[int]) -> dict[int, int]:
    """The gradients that a piece sends: each message with the op behind which it starts."""
    found: dict[int, int] = {}
    for op in np.flatnonzero(np.isin(piece.lane, lanes)).tolist():
        after = int(piece.deps[op][0])
        found[op] = found.get(after, after)
    return found


def _in_rows(piece: Piece, messages: Sequence[int]) -> Iterator[_Message]:
    """Messages by their lanes; equal ones in a row are one."""
    columns = piece.lane, piece.kind, piece.group, piece.bytes
    rows = sorted((tuple(int(column[op]) for column in columns) for op in messages), key=lambda row: row[0])
    for (lane, kind, group, size), equal in groupby(rows):
        yield _Message(lane, kind, group, size, len(list(equal)), int(piece.layer[max(messages)]))


def _earliest(ops: Iterable[int]) -> dict[int, int]:
    """For each op the one at which those of its cut wait."""
    distinct = sorted(set(ops))
    kept = _kept(len(distinct))
    return {op: distinct[max(k for k in kept if k <= i)] for i, op in enumerate(distinct)}


def _latest(ops: Iterable[int]) -> dict[int, int]:
    """For each op the one behind which those of its cut start."""
    distinct = sorted(set(ops))
    kept = _kept(len(distinct))
    return {op: distinct[min(k for k in kept if k >= i)] for i, op in enumerate(distinct)}


def _kept(cuts: int) -> list[int]:
    """Which of so many cuts are kept: both ends, and others the closer to each other the closer they are to those."""
    if cuts <= _MOST_CUTS:
        return list(range(cuts))
    last = _MOST_CUTS - 1
    return sorted({round((1 - cos(pi * i / last)) / 2 * (cuts - 1)) for i in range(_MOST_CUTS)})


def _tag(cell: Cell) -> str:
    return "FB" if len(cell) > 1 else cell[0].kind


def cell_name(cell: Cell) -> str:
    """What an op of a whole cell is called; stage and micro-batch are tags."""
    return " & ".join(action.kind for action in cell)
