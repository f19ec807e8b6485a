"""Blocks of a collective: which a rank has at first, which it is owed, and the library's own collective on them.

Contents are whole numbers, so that sums are exact in any order. A block that a rank does not have at first holds a
number that no block has.
"""

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from ...simulator.collectives.algorithms.messages import Chunks, Group

ELEMENT_BYTES = 4
_MOST = 1 << 20  # of a number: the sum over two thousand ranks still fits
_UNSET = -1
Rows = slice | list[int]
_REDUCES = ("all_reduce", "reduce", "reduce_scatter")
_EXCHANGES = ("all_to_all", "all_to_all_v")


def brings(op: str, group: Group, blocks: int, rank: int) -> list[int]:
    """The blocks that a rank has at first: all for a sum, one for each rank for an all-to-all, else its own.

    Block i of a gather or scatter belongs to the rank i places after the root.
    """
    if op in _REDUCES or (op in ("broadcast", "scatter") and rank == group.root):
        return list(range(blocks))
    return {
        "all_gather": _shard(group, blocks, rank),
        "gather": [(rank - group.root) % group.ranks],
    }.get(op, list(range(rank * group.ranks, (rank + 1) * group.ranks)) if op in _EXCHANGES else [])


def _shard(group: Group, blocks: int, rank: int) -> list[int]:
    """A rank's part of all blocks."""
    each = blocks // group.ranks
    return list(range(rank * each, (rank + 1) * each))


def gets(op: str, group: Group, blocks: int, rank: int) -> list[int]:
    """The blocks that an op owes a rank, in the order in which the library returns them."""
    every = list(range(blocks))
    if op in ("reduce", "gather") and rank != group.root:
        return []
    return {
        "reduce_scatter": _shard(group, blocks, rank),
        "gather": [(peer - group.root) % group.ranks for peer in range(group.ranks)],
        "scatter": [(rank - group.root) % group.ranks],
    }.get(op, every[rank :: group.ranks] if op in _EXCHANGES else every)


def first_blocks(op: str, group: Group, chunks: Chunks, process: int, size: int, seed: int = 0) -> torch.Tensor:
    """The buffer of a rank or a switch before a collective of `size` bytes: a row for each block, all of one length."""
    longest = 1.0 if chunks.weights is None else float(chunks.weights.max())
    elements = ceil(size * chunks.buffers * longest / (chunks.blocks * ELEMENT_BYTES))
    shape, rng = (chunks.blocks, elements), np.random.default_rng((seed, process))
    if process >= group.ranks:
        return torch.zeros(shape, dtype=torch.int32)
    data = torch.full(shape, _UNSET, dtype=torch.int32)
    own = brings(op, group, chunks.blocks, process)
    data[own] = torch.from_numpy(rng.integers(0, _MOST, (len(own), elements), dtype=np.int32))
    return data


def lengths(chunks: Chunks, elements: int) -> list[int] | None:
    """The elements of each block, of which the longest has so many; None if all have."""
    if chunks.weights is None:
        return None
    weights = np.resize(chunks.weights / chunks.weights.max(), chunks.blocks)
    return [ceil(elements * weight) for weight in weights.tolist()]


def _numbers(rows: Rows, many: int) -> Sequence[int]:
    return range(*rows.indices(many)) if isinstance(rows, slice) else rows


def take(data: torch.Tensor, rows: Rows, long: Sequence[int] | None) -> torch.Tensor:
    """The blocks of some rows as one tensor."""
    if long is None:
        return data[rows].contiguous()
    return torch.cat([data[row, : long[row]] for row in _numbers(rows, len(data))])


def put(data: torch.Tensor, rows: Rows, long: Sequence[int] | None, content: torch.Tensor, *, adds: bool) -> None:
    """Replace the blocks of some rows, or add to them."""
    if long is None:
        data[rows] = data[rows].add_(content) if adds else content
        return
    numbers = _numbers(rows, len(data))
    for row, part in zip(numbers, content.split([long[row] for row in numbers]), strict=True):
        data[row, : long[row]] = data[row, : long[row]] + part if adds else part


class Call(NamedTuple):
    """A collective of the library, ready to start; `result` holds the rows of `gets` once it has ended."""

    start: Callable[[], object]
    result: list[torch.Tensor]


def library(
    op: str,
    group: Group,
    chunks: Chunks,
    data: torch.Tensor,
    rank: int,
    ranks: dist.ProcessGroup | None = None,
    first: int | None = None,
) -> Call:
    """The library's own collective on the blocks of a rank, which stay as they are; `ranks` are the group's.

    `first` is the process that the root is, if it is not of the same number.
    """
    if op == "all_to_all_v":
        return _unequal(group, chunks, data, rank, ranks)
    root, at_root = group.root if first is None else first, rank == group.root
    own = data[brings(op, group, len(data), rank)]
    whole = torch.empty_like(data) if op == "broadcast" and not at_root else own.clone()
    each = max(len(data) // group.ranks, 1) if op in ("all_gather", "reduce_scatter") else 1
    one, parts = torch.empty_like(data[:each]), [torch.empty_like(data[:each]) for _ in range(group.ranks)]
    dealt = [own[block : block + 1] for block in gets("gather", group, len(data), group.root)]
    start: Mapping[str, Callable[[], object]] = {
        "all_reduce": lambda: dist.all_reduce(whole, group=ranks),
        "reduce": lambda: dist.reduce(whole, root, group=ranks),
        "broadcast": lambda: dist.broadcast(whole, root, group=ranks),
        "all_gather": lambda: dist.all_gather(parts, own, group=ranks),
        "reduce_scatter": lambda: dist.reduce_scatter(one, list(own.split(each)), group=ranks),
        "all_to_all": lambda: dist.all_to_all_single(whole, own, group=ranks),
        "gather": lambda: dist.gather(own, parts if at_root else None, root, group=ranks),
        "scatter": lambda: dist.scatter(one, dealt if at_root else None, root, group=ranks),
    }
    result = {
        "reduce": [whole] if at_root else [],
        "all_gather": parts,
        "reduce_scatter": [one],
        "gather": parts if at_root else [],
        "scatter": [one],
    }
    return Call(start[op], result.get(op, [whole]))


def _unequal(group: Group, chunks: Chunks, data: torch.Tensor, rank: int, ranks: dist.ProcessGroup | None) -> Call:
    """An all-to-all of the library with sizes of their own."""
    sends, receives = (owned("all_to_all_v", group, len(data), rank) for owned in (brings, gets))
    long = lengths(chunks, data.shape[1]) or [data.shape[1]] * len(data)
    own = take(data, slice(sends[0], sends[-1] + 1), long)
    sent, received = ([long[block] for block in blocks] for blocks in (sends, receives))
    whole = torch.empty(sum(received), dtype=data.dtype)
    parts = [part.view(1, -1) for part in whole.split(received)]
    return Call(lambda: dist.all_to_all_single(whole, own, received, sent, group=ranks), parts)


def wrong_rows(op: str, group: Group, data: torch.Tensor, rank: int, expected: list[torch.Tensor]) -> int:
    """How many of the blocks that a rank is owed differ from what the library gave it."""
    rows = [row for part in expected for row in part]
    owed = zip(gets(op, group, len(data), rank), rows, strict=True)
    return sum(not torch.equal(data[block, : len(row)], row) for block, row in owed)
