"""The coarser level: one op per action, which takes the time of a simulation of its kernels alone; slow hosts have ops.

An action that sends gradients, or whose layers wait for weights, is cut into a few consecutive ops: where a gradient
bucket is ready, and where a layer first needs its weights. The real messages start or end at these cuts. If there are
many cuts, only some are kept, closest together at both ends, where messages and kernels are least hidden. Gradients
that are ready between two cuts leave at the later one; layers that wait between two cuts wait at the earlier one. With
offloaded activations the action is also cut between all its layers, because the copies start and end there.

Where hosts are slow (`pieces`), each action also has an op of its host, beside which it runs: a host issues actions
ahead of the device, one after another. The last part of an action is cut once more, and what is behind this cut waits
until the host has issued all of the action: it takes what the device then has left to do.

`coarse` returns the step and a second Program with the distinct actions kernel by kernel, each at its own place. The
time of a part is the time between two moments there. Actions of equal layers on equal machines are one distinct action.
Sends and the end of the step are those of the finer level.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby, pairwise
from math import cos, pi
from typing import NamedTuple

import numpy as np

from ....base.arrays import Ints
from ....program import Place, Program, Ragged, group_equal, join
from ....schedules.grid import FORWARD, KINDS
from .assembly import ACTIONS, Assembly, Stamps
from .cells import Cells, Placed
from .held import LANES
from .piece import COMPUTE, HOST, LayerPass, Piece, PieceWriter, Tables
from .plan import TrainPlan
from .script import Fragments
from .step import Step
from .traffic import Traffic

KIND, HOSTS = "actions", "hosts"
TRAFFIC = LANES
"""Lanes of an action whose ops are separate ops of the step; they take no time in the simulation of an action alone."""
_MOST_CUTS = 32  # for messages, and for waits
_NONE = (-1, -1, -1)  # (stage, micro-batch, kind) of ops outside actions


class Moment(NamedTuple):
    """The start or the end of an op."""

    op: int
    starts: bool


ALL, AHEAD, BEHIND, OF_HOST = range(4)


class Part(NamedTuple):
    """The part of the action at `place` between two moments; None is the start or the end of the action.

    `of` says what it is: ALL of it; what the device does AHEAD of the moment from which it may have to wait until the
    host has issued the action, or BEHIND that; or what the host does for the whole action (OF_HOST).
    """

    place: int
    since: Moment | None
    until: Moment | None
    of: int = ALL

    def move(self, places: int, ops: Ints) -> "Part":
        """The same part with `places` added to its place and its ops renumbered by `ops`."""
        since, until = (at and Moment(int(ops[at.op]), at.starts) for at in (self.since, self.until))
        return Part(self.place + places, since, until, self.of)


class Actions(NamedTuple):
    """All actions of a step: the place of each one's distinct action, and the offset of its ranks from that one's."""

    place: Ints
    ranks: Ints


@dataclass(frozen=True)
class Coarse:
    """A step at the coarser level (`program`), and its distinct actions kernel by kernel (`alone`), a place for each.

    The shape of an op of kind `actions` is a number: the op is part `part[number]` of `parts`, of action
    `action[number]` of `actions`. `times[op]` is the number of equal exchanges that the op stands for, one after
    another, each with the same share of the op's bytes. With `hosts`, hosts have ops of kind `hosts`, numbered alike.
    """

    program: Program
    alone: Program
    actions: Actions
    parts: tuple[Part, ...]
    part: Ints
    action: Ints
    times: Ints
    hosts: bool = False


def coarse(plan: TrainPlan, fragments: Fragments | None = None, hosts: bool = False) -> Coarse:
    """The step with one op per action, and with `hosts` one op of the action's host.

    It does not support ZeRO-3, whose gathers of weights run across actions.
    """
    assert plan.sharding.level < 3, "weights are gathered across actions"
    return _CoarseStep(plan, fragments, hosts).coarse()


def join_coarse(steps: Sequence[Coarse]) -> Coarse:
    """Combine the steps of replicas on unequal machines into one, as `program.join` does."""
    if len(steps) == 1:
        return steps[0]
    numbers = _before(len(step.part) for step in steps)
    program, own = join([_renumbered(step.program, by) for step, by in zip(steps, numbers, strict=True)])
    alone, at = join([step.alone for step in steps], share=False)
    places = _before(len(step.alone.places) for step in steps)
    times = np.ones(len(program), np.int64)
    for step, ops in zip(steps, own, strict=True):
        times[ops] = step.times
    return Coarse(
        program,
        alone,
        Actions(
            _behind((step.actions.place for step in steps), places),
            np.concatenate([step.actions.ranks for step in steps]),
        ),
        tuple(part.move(by, ops) for step, by, ops in zip(steps, places, at, strict=True) for part in step.parts),
        _behind((step.part for step in steps), _before(len(step.parts) for step in steps)),
        _behind((step.action for step in steps), _before(len(step.actions.place) for step in steps)),
        times,
        steps[0].hosts,
    )


def _before(sizes: Iterable[int]) -> list[int]:
    """The sum of all sizes before each one."""
    return list(accumulate(sizes, initial=0))[:-1]


def _behind(columns: Iterable[Ints], before: Sequence[int]) -> Ints:
    return np.concatenate([column + by for column, by in zip(columns, before, strict=True)])


def _renumbered(program: Program, by: int) -> Program:
    """The same Program with `by` added to the numbers in the shapes of actions."""
    of_action = program.is_kind(KIND, HOSTS)[program.shape.row_of_value()]
    return replace(program, shape=Ragged(program.shape.start, program.shape.values + by * of_action))


class _Message(NamedTuple):
    """`times` equal gradient messages, one after another; `layer` is the last layer in them."""

    lane: str
    kind: str
    group: tuple[int, ...]
    bytes: int
    times: int
    layer: int


class _Cut(NamedTuple):
    """An action cut at `moments` of its kernels.

    The ops of `piece` are its parts, each with its number as shape and followed by the messages that it sends.
    `messages` are (op, message).
    """

    piece: Piece
    moments: tuple[Moment, ...]
    messages: tuple[tuple[int, _Message], ...]


class _CoarseTraffic(Traffic):
    """Traffic that writes all messages of a share as one op; `times` lists (ops, messages per op)."""

    def __init__(self, plan: TrainPlan, assembly: Assembly):
        super().__init__(plan, assembly)
        self.times: list[tuple[Ints | int, int]] = []  # (ops, messages per op)

    def _reduce(
        self, kind: str, lanes: Sequence[tuple[int, str]], after: Iterable[int], group: tuple[int, ...], size: float,
        messages: int,
    ) -> int:  # fmt: skip
        op = self.assembly.op(kind, lanes, after, name="reduce gradients", size_bytes=size, group=group)
        if messages > 1:
            self.times.append((op, messages))
        return op


class _CoarseStep(Step):
    """A step that stamps a few ops for each action, where Step stamps the action's kernels."""

    traffic: _CoarseTraffic

    def __init__(self, plan: TrainPlan, fragments: Fragments | None = None, hosts: bool = False):
        super().__init__(plan, fragments)
        self._hosts = hosts
        self._lanes = [self.tables.lanes(name) for name in TRAFFIC]  # the messages after a part are in this order

    def _traffic(self) -> _CoarseTraffic:
        return _CoarseTraffic(self.plan, self.assembly)

    def coarse(self) -> Coarse:
        """The whole step, with its distinct actions."""
        program = self.program()
        times = np.ones(len(program), np.int64)
        for ops, many in self.traffic.times:
            times[ops] = many
        return Coarse(program, *self._numbered, times, self._hosts)

    def pieces(self, cells: Cells) -> tuple[list[Piece], Ints, Ints]:
        """As `Step.pieces`, with cells cut into parts; a stage's first forward is cut where layers wait for weights."""
        self._kernels, self._kernels_of, layers = super().pieces(cells)
        sharding = self.plan.sharding
        waits = (cells.opens[:, 0] | cells.opens[:, 1]) & bool(sharding.level and sharding.overlap_weights)
        example, which = group_equal(self._kernels_of * 2 + waits)
        self._cuts = [
            self._cut(cells, cell, self._waiting(cells, cell, int(layers[cell])) if waits[cell] else [])
            for cell in example.tolist()
        ]
        return [cut.piece for cut in self._cuts], which, layers

    def stamps(self, cells: Cells, which: Ints, layers: Ints) -> Stamps:
        """As `Step.stamps`, with shapes that number the parts of each rank and stage."""
        kind, stage, microbatch = np.moveaxis(cells.columns, 2, 0)
        paired = kind[:, 1] >= 0
        lead = np.stack([stage[:, 0], microbatch[:, 0], np.where(paired, ACTIONS.index("FB"), kind[:, 0])], axis=1)
        tags = np.stack([lead, np.broadcast_to(_NONE, lead.shape)], axis=1)
        return Stamps(which, cells.rank, tags, 0, self._number(cells, which))

    def _number(self, cells: Cells, which: Ints) -> Ints:
        """Number the distinct actions, all actions and their parts. Returns the number of each cell's first part."""
        stages = self.plan.grid.stages + 1
        seat = (cells.rank * stages + cells.columns[:, 0, 1] + 1) * stages + cells.columns[:, 1, 1] + 1
        example, action = group_equal(self._kernels_of * (int(seat.max()) + 1) + seat)
        alone, place = self._distinct(self._kernels_of[example], cells.rank[example])
        rank = cells.rank[example][alone]
        first_of = np.array(self.traffic.first)
        by = first_of[cells.rank[example]] - first_of[rank][place]
        program, began = self._alone([self._kernels[one] for one in self._kernels_of[example][alone]], rank.tolist())
        uses = which * len(example) + action
        first, of_cell = group_equal(uses)
        cut, own = np.divmod(uses[first], len(example))
        parts, first_part = self._parts(cut, place[own], began)
        many = np.array([len(one.moments) + 1 + 2 * self._hosts for one in self._cuts])[cut]
        number = np.cumsum(many) - many
        part = np.arange(many.sum()) + np.repeat(first_part - number, many)
        self._numbered = program, Actions(place, by), parts, part, np.repeat(own, many)
        found: Ints = number[of_cell]
        return found

    def _distinct(self, kernels: Ints, rank: Ints) -> tuple[Ints, Ints]:
        """Group actions with equal kernels at the same position of a period: (one of each group, group of each)."""
        first = np.array(self.traffic.first)[rank]
        at = first % self.plan.period if self.plan.period else first
        return group_equal(kernels * (int(at.max()) + 1) + at)

    def _alone(self, pieces: Sequence[Piece], ranks: Sequence[int]) -> tuple[Program, list[int]]:
        """A Program with each distinct action once, at its own place, and the first op of each."""
        places = [Place(f"action {i}", self.assembly.places[rank].ranks) for i, rank in enumerate(ranks)]
        alone = Assembly(self.tables, places, [self.traffic.first[rank] for rank in ranks])
        began = [alone.stamp(piece, i, *[(-1, -1, "F")] * len(piece.heads)) for i, piece in enumerate(pieces)]
        return alone.program(), began

    def _parts(self, cuts: Ints, places: Ints, began: Sequence[int]) -> tuple[tuple[Part, ...], Ints]:
        """The distinct parts of actions with these cuts at these places, and the index of each one's first part."""
        found, first = list[Part](), dict[tuple[int, int], int]()
        for cut, place in zip(cuts.tolist(), places.tolist(), strict=True):
            if (cut, place) not in first:
                first[cut, place] = len(found)
                moments = [Moment(one.op + began[place], one.starts) for one in self._cuts[cut].moments]
                found += [Part(place, *ends) for ends in pairwise((None, *moments, None))]
                if self._hosts:
                    last = found.pop()
                    found += [last._replace(of=of) for of in (AHEAD, BEHIND, OF_HOST)]
        return tuple(found), np.array([first[key] for key in zip(cuts.tolist(), places.tolist(), strict=True)])

    def _place(self, cells: Cells) -> tuple[Placed, Ints]:
        placed, send = super()._place(cells)
        for number, cut in enumerate(self._cuts):
            begun = placed.first[placed.which == number]
            self.traffic.times += [(begun + op, one.times) for op, one in cut.messages if one.times > 1]
        return placed, send

    def sends(self, piece: Piece) -> list[tuple[int, str, int]]:
        """The ops of a piece that send gradients: (op, lane, layer)."""
        cut = next(cut for cut in self._cuts if cut.piece is piece)
        return [(op, one.lane, one.layer) for op, one in cut.messages]

    # Cuts

    def _waiting(self, cells: Cells, cell: int, by: int) -> list[int]:
        """The units of a stage that wait for their weights, numbered as layers of its piece."""
        stage = next(stage for kind, stage, _ in cells.columns[cell].tolist() if KINDS[kind] == FORWARD)
        holdings = self.traffic.holdings[cells.rank[cell]]
        return [unit.layer - by for unit in holdings.units(self.plan.stages[stage])]

    def _cut(self, cells: Cells, cell: int, waiting: Sequence[int]) -> _Cut:
        """Cut an action at its moments, which are in the order of its ops."""
        piece = self._kernels[self._kernels_of[cell]]
        needs = {layer: piece.marks[mark] for layer in waiting if (mark := ("weights", layer)) in piece.marks}
        messages = _messages(piece, self._lanes)
        has = {layer: op for (mark, layer), op in piece.marks.items() if mark == "grads" and self.plan.is_mirrored}
        ready, started = _earliest(needs.values()), _latest((*messages.values(), *has.values()))
        head = min((op for ops in piece.heads for op in ops), default=0)
        waits = {Moment(op, True) for op in ready.values() if op > head}
        goes = {Moment(op, False) for op in started.values()}
        passes = piece.layers if self.plan.offloaded else tuple(() for _ in piece.layers)
        moments = sorted(waits | goes | _between(passes, head), key=_issued)
        behind = {moment: i for i, moment in enumerate(moments)}
        if moments and moments[-1] == self._end(piece):
            moments.pop()
        sends: list[list[int]] = [[] for _ in range(len(moments) + 1)]
        for message, op in messages.items():
            sends[behind[Moment(started[op], False)]].append(message)
        marks = {("weights", layer): behind.get(Moment(ready[op], True), -1) + 1 for layer, op in needs.items()}
        marks |= {("grads", layer): behind[Moment(started[op], False)] for layer, op in has.items()}
        sent = [list(_in_rows(piece, ops, self.tables)) for ops in sends]
        name = " & ".join(one.kind for one in cells.passes(cell))
        return self._cut_piece(name, moments, sent, marks, _by_parts(passes, moments))

    def _end(self, piece: Piece) -> Moment | None:
        """The end of the last kernel, if no exchange may end later."""
        tails = [op for ops in piece.tails for op in ops]
        computes = all(piece.lane[op] == self.tables.lanes(COMPUTE) for op in tails)
        return Moment(max(tails), False) if tails and computes else None

    def _cut_piece(
        self, name: str, moments: Sequence[Moment], sent: Sequence[Sequence[_Message]],
        marks: dict[tuple[str, int], int], layers: tuple[tuple[LayerPass, ...], ...],
    ) -> _Cut:  # fmt: skip
        """An action whose parts send messages (`sent`, by part); marks and layers name the parts by their numbers."""
        w, starts, ends, messages = PieceWriter(), list[int](), list[int](), list[tuple[int, _Message]]()
        for i, of_part in enumerate(sent):
            w.action = 0
            starts.append(w.op(KIND, COMPUTE, name=name, shape=(i,)))
            ends.append(self._behind_host(w, name, i) if self._hosts and i == len(moments) else starts[i])
            w.action = 1  # messages belong to no action: see `stamps`
            messages += [(_write_message(w, ends[i], one), one) for one in of_part]
        found = tuple(tuple(_renumber(one, starts, ends) for one in passes) for passes in layers)
        piece = w.piece(self.tables, [[0]] * len(layers), [[ends[-1]]] * len(layers), layers=found)
        marks = {mark: (starts if mark[0] == "weights" else ends)[part] for mark, part in marks.items()}
        return _Cut(replace(piece, marks=marks), tuple(moments), tuple(messages))

    def _behind_host(self, w: PieceWriter, name: str, last: int) -> int:
        """Write the host's op, and what is left of an action's last part once it is issued."""
        issued = w.op(HOSTS, HOST, name="issue", shape=(last + 2,))
        return w.op(KIND, COMPUTE, [issued], name=name, shape=(last + 1,))


def _write_message(w: PieceWriter, part: int, one: _Message) -> int:
    size = one.bytes * one.times
    return w.op(one.kind, one.lane, [part], name="reduce gradients", size_bytes=size, group=one.group)


def _issued(at: Moment) -> tuple[int, bool]:
    """Sort key of moments: the order of their ops; the start of an op before its end."""
    return at.op, not at.starts


def _between(passes: Iterable[Sequence[LayerPass]], head: int) -> set[Moment]:
    """The moments at which layers begin, and at which the last layer of each action ends."""
    starts = {Moment(one.first, True) for layers in passes for one in layers if one.first > head}
    return starts | {Moment(max(layers[-1].tails), False) for layers in passes if layers}


def _by_parts(passes: Iterable[Sequence[LayerPass]], moments: Sequence[Moment]) -> tuple[tuple[LayerPass, ...], ...]:
    """Layers with their ops replaced by the numbers of the parts that contain them."""
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


def _renumber(one: LayerPass, starts: Sequence[int], ends: Sequence[int]) -> LayerPass:
    """The same layer with the first and the last ops of its parts in place of the parts' numbers."""
    return LayerPass(one.layer, starts[one.first], tuple(ends[part] for part in one.tails), ends[one.last])


def _messages(piece: Piece, lanes: Sequence[int]) -> dict[int, int]:
    """The gradient messages of a piece, each with the op after which it starts."""
    found: dict[int, int] = {}
    for op in np.flatnonzero(np.isin(piece.lane, lanes)).tolist():
        after = int(piece.deps[op][0])
        found[op] = found.get(after, after)
    return found


def _in_rows(piece: Piece, messages: Sequence[int], tables: Tables) -> Iterator[_Message]:
    """Messages ordered by lane, with consecutive equal ones merged."""
    columns = piece.lane, piece.kind, piece.group, piece.bytes
    rows = sorted((tuple(int(column[op]) for column in columns) for op in messages), key=lambda row: row[0])
    for (lane, kind, group, size), equal in groupby(rows):
        names = tables.lanes.values[lane], tables.kinds.values[kind], tables.groups.values[group]
        yield _Message(*names, size, len(list(equal)), int(piece.layer[max(messages)]))


def _earliest(ops: Iterable[int]) -> dict[int, int]:
    """For each op the kept op at or before it, where the ops of its cut wait."""
    distinct = sorted(set(ops))
    kept = _choose(len(distinct))
    return {op: distinct[max(k for k in kept if k <= i)] for i, op in enumerate(distinct)}


def _latest(ops: Iterable[int]) -> dict[int, int]:
    """For each op the kept op at or after it, after which the messages of its cut start."""
    distinct = sorted(set(ops))
    kept = _choose(len(distinct))
    return {op: distinct[min(k for k in kept if k >= i)] for i, op in enumerate(distinct)}


def _choose(cuts: int) -> list[int]:
    """Indices of the cuts that are kept, of `cuts` in total: both ends, and others with spacing that grows inwards."""
    if cuts <= _MOST_CUTS:
        return list(range(cuts))
    last = _MOST_CUTS - 1
    return sorted({round((1 - cos(pi * i / last)) / 2 * (cuts - 1)) for i in range(_MOST_CUTS)})
