"""Which rank is where: the axes of parallelism as digits of the rank, and the groups that they form.

Two grids lie over the same ranks. In the dense grid a rank is (tp, cp, dp, pp), in the expert grid (etp, ep, edp, pp),
each with the nearest axis as its lowest digit, in one order. So it is in Megatron-LM (`RankGenerator` of
`megatron/core/parallel_state.py`): experts have their own tensor size, know no cp, and share the pipeline groups.

Naming law: an *axis* is a direction of parallelism or a named product of some, a *group* the ranks that differ in that
direction alone. Groups list their ranks in the axis' order, which is ascending.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, takewhile
from math import prod
from operator import mul

import numpy as np
from numpy.typing import NDArray

from ..base.errors import fault, unknown

ORDER = "tp-cp-ep-dp-pp"
DENSE, EXPERT = ("tp", "cp", "dp", "pp"), ("etp", "ep", "edp", "pp")
_DENSE_AXES = {
    **{axis: (axis,) for axis in DENSE},
    "dp_cp": ("dp", "cp"),
    "tp_cp": ("tp", "cp"),
    "model": ("tp", "cp", "pp"),
    "world": DENSE,
}
_EXPERT_AXES = {"etp": ("etp",), "ep": ("ep",), "edp": ("edp",), "tp_ep": ("etp", "ep")}
AXES = (*_DENSE_AXES, *_EXPERT_AXES, "dp_shard", "dp_replicate")
_PLACE_OF = {"etp": "tp", "edp": "dp"}  # where in the order an axis of experts stands


@dataclass(frozen=True)
class ParallelDims:
    """Sizes of the axes and their order.

    `order` names axes from the nearest ranks to the farthest; etp stands where tp does and edp where dp does.
    `shard` is over how many ranks of dp x cp weights or states are sharded; what remains holds replicas (None: all).
    Groups are defined where `faults` finds none.
    """

    tp: int = 1
    cp: int = 1
    dp: int = 1
    pp: int = 1
    ep: int = 1
    etp: int = 1
    order: str = ORDER
    shard: int | None = None

    @property
    def world_size(self) -> int:
        """Ranks in all."""
        return self.tp * self.cp * self.dp * self.pp

    @property
    def edp(self) -> int:
        """Expert data parallelism: ranks of a stage that hold the same part of the same experts."""
        return self.tp * self.cp * self.dp // (self.etp * self.ep)

    def size(self, axis: str) -> int:
        """Ranks in each group of an axis."""
        if axis in ("dp_shard", "dp_replicate"):
            ranks = self.dp * self.cp
            shard = self.shard or ranks
            return shard if axis == "dp_shard" else ranks // shard
        return prod(self._sizes(_grid_of(axis))[name] for name in _members_of(axis))

    def rank(self, **coordinates: int) -> int:
        """The rank at a place on the dense axes, or on those of experts if one of theirs is named; others are 0.

        Raises:
            ValueError: the axis is not of that grid, or has no such place.
        """
        grid = EXPERT if set(coordinates) & set(_EXPERT_AXES) else DENSE
        sizes, strides = self._sizes(grid), self._strides(grid)
        for axis, place in coordinates.items():
            if axis not in grid:
                raise unknown("rank", "axis", axis, grid)
            if not 0 <= place < sizes[axis]:
                raise ValueError(f"{axis} = {place}: expected 0 to {sizes[axis] - 1}")
        return sum(place * strides[axis] for axis, place in coordinates.items())

    def place(self, axis: str, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        """The positions of ranks along one of the dense axes."""
        return np.asarray(ranks // self._strides(DENSE)[axis] % self._sizes(DENSE)[axis])

    def group(self, axis: str, rank: int) -> tuple[int, ...]:
        """The ranks of a rank's group along an axis, the rank itself among them."""
        rank = self._checked(rank)
        if axis in ("dp_shard", "dp_replicate"):
            return self._part(axis, self.group("dp_cp", rank), rank)
        digits, strides = self._digits(_grid_of(axis), rank), self._strides(_grid_of(axis))
        first = rank - sum(digits[name] * strides[name] for name in _members_of(axis))
        return tuple((first + self._offsets(axis)).tolist())

    def table(self, axis: str) -> NDArray[np.int64]:
        """All groups of an axis as one array, `[groups, ranks of a group]`, by their first rank; together the world."""
        if axis in ("dp_shard", "dp_replicate"):
            parts = self.table("dp_cp").reshape(-1, self.size("dp_replicate"), self.size("dp_shard"))
            parts = parts.reshape(-1, parts.shape[2]) if axis == "dp_shard" else _joined(parts)
            return parts[np.argsort(parts[:, 0])]
        grid, members = _grid_of(axis), _members_of(axis)
        others = [name for name in grid if name not in members]
        return np.asarray(self._spanned(grid, others)[:, None] + self._offsets(axis)[None, :])

    def faults(self, gpus: int, where: str = "scenario", table: str = "parallel") -> list[str]:
        """Errors in the sizes, one line each: key, value (in `table` of `where`) and what is allowed."""
        return list(self._faults(gpus, where, f"{table}." if table else ""))

    def _faults(self, gpus: int, where: str, key: str) -> Iterator[str]:
        sizes = {axis: getattr(self, axis) for axis in ("tp", "cp", "dp", "pp", "ep", "etp")}
        if wrong := [axis for axis, size in sizes.items() if size < 1]:
            yield from (fault(where, key + axis, sizes[axis], "expected 1 or more") for axis in wrong)
            return
        if line := self._order_fault(where, key):
            yield line
            return
        if self.world_size != gpus:
            axis = self._first_uneven(gpus)
            yield fault(where, f"{key}{axis}", sizes[axis], self._allowed_sizes(gpus))
            return
        experts, stage = self.etp * self.ep, self.tp * self.cp * self.dp
        if stage % experts:
            each, of = f"etp {self.etp} x ep {self.ep}", f"tp {self.tp} x cp {self.cp} x dp {self.dp}"
            allowed = f"{each} = {experts} must divide the {stage} GPUs of a stage ({of})"
            yield fault(where, f"{key}ep", self.ep, allowed)
        elif not self._same_pipelines():
            last = "-".join([*(axis for axis in self.order.split("-") if axis != "pp"), "pp"])
            apart = f"{self._apart(DENSE)} ranks apart, of experts {self._apart(EXPERT)}"
            yield fault(where, f"{key}order", self.order, f"stages are {apart}, which must agree: pp last, {last}")
        if self.shard is not None and (self.shard < 1 or self.dp * self.cp % self.shard):
            yield fault(where, f"{key}shard", self.shard, f"must divide dp x cp = {self.dp * self.cp}")

    def _first_uneven(self, gpus: int) -> str:
        """The first axis that leaves no equal parts of the GPUs; dp, which has what others leave, if they all do."""
        products = accumulate((self.tp, self.cp, self.pp), mul)
        return next((axis for axis, size in zip(("tp", "cp", "pp"), products, strict=True) if gpus % size), "dp")

    def _allowed_sizes(self, gpus: int) -> str:
        others = self.tp * self.cp * self.pp
        product = f"tp {self.tp} x cp {self.cp} x pp {self.pp}"
        if gpus % others:
            return f"{product} = {others} must divide the {gpus} GPUs"
        return f"{product} x dp must be the {gpus} GPUs, so dp = {gpus // others}"

    def _order_fault(self, where: str, key: str) -> str | None:
        names, known = self.order.split("-"), ORDER.split("-")
        left_out = [axis for axis in known if axis not in names and getattr(self, axis) > 1]
        if len(set(names)) == len(names) and set(names) <= set(known) and not left_out:
            return None
        return fault(where, f"{key}order", self.order, f"expected each of {', '.join(known)} once, such as {ORDER}")

    def _same_pipelines(self) -> bool:
        return self.pp == 1 or self._strides(DENSE)["pp"] == self._strides(EXPERT)["pp"]

    def _apart(self, grid: Sequence[str]) -> str:
        """The distance of neighbouring stages in ranks: the product of the axes nearer than pp."""
        nearer = list(takewhile(lambda axis: axis != "pp", self._strides(grid)))
        return f"{' x '.join(nearer) or 1} = {self._strides(grid)['pp']}"

    def _checked(self, rank: int) -> int:
        if not 0 <= rank < self.world_size:
            raise ValueError(f"rank = {rank}: expected 0 to {self.world_size - 1}")
        return int(rank)

    def _sizes(self, grid: Sequence[str]) -> Mapping[str, int]:
        return {axis: getattr(self, axis) for axis in grid}

    def _strides(self, grid: Sequence[str]) -> Mapping[str, int]:
        return self._grid_strides[grid is EXPERT]

    @cached_property
    def _grid_strides(self) -> tuple[Mapping[str, int], Mapping[str, int]]:
        return self._strides_of(DENSE), self._strides_of(EXPERT)

    def _strides_of(self, grid: Sequence[str]) -> Mapping[str, int]:
        """The distance of neighbours along each axis: the product of all nearer axes; nearest axis first."""
        names, strides, stride = self.order.split("-"), {}, 1
        for axis in sorted(grid, key=lambda axis: _place(names, axis)):
            strides[axis] = stride
            stride *= getattr(self, axis)
        return strides

    def _digits(self, grid: Sequence[str], rank: int) -> Mapping[str, int]:
        strides = self._strides(grid)
        return {axis: rank // strides[axis] % size for axis, size in self._sizes(grid).items()}

    def _offsets(self, axis: str) -> NDArray[np.int64]:
        return self._spanned(_grid_of(axis), _members_of(axis))

    def _spanned(self, grid: Sequence[str], members: Sequence[str]) -> NDArray[np.int64]:
        """Ranks at all places along these axes that have place 0 along the others, ascending."""
        sizes, ranks = self._sizes(grid), np.zeros(1, dtype=np.int64)
        for axis, stride in self._strides(grid).items():
            if axis in members:
                ranks = (np.arange(sizes[axis])[:, None] * stride + ranks[None, :]).ravel()
        return ranks

    def _part(self, axis: str, group: tuple[int, ...], rank: int) -> tuple[int, ...]:
        """The neighbours in a group of dp x cp that share a copy, or those at the same place in each copy."""
        shard, place = self.size("dp_shard"), group.index(rank)
        first = place - place % shard
        return group[first : first + shard] if axis == "dp_shard" else group[place % shard :: shard]


def _place(names: Sequence[str], axis: str) -> int:
    axis = _PLACE_OF.get(axis, axis)
    return names.index(axis) if axis in names else len(names)


def _grid_of(axis: str) -> tuple[str, ...]:
    return EXPERT if axis in _EXPERT_AXES else DENSE


def _members_of(axis: str) -> tuple[str, ...]:
    members = _DENSE_AXES.get(axis) or _EXPERT_AXES.get(axis)
    if members is None:
        raise unknown("groups", "axis", axis, AXES)
    return members


def _joined(parts: NDArray[np.int64]) -> NDArray[np.int64]:
    """`[group, copy, place]` as `[group and place, copy]`."""
    return np.asarray(parts.transpose(0, 2, 1).reshape(-1, parts.shape[1]))
