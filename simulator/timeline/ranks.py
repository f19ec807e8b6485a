"""A Timeline seen from its ranks: what each of them did, also where one op of a class stands for many ranks.

Questions about a rank's memory are in `memory`, traces and charts made of these rows in `trace` and `chart`.
"""

from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import Ints
from ..base.errors import UserError
from ..base.files import write_by_suffix
from ..program import Program, Ragged
from .timeline import Timeline

if TYPE_CHECKING:
    import pandas as pd

FEW_RANKS = 8


def few_ranks(program: Program) -> tuple[int, ...]:
    """The ranks shown unless others are named: all if there are at most 8, else 8, in turn from each class of ranks.

    Large classes come first; a rank alone is a class of its own if no other place holds it.
    """
    if program.ranks <= FEW_RANKS:
        return tuple(range(program.ranks))
    largest = sorted((place.ranks for place in program.places), key=len, reverse=True)
    together = {rank for ranks in largest if len(ranks) > 1 for rank in ranks}
    classes = [ranks for ranks in largest if len(ranks) > 1 or ranks[0] not in together]
    in_turn = [rank for turn in zip_longest(*classes) for rank in turn if rank is not None]
    return tuple(sorted(dict.fromkeys(in_turn[:FEW_RANKS])))


def all_alike(program: Program) -> bool:
    """Whether one class holds all ranks, so that any of them shows what all do."""
    return any(len(place.ranks) == program.ranks for place in program.places)


def spans_of_ranks(timeline: Timeline, ranks: Sequence[int] | None = None) -> "pd.DataFrame":
    """One row per rank, lane and op, by rank and start: what ran where and when.

    Columns: rank, lane, place (the class or rank that the Program names), op, name, kind, role, ready_s, start_s,
    end_s, queued_s, bytes, rate_bytes_per_s (NaN without bytes or time), and the tags. `role` is "src" on the root of
    a broadcast, "dst" on its other ranks, and empty for other ops.

    Raises:
        UserError: a rank is not in the world.
    """
    import pandas as pd

    program = timeline.program
    rank, lane, op = _expanded(program, few_ranks(program) if ranks is None else ranks)
    start, end, size = timeline.start_s[op], timeline.end_s[op], program.bytes[op]
    columns = {
        "rank": rank,
        "lane": np.array([lane.name for lane in program.lanes], object)[lane],
        "place": np.array([program.places[lane.place].name for lane in program.lanes], object)[lane],
        "op": op,
        "name": np.array(program.names, object)[op],
        "kind": np.array(program.kinds, object)[program.kind[op]],
        "role": _role(program, rank, op),
        "ready_s": timeline.ready_s[op],
        "start_s": start,
        "end_s": end,
        "queued_s": start - timeline.ready_s[op],
        "bytes": size,
        "rate_bytes_per_s": rate(size, end - start),
    }
    frame = pd.DataFrame(columns | {tag: values[op] for tag, values in program.tags.items()})
    return frame.sort_values(["rank", "start_s", "end_s", "op", "lane"], ignore_index=True)


def rate(size_bytes: Ints, duration_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Bytes per second; NaN where there are no bytes or no time."""
    counts = (size_bytes > 0) & (duration_s > 0)
    return np.divide(size_bytes, duration_s, out=np.full(len(duration_s), np.nan), where=counts)


def _expanded(program: Program, ranks: Sequence[int]) -> tuple[Ints, Ints, Ints]:
    """Rank, lane and op of each row: a lane of a place once for each of the chosen ranks there."""
    shown = _shown(program, ranks)
    ops, lanes = program.lanes_of.row_of_value(), program.lanes_of.values
    place = np.array([lane.place for lane in program.lanes], np.int64)[lanes]
    times = np.diff(shown.start)[place]
    row = np.repeat(np.arange(len(ops)), times)
    nth = np.arange(len(row)) - np.repeat(np.cumsum(times) - times, times)
    return shown.values[shown.start[place[row]] + nth], lanes[row], ops[row]


def _shown(program: Program, ranks: Sequence[int]) -> Ragged:
    """For each place, those of its ranks that were chosen."""
    chosen = set(ranks)
    if unknown := sorted(chosen - set(range(program.ranks))):
        raise UserError(f"rank {unknown[0]} is unknown: there are ranks 0 to {program.ranks - 1}")
    return Ragged.build([[rank for rank in place.ranks if rank in chosen] for place in program.places])


def _role(program: Program, rank: Ints, op: Ints) -> NDArray[np.object_]:
    role = np.where(rank == program.root[op], "src", "dst").astype(object)
    role[~program.is_kind("broadcast")[op]] = ""
    return role


def spans_csv(timeline: Timeline, ranks: Sequence[int] | None = None) -> str:
    """The spans as CSV: of the given ranks, or all of them, by place (a class of ranks that act alike stands once).

    Numbers read back exactly; absent rates and tags are empty.
    """
    rows = timeline.spans() if ranks is None else spans_of_ranks(timeline, ranks)
    tags = list(timeline.program.tags)
    rows[tags] = rows[tags].astype("Int64").mask(rows[tags] == -1)
    return rows.to_csv(index=False, lineterminator="\n")


def write_csv(timeline: Timeline, path: Path | str, ranks: Sequence[int] | None = None) -> None:
    """Write the spans to a `.csv` or `.csv.gz` file."""
    write_by_suffix(path, spans_csv(timeline, ranks).encode())
