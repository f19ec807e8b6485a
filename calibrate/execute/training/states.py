"""What a rank keeps over the micro-batches: weights, which may be gathered first, and gradients, which are reduced."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import NamedTuple

import torch
from torch import Tensor

from ....simulator.systems.train_step.lower.held import Holdings, Share
from .exchanges import EXPERT_LANE, Exchanges, GroupKey
from .flow import Flow
from .forward import NORMS
from .slots import Act, Slot, act
from .view import SEED, RankView
from .weights import DENSE, EXPERT, Layout, Unit

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
                self.flats[stage, number, part] = layout.flatten(whole, view.at)
        self._slots = {where: Slot(flat) for where, flat in self.flats.items()}
        self._own: dict[tuple[object, Where], Slot] = {}
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

    def gather(self, where: Where, key: GroupKey, *, of: object = None) -> Act:
        """Bind the gather of a vector whose ranks hold an even share each."""
        flat, gathered = self.flats[where], Slot()
        ranks, size = len(key[1]), len(self.flats[where])
        part = -(-size // ranks)
        padded = torch.cat((flat, flat.new_zeros(part * ranks - size)))
        own = padded.chunk(ranks)[key[1].index(self.view.rank)] if size else padded
        self._slots[where] = gathered
        if of is not None:
            self._own[of, where] = gathered
        return act(lambda: self._exchanges.gather(key, own)[:size], [], [gathered])


class Gradient:
    """The gradient of a flat vector, added up over micro-batches."""

    def __init__(self, layout: Layout):
        self.layout, self._flat, self._lock = layout, torch.zeros(0), Lock()

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
        """All of it; zeros where nothing was added."""
        if len(self._flat) != self.layout.size:
            self._flat = torch.zeros(self.layout.size)
        return self._flat


@dataclass(eq=False)
class Bucket:
    """Gradients that travel together, in `messages` even messages over the ranks of a group."""

    members: tuple[Where, ...]
    gradients: Sequence[Gradient]
    messages: int
    ranks: int
    _flat: Tensor | None = None
    _lock: Lock = field(default_factory=Lock)

    def message(self, number: int) -> tuple[int, Tensor]:
        """(where it begins in the bucket, its values)."""
        with self._lock:
            if self._flat is None:
                whole = torch.cat([gradient.flat() for gradient in self.gradients])
                even = self.messages * self.ranks
                self._flat = torch.cat((whole, whole.new_zeros(-len(whole) % even)))
        size = len(self._flat) // self.messages
        return number * size, self._flat[number * size :][:size]


class Piece(NamedTuple):
    """Reduced gradients of this rank: a range, from `start` on, of the vectors of its members one after another."""

    members: tuple[Where, ...]
    start: int
    values: Tensor


class Gradients:
    """The gradients of a rank and their reductions."""

    def __init__(self, view: RankView, exchanges: Exchanges, weights: Weights):
        self.view, self._exchanges, self._weights = view, exchanges, weights
        self._layouts = {(stage, number, part): layout for stage, number, unit in each_unit(view)
                         for part, layout in unit.layouts.items()}  # fmt: skip
        self._now = {where: Gradient(layout) for where, layout in self._layouts.items()}
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
            return self._reduce_again(self._buckets[of], self._shards.pop((of, number)), key)
        if of not in self._buckets:
            members = tuple(self._ready(lane, stage, layer))
            self._buckets[of] = Bucket(members, [self._now[where] for where in members], messages, len(key[1]))
            for where in members:
                self._now[where] = Gradient(self._layouts[where])
                self._unsent.pop(where, None)
        bucket, shard = self._buckets[of], Slot()
        again = self.view.plan.dims.size("dp_replicate") > 1 and kind == "reduce_scatter"
        if again:
            self._shards[of, number] = shard

        def send() -> tuple[int, Tensor]:
            start, values = bucket.message(number)
            if kind == "all_reduce":
                found = self._exchanges.all_reduce(key, values)
            else:
                found = self._exchanges.reduce_scatter(key, values)
                start += key[1].index(self.view.rank) * len(found)
            if not again:
                self._pieces.append(Piece(bucket.members, start, found))
            return start, found

        return act(send, [], [shard])

    def _only_replicas(self, kind: str, lane: str) -> bool:
        return kind == "all_reduce" and self.view.plan.sharding.level > 0 and lane in _LANES.values()

    def _reduce_again(self, bucket: Bucket, shard: Slot, key: GroupKey) -> Act:
        def send(found: tuple[int, Tensor]) -> None:
            start, values = found
            self._pieces.append(Piece(bucket.members, start, self._exchanges.all_reduce(key, values)))

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
        """All reduced gradients of this rank, those of several micro-batches added up; computed once, at the end."""
        with self._lock:
            if self._final is None:
                found: dict[tuple[tuple[Where, ...], int], Piece] = {}
                for piece in self._pieces:
                    key = piece.members, piece.start
                    found[key] = piece._replace(values=piece.values + found[key].values) if key in found else piece
                whole = [Piece((where,), 0, one.flat()) for where, one in self._unsent.items() if one.layout.size]
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
        whole = torch.cat([self._layouts[where].copies(self._names) for where in piece.members])
        mask = torch.zeros(len(piece.values), dtype=torch.bool)
        found = whole[piece.start :][: len(mask)]
        mask[: len(found)] = found
        return mask

    def square(self) -> Tensor:
        """The sum of squares of all that this rank owns."""
        return torch.stack([piece.values.square().sum() for piece in self.pieces()]).sum().view(1)

    def update(self) -> None:
        """A step of Adam on what this rank owns, whose weights nobody reads any more."""
        for piece in self.pieces():
            weights, first, second = (torch.zeros_like(piece.values) for _ in range(3))
            first.lerp_(piece.values, 0.1)
            second.mul_(0.95).addcmul_(piece.values, piece.values, value=0.05)
            weights.addcdiv_(first, second.sqrt().add_(1e-8), value=-1e-3)


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
        for number, (_, held) in enumerate(holdings.units(view.plan.stages[stage])):
            for share in holdings.shares(held):
                part = EXPERT if share.lane == EXPERT_LANE else DENSE
                if len(share.group) > 1:
                    found.append(((stage, number, part), share))
    return found
