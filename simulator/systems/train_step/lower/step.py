"""One training step as a Program: the actions of a schedule as pieces, sends between stages, and the end of the step.

A place is a pipeline rank and represents all ranks of its stage, which act alike. Sends have a lane per peer and
direction on both sides.

Cells of the schedule with equal work share one Piece, whatever their rank, stage and micro-batch.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import chain, zip_longest

import numpy as np

from ....base.arrays import Ints
from ....program import Place, Program, group_equal
from ....schedules import Action
from ....schedules.grid import KINDS
from .assembly import Assembly, Stamps
from .cells import Cells, Placed
from .ending import Ending
from .held import Holdings, gradient_lanes
from .kept import resident_bytes, stage_buffer
from .layers import LayerWriter
from .offload import Offload
from .piece import COMPUTE, LayerPass, Piece, PieceWriter, Tables
from .plan import Stage, TrainPlan
from .rows import ActionOps, Blocks
from .script import Fragments, Pass, Script
from .summa import GridWriter
from .traffic import Traffic


def lower(plan: TrainPlan, fragments: Fragments | None = None) -> Program:
    """The Program of a step, kernel by kernel. `fragments` may be shared by plans with equal `layer_key`."""
    return Step(plan, fragments).program()


class Step:
    """Builds the Program of one step."""

    def __init__(self, plan: TrainPlan, fragments: Fragments | None = None):
        self.plan, ranks = plan, range(plan.grid.ranks)
        self._fragments: Fragments = {} if fragments is None else fragments
        places = [Place(_place_name(plan, r), plan.ranks_of(r)) for r in ranks]
        self.tables = Tables()
        self.assembly = Assembly(self.tables, places)
        self.traffic = self._traffic()

    def _traffic(self) -> Traffic:
        return Traffic(self.plan, self.assembly)

    def program(self) -> Program:
        """The whole step as a Program."""
        sharding = self.plan.sharding
        under = sharding.level in (1, 2) and sharding.overlap_weights  # the previous step's update
        gathered = {rank: self.traffic.gather_weights(rank) if under else {} for rank in self.traffic.leaders}
        placed, send = self._place(Cells.build(self.plan))
        self._ops = self._actions(placed, send)
        for ops, after in self._ops.waits():
            self.assembly.wait_each(ops, after)
        self._wait_for_weights(placed, gathered)
        self._gather_ahead(placed)
        self._meet(placed)
        self._stop_beside_sends(placed)
        self._hold_activations()
        self._offload(placed)
        Ending(self.traffic, self.ends_of).write()
        return self.assembly.program()

    # Actions

    def _place(self, cells: Cells) -> tuple[Placed, Ints]:
        """Stamp all cells, each followed by its sends. Also returns the op that sends the output of each action."""
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
        """(the distinct pieces, the index of each cell's piece, the offset of its layer numbers)."""
        example, which = self._alike(cells)
        first = self._first_layer[cells.columns[:, 0, 1]]
        return [self._piece(cells, cell) for cell in example.tolist()], which, first - first[example][which]

    def _piece(self, cells: Cells, cell: int) -> Piece:
        holdings = self.traffic.holdings[cells.rank[cell]]
        return write_piece(self.plan, holdings, cells.passes(cell), self.tables, self._fragments)

    def stamps(self, cells: Cells, which: Ints, layers: Ints) -> Stamps:
        """The stamps of all cells."""
        kind, stage, microbatch = np.moveaxis(cells.columns, 2, 0)
        return Stamps(which, cells.rank, np.stack([stage, microbatch, kind], axis=2), layers)

    def _alike(self, cells: Cells) -> tuple[Ints, Ints]:
        """Group cells that differ only in rank, stage and micro-batch: (one cell of each group, the group of each)."""
        there = cells.columns[:, :, 0] >= 0
        kind, stage = cells.columns[:, :, 0], np.where(there, cells.columns[:, :, 1], 0)
        model = self._classes[cells.rank[:, None], stage]
        apart = np.where(there.all(axis=1), self._first_layer[stage[:, 1]] - self._first_layer[stage[:, 0]], 0)
        flags = np.concatenate([cells.gathers, cells.reduces], axis=1).astype(int)
        columns = [*(kind + 1).T, *np.where(there, model, 0).T, apart - apart.min(initial=0), *flags.T]
        code = np.ravel_multi_index(columns, [int(column.max(initial=0)) + 1 for column in columns])
        return group_equal(code)

    @cached_property
    def _first_layer(self) -> Ints:
        return np.array([stage.layers[0] if stage.layers else 0 for stage in self.plan.stages], np.int64)

    @cached_property
    def _classes(self) -> Ints:
        """A class number for each rank and stage; stages with equal layers and no embedding or head share one."""
        numbers: dict[object, int] = {}
        found = np.zeros((self.plan.grid.ranks, self.plan.grid.stages), np.int64)
        for rank in range(self.plan.grid.ranks):
            for number in self.plan.grid.stages_of(rank):
                stage = self.plan.stages[number]
                alone = self.plan.is_mirrored or stage.has_ends or not stage.layers
                key = (rank, number) if alone else self._made_of(stage)
                found[rank, number] = numbers.setdefault(key, len(numbers))
        return found

    def _made_of(self, stage: Stage) -> object:
        """A key of a stage's layers: their numbers relative to the first layer, and their kernels."""
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
            Blocks.build(*zip(*blocks, strict=True)), cells.rank[cell], send[there],
        )  # fmt: skip

    # Sends

    def _targets(self, cells: Cells) -> Ints:
        """The rank to which each action sends; -1 if it sends nothing."""
        grid = self.plan.grid
        kind, stage, microbatch = np.moveaxis(cells.columns, 2, 0)
        to = stage + np.array([_AHEAD.get(name, grid.stages) for name in KINDS])[kind]
        somewhere = (kind >= 0) & (to >= 0) & (to < grid.stages)
        somewhere &= (to > stage) | (self._gradient_bytes[stage] > 0)
        target = np.where(somewhere, grid.homes[np.where(somewhere, to, 0), microbatch], -1)
        return np.where(target == cells.rank[:, None], -1, target)

    @cached_property
    def _gradient_bytes(self) -> Ints:
        """By stage, the bytes of the gradients of what came in."""
        return np.array([0, *self.plan.gradient_bytes[:-1]], np.int64)

    def _send(self, cells: Cells, target: Ints, send: Ints) -> None:
        """Write the sends: activations to the next stage, gradients to the previous one, after the action's end."""
        cell, action = np.nonzero(target >= 0)
        kind, stage, microbatch = cells.columns[cell, action].T
        ways, ranks = np.array([_way(name) == "forward" for name in KINDS]), self.plan.grid.ranks
        sizes = np.where(ways[kind], np.array(self.plan.output_bytes, np.int64)[stage], self._gradient_bytes[stage])
        code = (cells.rank[cell] * 2 + ways[kind]) * ranks + target[cell, action]
        first, which = group_equal(code * (sizes.max(initial=0) + 1) + sizes)
        rows, lanes = [], []
        for channel, size in zip(code[first].tolist(), sizes[first].tolist(), strict=True):
            (rank, forward), to = divmod(channel // ranks, 2), channel % ranks
            row, on = self._channel(rank, "forward" if forward else "backward", to, size)
            rows.append(row)
            lanes.append([self.assembly.lane(*lane) for lane in on])
        if rows:
            ops = send[cell, action]
            on_each = [lane[which] for lane in np.array(lanes, np.int64).T]
            self.assembly.put(ops, np.array(rows, np.int64)[which], stage, microbatch, on_each)

    def _channel(self, rank: int, way: str, target: int, size: int) -> tuple[int, list[tuple[int, str]]]:
        """The row of a send from a rank to another, and the lanes that it holds: one per peer and direction per side.

        Without overlap the send also holds the sender's compute lane.
        """
        group = self.traffic.first[rank], self.traffic.first[target]
        lanes = [(rank, f"{way} to {target}"), (target, f"{way} from {rank}")]
        row = self.assembly.row("send_recv", f"{way} to {target}", size, "", group)
        return row, lanes if self.plan.overlap_pp else [*lanes, (rank, COMPUTE)]

    # Ranks that hold the same stages

    def _meet(self, placed: Placed) -> None:
        """Where two ranks hold the same stage, write one exchange of its gradients, once both have them."""
        if not self.plan.is_mirrored:
            return
        cells, reducing = placed.cells, dict[tuple[int, int], list[int]]()
        for cell, action in np.argwhere(cells.reduces).tolist():
            reducing.setdefault((int(cells.rank[cell]), int(cells.columns[cell, action, 1])), []).append(cell)
        for (rank, stage), own in reducing.items():
            leader, *others = self.traffic.holders(rank)
            for other in others if rank == leader else ():
                for cell, its in zip(own, reducing[other, stage], strict=True):
                    grads = placed.pieces[placed.which[its]].ops_named("grads")
                    for op, lane, layer in self.sends(placed.pieces[placed.which[cell]]):
                        self.assembly.share(int(placed.first[cell]) + op, other, lane)
                        self.assembly.wait(int(placed.first[cell]) + op, [int(placed.first[its]) + grads[layer]])

    def _stop_beside_sends(self, placed: Placed) -> None:
        """Without overlap, gradients that are reduced after each micro-batch hold the compute lane of their rank."""
        if self.plan.sharding.overlap_grads:
            return
        sends = [[op for op, _, _ in self.sends(piece)] for piece in placed.pieces]
        for cell in np.flatnonzero(placed.cells.reduces.any(axis=1)).tolist():
            for op in sends[placed.which[cell]]:
                self.assembly.share(int(placed.first[cell]) + op, int(placed.cells.rank[cell]), COMPUTE)

    def sends(self, piece: Piece) -> list[tuple[int, str, int]]:
        """The ops of a piece that send gradients: (op, lane, layer)."""
        lanes = {self.tables.lanes(name): name for name in (*gradient_lanes(self.plan), "fusion")}
        ops = np.flatnonzero(np.isin(piece.lane, list(lanes))).tolist()
        return [(op, lanes[int(piece.lane[op])], int(piece.layer[op])) for op in ops]

    # Activations

    def _hold_activations(self) -> None:
        """Write a buffer for the activations that each forward keeps on the device until its backward ends."""
        first, last, rank, stage = self._ops.forwards()
        sizes = self.plan.make_by_stage(lambda stage: resident_bytes(self.plan, stage))
        kept = np.array(sizes, np.int64)[stage]
        names = [stage_buffer(number) for number in range(len(sizes))]
        columns = (column[kept > 0] for column in (stage, rank, kept, first, last))
        self.assembly.hold_each(names, *columns)

    def _offload(self, placed: Placed) -> None:
        """Write the copies of offloaded activations to the host and back."""
        if not self.plan.offloaded:
            return
        done: list[list[tuple[Action, tuple[LayerPass, ...]]]] = [[] for _ in self.traffic.holdings]
        columns = placed.which, placed.cells.rank, placed.first, placed.layers, placed.cells.columns
        for which, rank, first, by, actions in zip(*(column.tolist() for column in columns), strict=True):
            for (kind, stage, microbatch), layers in zip(actions, placed.pieces[which].layers, strict=False):
                moved = tuple(one.move(first, by) for one in layers)
                done[rank].append((Action(stage, KINDS[kind], microbatch), moved))
        for rank, passes in enumerate(done):
            Offload(self.plan, self.assembly, rank).write(passes)

    # Weights and gradients

    def _gather_ahead(self, placed: Placed) -> None:
        """ZeRO-3: gather weights while earlier layers run, in the same action or in earlier ones."""
        if self.plan.sharding.level < 3:
            return
        most, ended = self.plan.sharding.most_ahead, dict[int, list[list[int]]]()
        columns = placed.which, placed.cells.rank, placed.first
        for which, rank, first in zip(*(column.tolist() for column in columns), strict=True):
            piece, before = placed.pieces[which], ended.get(rank, [])
            for op, end in piece.gathers:
                self.assembly.wait(first + op, before[end] if end < len(before) else ())
            ended[rank] = [[first + op for op in ops] for ops in piece.ends] + before[:most]

    def _wait_for_weights(self, placed: Placed, gathered: Mapping[int, Mapping[int, list[int]]]) -> None:
        """Make the first forward of a stage wait for its weights, layer by layer.

        `gathered` holds the ops that gather them, by rank and layer.
        """
        left = [dict(gathered[self.traffic.holders(rank)[0]]) for rank in range(self.plan.grid.ranks)]
        for cell in np.flatnonzero(placed.cells.opens.any(axis=1)).tolist() if any(left) else ():
            own, first, by = left[placed.cells.rank[cell]], int(placed.first[cell]), int(placed.layers[cell])
            for layer, op in placed.pieces[placed.which[cell]].ops_named("weights").items():
                self.assembly.wait(first + op, own.pop(layer + by, ()))

    def ends_of(self, *ranks: int) -> list[int]:
        """The ops at the end of the last action of each of these ranks."""
        return [op for rank in ranks for op in self._ops.ends(self.plan.grid.rows[rank][-1][-1])]


_AHEAD = {"F": 1, "B": -1, "I": -1}
"""By kind of action, the stage to which it sends, relative to its own."""


def _way(kind: str) -> str:
    return "forward" if kind == "F" else "backward"


def _place_name(plan: TrainPlan, pipeline_rank: int) -> str:
    """The name of a pipeline rank's place; a class of replicas adds the number of its first replica."""
    return f"pp {pipeline_rank}" if plan.replicas is None else f"pp {pipeline_rank} dp {plan.replicas[0]}"


def _both(rows: Sequence[Sequence[int]]) -> Sequence[Sequence[int]]:
    """The rows of two actions; an empty row for a missing second action."""
    return [*rows, ()][:2]


def write_piece(
    plan: TrainPlan, holdings: Holdings, passes: tuple[Pass, ...], tables: Tables, fragments: Fragments
) -> Piece:
    """Write one action of a pipeline rank, or an overlapped forward and backward. `fragments` caches its layers."""
    w = GridWriter(plan) if plan.shard.side > 1 else PieceWriter()
    scripts = [
        Script(plan, holdings, one, LayerWriter(plan, w, one.kind == "B"), number) for number, one in enumerate(passes)
    ]
    if len(scripts) == 2:
        for step in interleave(scripts):
            step()
    else:
        scripts[0].write(fragments)
    ends = [list(chain(*ops)) for ops in zip_longest(*(script.ends for script in scripts), fillvalue=[])]
    heads, tails = [script.heads for script in scripts], [script.tail for script in scripts]
    return w.piece(tables, heads, tails, ends, [script.passes for script in scripts])


def interleave(scripts: Sequence[Script]) -> list[Callable[[], None]]:
    """Interleave a forward and a backward layer by layer, in the order in which Megatron-LM issues them.

    The exchanges of one overlap the computation of the other:

        comm   combine_back(b)        | dispatch(f) -> dispatch_back(b)              | combine(f)
        comp   attention(f)           | mlp_back(b) -> mlp_weights(b) -> mlp(f)      | attention_back(b) -> weights(b)

    The sum of a layer's combined tokens (`close`) comes after the first step of the next layer's backward, so that
    neither exchange delays the other.
    """
    forward, backward = scripts
    steps = [*backward.opening, *forward.opening]
    f_layers, b_layers = forward.by_layer, backward.by_layer
    both, closing = min(len(f_layers), len(b_layers)), list[Callable[[], None]]()
    for (attention, dispatch, mlp, combine, close), (begin, combine_back, mlp_back, dispatch_back, end) in zip(
        f_layers[:both], b_layers[:both], strict=True
    ):
        steps += [begin, *closing, combine_back, attention, dispatch, mlp_back, dispatch_back, mlp, combine, end]
        closing = [close]
    steps += closing
    for rest in (*f_layers[both:], *b_layers[both:]):
        steps += rest
    return [*steps, *forward.closing, *backward.closing]
