"""What a rank keeps over the micro-batches: weights, which may be gathered first, and gradients, which are reduced."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from ....simulator.systems.train_step.lower.held import Holdings, Share
from .exchanges import EXPERT_LANE, Exchanges, GroupKey
from .flow import Flow
from .kernels import adam
from .slots import Act, Slot, act
from .view import SEED, RankView
from .weights import DENSE, EXPERT, NORMS, Layout, Unit

Where = tuple[int, int, str]  # stage, position of the unit in it, dense or expert
_LANES = {DENSE: "dp", EXPERT: EXPERT_LANE}


class Weights:
    """The weights of a rank, as flat vectors, and their gathers.

    `slots` has what ops read now; a gather of one action (`of`) is for that action first.
    """

    def __init__(self, view: RankView, exchanges: Exchanges):
        self.view, self._exchanges = view, exchanges
        self.flats: dict[Where, Tensor] = {}
        for stage, number, unit in each_unit(view):
            whole = unit.whole(SEED)
            for part, layout in unit.layouts.items():
                self.flats[stage, number, part] = layout.flatten(whole, view.at).to(view.device)
        self._slots = {where: Slot(flat) for where, flat in self.flats.items()}
        self._own: dict[tuple[object, Where], Slot] = {}
        self.new: dict[Where, Tensor] = {}  # whole vectors, gathered after the optimizer
        self.action: object = None

    def find(self, flow: Flow, layer: int, name: str) -> tuple[Where, Layout]:
        """The place and the layout of a parameter or GEMM of a layer; of layer -1, of embedding or head."""
        for number, unit in enumerate(self.view.units[flow.stage]):
            part = unit.layout_of(name)
            if unit.layouts[part].has(name) and layer in (-1, unit.number):
                return (flow.stage, number, part), unit.layouts[part]
        raise KeyError(f"stage {flow.stage} has no {name!r} in layer {layer}")

    def held(self, flow: Flow, layer: int, name: str) -> tuple[Slot, Callable[[Tensor], Tensor]]:
        """The slot of the flat vector that holds a parameter now, and how to view it there."""
        where, layout = self.find(flow, layer, name)
        slot = self._own.get((self.action, where), self._slots[where])
        return slot, lambda flat: layout.view(flat, name)

    def gather(self, where: Where, key: GroupKey, *, of: object = None, updated: Slot | None = None) -> Act:
        """Bind the gather of a vector whose ranks hold an even share each: of what was there, or the optimizer gave."""
        gathered, size, at = Slot(), len(self.flats[where]), key[1].index(self.view.rank)
        if updated is not None:

            def gather_new(pieces: Sequence[Piece]) -> None:
                new = assemble(torch.zeros_like(self.flats[where]), where, pieces)
                own = even_parts(new, len(key[1]))[at]
                self.new[where] = self._exchanges.gather(key, own)[:size]

            return act(gather_new, [updated])
        own = even_parts(self.flats[where], len(key[1]))[at]
        self._slots[where] = gathered
        if of is not None:
            self._own[of, where] = gathered
        return act(lambda: self._exchanges.gather(key, own)[:size], [], [gathered])


class Gradient:
    """The gradient of a flat vector, added up over micro-batches."""

    def __init__(self, layout: Layout, device: torch.device):
        self.layout, self._flat, self._lock = layout, torch.zeros(0, device=device), Lock()

    def add(self, name: str, values: Tensor, rows: Tensor | None = None) -> None:
        """Add to the part of a parameter or GEMM; with `rows` the product of values and rows, in one kernel."""
        with self._lock:
            own = self.layout.view(self.flat(), name)
            if rows is None:
                own.add_(values.reshape(own.shape))
            else:
                own.addmm_(values.T, rows)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was added."""
        return not len(self._flat)

    def flat(self) -> Tensor:
        """All gradients as one tensor; zeros where nothing was added."""
        if len(self._flat) != self.layout.size:
            self._flat = self._flat.new_zeros(self.layout.size)
        return self._flat


class Piece(NamedTuple):
    """Values of a range, from `start` on, of a rank's vector."""

    where: Where
    start: int
    values: Tensor


@dataclass(eq=False)
class Bucket:
    """Gradients that travel together, in even messages. There is a block for each rank that gets a part of the sums.

    The block of a rank has its even share of each member, one after another, as FSDP2 lays them out. So a rank owns the
    same range of a vector however gradients travel.
    """

    members: tuple[Where, ...]
    gradients: Sequence[Gradient]
    messages: int
    blocks: int
    _flat: Tensor | None = None
    _lock: Lock = field(default_factory=Lock)

    def message(self, number: int) -> Tensor:
        """The values of a message: as many of each block."""
        with self._lock:
            if self._flat is None:
                whole = torch.cat([even_parts(gradient.flat(), self.blocks) for gradient in self.gradients], dim=1)
                self._flat = pad(whole, (0, -whole.shape[1] % self.messages))
        size = self._flat.shape[1] // self.messages
        return self._flat[:, number * size :][:, :size].flatten()

    def pieces(self, number: int, block: int, values: Tensor) -> Iterator[Piece]:
        """What the values of a message's block are, vector by vector, without padding."""
        begin, first = 0, number * len(values)
        for where, gradient in zip(self.members, self.gradients, strict=True):
            size = gradient.layout.size
            part = -(-size // self.blocks)
            start, stop = max(first, begin), min(first + len(values), begin + part, begin + size - block * part)
            if start < stop:
                yield Piece(where, block * part + start - begin, values[start - first : stop - first])
            begin += part


def assemble(whole: Tensor, where: Where, pieces: Sequence[Piece]) -> Tensor:
    """A vector, in place, with the pieces of it that a rank has."""
    for piece in (piece for piece in pieces if piece.where == where):
        whole[piece.start :][: len(piece.values)] = piece.values
    return whole


def even_parts(flat: Tensor, parts: int) -> Tensor:
    """Even shares of a vector, [parts, elements], with zeros behind its end."""
    return pad(flat, (0, -len(flat) % parts)).view(parts, -1)


class Gradients:
    """The gradients of a rank and their reductions."""

    def __init__(self, view: RankView, exchanges: Exchanges, weights: Weights):
        self.view, self._exchanges, self._weights = view, exchanges, weights
        self._layouts = {(stage, number, part): layout for stage, number, unit in each_unit(view)
                         for part, layout in unit.layouts.items()}  # fmt: skip
        self._now = {where: Gradient(layout, view.device) for where, layout in self._layouts.items()}
        self._unsent: dict[Where, Gradient] = dict(self._now)
        self._sent = Counter[tuple[int, str]]()  # units of a stage that were sent, last one first
        self._buckets: dict[object, Bucket] = {}
        self._shards: dict[object, Slot] = {}
        self._pieces: list[Piece] = []
        self._final: list[Piece] | None = None
        self._lock = Lock()

    def learn(self, flow: Flow, layer: int, name: str) -> Callable[..., None]:
        """What adds to the gradient of a parameter or GEMM, as `Gradient.add`."""
        where, _ = self._weights.find(flow, layer, name)
        return partial(self._now[where].add, name)

    def reduce(self, kind: str, lane: str, stage: int, layer: int, of: object, number: int, messages: int) -> Act:
        """Bind message `number` of a bucket, which `of` names; it has `messages` messages of this kind.

        Of stage -1 the bucket holds all units of this rank, else those up to the unit of `layer` that are not sent.
        """
        replicas = (of, number) in self._shards
        key = self.view.key(lane, replicas=replicas or self._only_replicas(kind, lane))
        if replicas:
            return self._reduce_again(self._buckets[of], number, self._shards.pop((of, number)), key)
        scatters = kind == "reduce_scatter"
        if of not in self._buckets:
            members, blocks = tuple(self._ready(lane, stage, layer)), len(key[1]) if scatters else 1
            self._buckets[of] = Bucket(members, [self._now[where] for where in members], messages, blocks)
            for where in members:
                self._now[where] = Gradient(self._layouts[where], self.view.device)
                self._unsent.pop(where, None)
        bucket, shard = self._buckets[of], Slot()
        again = self.view.plan.dims.size("dp_replicate") > 1 and scatters
        if again:
            self._shards[of, number] = shard
        block = key[1].index(self.view.rank) if scatters else 0
        exchange = self._exchanges.reduce_scatter if scatters else self._exchanges.all_reduce

        def send() -> tuple[int, Tensor]:
            found = exchange(key, bucket.message(number))
            if not again:
                self._pieces += bucket.pieces(number, block, found)
            return block, found

        return act(send, [], [shard])

    def _only_replicas(self, kind: str, lane: str) -> bool:
        return kind == "all_reduce" and self.view.plan.sharding.level > 0 and lane in _LANES.values()

    def _reduce_again(self, bucket: Bucket, number: int, shard: Slot, key: GroupKey) -> Act:
        def send(found: tuple[int, Tensor]) -> None:
            block, values = found
            self._pieces += bucket.pieces(number, block, self._exchanges.all_reduce(key, values))

        return act(send, [shard])

    def _ready(self, lane: str, stage: int, layer: int) -> Iterator[Where]:
        part = EXPERT if lane == EXPERT_LANE else DENSE
        if stage < 0:
            yield from (where for where in self._layouts if where[2] == part and self._layouts[where].size)
            return
        units = self.view.units[stage]
        for number in range(len(units) - 1 - self._sent[stage, part], -1, -1):
            self._sent[stage, part] += 1
            if self._layouts[stage, number, part].size:
                yield stage, number, part
            if units[number].number == layer:
                break
        if self._sent[stage, part] == len(units):
            self._sent[stage, part] = 0  # the next micro-batch begins again

    def left(self) -> list[Where]:
        """The vectors whose gradients had left when more was added, which nobody has reduced: there must be none."""
        return [where for where, one in self._now.items() if where not in self._unsent and not one.is_empty]

    def pieces(self) -> list[Piece]:
        """All reduced gradients of this rank, those of several micro-batches added up; computed once, at the end.

        A vector that nobody has reduced is one piece; of others there are as many as messages.
        """
        with self._lock:
            if self._final is None:
                found: dict[tuple[Where, int, int], Piece] = {}
                for piece in self._pieces:
                    key = piece.where, piece.start, len(piece.values)
                    found[key] = piece._replace(values=piece.values + found[key].values) if key in found else piece
                whole = [Piece(where, 0, one.flat()) for where, one in self._unsent.items() if one.layout.size]
                self._final = [*found.values(), *whole]
            return self._final

    def sum_copies(self) -> None:
        """Add up over tensor-parallel ranks what each of them has a copy of and learnt from its own tokens."""
        masks = [self._copies(piece) for piece in self.pieces()]
        mine = torch.cat([piece.values[mask] for piece, mask in zip(self.pieces(), masks, strict=True)])
        total = self._exchanges.all_reduce(self.view.key("tp"), mine)
        sizes = [int(mask.sum()) for mask in masks]
        for piece, mask, values in zip(self.pieces(), masks, total.split(sizes), strict=True):
            piece.values[mask] = values

    @property
    def _names(self) -> Collection[str] | None:
        """The parameters of which each tensor-parallel rank learns a part; None: all of which it has a copy."""
        of_heads = {name for label, names in NORMS.items() if label == "qk_norm" for name in names}
        return None if self.view.plan.shard.sequence_parallel else of_heads

    def _copies(self, piece: Piece) -> Tensor:
        mask = self._layouts[piece.where].copies(self._names)[piece.start :][: len(piece.values)]
        return mask.to(piece.values.device)

    def square(self) -> Tensor:
        """The sum of squares of all that this rank owns."""
        return torch.stack([piece.values.square().sum() for piece in self.pieces()]).sum().view(1)


def copies(pieces: Sequence[Piece]) -> list[Piece]:
    """The same pieces elsewhere in memory."""
    return [piece._replace(values=piece.values.clone()) for piece in pieces]


def update(pieces: Sequence[Piece], weights: Weights) -> list[Piece]:
    """A step of Adam on what a rank owns: its new weights."""
    return [piece._replace(values=adam(weights.flats[piece.where][piece.start :][: len(piece.values)], piece.values))
            for piece in pieces]  # fmt: skip


def each_unit(view: RankView) -> Iterator[tuple[int, int, Unit]]:
    """(stage, position in it, unit) of all units of a rank."""
    for stage, units in view.units.items():
        for number, unit in enumerate(units):
            yield stage, number, unit


def shares_of(view: RankView) -> list[tuple[Where, Share]]:
    """The vectors of a rank that are held by more than one, in the order in which the Program gathers them."""
    holdings = Holdings(view.plan, view.place)
    found = []
    for stage in holdings.plan.grid.stages_of(view.place):
        for number, unit in enumerate(holdings.units(view.plan.stages[stage])):
            for share in holdings.shares(unit.held):
                part = EXPERT if share.lane == EXPERT_LANE else DENSE
                if len(share.group) > 1:
                    found.append(((stage, number, part), share))
    return found
