"""`runcast simulate` predicts a scenario; `runcast explain` says why it is so, and what would change it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .names import complete

if TYPE_CHECKING:
    from ..predict import AnyPrediction


def simulate(
    scenario: Annotated[
        Path, typer.Argument(help="Scenario: a file, or a shipped name.", autocompletion=complete("scenarios"))
    ],
    changes: Annotated[list[str] | None, typer.Option("--set", help="Change a key: update.bucket='2 GiB'.")] = None,
    json: Annotated[str | None, typer.Option(help="Write the report as JSON; - is stdout and nothing else.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write the timeline as CSV.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Write a Chrome/Perfetto trace (.json or .json.gz).")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the timeline figure and report as one HTML file.")] = None,
    png: Annotated[Path | None, typer.Option(help="Write the timeline figure as PNG (needs Chromium).")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for report, CSV, trace and HTML.")] = None,
    draws: Annotated[int | None, typer.Option(help="Simulations with drawn errors, for a second interval.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the draws (default: 0).")] = None,
    require_fit: Annotated[
        bool, typer.Option("--require-fit", help="Exit with 1 where a device needs more memory than it has.")
    ] = False,
) -> None:
    """Predict a scenario and print a summary."""
    from ..answers.outputs import Outputs, json_text, write_outputs
    from ..base.errors import UserError
    from ..predict import simulate as predict

    if seed is not None and draws is None:
        raise UserError("--seed: is of draws; expected --draws too")
    own = Outputs(json=json, csv=csv, trace=trace, html=html, png=png)
    own.check()
    prediction = predict(scenario, changes or ())
    if require_fit and prediction.fits is None:
        raise UserError(f"--require-fit: no memory is predicted of {prediction.report.question}")
    drawn, content = _draw(prediction, draws, seed or 0) if draws is not None else ([], {})
    folder = Outputs() if out is None else Outputs.in_folder(out)
    for outputs in (own, folder):
        outputs.check()
    text = json_text(prediction.to_json() | content)
    for outputs in (own, folder):
        write_outputs(prediction, outputs, text)
    own.tell(text, prediction.lines(), drawn, folder.files)
    if require_fit and not prediction.fits:
        raise typer.Exit(1)


def _draw(prediction: "AnyPrediction", draws: int, seed: int) -> tuple[list[str], dict[str, Any]]:
    """(both intervals in words, the interval of the draws as plain values)."""
    from ..base.errors import UserError
    from ..base.units import format_seconds
    from ..systems.registry import SYSTEMS
    from ..uncertainty import draw

    if prediction.errors is None or prediction.costs is None:
        title = SYSTEMS[prediction.report.kind].title
        raise UserError(f"--draws: {title} has no ops to draw; draw an update or a step of it by itself")
    program, report = prediction.timeline.program, prediction.report
    found = draw(program, prediction.costs, prediction.errors, draws, seed, prediction.answer_s)
    low_s, high_s, median_s = found.interval.low_s, found.interval.high_s, found.quantile_s(0.5)
    seconds = (report.interval_low_s, report.interval_high_s, low_s, high_s, median_s)
    first_low, first_high, low, high, median = map(format_seconds, seconds)
    lines = [
        f"90 % interval to first order: {first_low} to {first_high}",
        f"90 % interval of {draws:,} draws: {low} to {high}, median {median}",
    ]
    content = {"count": draws, "seed": seed, "low_s": low_s, "median_s": median_s, "high_s": high_s}
    return lines, {"draws": content}


def explain(
    scenario: Annotated[
        Path,
        typer.Argument(
            help="Scenario of any kind but collective: a file, or a shipped name.",
            autocompletion=complete("scenarios"),
        ),
    ],
    changes: Annotated[list[str] | None, typer.Option("--set", help="Change a key: parallel.tp=8.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Simulate nothing again: no what-ifs.")] = False,
    json: Annotated[str | None, typer.Option(help="Write it as JSON; - is stdout and nothing else.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a tornado chart, a waterfall and tables as HTML.")] = None,
) -> None:
    """Say what bounds a prediction, what each number is worth, and which changes help most."""
    from ..answers.explain import explain as explain_scenario
    from ..answers.outputs import Outputs, json_text
    from ..figures import write_html
    from .progress import show_progress

    outputs = Outputs(json=json, html=html)
    outputs.check()
    with show_progress("", lines=False) as show:
        found = explain_scenario(scenario, changes or (), quick=quick, progress=show)
    text = json_text(found.to_json())
    outputs.write(text)
    if html is not None:
        write_html(html, *found.page())
    outputs.tell(text, found.lines())
