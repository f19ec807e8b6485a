"""An Explanation in words and numbers for the terminal, and as a page; nothing is computed here."""

from collections.abc import Iterable, Iterator, Sequence

from ...base.tables import align
from ...base.units import digits_apart, format_bytes, format_long, format_probability
from ...figures import Section, tornado, waterfall
from ...insight import slowed_lines
from ...report.report import NOT_IN_INTERVAL, Table
from .explanation import Explanation, Tried, best_of
from .sensitivity import Sensitivity, Side

KNOB_COLUMNS = ("number", "now", "better", "first order", "worse", "first order", "")
WHAT_IF_COLUMNS = ("what if", "saves", "90 %", "helps with", "takes", "memory of a device", "what it is")
PART_COLUMNS = ("phase", "seconds", "share", "critical path", "share")
_SHOWN, _LEAST, _SHOWN_TOO_LARGE = 12, 0.0005, 4
_SUBJECTS = {"machine": "numbers of the machine", "class": "numbers of the software and its kernels"}
_AXES = ("tp", "cp", "ep", "dp", "fsdp", "pipeline")


def lines(found: Explanation) -> Iterator[str]:
    """The whole of it."""
    yield found.name
    yield f"  {found.question}"
    yield f"  {headline(found)}"
    yield from (f"  {NOT_IN_INTERVAL.format(line)}" for line in found.not_in_interval)
    yield ""
    yield from sentences(found)
    yield ""
    yield from _aligned(PART_COLUMNS, part_rows(found))
    for subject, title in _SUBJECTS.items():
        shown = [one for one in found.sensitivities if one.knob.subject == subject]
        if not shown:
            yield from ("", f"{title}: none that counts")
            continue
        yield from ("", f"{title}, 10 % better and worse: the {found.what} changes by")
        rows = knob_rows(shown[:_SHOWN])
        yield from _aligned(KNOB_COLUMNS, rows)
        if left := len(shown) - len(rows):
            yield f"{left} more change it by less"
    yield from ("", f"{len(found.without_effect)} more numbers have no effect on this {found.what}")
    if not found.quick:
        yield from _advice(found)
    yield f"scenario {found.scenario_hash}"


def headline(found: Explanation) -> str:
    """The time with its interval, with digits that tell it from what the changes shown below take."""
    low, high = format_long(found.interval_low_s), format_long(found.interval_high_s)
    digits = digits_apart(found.total_s, [one.total_s for one in (*found.best, *found.best_machines)])
    return f"{f'{found.what} time':<14}{format_long(found.total_s, digits)}   (90 % interval {low} to {high})"


def sentences(found: Explanation) -> Iterator[str]:
    """Sentences on what bounds the total, what is exposed, and what faster numbers give."""
    parts, total = found.parts, found.total_s
    bound = parts.path_s[found.bound_by] / total
    yield f"The {found.what} is bound by {found.bound_by}: {bound:.0%} of the critical path."
    yield _exposed(found)
    if parts.bubble_s:
        yield f"Ranks wait {parts.bubble_s / total:.1%} of the step for other stages (the bubble)."
    kinds = [f"{kind} {seconds / total:.1%}" for kind, seconds in parts.class_s.items() if seconds >= 0.005 * total]
    yield f"By kind of op the critical path is {', '.join(kinds)}."
    yield f"Work of host threads holds {parts.host_s / total:.1%} of the critical path."
    yield from (f"{line[0].upper()}{line[1:]}." for line in slowed_lines(parts.slowed_s, total))
    if found.awkward:
        yield f"Awkward shapes take {found.awkward_s / total:.1%} of it: {'; '.join(_awkward(found))}."
    yield from _worth(found)
    if not found.fits:
        yield f"It does not fit: it needs {_too_much(found)}."


def _too_much(one: Explanation | Tried) -> str:
    """What does not fit: the fullest device, or else what is offloaded to hosts."""
    if one.memory_bytes > one.device_memory_bytes:
        return f"{format_bytes(one.memory_bytes)} of {format_bytes(one.device_memory_bytes)}"
    return "more memory of hosts than there is"


def _awkward(found: Explanation) -> Iterator[str]:
    """Advice on shapes to pad, with the time saved if it was simulated."""
    gains = {one.name: one.gain for one in found.tried}
    for text in found.awkward:
        gain = gains.get(text)
        yield text if gain is None else f"{text} ({'saves' if gain > 0 else 'costs'} {abs(gain):.1%})"


def _exposed(found: Explanation) -> str:
    parts, total = found.parts, found.total_s
    if parts.bubble_s is None:
        return f"Copies, broadcasts and writes are exposed for {parts.exposed_s / total:.1%} of it."
    axes = [f"{axis} {seconds / total:.1%}" for axis in _AXES if (seconds := parts.path_s.get(axis, 0.0)) > 0]
    which = f" ({', '.join(axes)})" if axes else ""
    return (
        f"Exposed communication is {parts.exposed_path_s / total:.1%} of the critical path{which}, "
        f"and {parts.exposed_s / total:.1%} of the step on the mean rank."
    )


def _worth(found: Explanation) -> Iterator[str]:
    """The number of each subject that is worth most, and that of NICs whether they matter or not."""
    by_gain = sorted(found.sensitivities, key=lambda one: -one.gain)
    firsts = [next((one for one in by_gain if one.knob.subject == subject), None) for subject in _SUBJECTS]
    nic = [one for one in by_gain if one.knob.name == "cluster.nic"]
    worth = {one.knob.name: round(one.gain, 4) + 0.0 for one in (*firsts, *nic) if one is not None}
    if worth:
        yield f"10 % better saves {', '.join(f'{gain:.1%} by {name}' for name, gain in worth.items())}."


def part_rows(found: Explanation) -> list[tuple[str, ...]]:
    """Rows of PART_COLUMNS; the seconds sum to the total, so does the critical path."""
    total, parts = found.total_s, found.parts
    phases = dict.fromkeys([*parts.split_s, *parts.path_s])
    rows = [(phase, *_part(parts.split_s.get(phase, 0.0), total), *_part(parts.path_s.get(phase, 0.0), total))
            for phase in phases]  # fmt: skip
    return [*rows, (found.what, *_part(total, total), *_part(sum(parts.path_s.values()), total))]


def _part(seconds: float, total: float) -> tuple[str, str]:
    return format_long(seconds), f"{seconds / total:.1%}"


def knob_rows(shown: Iterable[Sensitivity]) -> list[tuple[str, ...]]:
    """Rows of KNOB_COLUMNS."""
    return [
        (one.knob.name, one.knob.text, *_changes(one.better, one), *_changes(one.worse, one),
         ", ".join([*["path moves"] * one.path_moves, *[f"at most {one.knob.most:g}"] * one.knob.capped]))
        for one in shown
        if one.size_s >= _LEAST * one.total_s
    ]  # fmt: skip


def _changes(side: Side, of: Sensitivity) -> tuple[str, str]:
    simulated = "-" if side.simulated_s is None else _signed(side.simulated_s / of.total_s)
    return simulated, _signed(side.first_order_s / of.total_s)


def _signed(share: float) -> str:
    return f"{share:+.2%}" if abs(share) >= 5e-5 else "0"


def _advice(found: Explanation) -> Iterator[str]:
    subjects = {f"changes of the {'plan' if found.what == 'step' else 'update'} that help most": found.best,
                "changes of the machine that help most": found.best_machines}  # fmt: skip
    for title, shown in subjects.items():
        yield from ("", f"{title}:" if shown else f"{title}: none of those tried")
        if shown:
            yield from _aligned(WHAT_IF_COLUMNS, what_if_rows(shown, found))
    if left := len(best_of(found.tried, "plan", "update", "machine", most=len(found.tried))) - len(
        [*found.best, *found.best_machines]
    ):
        yield f"{left} more save less"
    for one in found.too_large[:_SHOWN_TOO_LARGE]:
        yield f"{one.name} would save {one.gain:.1%}, but needs {_too_much(one)}"
    yield f"{len(found.tried)} what-ifs were simulated, {len(found.refused)} do not go with this scenario"


def what_if_rows(shown: Iterable[Tried], found: Explanation) -> list[tuple[str, ...]]:
    """Rows of WHAT_IF_COLUMNS."""
    shown = list(shown)
    digits = digits_apart(found.total_s, [one.total_s for one in shown])
    return [
        (one.name, f"{one.gain:.1%}", _interval(one), format_probability(one.helps),
         format_long(one.total_s, digits), _memory(one, found), one.about)
        for one in shown
    ]  # fmt: skip


def _interval(one: Tried) -> str:
    """The 90 % interval of the share that it saves."""
    low, high = one.gain_interval
    return f"{low:.0%} to {high:.0%}"


def _memory(one: Tried, found: Explanation) -> str:
    before, after = format_bytes(found.memory_bytes), format_bytes(one.memory_bytes)
    if before == after:
        return f"{after} of {format_bytes(one.device_memory_bytes)}{'' if one.fits else ': does not fit'}"
    likely = "" if one.fits_probability is None else f": fits with {format_probability(one.fits_probability)}"
    return f"{before} to {after} of {format_bytes(one.device_memory_bytes)}{likely if one.fits else ': does not fit'}"


def _aligned(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table: words to the left at both ends, numbers to the right between."""
    yield from align([columns, *rows], range(1, len(columns) - 1))


# As a page: a tornado of its numbers, a waterfall of its phases, and tables.

_BARS = 16


def page(found: Explanation) -> tuple[str, list[Section]]:
    """The title and the sections of the page."""
    return f"{found.name}: why {format_long(found.total_s)}", _sections(found)


def _sections(found: Explanation) -> list[Section]:
    """The sections of the page."""
    refused = [(one.name, one.subject, one.reason) for one in found.refused]
    shown = [
        Section("In words", [found.question, headline(found), *sentences(found)], [("scenario", found.scenario_hash)]),
        Section(
            f"What the {found.what} is made of",
            figures={"Waterfall": waterfall(found.parts.split_s, found.what)},
            tables=[Table("Seconds and critical path", PART_COLUMNS, part_rows(found))],
        ),
        Section(
            "What each number is worth",
            figures={"Tornado": tornado(bars(found), found.total_s, found.what)},
            tables=[Table("A tenth better or worse", KNOB_COLUMNS, knob_rows(found.sensitivities))],
        ),
    ]
    if found.quick:
        return shown
    tables = [
        Table("What-ifs, by gain", WHAT_IF_COLUMNS, what_if_rows(found.tried, found)),
        Table("Not allowed here", ("what if", "subject", "why"), refused),
    ]
    return [*shown, Section("What would help", tables=tables)]


def bars(found: Explanation) -> dict[str, tuple[float, float]]:
    """Changes of the total in seconds by number, better and worse."""
    return {
        f"{one.knob.name} = {one.knob.text}": (one.better.change_s, one.worse.change_s)
        for one in found.sensitivities[:_BARS]
    }
