"""One training step as a Program: the actions of a schedule as pieces, sends between stages, and what ends a step.

A place is a pipeline rank and stands for all ranks of its stage, which act alike. Sends have a lane per peer and
direction on both sides. Behind its last action a rank waits for its gradients, agrees on their norm with all others,
updates the parameters that it owns, and gathers those of others, unless the next step does that under its forward.

Cells of the schedule that do the same are one Piece, whatever their rank, stage and micro-batch.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....profile.forms import WIDE_ROW
from ....program import Place, Program
from ....schedules import Action
from ....schedules.grid import BACKWARD, FORWARD, KINDS, WEIGHT
from .actions import ActionWriter
from .assembly import Assembly, Stamps
from .held import LANES, Share, exchanges
from .kept import resident_bytes, stage_buffer
from .offload import Offload
from .piece import COMPUTE, D2H, H2D, HOST, Ints, LayerPass, Piece, Tables
from .plan import Stage, TrainPlan
from .rows import ActionOps, Blocks
from .script import Fragments, Pass

_AGREED_BYTES = 4  # the sum of squares of all gradients
_NO_ROWS = (round(WIDE_ROW),)  # the shape of what goes over all parameters in one sweep: no row is too short for it


def lower(plan: TrainPlan, fragments: Fragments | None = None) -> Program:
    """What happens in the step, kernel by kernel; `fragments` are kept for plans of equal `of_layers`."""
    return Step(plan, fragments).program()


class Cells(NamedTuple):
    """The cells of all ranks, rank by rank in their order: `columns[cell, i]` is kind, stage and micro-batch of its
    i-th action, -1 where it has one only.

    `opens` marks the first forward of a stage, `gathers` actions that gather weights for the whole step, and `reduces`
    those that send gradients on their way; shape [cells, 2].
    """

    rank: Ints
    columns: Ints
    opens: NDArray[np.bool_]
    gathers: NDArray[np.bool_]
    reduces: NDArray[np.bool_]

    @classmethod
    def of(cls, plan: TrainPlan) -> "Cells":
        """Those of a plan's grid."""
        grid, sharding = plan.grid, plan.sharding
        rank, columns = np.repeat(np.arange(grid.ranks), [len(row) for row in grid.rows]), np.concatenate(grid.columns)
        kind, stage, _ = np.moveaxis(columns, 2, 0)
        forward, gradient = kind == KINDS.index(FORWARD), np.isin(kind, [KINDS.index(BACKWARD), KINDS.index(WEIGHT)])
        of_stage = rank[:, None] * grid.stages + stage
        opens, last = _first_of_each(of_stage, forward), _first_of_each(of_stage[::-1], gradient[::-1])[::-1]
        each = sharding.level >= 2 and sharding.each_microbatch
        reduces = gradient if each else last & sharding.overlap_grads
        return cls(rank, columns, opens, opens & (sharding.level >= 3), reduces)

    def passes(self, cell: int) -> tuple[Pass, ...]:
        """What the actions of a cell are."""
        return tuple(
            Pass(stage, KINDS[kind], bool(self.gathers[cell, i]), bool(self.reduces[cell, i]))
            for i, (kind, stage, _) in enumerate(self.columns[cell].tolist())
            if kind >= 0
        )


def _first_of_each(of: Ints, which: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Of the entries that are marked, the first one of each kind."""
    cell, column = np.nonzero(which)
    kinds, found = of[cell, column], np.zeros_like(which)
    first = np.empty(int(kinds.max(initial=-1)) + 1, np.int64)
    first[kinds[::-1]] = np.arange(len(kinds))[::-1]  # of several values for one place, the last one stays
    own = first[kinds] == np.arange(len(kinds))
    found[cell[own], column[own]] = True
    return found


class Placed(NamedTuple):
    """The cells in the Program: the piece of each, and its first op."""

    cells: Cells
    pieces: Sequence[Piece]
    which: Ints
    first: Ints
    layers: Ints


class Step:
    """The step in the making."""

    def __init__(self, plan: TrainPlan, fragments: Fragments | None = None):
        self.plan, ranks = plan, range(plan.grid.ranks)
        fragments = {} if fragments is None else fragments
        self._first = [plan.first_rank(rank) for rank in ranks]
        places = [Place(_place_name(plan, r), plan.ranks_of(r)) for r in ranks]
        self.tables = Tables()
        self.assembly = Assembly(self.tables, places, self._first)
        self.writers = [ActionWriter(plan, rank, self.tables, fragments) for rank in ranks]

    def program(self) -> Program:
        """All of it."""
        gathered = {rank: self._gather_weights(rank) for rank in self._leaders}
        placed, send = self._place(Cells.of(self.plan))
        self._ops = self._actions(placed, send)
        for ops, after in self._ops.waits():
            self.assembly.wait_each(ops, after)
        self._wait_for_weights(placed, gathered)
        self._gather_ahead(placed)
        self._meet(placed)
        self._hold_activations()
        self._offload(placed)
        self._tied_embedding()
        self._finish()
        return self.assembly.program()

    # Actions

    def _place(self, cells: Cells) -> tuple[Placed, Ints]:
        """Stamp all cells, each with its sends behind it; beside them the op that sends what each action gives."""
        pieces, which, layers = self.pieces(cells)
        target = self._targets(cells)
        sends = target >= 0
        first = self.assembly.stamp_all(pieces, self.stamps(cells, which, layers), sends.sum(axis=1))
        placed = Placed(cells, pieces, which, first, layers)
        behind = first + np.array([len(piece) for piece in pieces])[which]
        send = np.where(sends, behind[:, None] + np.cumsum(sends, axis=1) - 1, -1)
        self._send(cells, target, send)
        return placed, send

    def pieces(self, cells: Cells) -> tuple[list[Piece], Ints, Ints]:
        """The distinct pieces, which of them each cell is, and by how much its layers have larger numbers."""
        example, which = self._alike(cells)
        first = self._first_layer[cells.columns[:, 0, 1]]
        pieces = [self.writers[cells.rank[cell]].piece(*cells.passes(cell)) for cell in example.tolist()]
        return pieces, which, first - first[example][which]

    def stamps(self, cells: Cells, which: Ints, layers: Ints) -> Stamps:
        """Cells as stamps of their pieces."""
        kind, stage, microbatch = np.moveaxis(cells.columns, 2, 0)
        return Stamps(which, cells.rank, np.stack([stage, microbatch, kind], axis=2), layers)

    def _alike(self, cells: Cells) -> tuple[Ints, Ints]:
        """One of each set of cells that are the same but for rank, stage and micro-batch, and the set of each cell."""
        there = cells.columns[:, :, 0] >= 0
        kind, stage = cells.columns[:, :, 0], np.where(there, cells.columns[:, :, 1], 0)
        model = self._classes[cells.rank[:, None], stage]
        apart = np.where(there.all(axis=1), self._first_layer[stage[:, 1]] - self._first_layer[stage[:, 0]], 0)
        flags = np.concatenate([cells.gathers, cells.reduces], axis=1).astype(int)
        columns = [*(kind + 1).T, *np.where(there, model, 0).T, apart - apart.min(initial=0), *flags.T]
        code = np.ravel_multi_index(columns, [int(column.max(initial=0)) + 1 for column in columns])
        _, example, which = np.unique(code, return_index=True, return_inverse=True)
        return example, which

    @cached_property
    def _first_layer(self) -> Ints:
        return np.array([stage.layers[0] if stage.layers else 0 for stage in self.plan.stages], np.int64)

    @cached_property
    def _classes(self) -> Ints:
        """A number for each rank and stage; the same for stages of equal layers without ends."""
        numbers: dict[object, int] = {}
        found = np.zeros((self.plan.grid.ranks, self.plan.grid.stages), np.int64)
        for rank in range(self.plan.grid.ranks):
            for number in self.plan.grid.stages_of(rank):
                stage = self.plan.stages[number]
                alone = self.plan.mirrored or stage.has_ends or not stage.layers
                key = (rank, number) if alone else self._made_of(stage)
                found[rank, number] = numbers.setdefault(key, len(numbers))
        return found

    def _made_of(self, stage: Stage) -> object:
        """Its layers, counted from the first, by their kernels, which equal layers share."""
        first = stage.layers[0]
        return tuple((number - first, id(self.plan.layer(number))) for number in stage.layers)

    def _actions(self, placed: Placed, send: Ints) -> ActionOps:
        cells, there = placed.cells, placed.cells.columns[:, :, 0] >= 0
        blocks = [(heads, tails, len(piece) - 1) for piece in placed.pieces
                  for heads, tails in zip(_both(piece.heads), _both(piece.tails), strict=True)]  # fmt: skip
        cell, _ = np.nonzero(there)
        block = (2 * placed.which[:, None] + np.arange(2))[there]
        return ActionOps(
            self.plan.grid, cells.columns[there], placed.first[cell], block,
            Blocks.of(*zip(*blocks, strict=True)), cells.rank[cell], send[there],
        )  # fmt: skip

    # Sends

    def _targets(self, cells: Cells) -> Ints:
        """The rank that each action sends to, -1 where there is none."""
        grid = self.plan.grid
        kind, stage, microbatch = np.moveaxis(cells.columns, 2, 0)
        to = stage + np.array([_AHEAD.get(name, grid.stages) for name in KINDS])[kind]
        somewhere = (kind >= 0) & (to >= 0) & (to < grid.stages)
        target = np.where(somewhere, grid.homes[np.where(somewhere, to, 0), microbatch], -1)
        return np.where(target == cells.rank[:, None], -1, target)

    def _send(self, cells: Cells, target: Ints, send: Ints) -> None:
        """Activations go to the next stage, gradients to the one before, once the action is done (`ActionOps`)."""
        cell, action = np.nonzero(target >= 0)
        kind, stage, microbatch = cells.columns[cell, action].T
        ways, ranks = np.array([_way(name) == "forward" for name in KINDS]), self.plan.grid.ranks
        code = (cells.rank[cell] * 2 + ways[kind]) * ranks + target[cell, action]
        channels, which = np.unique(code, return_inverse=True)
        rows, lanes = [], []
        for channel in channels.tolist():
            (rank, forward), to = divmod(channel // ranks, 2), channel % ranks
            row, on = self._channel(rank, "forward" if forward else "backward", to)
            rows.append(row)
            lanes.append([self.assembly.lane(*lane) for lane in on])
        if rows:
            ops = send[cell, action]
            on_each = [lane[which] for lane in np.array(lanes, np.int64).T]
            self.assembly.put(ops, np.array(rows, np.int64)[which], stage, microbatch, on_each)

    def _channel(self, rank: int, way: str, target: int) -> tuple[int, list[tuple[int, str]]]:
        """What a rank sends to another one, and the lanes that it holds: one per peer and direction on both sides.

        Each tensor-parallel rank sends its part, also of what all of them hold (arXiv 2104.04473, section 4.1). Without
        overlap the sender computes nothing meanwhile.
        """
        shard, spec = self.plan.shard, self.plan.spec
        size = -(-shard.tokens // shard.tp) * spec.hidden_size * shard.wide
        group = self._first[rank], self._first[target]
        lanes = [(rank, f"{way} to {target}"), (target, f"{way} from {rank}")]
        row = self.assembly.row("send_recv", f"{way} to {target}", size, "", group)
        return row, lanes if self.plan.overlap_pp else [*lanes, (rank, COMPUTE)]

    # Ranks that hold the same stages

    def _same(self, rank: int) -> tuple[int, ...]:
        """The pipeline ranks that hold what this one holds, the one that writes their exchanges first."""
        mirror = self.writers[rank].holdings.mirror
        return (rank,) if mirror is None else (min(rank, mirror), max(rank, mirror))

    @property
    def _leaders(self) -> list[int]:
        return [rank for rank, writer in enumerate(self.writers) if writer.holdings.leads]

    def _meet(self, placed: Placed) -> None:
        """Two ranks that hold a stage send its gradients in one exchange, once both have them."""
        if not self.plan.mirrored:
            return
        cells, reducing = placed.cells, dict[tuple[int, int], list[int]]()
        for cell, action in np.argwhere(cells.reduces).tolist():
            reducing.setdefault((int(cells.rank[cell]), int(cells.columns[cell, action, 1])), []).append(cell)
        for (rank, stage), own in reducing.items():
            leader, *others = self._same(rank)
            for other in others if rank == leader else ():
                for cell, its in zip(own, reducing[other, stage], strict=True):
                    grads = placed.pieces[placed.which[its]].marked("grads")
                    for op, lane, layer in self.sends(placed.pieces[placed.which[cell]]):
                        self.assembly.share(int(placed.first[cell]) + op, other, lane)
                        self.assembly.wait(int(placed.first[cell]) + op, [int(placed.first[its]) + grads[layer]])

    def sends(self, piece: Piece) -> list[tuple[int, str, int]]:
        """What sends gradients in a piece: op, lane and layer."""
        lanes = {self.tables.lanes(name): name for name in (*LANES, "fusion")}
        ops = np.flatnonzero(np.isin(piece.lane, list(lanes))).tolist()
        return [(op, lanes[int(piece.lane[op])], int(piece.layer[op])) for op in ops]

    # Activations

    def _hold_activations(self) -> None:
        """What a forward keeps on the device, until its backward has ended."""
        first, last, rank, stage = self._ops.forwards()
        sizes = self.plan.by_stage(lambda stage: resident_bytes(self.plan, stage))
        kept = np.array(sizes, np.int64)[stage]
        names = [stage_buffer(number) for number in range(len(sizes))]
        columns = (column[kept > 0] for column in (stage, rank, kept, first, last))
        self.assembly.hold_each(names, *columns)

    def _offload(self, placed: Placed) -> None:
        """What a forward keeps on the host in between."""
        if not self.plan.offloaded:
            return
        done: list[list[tuple[Action, tuple[LayerPass, ...]]]] = [[] for _ in self.writers]
        columns = placed.which, placed.cells.rank, placed.first, placed.layers, placed.cells.columns
        for which, rank, first, by, actions in zip(*(column.tolist() for column in columns), strict=True):
            for (kind, stage, microbatch), layers in zip(actions, placed.pieces[which].layers, strict=False):
                moved = tuple(one.moved(first, by) for one in layers)
                done[rank].append((Action(stage, KINDS[kind], microbatch), moved))
        for rank, passes in enumerate(done):
            Offload(self.plan, self.assembly, rank).write(passes)

    # Weights and gradients

    def _gather_ahead(self, placed: Placed) -> None:
        """ZeRO-3: weights are gathered while layers before run, in the same action or in those before it."""
        if self.plan.sharding.level < 3:
            return
        most, ended = self.plan.sharding.most_ahead, dict[int, list[list[int]]]()
        columns = placed.which, placed.cells.rank, placed.first
        for which, rank, first in zip(*(column.tolist() for column in columns), strict=True):
            piece, before = placed.pieces[which], ended.get(rank, [])
            for op, end in piece.gathers:
                self.assembly.wait(first + op, before[end] if end < len(before) else ())
            ended[rank] = [[first + op for op in ops] for ops in piece.ends] + before[:most]

    def _gather_weights(self, rank: int) -> dict[int, list[int]]:
        """ZeRO-1 and 2 with overlap: what the last step updated is gathered stage by stage under the first forward."""
        sharding = self.plan.sharding
        if sharding.level not in (1, 2) or not sharding.overlap_weights:
            return {}
        return {
            number: [self._gather(rank, number, share, ()) for share in shares if len(share.group) > 1]
            for number, shares in self._trained(rank)
        }

    def _gather(self, rank: int, number: int, share: Share, after: Iterable[int]) -> int:
        return self.assembly.op(
            "all_gather", [(other, share.lane) for other in self._same(rank)], after, name="gather weights",
            size_bytes=self.writers[rank].holdings.weight_bytes(number, share), group=self._ranks(rank, share.group),
        )  # fmt: skip

    def _ranks(self, rank: int, group: Sequence[int]) -> tuple[int, ...]:
        """A group that is counted from the first rank of a pipeline rank."""
        return tuple([one + self._first[rank] for one in group])

    def _wait_for_weights(self, placed: Placed, gathered: Mapping[int, Mapping[int, list[int]]]) -> None:
        """The first forward of a stage waits for its weights, layer by layer."""
        left = [dict(gathered[self._same(rank)[0]]) for rank in range(self.plan.grid.ranks)]
        for cell in np.flatnonzero(placed.cells.opens.any(axis=1)).tolist() if any(left) else ():
            own, first, by = left[placed.cells.rank[cell]], int(placed.first[cell]), int(placed.layers[cell])
            for layer, op in placed.pieces[placed.which[cell]].marked("weights").items():
                self.assembly.wait(first + op, own.pop(layer + by, ()))

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
        group = (self._first[first], self._first[last])
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
                after = [done[other] for other in self._same(rank)]
                for number, shares in self._trained(rank):
                    for share in shares:
                        if len(share.group) > 1:
                            self._gather(rank, number, share, after)

    def _trained(self, rank: int) -> list[tuple[int, list[Share]]]:
        """What of each unit of a rank is reduced, over whom."""
        holdings = self.writers[rank].holdings
        return [(number, holdings.shares(holdings.trained(number, held))) for number, held in holdings.own]

    def _reduce_late(self, rank: int) -> None:
        """Gradients travel behind the last backward."""
        ends = self._ends(self._same(rank))
        for share, messages in self._late(rank):
            for kind, group, size in exchanges(share, self.plan.sharding.level, self.plan.types.reduced):
                lanes = [(other, share.lane) for other in self._same(rank)]
                self.reduce(kind, lanes, ends, self._ranks(rank, group), size, messages)

    def _late(self, rank: int) -> Iterator[tuple[Share, int]]:
        """What travels there, in how many messages: a tensor each, or the buckets of torch's DistributedDataParallel,
        which has them whenever they travel, or all in one (Megatron-LM: `bucket_size = None` without overlap).
        """
        sharding, units = self.plan.sharding, self._trained(rank)
        shares = [(number, share) for number, own in units for share in own]
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
        for number, held in holdings.own:
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


def _both(rows: Sequence[Sequence[int]]) -> Sequence[Sequence[int]]:
    """Of two actions; nothing of a second one that is not there."""
    return [*rows, ()][:2]
