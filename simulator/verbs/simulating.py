"""`runcast simulate`: predict a scenario."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ..predict import AnyPrediction


def simulate(
    scenario: Annotated[Path, typer.Argument(help="Scenario file (TOML).")],
    changes: Annotated[list[str] | None, typer.Option("--set", help="Change a key: update.bucket='2 GiB'.")] = None,
    json: Annotated[str | None, typer.Option(help="Write the report as JSON; - is stdout and nothing else.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write the timeline as CSV.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Write a Chrome/Perfetto trace (.json or .json.gz).")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the timeline figure and report as one HTML file.")] = None,
    png: Annotated[Path | None, typer.Option(help="Write the timeline figure as PNG (needs Chromium).")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for report, CSV, trace and HTML.")] = None,
    draws: Annotated[int | None, typer.Option(help="Simulate so often with errors drawn: a second interval.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the draws (default: 0).")] = None,
) -> None:
    """Predict a scenario and print a summary."""
    from ..answers.simulate.outputs import Outputs, json_text, write_outputs
    from ..base.errors import UserError
    from ..predict import simulate as predict

    if seed is not None and draws is None:
        raise UserError("--seed: is of draws; expected --draws too")
    own = Outputs(json=json, csv=csv, trace=trace, html=html, png=png)
    own.check()
    prediction = predict(scenario, changes or ())
    lines, content = _drawn(prediction, draws, seed or 0) if draws is not None else ([], {})
    wanted = [own] if out is None else [own, Outputs.in_folder(out)]
    for outputs in wanted:
        outputs.check()
    text = json_text(prediction.report.to_json() | content)
    for outputs in wanted:
        write_outputs(prediction, outputs, text)
    if own.json_alone:
        typer.echo(text)
    else:
        _print_summary(prediction)
    for line in lines:
        typer.echo(line, err=own.json_alone)
    for path in (path for outputs in wanted for path in outputs.files):
        typer.echo(f"wrote {path}", err=own.json_alone)


def _print_summary(prediction: "AnyPrediction") -> None:
    from ..answers.simulate.summary import print_summary

    print_summary(prediction.report)


def _drawn(prediction: "AnyPrediction", draws: int, seed: int) -> tuple[list[str], dict[str, Any]]:
    """Both intervals in words, and that of the draws as plain values."""
    from ..base.errors import UserError
    from ..uncertainty import Interval, monte_carlo
    from ..uncertainty.text import beside

    if prediction.errors is None:
        raise UserError("--draws: a cycle has no interval; simulate its update by itself")
    report, found = prediction.report, monte_carlo(prediction, draws, seed)
    low_s, high_s, median_s = found.interval.low_s, found.interval.high_s, found.quantile_s(0.5)
    content = {"count": draws, "seed": seed, "low_s": low_s, "median_s": median_s, "high_s": high_s}
    return list(beside(Interval(report.interval_low_s, report.interval_high_s), found)), {"draws": content}
