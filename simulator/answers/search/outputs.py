"""What a search gives: a folder with the winner, its Megatron-LM arguments, every plan, the Pareto set; and words."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...base.errors import UserError
from ...base.files import write_atomic
from ...base.named_files import rename_files
from ...base.tables import align, csv_text
from ...base.units import digits_apart, format_bytes, format_long, format_probability, format_usd
from ...report.report import NOT_IN_INTERVAL
from ...scenario import Changes, check_question, to_toml
from .records import BEATEN, LEFT, MEMORY, REFUSED, SIMULATED, UNSEEN, Measured, SearchResult

_RECIPES = {"any": "winner.megatron.txt", "megatron": "winner.megatron.txt", "torchtitan": "winner.torchtitan.toml"}
"""The winner's recipe, by the tool that is to run it."""
FILES = ("plans.csv", "pareto.csv", "winner.toml", *dict.fromkeys(_RECIPES.values()))
"""All that a search writes."""
_COLUMNS = (
    "status", "reason", "bound_time_s", "bound_memory_bytes", "time_s", "tokens_per_s", "memory_bytes", "cost_usd",
    "kernel_level_time_s", "kernel_level_memory_bytes", "fits_probability", "mfu", "interval_low_s", "interval_high_s",
    "time_to_winner_low", "time_to_winner_high", "beats_winner_probability", "best_probability",
)  # fmt: skip


def check_folder(folder: Path) -> None:
    """Make the folder of a search, before the search; what an earlier search wrote there may be replaced.

    A UserError if it cannot be made or written to, or holds something else.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        names = sorted(path.name for path in folder.iterdir())
    except OSError as error:
        raise UserError(f"--out {folder}: cannot be made: {error.strerror or error}") from None
    if foreign := [name for name in names if name not in FILES and not name.startswith(".")]:
        raise UserError(f"--out {folder}: holds {foreign[0]}, which no search wrote: expected a folder of its own")
    if not os.access(folder, os.W_OK):
        raise UserError(f"--out {folder}: cannot be written to")


def write_files(found: SearchResult, folder: Path) -> list[Path]:
    """Write what was found; the folder is made if need be, and files of an earlier search are replaced or taken away.

    A UserError as `check_folder`.
    """
    check_folder(folder)
    files = {"plans.csv": plans_csv(found, range(len(found.rows))), "pareto.csv": plans_csv(found, found.pareto)}
    if found.winner is not None:
        changes = found.rows[found.winner].changes
        # at the level that the reported number is of
        table = found.question.plan(changes, finest=found.winner in found.checked)
        if (recipe := _recipe_text(found, table)) is not None:
            files[_RECIPES[found.question.target]] = recipe
        plan = _line_of(found, found.winner)
        about = f"# Found by `runcast search`, best by {found.question.objective}: {plan}"
        table["name"] = f"{table['name']}, winner: {plan}" if "name" in table else f"winner: {plan}"
        moved = rename_files(table, found.question.where, lambda place: os.path.relpath(place, folder.resolve()))
        files["winner.toml"] = f"{about}\n{to_toml(moved)}"
    names = [name for name in FILES if name in files]
    for name in names:
        write_atomic(folder / name, files[name].encode())
    for name in FILES:
        if name not in files:  # an earlier search had a winner, or one for Megatron-LM
            (folder / name).unlink(missing_ok=True)
    return [folder / name for name in names]


def _recipe_text(found: SearchResult, table: Mapping[str, Any]) -> str | None:
    """The best plan as a tool's recipe, or why it has none, as comments: never that of another plan.

    None where that is no question.
    """
    export, where = found.question.subject.export, found.question.where
    if export is None:
        return None
    try:
        return f"{export(check_question(table, where), found.question.target, where)}\n"
    except UserError as error:
        return "".join(f"# {line}\n" for line in ["runcast plan export winner.toml:", *error.reasons(where)])


def plans_csv(found: SearchResult, numbers: Sequence[int]) -> str:
    """A row per plan: its place on every axis, what became of it, bounds and amounts."""
    keys = [axis.key for axis in found.space.axes]
    plans = (map(_plain, map(found.rows[number].changes.get, keys)) for number in numbers)
    rows = ([*plan, *_cells(found, number)] for plan, number in zip(plans, numbers, strict=True))
    return csv_text([*keys, *_COLUMNS], rows)


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{name}={join(item)}" for name, item in value.items())
    return "" if value is None else str(value)


def _cells(found: SearchResult, number: int) -> list[Any]:
    """The cells of `_COLUMNS`; bounds of times are per step, of plans that do not change the batch.

    The probability is that of the finest prediction.
    """
    row, fine = found.rows[number], found.checked.get(number)
    floor, one, batch = row.floor, row.measured, found.question.table.get("batch", {})
    tokens = (one.tokens if one else 0) or int(batch.get("global", 0) * batch.get("seq_len", 0))
    bound = [floor.time_s * max(tokens, 1) or "", floor.memory_bytes or ""] if floor else ["", ""]
    speed = one.tokens_per_s if one and one.tokens else ""
    simulated = [one.time_s, speed, one.memory_bytes, one.cost_usd] if one else [""] * 4
    finest = [fine.time_s, fine.memory_bytes] if fine else ["", ""]
    likely = last.fits_probability if (last := fine or one) else None
    difference = found.difference_to_winner(number) if one else None
    surely = [difference.low, difference.high, difference.faster_probability] if difference else [""] * 3
    sure: list[Any] = ["" if last is None or last.mfu is None else last.mfu, *((last and last.interval_s) or ("", ""))]
    best = found.best_probabilities.get(number, 0.0) if number in found.best else ""
    return [row.status, row.reason, *bound, *simulated, *finest, "" if likely is None else likely, *sure, *surely, best]


# In words: what `runcast search` prints.

_SHORT = {"parallel.tp": "tp", "parallel.pp": "pp", "parallel.cp": "cp", "parallel.ep": "ep", "parallel.etp": "etp",
          "batch.micro": "micro", "parallel.zero": "zero"}  # fmt: skip
_MOST_ROWS = 12
_MOST_TERMS = 3
_SMALL = 0.05  # of the whole difference: a term below this share is left out


def lines(found: SearchResult) -> Iterator[str]:
    """All that is printed."""
    yield from _counts(found)
    if found.winner is not None:
        yield from ("", *_pareto(found), "", *_answer(found))
        return
    if found.best:
        yield f"no plan fits: of {len(found.best):,} that fit action by action, none does kernel by kernel"
    elif not found.proved:
        yield "no plan that fits was found; there may be one"
    else:
        yield f"no plan fits: {found.counts[MEMORY]:,} need more memory, {found.counts[REFUSED]:,} are refused"
    yield from found.notes


def plan_text(changes: Changes) -> str:
    """A plan in a line: `tp 4, pp 4, cp 1, micro 1, interleaved vpp 10, recompute none`."""
    return ", ".join(_part(key, value) for key, value in changes.items() if value not in ({}, None))


def _line_of(found: SearchResult, number: int) -> str:
    """A plan in a line, by its place on the axes: what follows from that for a tool is left out."""
    keys = {axis.key for axis in found.space.axes}
    return plan_text({key: value for key, value in found.rows[number].changes.items() if key in keys})


def _part(key: str, value: Any) -> str:
    if key == "schedule":
        return " ".join([value["name"], *(f"{name} {item}" for name, item in value.items() if name != "name")])
    if key == "recompute":
        rest = [join(item) if name == "modules" else f"{name} {item}" for name, item in value.items()][1:]
        return " ".join(["recompute", value["mode"], *rest])
    if key == "offload":
        parts = [name if item is True else f"{name} {item:g}" for name, item in value.items()]
        return " ".join(["offload", *parts]) if parts else "no offload"
    size = format_bytes(value) if key == "update.bucket" and isinstance(value, int) else join(value)
    return f"{_SHORT.get(key, key.removeprefix('update.'))} {size}"


def join(value: Any) -> str:
    """A list as `a+b`, anything else as it is."""
    return "+".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _counts(found: SearchResult) -> Iterator[str]:
    """Lines on the size of the space, the plans that rules cut, and the results of the rest."""
    keys = ", ".join(axis.key for axis in found.space.axes)
    yield f"{found.space.size:,} combinations of {keys} on {found.question.gpus:,} GPUs"
    yield from (f"  {count:>9,}  {rule}" for rule, count in found.cuts.most_common())
    yield f"{len(found.rows):,} plans"
    limit = format_bytes(found.question.memory_bytes)
    kept = f" ({found.headroom:.0%} of it kept free)" if found.headroom else ""
    meaning = {
        REFUSED: "refused, by the scenario's checks or as below",
        MEMORY: f"need more than {limit} of device memory{kept}",
        BEATEN: "beaten: no amount can be below those of a plan that was simulated",
        SIMULATED: "simulated",
        LEFT: "left out: " + ("the search was stopped" if found.stopped else "the budget is spent"),
        UNSEEN: "not looked at: " + ("the search was stopped" if found.stopped else "neither drawn nor proposed"),
    }
    yield from (f"  {found.counts[status]:>9,}  {words}" for status, words in meaning.items() if found.counts[status])
    reasons: dict[str, list[str]] = {}  # by the key that they name, for which one stands
    for row in found.rows:
        if row.status == REFUSED:
            reasons.setdefault(row.reason.partition(" ")[0], []).append(row.reason)
    for said in sorted(reasons.values(), key=len, reverse=True)[:3]:
        yield f"             {len(said):,} of those refused{', such as' if len(said) > 1 else ''}: {said[0]}"


def _pareto(found: SearchResult) -> Iterator[str]:
    """The table: fastest first; what is shown of a long one is said."""
    shown = found.pareto[:_MOST_ROWS]
    proof = "no plan is better in every column" if found.proved else "of the plans that were simulated"
    plans = "1 plan" if len(found.pareto) == 1 else f"{len(found.pareto)} plans"
    yield f"Pareto set, {plans} ({proof})"
    speed = found.question.subject.speed_name
    cost = f"cost per {found.question.subject.title}"
    cells = [[speed, "90 % interval", "MFU", "memory", cost, "fits with", "best with", "", "plan"]]
    for number in shown:
        row = found.rows[number]
        assert row.measured is not None
        ranked = {found.winner: "winner", found.runner_up: "second"}
        marks = [*([ranked[number]] if number in ranked else []), *(["yours"] if number == found.own else [])]
        speed, *others = _amounts(row.measured)
        best = format_probability(found.best_probabilities.get(number, 0.0))
        sure = [row.measured.speed_interval, _mfu(row.measured)]
        cells.append([speed, *sure, *others, _likely(row.measured), best, ", ".join(marks), _line_of(found, number)])
    told = [place for place, head in enumerate(cells[0]) if not head or any(line[place] for line in cells[1:])]
    cells = [[line[place] for place in told] for line in cells]  # updates have no MFU, and no interval of memory
    yield from (f"  {line}" for line in align(cells, range(len(cells[0]) - 1)))
    if len(found.pareto) > len(shown):
        yield f"  and {len(found.pareto) - len(shown)} more that need less memory"


def _amounts(one: Measured) -> list[str]:
    """Speed, memory and cost in words."""
    cost = "unknown" if one.cost_usd is None else format_usd(one.cost_usd)
    return [one.speed, format_bytes(one.memory_bytes), cost]


def _mfu(one: Measured) -> str:
    return "" if one.mfu is None else f"{one.mfu:.1%}"


def _likely(one: Measured) -> str:
    """The probability of fitting in words; empty where there is none."""
    return "" if one.fits_probability is None else format_probability(one.fits_probability)


def _answer(found: SearchResult) -> Iterator[str]:
    assert found.winner is not None
    yield f"winner by {found.question.objective}: {_line_of(found, found.winner)}"
    for number in found.best:
        if number in found.checked:
            coarse, fine = found.rows[number].measured, found.checked[number]
            assert coarse is not None
            fits = f", MFU {_mfu(fine)}, fits with {_likely(fine)}" if fine.fits else ", which does not fit"
            yield (f"  kernel by kernel: {', '.join(_amounts(fine))}{fits}; by action {coarse.speed} "
                   f"({_line_of(found, number)})")  # fmt: skip
    yield from map(NOT_IN_INTERVAL.format, _finest(found, found.winner).not_in_interval)
    yield from _why(found, found.winner)
    yield from _yours(found, found.winner)
    counts = found.counts
    if not found.proved:
        stopped = "stopped early: " if found.stopped else ""
        seen = len(found.rows) - counts[UNSEEN]
        yield f"{stopped}best of {counts[SIMULATED]:,} simulated and {seen:,} screened plans, not proved"
    yield from found.notes
    if counts[UNSEEN] or (bound := found.best_left) is None:
        return
    if found.question.objective == "memory":
        yield f"left out: no plan needs less than {format_bytes(bound.memory_bytes)}"
    elif not bound.time_s:
        yield "left out: nothing is known of how fast those are"
    else:
        yield f"left out: no plan is faster than {1 / bound.time_s:,.0f} tokens/s by its bound"


def _why(found: SearchResult, winner: int) -> Iterator[str]:
    """Why the second one lost: which terms of its time are longer, and which are shorter."""
    if found.runner_up is None:
        yield "no other plan was simulated"
        return
    ours, theirs = found.rows[winner].changes, found.rows[found.runner_up].changes
    yield f"second: {_line_of(found, found.runner_up)}"
    first, second = (_finest(found, number) for number in (winner, found.runner_up))
    if found.question.objective == "memory":
        yield f"it needs {format_bytes(second.memory_bytes)} where the winner needs {format_bytes(first.memory_bytes)}"
        return
    takes, instead = distinct_texts(second.time_s, first.time_s)
    by = second.time_s / first.time_s - 1
    keys = [axis.key for axis in found.space.axes if ours[axis.key] != theirs[axis.key]]
    differ = [f"{_part(key, theirs[key])} for {_part(key, ours[key])}" for key in keys]
    more, other = "more" if by >= 0 else "less", " and ".join(differ) or "the same plan"
    difference = found.difference_to_winner(found.runner_up)
    beats = f" (faster than the winner with {format_probability(difference.faster_probability)})" if difference else ""
    line = f"it takes {takes}, {abs(by):.1%} {more} than the winner's {instead}{beats}, with {other}"
    longer, shorter = differences(first.terms, second.terms)
    told = [*_take("longer", longer), *_take("less", shorter)]
    yield from (f"{line}:", *(f"  {each}" for each in told)) if told else (line,)


def _take(how: str, terms: Sequence[tuple[str, float, float]]) -> Iterator[str]:
    """`tp takes longer: 151 ms instead of 142 ms` of each of these terms, given its seconds before and now."""
    for name, before_s, now_s in terms:
        yield f"{name} takes {how}: {' instead of '.join(distinct_texts(now_s, before_s))}"


def _yours(found: SearchResult, winner: int) -> Iterator[str]:
    """How the scenario's own plan compares."""
    if found.own is None or winner == found.own:
        return
    row, plan = found.rows[found.own], _line_of(found, found.own)
    if row.status == MEMORY and (of := row.measured or row.floor) is not None:
        needed, there = format_bytes(of.memory_bytes), format_bytes(found.question.memory_bytes)
        yield f"yours: needs {needed} or more of {there}: {plan}"
        return
    if (one := found.own_untold or row.measured) is None:
        yield f"yours: is refused, {row.reason}: {plan}"
        return
    both = found.own in found.checked and winner in found.checked
    one, other = (found.checked[found.own], found.checked[winner]) if both else (one, found.rows[winner].measured)
    assert other is not None
    more = one.amounts.time_s / other.amounts.time_s - 1
    than = f"takes {abs(more):.1%} {'longer' if more > 0 else 'less'} than the winner"
    than = than if abs(more) >= 0.0005 else "as fast as the winner"
    untold = f"; {found.question.target} cannot run it: {row.reason}" if found.own_untold else ""
    yield f"yours: {', '.join(_amounts(one))}, {than}: {plan}{untold}"


def _finest(found: SearchResult, number: int) -> Measured:
    """Kernel by kernel if the winner was checked so too."""
    one = found.checked.get(number) if found.winner in found.checked else None
    one = one or found.rows[number].measured
    assert one is not None
    return one


def differences(
    first: Mapping[str, float], second: Mapping[str, float]
) -> tuple[list[tuple[str, float, float]], list[tuple[str, float, float]]]:
    """Terms that are longer in the second, and those that are shorter: name and both seconds, largest change first."""
    both = [(name, first.get(name, 0.0), second.get(name, 0.0)) for name in dict.fromkeys([*first, *second])]
    total = max((abs(b - a) for _, a, b in both), default=0.0)
    told = sorted((one for one in both if abs(one[2] - one[1]) > _SMALL * total), key=lambda one: -abs(one[2] - one[1]))
    longer, shorter = [one for one in told if one[2] > one[1]], [one for one in told if one[2] < one[1]]
    return longer[:_MOST_TERMS], shorter[:_MOST_TERMS]


def distinct_texts(one: float, other: float) -> tuple[str, str]:
    """Two durations in words, with as many digits more as it takes to see which is longer."""
    digits = digits_apart(one, [other], 0.0)
    return format_long(one, digits), format_long(other, digits)
