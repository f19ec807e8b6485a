"""The coarser level: one op per action, which takes as long as its kernels take alone.

An action that sends gradients on their way, or whose layers wait for weights, is a few ops in a row: it is cut where a
bucket is ready and where a layer first needs its weights, and the real messages hang on to the cuts. Of many cuts some
are kept, closest at both ends, where messages or kernels that nothing hides lie: what is ready between two goes at the
later one, and what waits between two waits at the earlier one. Where activations are offloaded it is cut between all
its layers too, as their copies hang on to these.

`coarse` gives the step and, as a second Program, the distinct actions kernel by kernel, each at a place of its own:
what a part takes is what lies between two moments there. Sends and the end of the step are those of the finer level.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from math import cos, pi
from typing import NamedTuple

import numpy as np

from ....program import Place, Program, Ragged, join
from ....schedules.grid import Cell
from .actions import Pass
from .assembly import Assembly
from .held import LANES
from .piece import COMPUTE, Ints, LayerPass, Piece
from .plan import TrainPlan
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

    place: int
    since: Moment | None
    until: Moment | None

    def moved(self, places: int, ops: Ints) -> "Part":
        """The same behind so many places, its ops renumbered."""
        since, until = (at and Moment(int(ops[at.op]), at.starts) for at in (self.since, self.until))
        return Part(self.place + places, since, until)


@dataclass(frozen=True)
class Coarse:
    """A step whose ops of kind `actions` have as shape the number of the part that they are.

    Moments number ops of `actions`, which has a place for every action, with the ranks of its stage. `times` says how
    often the exchange that an op is runs in a row, one part of its bytes after the other.
    """

    program: Program
    actions: Program
    parts: tuple[Part, ...]
    times: Ints


def coarse(plan: TrainPlan) -> Coarse:
    """The step with one op per action; not for sharded weights (ZeRO-3), whose gathers run from action to action."""
    assert plan.sharding.level < 3, "weights are gathered across actions"
    step = _CoarseStep(plan)
    program = step.program()
    actions, parts = step.actions()
    times = np.ones(len(program), np.int64)
    times[list(step.times)] = list(step.times.values())
    return Coarse(program, actions, parts, times)


def join_coarse(steps: Sequence[Coarse]) -> Coarse:
    """The steps of replicas on unequal machines as one; see `program.join`."""
    if len(steps) == 1:
        return steps[0]
    before = [0, *accumulate(len(step.parts) for step in steps)]
    program, numbers = join([_renumbered(step.program, by) for step, by in zip(steps, before, strict=False)])
    actions, at = join([step.actions for step in steps], share=False)
    places = [0, *accumulate(len(step.actions.places) for step in steps)]
    parts = [part.moved(place, ops) for step, place, ops in zip(steps, places, at, strict=False) for part in step.parts]
    times = np.ones(len(program), np.int64)
    for step, own in zip(steps, numbers, strict=True):
        times[own] = step.times
    return Coarse(program, actions, tuple(parts), times)


def _renumbered(program: Program, by: int) -> Program:
    """The same Program whose parts of actions are numbered behind so many others."""
    of_action = program.of_kind(KIND)[program.shape.row_of_value()]
    return replace(program, shape=Ragged(program.shape.start, program.shape.values + by * of_action))


@dataclass(frozen=True)
class _Cut:
    """A piece as parts in a row, numbered from `first`: what each sends behind it, at which one each layer waits, and
    behind which one it has its gradients where another rank waits for them. Of each action, its layers by parts.
    """

    first: int
    sends: tuple[tuple[int, ...], ...]
    weights: Mapping[int, int]
    grads: Mapping[int, int]
    layers: tuple[tuple[LayerPass, ...], ...]


class _CoarseStep(Step):
    """A step that stamps a few ops where another stamps a piece."""

    def __init__(self, plan: TrainPlan):
        super().__init__(plan)
        self.times: dict[int, int] = {}
        self._pieces: dict[int, tuple[Piece, int, int]] = {}  # by identity: the piece, its number, its rank
        self._cuts: dict[tuple[int, tuple[int, ...]], _Cut] = {}  # by identity and the layers that wait
        self._parts: list[Part] = []  # moments number ops of their piece
        self._begun: set[tuple[int, int]] = set()  # rank and stage
        self._tables = self.assembly.tables

    def actions(self) -> tuple[Program, tuple[Part, ...]]:
        """Every distinct action once, at a place of its own, and the parts of all."""
        ranks = [self.assembly.places[rank].ranks for _, _, rank in self._pieces.values()]
        alone = Assembly(self._tables, [Place(f"action {i}", of) for i, of in enumerate(ranks)])
        began = [
            alone.stamp(piece, number, *[(-1, -1, "F")] * len(piece.heads))
            for piece, number, _ in self._pieces.values()
        ]
        parts = tuple(
            Part(place, *(one and Moment(one.op + began[place], one.starts) for one in (since, until)))
            for place, since, until in self._parts
        )
        return alone.program(), parts

    def plain(self, rank: int, cell: Cell) -> PlainOps:
        """One op."""
        cut = self._cut_of(rank, self.writers[rank].piece(*(Pass(one.stage, one.kind) for one in cell)), ())
        assert len(cut.sends) == 1, "nothing hangs on to a plain cell"
        whole = self.assembly.row(KIND, cell_name(cell), 0, "", (), (cell[0].stage, -1, -1), _tag(cell))
        ends = [(0,)] * len(cell)
        return None, ends, ends, [(whole, (cut.first,), (self.assembly.lane(rank, COMPUTE),), (), 0)]

    def place(self, rank: int, cell: Cell, passes: tuple[Pass, ...]) -> list[Placed]:
        """One op for the whole cell, or a few."""
        piece = self.writers[rank].piece(*passes)
        waiting = tuple(layer for one in cell for layer in self._waiting(rank, one.kind, one.stage))
        cut, lead = self._cut_of(rank, piece, waiting), cell[0]
        parts = [
            self.assembly.op(
                KIND, [(rank, COMPUTE)], name=cell_name(cell), shape=(cut.first + i,), stage=lead.stage,
                microbatch=lead.microbatch, action=_tag(cell),
            )
            for i in range(len(cut.sends))
        ]  # fmt: skip
        sent = [
            one
            for part, messages in zip(parts, cut.sends, strict=True)
            for one in self._send_gradients(rank, piece, messages, part)
        ]
        last = sent[-1][0] if sent else parts[-1]
        weights, grads = ({layer: parts[i] for layer, i in at.items()} for at in (cut.weights, cut.grads))
        return [
            Placed(parts[:1], parts[-1:], parts[0], last, weights if one.kind == "F" else {}, grads, sent,
                   tuple(layer.moved(parts[0]) for layer in layers))
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

    def _cut_of(self, rank: int, piece: Piece, waiting: tuple[int, ...]) -> _Cut:
        key = (id(piece), waiting)
        if key not in self._cuts:
            self._cuts[key] = self._cut(rank, piece, waiting)
        return self._cuts[key]

    def _cut(self, rank: int, piece: Piece, waiting: Sequence[int]) -> _Cut:
        """Where a piece is cut: moments in the order of their ops."""
        _, place, _ = self._pieces.setdefault(id(piece), (piece, len(self._pieces), rank))
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
        first, ends = len(self._parts), [None, *moments, None]
        self._parts += [Part(place, since, until) for since, until in pairwise(ends)]
        return _Cut(first, tuple(map(tuple, sends)), weights, grads, _by_parts(passes, moments))

    def _send_gradients(
        self, rank: int, piece: Piece, messages: Sequence[int], after: int
    ) -> list[tuple[int, str, int]]:
        """Messages of a piece, with their lanes and the last layer that is in them; equal ones in a row are one op."""
        made = []
        t, rows = self._tables, (piece.lane, piece.kind, piece.group, piece.bytes)
        alike: list[tuple[tuple[int, ...], int]] = []
        for row in sorted((tuple(int(column[op]) for column in rows) for op in messages), key=lambda row: row[0]):
            times = alike.pop()[1] if alike and alike[-1][0] == row else 0
            alike.append((row, times + 1))
        for (lane, kind, group, size), times in alike:
            op = self.assembly.op(
                t.kinds.values[kind], [(rank, t.lanes.values[lane])], [after], name="reduce gradients",
                size_bytes=size * times, group=t.groups.values[group],
            )  # fmt: skip
            if times > 1:
                self.times[op] = times
            made.append((op, t.lanes.values[lane], int(piece.layer[max(messages)])))
        return made


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
