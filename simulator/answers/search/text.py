"""A search in words and as tables: what `runcast search` prints and the CSV files that it writes."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from math import log10
from typing import Any

from ...base.tables import aligned
from ...base.units import format_bytes, format_seconds, format_usd
from ...scenario import Changes
from .asking import subject_of
from .found import BEATEN, LEFT, MEMORY, REFUSED, SIMULATED, UNSEEN, Amounts, Found, Measured, Row

_SHORT = {"parallel.tp": "tp", "parallel.pp": "pp", "parallel.cp": "cp", "parallel.ep": "ep", "parallel.etp": "etp",
          "batch.micro": "micro"}  # fmt: skip
_UNITS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6))
_MOST_ROWS = 12
_MOST_TERMS = 3
_SMALL = 0.05  # of the whole difference: a term below this share is not told


def lines(found: Found) -> Iterator[str]:
    """All that is printed."""
    yield from _counted(found)
    if found.winner is None:
        yield _nothing(found)
        return
    yield ""
    yield from _pareto(found)
    yield ""
    yield from _answer(found)


def _nothing(found: Found) -> str:
    """Why there is no winner."""
    if found.best:
        return f"no plan fits: of {len(found.best):,} that fit action by action, none does kernel by kernel"
    if not found.proved:
        return "no plan that fits was found; there may be one"
    return f"no plan fits: {found.counts[MEMORY]:,} need more memory, {found.counts[REFUSED]:,} are refused"


def plan_text(changes: Changes) -> str:
    """A plan in a line: `tp 4, pp 4, cp 1, micro 1, interleaved vpp 10, recompute none`."""
    return ", ".join(_part(key, value) for key, value in changes.items())


def _part(key: str, value: Any) -> str:
    if key == "schedule":
        rest = [f"{name} {item}" for name, item in value.items() if name != "name"]
        return " ".join([value["name"], *rest])
    if key == "recompute":
        rest = [_listed(item) if name == "modules" else f"{name} {item}" for name, item in value.items()][1:]
        return " ".join(["recompute", value["mode"], *rest])
    return f"{_SHORT.get(key, key.removeprefix('update.'))} {_sized(key, value)}"


def _sized(key: str, value: Any) -> str:
    return format_bytes(value) if key == "update.bucket" and isinstance(value, int) else _listed(value)


def _listed(value: Any) -> str:
    return "+".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _counted(found: Found) -> Iterator[str]:
    counts = found.counts
    keys = ", ".join(axis.key for axis in found.space.axes)
    yield f"{found.space.size:,} combinations of {keys} on {found.gpus:,} GPUs"
    yield from (f"  {count:>9,}  {rule}" for rule, count in found.cuts.most_common())
    yield f"{len(found.rows):,} plans"
    limit = format_bytes(found.device_bytes * (1 - found.headroom))
    kept = f" ({found.headroom:.0%} of it kept free)" if found.headroom else ""
    meaning = {
        REFUSED: "refused by the scenario's checks",
        MEMORY: f"need more than {limit} of device memory{kept}",
        BEATEN: "beaten: no amount can be below those of a plan that was simulated",
        SIMULATED: "simulated",
        LEFT: "left out: " + ("the search was stopped" if found.stopped else "the budget is spent"),
        UNSEEN: "not looked at: " + ("the search was stopped" if found.stopped else "neither drawn nor proposed"),
    }
    for status, words in meaning.items():
        if counts[status]:
            yield f"  {counts[status]:>9,}  {words}"
    for reason, count in _reasons(found.rows)[:3]:
        yield f"             {count:,} of those refused{_example(count)}: {reason}"


def _example(count: int) -> str:
    """One reason stands for all that name its key."""
    return ", such as" if count > 1 else ""


def _reasons(rows: Sequence[Row]) -> list[tuple[str, int]]:
    """Reasons of refusal, the most frequent first, by the key that they name."""
    found: dict[str, list[str]] = {}
    for row in rows:
        if row.status == REFUSED:
            found.setdefault(row.reason.partition(" ")[0], []).append(row.reason)
    return sorted(((f"{said[0]}", len(said)) for said in found.values()), key=lambda one: -one[1])


def _pareto(found: Found) -> Iterator[str]:
    """The table: fastest first; what is shown of a long one is said."""
    shown = list(found.pareto[:_MOST_ROWS])
    proof = "no plan is better in every column" if found.proved else "of the plans that were simulated"
    yield f"Pareto set, {len(found.pareto)} plans ({proof})"
    head = [subject_of(found.table).speed_name, "memory", "cost", "", "plan"]
    cells = [head] + [_cells(found, number) for number in shown]
    yield from (f"  {line}" for line in aligned(cells, range(4)))
    if len(found.pareto) > len(shown):
        yield f"  and {len(found.pareto) - len(shown)} more that need less memory"


def _cells(found: Found, number: int) -> list[str]:
    row = found.rows[number]
    assert row.measured is not None
    mark = "winner" if number == found.winner else "second" if number == found.runner_up else ""
    return [*amounts(found, row.measured), mark, plan_text(row.changes)]


def amounts(found: Found, one: Measured) -> list[str]:
    """Speed, memory and cost in words."""
    speed = subject_of(found.table).speed(one)
    return [speed, format_bytes(one.memory_bytes), "unknown" if one.cost_usd is None else format_usd(one.cost_usd)]


def _answer(found: Found) -> Iterator[str]:
    assert found.winner is not None
    row = found.rows[found.winner]
    yield f"winner by {found.objective}: {plan_text(row.changes)}"
    for number in found.best:
        if number in found.checked:
            coarse, fine = found.rows[number].measured, found.checked[number]
            assert coarse is not None
            fits = "" if fine.fits else ", which does not fit"
            yield (f"  kernel by kernel: {', '.join(amounts(found, fine))}{fits}; by action {amounts(found, coarse)[0]}"
                   f" ({plan_text(found.rows[number].changes)})")  # fmt: skip
    yield from why(found)
    if not found.proved:
        counts = found.counts
        seen = len(found.rows) - counts[UNSEEN]
        stopped = "stopped early: " if found.stopped else ""
        yield f"{stopped}best of {counts[SIMULATED]:,} simulated and {seen:,} screened plans, not proved"
    yield from found.notes
    if not found.counts[UNSEEN] and (bound := found.best_left) is not None:
        yield f"left out: {_at_best(found, bound)}"


def _at_best(found: Found, bound: Amounts) -> str:
    """What the plans that were left out cannot be better than."""
    if found.objective == "memory":
        return f"no plan needs less than {format_bytes(bound.memory_bytes)}"
    if not bound.time_s:
        return "nothing is known of how fast those are"
    return f"no plan is faster than {1 / bound.time_s:,.0f} tokens/s by its bound"


def why(found: Found) -> Iterator[str]:
    """Why the second one lost: which terms of its time are longer, and which are shorter."""
    if found.winner is None or found.runner_up is None:
        yield "no other plan was simulated"
        return
    first, second = (_finest(found, number) for number in (found.winner, found.runner_up))
    changed_ = _differing(found.rows[found.winner].changes, found.rows[found.runner_up].changes)
    yield f"second: {plan_text(found.rows[found.runner_up].changes)}"
    by = second.time_s / first.time_s - 1
    if found.objective == "memory":
        yield f"it needs {format_bytes(second.memory_bytes)} where the winner needs {format_bytes(first.memory_bytes)}"
        return
    takes, instead = told_apart(second.time_s, first.time_s)
    more = "more" if by >= 0 else "less"
    yield f"it takes {takes}, {abs(by):.1%} {more} than the winner's {instead}, with {changed_}:"
    longer, shorter = differences(first.terms, second.terms)
    yield "  " + "; ".join(filter(None, [_told("longer", longer), _told("shorter", shorter)]))


def _finest(found: Found, number: int) -> Measured:
    one = found.checked.get(number) if found.winner in found.checked else None
    one = one or found.rows[number].measured
    assert one is not None
    return one


def _differing(winner: Changes, other: Changes) -> str:
    parts = [f"{_part(key, other[key])} for {_part(key, winner[key])}" for key in winner if winner[key] != other[key]]
    return " and ".join(parts) or "the same plan"


def differences(
    first: Mapping[str, float], second: Mapping[str, float]
) -> tuple[list[tuple[str, float, float]], list[tuple[str, float, float]]]:
    """Terms that are longer in the second, and those that are shorter: name and both seconds, largest change first."""
    both = [(name, first.get(name, 0.0), second.get(name, 0.0)) for name in dict.fromkeys([*first, *second])]
    total = max((abs(b - a) for _, a, b in both), default=0.0)
    told = sorted((one for one in both if abs(one[2] - one[1]) > _SMALL * total), key=lambda one: -abs(one[2] - one[1]))
    longer, shorter = [one for one in told if one[2] > one[1]], [one for one in told if one[2] < one[1]]
    return longer[:_MOST_TERMS], shorter[:_MOST_TERMS]


def _told(how: str, terms: Sequence[tuple[str, float, float]]) -> str:
    parts = [f"{name} {' for '.join(told_apart(b, a))}" for name, a, b in terms]
    return f"{how}: {', '.join(parts)}" if parts else ""


def told_apart(one: float, other: float) -> tuple[str, str]:
    """Two durations in words, with as many digits more as it takes to see which is longer."""
    words = format_seconds(one), format_seconds(other)
    largest = max(one, other)
    unit, scale = next(((unit, scale) for unit, scale in _UNITS if largest >= scale), _UNITS[-1])
    for digits in range(1, 7):
        if words[0] != words[1] or one == other:
            break
        places = max(digits + 2 - int(log10(largest / scale)), 0) if largest else 0
        words = f"{one / scale:,.{places}f} {unit}", f"{other / scale:,.{places}f} {unit}"
    return words


# CSV

_COLUMNS = (
    "status", "reason", "bound_time_s", "bound_memory_bytes", "time_s", "tokens_per_s", "memory_bytes", "cost_usd",
    "kernel_level_time_s", "kernel_level_memory_bytes",
)  # fmt: skip


def plans_csv(found: Found, numbers: Sequence[int] | None = None) -> bytes:
    """A row per plan, or for some of them: its place on every axis, what became of it, bounds and amounts."""
    text = StringIO()
    keys = [axis.key for axis in found.space.axes]
    out = csv.writer(text, lineterminator="\n")
    out.writerow([*keys, *_COLUMNS])
    for number in range(len(found.rows)) if numbers is None else numbers:
        row = found.rows[number]
        out.writerow([*(_plain(row.changes[key]) for key in keys), *_row_cells(found, number, row)])
    return text.getvalue().encode()


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{name}={_listed(item)}" for name, item in value.items())
    return str(value)


def _row_cells(found: Found, number: int, row: Row) -> list[Any]:
    floor, one, fine = row.floor, row.measured, found.checked.get(number)
    tokens = one.tokens if one and one.tokens else found.tokens
    bound = [floor.time_s * max(tokens, 1) or "", floor.memory_bytes or ""] if floor else ["", ""]
    speed = one.tokens_per_s if one and one.tokens else ""
    simulated = [one.time_s, speed, one.memory_bytes, one.cost_usd] if one else [""] * 4
    return [row.status, row.reason, *bound, *simulated, *([fine.time_s, fine.memory_bytes] if fine else ["", ""])]
