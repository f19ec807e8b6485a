"""`runcast compare`: two results side by side."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..base.errors import UserError
from .names import complete

if TYPE_CHECKING:
    from ..answers.compare import Comparison, Operand
    from ..answers.compare.spans import Joined


def compare(
    a: Annotated[
        Path,
        typer.Argument(
            help="A scenario (a file, or a shipped name), a report (JSON of `simulate`), what `runcast execute` wrote "
            "(folder, CSV), or the trace or log of a real run.",
            autocompletion=complete("scenarios"),
        ),
    ],
    b: Annotated[
        Path | None,
        typer.Argument(
            help="Another one; left out: A with the changes of --set and --what-if.",
            autocompletion=complete("scenarios"),
        ),
    ] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", help="Change a key of each scenario, or of B where B is left out.")
    ] = None,
    set_a: Annotated[list[str] | None, typer.Option("--set-a", help="Change a key of scenario A.")] = None,
    set_b: Annotated[list[str] | None, typer.Option("--set-b", help="Change a key of scenario B.")] = None,
    what_if: Annotated[
        list[str] | None, typer.Option("--what-if", help="B is A with a named what-if: 'NDR 800'.")
    ] = None,
    json: Annotated[
        str | None, typer.Option(help="Write the comparison as JSON; - is stdout and nothing else.")
    ] = None,
    csv: Annotated[
        Path | None, typer.Option(help="Write the terms; of spans, the comparison with a row per op and rank.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write tables, waterfall and timelines as one HTML file.")] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Of a run and its prediction: both timelines as one trace for Perfetto.")
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="Of a run and its prediction: add their times to a ledger of runs (CSV).")
    ] = None,
) -> None:
    """Compare two results: inputs that differ, and what they do to each term of the time."""
    from ..answers.outputs import Outputs, json_text

    outputs = Outputs(json=json, csv=csv, html=html, trace=trace)
    outputs.check()
    pair = _pair(a, b, changes or [], set_a or [], set_b or [], what_if or [])
    sources = [given.source for given in pair]
    of_spans = "spans" in sources and set(sources) <= {"spans", "scenario"}
    if (trace or ledger) and not of_spans:
        raise UserError(f"--{'trace' if trace else 'ledger'}: takes what `runcast execute` wrote and its scenario")
    found, lines = _compare_spans(*pair, html, trace, ledger) if of_spans else _compare_terms(*pair, html)
    text = json_text(found.to_json())
    outputs.write(text, found.to_csv().encode())
    outputs.tell(text, lines)


def _pair(
    a: Path, b: Path | None, changes: list[str], set_a: list[str], set_b: list[str], what_ifs: list[str]
) -> "tuple[Operand, Operand]":
    """The two sides of a comparison, with their changes."""
    from ..answers.compare import Operand

    if b is not None:
        if what_ifs:
            raise UserError("--what-if compares A with itself changed: leave B out, or write the change as --set-b")
        both = [Operand(path) for path in (a, b)]
        common = [changes if given.source == "scenario" else [] for given in both]
        if changes and not any(common):
            raise UserError(f"--set changes a scenario, but {b} is {both[1].what}")
        sides = Operand(a, (*common[0], *set_a)), Operand(b, (*common[1], *set_b))
    else:
        if not (changes or set_b or what_ifs):
            raise UserError("nothing to compare with: name B, or say with --set or --what-if what changes")
        sides = Operand(a, tuple(set_a)), Operand(a, (*set_a, *changes, *set_b), tuple(what_ifs))
    alone = "--set" if changes or set_b else "--what-if"
    for given, flag in zip(sides, ("--set-a", "--set-b" if b is not None else alone), strict=True):
        given.check(flag)
    return sides


def _compare_terms(a: "Operand", b: "Operand", html: Path | None) -> "tuple[Comparison, Iterator[str]]":
    from ..answers import compare
    from ..answers.compare.text import lines, write_page
    from ..base.memo import Memo

    memo = Memo()
    found = compare.compare(compare.open_side(a, memo), compare.open_side(b, memo))
    if html is not None:
        write_page(found, html)
    return found, lines(found)


def _compare_spans(
    a: "Operand", b: "Operand", html: Path | None, trace: Path | None, ledger: Path | None
) -> "tuple[Joined, Iterator[str]]":
    """Op by op, as both are of the same Program; a scenario is the second."""
    from ..answers.compare.spans import join, lines

    measured, other = (b, a) if a.source == "scenario" else (a, b)
    found = join(measured.path, other.path, other.changes)
    if html is not None:
        from ..answers.compare.overlay import write_page

        write_page(found, html)
    if trace is not None:
        from ..answers.compare.trace import write_trace

        write_trace(found, trace)
    if ledger is not None:
        from ..answers.compare.ledger import append

        append(ledger, found, measured.path)
    return found, lines(found)
