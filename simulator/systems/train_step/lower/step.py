"""One training step as a Program: the actions of a schedule as pieces, sends between stages, and what ends a step.

A place is a pipeline rank and stands for all ranks of its stage, which act alike. Sends have a lane per peer and
direction on both sides. Behind its last action a rank waits for its gradients, agrees on their norm with all others,
updates the parameters that it owns, and gathers those of others, unless the next step does that under its forward.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....profile.forms import WIDE_ROW
from ....program import Place, Program
from ....schedules import Action
from ....schedules.grid import BACKWARD, FORWARD, KINDS, WEIGHT, Cell
from .actions import ActionWriter, Pieces
from .assembly import Assembly, Template
from .held import LANES, Share, exchanges
from .kept import resident_bytes, stage_buffer
from .offload import Offload
from .piece import COMPUTE, D2H, H2D, HOST, Ints, LayerPass, Piece, Tables
from .plan import TrainPlan
from .rows import ActionOps
from .script import Pass

_AGREED_BYTES = 4  # the sum of squares of all gradients
_NO_ROWS = (round(WIDE_ROW),)  # the shape of what goes over all parameters in one sweep: no row is too short for it


def lower(plan: TrainPlan) -> Program:
    """What happens in the step, kernel by kernel."""
    return Step(plan).program()


@dataclass(frozen=True)
class Placed:
    """One action in the Program: the ops that wait for its input, those that are its output, its first and its last."""

    heads: list[int]
    tails: list[int]
    first: int
    last: int
    weights: Mapping[int, int]  # by layer, what first needs its weights
    grads: Mapping[int, int]  # by layer, behind what its gradients are there
    sends: Sequence[tuple[int, str, int]]  # where two ranks do so at once, what sends gradients: op, lane, layer
    layers: tuple[LayerPass, ...]


Key = tuple[tuple[str, int, int | None], ...]  # kind, stage and target of each action of a cell
Single = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...], int]  # as in a Template
PlainOps = tuple[Piece | None, Sequence[Sequence[int]], Sequence[Sequence[int]], list[Single]]


class Plain(NamedTuple):
    """A plain cell: how many single ops it has before its sends, and by number in it heads and tails of its actions and
    its last op but for sends.
    """

    template: Template
    ops: int
    heads: Sequence[Sequence[int]]
    tails: Sequence[Sequence[int]]
    last: int


class Step:
    """The step in the making."""

    def __init__(self, plan: TrainPlan):
        self.plan = plan
        tables = Tables()
        ranks = range(plan.grid.ranks)
        places = [Place(_place_name(plan, r), plan.ranks_of(r)) for r in ranks]
        self.assembly = Assembly(tables, places)
        written: Pieces = {}
        self.writers = [ActionWriter(plan, rank, tables, written) for rank in ranks]
        self._kept = [resident_bytes(plan, stage) for stage in range(len(plan.stages))]
        self._first = [plan.first_rank(rank) for rank in ranks]
        self._ended: list[list[list[int]]] = [[] for _ in ranks]  # what the layers so far end with, last one first
        self._ops = ActionOps(plan.grid)
        self._passes: dict[Action, tuple[LayerPass, ...]] = {}  # where activations are offloaded
        self._reducing: dict[tuple[int, int], list[Placed]] = {}  # by rank and stage

    def program(self) -> Program:
        """All of it."""
        gathered = {rank: self._gather_weights(rank) for rank in self._leaders}
        for rank in range(self.plan.grid.ranks):
            self._row(rank, dict(gathered[self._alike(rank)[0]]))
        for ops, after in self._ops.waits():
            self.assembly.wait_each(ops, after)
        self._meet()
        self._hold_activations()
        self._offload()
        self._tied_embedding()
        self._finish()
        return self.assembly.program()

    # Actions

    def _row(self, rank: int, gathered: dict[int, list[int]]) -> None:
        """Most cells are plain: nothing hangs on to them but a send. They are written all at once."""
        row, cells = self.plan.grid.rows[rank], self.plan.grid.columns[rank]
        forwards, gradients = _first_forwards(cells), _last_gradients(cells)
        firsts = {one.stage: one for i in forwards for one in row[i] if one.kind == FORWARD}
        lasts = {one.stage: one for i in gradients for one in row[i] if one.kind in (BACKWARD, WEIGHT)}
        begin = 0
        for i in range(len(row)) if self._all_special else sorted({*forwards, *gradients}):
            self._plain(rank, cells[begin:i])
            self._cell(rank, row[i], tuple(self._pass(action, firsts, lasts) for action in row[i]), gathered)
            begin = i + 1
        self._plain(rank, cells[begin:])

    @cached_property
    def _all_special(self) -> bool:
        """Whether layers, or gradients of every micro-batch, hang on to all actions."""
        sharding = self.plan.sharding
        return bool(self.plan.offloaded) or sharding.level == 3 or (sharding.level == 2 and sharding.each_microbatch)

    def _cell(self, rank: int, cell: Cell, passes: tuple[Pass, ...], gathered: dict[int, list[int]]) -> None:
        for action, its, one in zip(cell, passes, self.place(rank, cell, passes), strict=True):
            if its.reduce:
                self._reducing.setdefault((rank, action.stage), []).append(one)
            if action.kind == "F":
                self._wait_for_weights(one, gathered)
            self._passes[action] = one.layers
            heads, tails = ([op - one.first for op in ops] for ops in (one.heads, one.tails))
            at = KINDS.index(action.kind), action.stage, action.microbatch
            self._ops.put(at, one.first, heads, tails, one.last - one.first, rank, self._send(rank, action, one))

    def _plain(self, rank: int, cells: Ints) -> None:
        """Cells as in `Grid.columns`."""
        if not len(cells):
            return
        keys, which = self._distinct(rank, cells)
        plain = [self._plain_cell(rank, key) for key in keys]
        microbatch = np.where(cells[:, :, 0] >= 0, cells[:, :, 2], cells[:, :1, 2])
        first = self.assembly.repeat([one.template for one in plain], which, microbatch)
        for i, (key, one) in enumerate(zip(keys, plain, strict=True)):
            mine, sends = which == i, one.template.size - len(one.template.rows) + one.ops
            for j, (kind, stage, target) in enumerate(key):
                send = -1 if target is None else first[mine] + sends
                at = KINDS.index(kind), stage, microbatch[mine, j]
                self._ops.put(at, first[mine], one.heads[j], one.tails[j], one.last, rank, send)
                sends += target is not None

    def _distinct(self, rank: int, cells: Ints) -> tuple[list[Key], Ints]:
        """What cells are but for micro-batches, in the order of their first use, and which of these each cell is."""
        rows = np.concatenate([cells[:, :, :2], self._targets(rank, cells)[:, :, None]], axis=2).reshape(len(cells), -1)
        code = np.ravel_multi_index(tuple((rows + 1).T), tuple(rows.max(axis=0) + 2))
        _, at, which = np.unique(code, return_index=True, return_inverse=True)
        keys = [
            tuple((KINDS[kind], stage, None if target < 0 else target) for kind, stage, target in cell if kind >= 0)
            for cell in rows[np.sort(at)].reshape(-1, 2, 3).tolist()
        ]
        return keys, np.argsort(np.argsort(at))[which]

    def _plain_cell(self, rank: int, key: Key) -> Plain:
        """The ops of a plain cell, given kind, stage and target of each of its actions."""
        piece, heads, tails, ops = self.plain(rank, tuple(Action(stage, kind, -1) for kind, stage, _ in key))
        own = len(ops)
        for i, (kind, stage, target) in enumerate(key):
            if target is not None:
                name, size, group = self._message(rank, kind, target)
                row = self.assembly.row("send_recv", name, size, "", group, (stage, -1, -1))
                lanes = tuple(self.assembly.lane(*lane) for lane in self._send_lanes(rank, kind, target))
                ops.append((row, (), lanes, tuple(tails[i]), i))
        template = Template(piece, rank, [(stage, kind) for kind, stage, _ in key], *zip(*ops, strict=True))
        return Plain(template, own, heads, tails, template.size - len(ops) + own - 1)

    def plain(self, rank: int, cell: Cell) -> PlainOps:
        """A plain cell's piece, heads and tails of its actions, and its single ops."""
        piece = self.writers[rank].piece(*(Pass(one.stage, one.kind) for one in cell))
        return piece, piece.heads, piece.tails, []

    def place(self, rank: int, cell: Cell, passes: tuple[Pass, ...]) -> list[Placed]:
        """Put the actions of a cell at a rank."""
        piece = self.writers[rank].piece(*passes)
        first = self.assembly.stamp(piece, rank, *((one.stage, one.microbatch, one.kind) for one in cell))
        weights, grads = (
            {layer: first + op for (name, layer), op in piece.marks.items() if name == sort}
            for sort in ("weights", "grads")
        )
        ended = self._ended[rank]
        for op, end in piece.gathers:
            self.assembly.wait(first + op, ended[end] if end < len(ended) else ())
        self._ended[rank] = [[first + op for op in ops] for ops in piece.ends] + ended[: self.plan.sharding.most_ahead]
        last, sends = first + len(piece) - 1, self._sends(piece, first) if self.plan.mirrored else ()
        return [
            Placed([first + op for op in heads], [first + op for op in tails], first, last, weights, grads, sends,
                   tuple(one.moved(first) for one in layers) if self.plan.offloaded else ())
            for heads, tails, layers in zip(piece.heads, piece.tails, piece.layers, strict=True)
        ]  # fmt: skip

    def _sends(self, piece: Piece, first: int) -> list[tuple[int, str, int]]:
        lanes = {self.assembly.tables.lanes(name): name for name in (*LANES, "fusion")}
        ops = np.flatnonzero(np.isin(piece.lane, list(lanes))).tolist()
        return [(first + op, lanes[int(piece.lane[op])], int(piece.layer[op])) for op in ops]

    def _pass(self, action: Action, firsts: dict[int, Action], lasts: dict[int, Action]) -> Pass:
        sharding = self.plan.sharding
        each = sharding.level >= 2 and sharding.each_microbatch
        last = sharding.overlap_grads and lasts.get(action.stage) == action
        first = sharding.level >= 3 and firsts.get(action.stage) == action
        return Pass(action.stage, action.kind, first, action.kind in ("B", "W") and (each or last))

    def _send(self, rank: int, action: Action, one: Placed) -> int:
        """Activations go to the next stage, gradients to the one before; -1 if those are not elsewhere.

        Each tensor-parallel rank sends its part, also of what all of them hold (arXiv 2104.04473, section 4.1).
        """
        if (target := self._target(rank, action)) is None:
            return -1
        name, size, group = self._message(rank, action.kind, target)
        return self.assembly.op(
            "send_recv", self._send_lanes(rank, action.kind, target), one.tails, name=name, size_bytes=size,
            group=group, stage=action.stage, microbatch=action.microbatch,
        )  # fmt: skip

    def _target(self, rank: int, action: Action) -> int | None:
        """The rank that an action sends to, if any."""
        to = action.stage + _AHEAD.get(action.kind, self.plan.grid.stages)
        if not 0 <= to < self.plan.grid.stages:
            return None
        target = self.plan.grid.rank_of(to, action.microbatch)
        return None if target == rank else target

    def _targets(self, rank: int, cells: Ints) -> Ints:
        """The same of all actions of cells, -1 where there is none."""
        grid = self.plan.grid
        kind, stage, microbatch = np.moveaxis(cells, 2, 0)
        to = stage + np.array([_AHEAD.get(name, grid.stages) for name in KINDS])[kind]
        somewhere = (kind >= 0) & (to >= 0) & (to < grid.stages)
        target = np.where(somewhere, grid.homes[np.where(somewhere, to, 0), microbatch], -1)
        return np.where(target == rank, -1, target)

    def _message(self, rank: int, kind: str, target: int) -> tuple[str, int, tuple[int, int]]:
        """Name, bytes and group of what an action of a kind sends."""
        shard, spec = self.plan.shard, self.plan.spec
        size = -(-shard.tokens // shard.tp) * spec.hidden_size * shard.wide
        return f"{_way(kind)} to {target}", size, (self._first[rank], self._first[target])

    def _send_lanes(self, rank: int, kind: str, target: int) -> list[tuple[int, str]]:
        """A lane per peer and direction on both sides; without overlap the sender computes nothing meanwhile."""
        lanes = [(rank, f"{_way(kind)} to {target}"), (target, f"{_way(kind)} from {rank}")]
        return lanes if self.plan.overlap_pp else [*lanes, (rank, COMPUTE)]

    # Ranks that hold the same stages

    def _alike(self, rank: int) -> tuple[int, ...]:
        """The pipeline ranks that hold what this one holds, the one that writes their exchanges first."""
        mirror = self.writers[rank].holdings.mirror
        return (rank,) if mirror is None else (min(rank, mirror), max(rank, mirror))

    @property
    def _leaders(self) -> list[int]:
        return [rank for rank, writer in enumerate(self.writers) if writer.holdings.leads]

    def _meet(self) -> None:
        """Two ranks that hold a stage send its gradients in one exchange, once both have them."""
        for (rank, stage), placed in self._reducing.items():
            leader, *others = self._alike(rank)
            for other in others if rank == leader else ():
                for one, its in zip(placed, self._reducing[other, stage], strict=True):
                    for op, lane, layer in one.sends:
                        self.assembly.share(op, other, lane)
                        self.assembly.wait(op, [its.grads[layer]])

    # Activations

    def _hold_activations(self) -> None:
        """What a forward keeps on the device, until its backward has ended."""
        first, last, rank, stage = self._ops.forwards()
        kept = np.array(self._kept, np.int64)[stage]
        names = [stage_buffer(number) for number in range(len(self._kept))]
        columns = (column[kept > 0] for column in (stage, rank, kept, first, last))
        self.assembly.hold_each(names, *columns)

    def _offload(self) -> None:
        """What a forward keeps on the host in between."""
        for rank, row in enumerate(self.plan.grid.rows if self.plan.offloaded else ()):
            done = [(action, self._passes[action]) for cell in row for action in cell]
            Offload(self.plan, self.assembly, rank).write(done)

    # Weights and gradients

    def _gather_weights(self, rank: int) -> dict[int, list[int]]:
        """ZeRO-1 and 2 with overlap: what the last step updated is gathered stage by stage under the first forward."""
        sharding = self.plan.sharding
        if sharding.level not in (1, 2) or not sharding.overlap_weights:
            return {}
        found: dict[int, list[int]] = {}
        holdings = self.writers[rank].holdings
        for stage in self.plan.grid.stages_of(rank):
            for number, held in holdings.units(self.plan.stages[stage]):
                shares = holdings.shares(holdings.trained(number, held))
                found[number] = [self._gather(rank, number, share, ()) for share in shares if len(share.group) > 1]
        return found

    def _gather(self, rank: int, number: int, share: Share, after: Iterable[int]) -> int:
        return self.assembly.op(
            "all_gather", [(other, share.lane) for other in self._alike(rank)], after, name="gather weights",
            size_bytes=self.writers[rank].holdings.weight_bytes(number, share), group=share.group,
        )  # fmt: skip

    def _wait_for_weights(self, one: Placed, gathered: dict[int, list[int]]) -> None:
        """The first forward of a stage waits for its weights, layer by layer."""
        for layer, op in one.weights.items():
            self.assembly.wait(op, gathered.pop(layer, []))

    def _tied_embedding(self) -> None:
        """First and last stage each have a gradient of the one embedding: they add them up."""
        plan = self.plan
        first, last = plan.grid.rank_of(0, 0), plan.grid.rank_of(plan.grid.stages - 1, 0)
        if first == last or plan.lora or plan.mirrored:
            return
        if self.writers[last].holdings.copies_embedding(plan.stages[-1]):
            size = sum(self.writers[last].holdings.embedding) * plan.types.reduced
        elif plan.spec.tie_word_embeddings:
            size = plan.spec.vocab_size * plan.spec.hidden_size / plan.dims.tp * plan.types.reduced
        else:
            return
        group = (plan.first_rank(first), plan.first_rank(last))
        self.assembly.op("all_reduce", [(first, "dp"), (last, "dp")], self._ends([first, last]), name="tied embedding",
                         size_bytes=size, group=group)  # fmt: skip

    def _ends(self, ranks: Iterable[int]) -> list[int]:
        return [op for rank in ranks for op in self._end_of(rank)]

    def _end_of(self, rank: int) -> list[int]:
        return self._ops.ends(self.plan.grid.rows[rank][-1][-1])

    def _finish(self) -> None:
        """Norm of all gradients, then each rank's own update, then weights for the next step."""
        plan, ranks = self.plan, range(self.plan.grid.ranks)
        if not plan.sharding.overlap_grads and not (plan.sharding.level >= 2 and plan.sharding.each_microbatch):
            for rank in self._leaders:
                self._reduce_late(rank)
        for rank in ranks:
            self._sum_replicated(rank)
        owned = [self._owned(rank) for rank in ranks]
        norms = [
            self.assembly.op("grad_norm", [(rank, COMPUTE), *self._traffic_lanes(rank)], self._end_of(rank),
                             name="gradient norm", size_bytes=plan.types.gradients * owned[rank], shape=_NO_ROWS,
                             dtype="fp32")
            for rank in ranks
        ]  # fmt: skip
        world = tuple(range(plan.dims.world_size))
        agreed = self.assembly.op(
            "all_reduce", [(rank, COMPUTE) for rank in ranks], norms, name="agree on norm",
            size_bytes=_AGREED_BYTES, group=world,
        )  # fmt: skip
        done = [self._update(rank, owned[rank], agreed) for rank in ranks]
        if plan.sharding.level in (1, 2) and not plan.sharding.overlap_weights:
            for rank in self._leaders:
                for number, share in self._trained_shares(rank):
                    if len(share.group) > 1:
                        self._gather(rank, number, share, [done[other] for other in self._alike(rank)])

    def _trained_shares(self, rank: int) -> list[tuple[int, Share]]:
        """What of each unit of a rank is reduced, over whom."""
        holdings = self.writers[rank].holdings
        units = [unit for stage in self.plan.grid.stages_of(rank) for unit in holdings.units(self.plan.stages[stage])]
        return [(number, share) for number, held in units for share in holdings.shares(holdings.trained(number, held))]

    def _reduce_late(self, rank: int) -> None:
        """Gradients travel behind the last backward."""
        ends = self._ends(self._alike(rank))
        for share, messages in self._late(rank):
            for kind, group, size in exchanges(share, self.plan.sharding.level, self.plan.types.reduced):
                lanes = [(other, share.lane) for other in self._alike(rank)]
                self.reduce(kind, lanes, ends, group, size, messages)

    def _late(self, rank: int) -> Iterator[tuple[Share, int]]:
        """What travels there, in how many messages: a tensor each, or the buckets of torch's DistributedDataParallel,
        which has them whenever they travel, or all in one (Megatron-LM: `bucket_size = None` without overlap).
        """
        sharding, shares = self.plan.sharding, self._trained_shares(rank)
        if sharding.by_tensor:
            yield from ((share, self.plan.tensors(of, experts=share.lane == "edp")) for of, share in shares)
            return
        for lane in dict.fromkeys(share.lane for _, share in shares):
            alike = [share for _, share in shares if share.lane == lane]
            whole = alike[0]._replace(parameters=sum(share.parameters for share in alike))
            yield whole, 1 if sharding.level else sharding.messages(whole.parameters, 1)

    def reduce(
        self, kind: str, lanes: Sequence[tuple[int, str]], after: Iterable[int], group: tuple[int, ...], size: float,
        messages: int,
    ) -> None:  # fmt: skip
        """Write gradients of so many bytes as messages in a row."""
        for _ in range(messages):
            self.assembly.op(kind, lanes, after, name="reduce gradients", size_bytes=size / messages, group=group)

    def _sum_replicated(self, rank: int) -> None:
        """Behind what data-parallel ranks reduce: gradients that tensor-parallel ranks made of their own tokens."""
        if size := self.writers[rank].holdings.replicated:
            self.assembly.op(
                "all_reduce", [(rank, "tp"), *self._traffic_lanes(rank)], self._end_of(rank),
                name="replicated gradients", size_bytes=size * self.plan.types.reduced,
                group=self.plan.dims.group("tp", self._first[rank]),
            )  # fmt: skip

    def _traffic_lanes(self, rank: int) -> list[tuple[int, str]]:
        """The lanes that carry gradients: the norm is of what has arrived."""
        return [(rank, lane) for lane in LANES]

    def _owned(self, rank: int) -> int:
        """Parameters that a rank updates."""
        holdings, level = self.writers[rank].holdings, self.plan.sharding.level
        total = 0.0
        for stage in self.plan.grid.stages_of(rank):
            for number, held in holdings.units(self.plan.stages[stage]):
                trained = holdings.trained(number, held)
                parts = {share.lane: len(share.group) for share in holdings.shares(trained)} if level else {}
                total += trained.dense / parts.get("dp", 1) + trained.expert / parts.get("edp", 1) + trained.once
        return round(total)

    def _update(self, rank: int, owned: int, after: int) -> int:
        """Adam on the device; or on the host, with gradients going there and weights coming back."""
        types = self.plan.types
        if not self.plan.offload_optimizer:
            return self.assembly.op(
                "adamw", [(rank, COMPUTE)], [after], name="optimizer", size_bytes=types.updated * owned, shape=_NO_ROWS,
                dtype="fp32",
            )  # fmt: skip
        me = (self._first[rank],)
        there = self.assembly.op(D2H, [(rank, D2H)], [after], name="gradients to host", group=me,
                                 size_bytes=owned * types.gradients)  # fmt: skip
        step = self.assembly.op("host_adam", [(rank, HOST)], [there], name="optimizer", group=me,
                                size_bytes=owned * types.updated)  # fmt: skip
        return self.assembly.op(H2D, [(rank, H2D)], [step], name="weights to device", group=me,
                                size_bytes=owned * types.weights)  # fmt: skip


_AHEAD = {"F": 1, "B": -1, "I": -1}
"""To which stage an action of a kind sends, behind its own."""


def _way(kind: str) -> str:
    return "forward" if kind == "F" else "backward"


def _place_name(plan: TrainPlan, pipeline_rank: int) -> str:
    """Places of some replicas name the first of them."""
    return f"pp {pipeline_rank}" if plan.replicas is None else f"pp {pipeline_rank} dp {plan.replicas[0]}"


def _first_forwards(cells: Ints) -> list[int]:
    """Of each stage the cell with its first forward."""
    return _firsts(cells, cells[:, :, 0] == KINDS.index(FORWARD))


def _last_gradients(cells: Ints) -> list[int]:
    """Of each stage the cell behind which all its gradients are there."""
    back = cells[::-1]
    whole = np.isin(back[:, :, 0], [KINDS.index(BACKWARD), KINDS.index(WEIGHT)])
    return [len(cells) - 1 - i for i in _firsts(back, whole)]


def _firsts(cells: Ints, which: NDArray[np.bool_]) -> list[int]:
    """Of each stage, the first cell with an action of these."""
    cell, _ = np.nonzero(which)
    _, at = np.unique(cells[:, :, 1][which], return_index=True)
    found: list[int] = cell[at].tolist()
    return found
