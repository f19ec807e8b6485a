"""One scenario, one set of numbers: JSON, CSV, the text of the terminal, the HTML page and the dashboard agree."""

import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import pytest
from hypothesis import given
from runcast.dashboard.answers import Answers, Library
from runcast.dashboard.pages import training, update
from runcast.dashboard.question import Question
from runcast.simulator import cli
from runcast.simulator.base.op_kinds import op_kind
from runcast.simulator.base.units import format_bytes, format_energy, format_rate, format_seconds, format_usd
from runcast.simulator.scenario import to_toml
from runcast.simulator.systems.weight_update.report import PHASES

from .plans import steps, updates
from .predict import law


class Outputs:
    """What `runcast simulate --out` writes and prints, and the cards of the dashboard's page."""

    def __init__(self, table, cards):
        with TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "law.toml").write_text(to_toml(table))
            printed = io.StringIO()
            with redirect_stdout(printed), pytest.raises(SystemExit) as left:
                cli.main(["simulate", str(folder / "law.toml"), "--out", str(folder / "out")])
            assert left.value.code in (0, None)
            self.text = printed.getvalue()
            self.json = json.loads((folder / "out/report.json").read_text())
            seconds = {"start_s": float, "end_s": float}  # Python reads back what was written, to the bit
            self.spans = pd.read_csv(folder / "out/timeline.csv", dtype=str).astype(seconds)
            self.html = (folder / "out/index.html").read_text()
            shown = cards(Answers(Library(folder)).predict(Question("law")))
            self.cards = {card.name: card.value for card in shown}

    def after(self, name):
        """What the text says behind the name of a number."""
        return next(line for line in self.text.splitlines() if line.startswith(f"  {name}  "))[len(name) + 2 :].strip()


def interval(report):
    low, high = (format_seconds(report[key]) for key in ("interval_low_s", "interval_high_s"))
    return f"(90 % interval {low} to {high})"


def energy(report):
    return format_energy(report["energy_j"])


def cost(report):
    return "unknown" if report["cost_usd"] is None else format_usd(report["cost_usd"])


def union_s(spans):
    """Seconds in which any of some spans runs."""
    busy, reached = 0.0, 0.0
    for start, end in sorted(zip(spans.start_s, spans.end_s, strict=True)):
        busy += max(end - max(start, reached), 0.0)
        reached = max(reached, end)
    return busy


def check_step(table):
    out = Outputs(table, training.cards)
    report, step = out.json, format_seconds(out.json["step_time_s"])
    tokens, memory = f"{report['tokens_per_s']:,.0f}", format_bytes(report["peak_memory_bytes"])

    assert out.spans.end_s.max() == report["step_time_s"] == report["makespan_s"]
    assert report["tokens_per_s"] == report["tokens"] / out.spans.end_s.max()
    assert sum(report["split_s"].values()) == pytest.approx(report["step_time_s"])
    assert sum(report["exposed"].values()) == pytest.approx(report["step_time_s"])
    assert out.after("step time") == f"{step}   {interval(report)}"
    assert out.after("throughput").startswith(f"{tokens} tokens/s")
    assert out.after("MFU").startswith(f"{report['mfu']:.1%} ")
    assert memory in out.after("memory")
    assert report["peak_memory_low_bytes"] < report["peak_memory_bytes"] < report["peak_memory_high_bytes"]
    assert report["fits"] == ("DOES NOT FIT" not in out.text)
    assert f"{step} {interval(report)}" in out.html
    assert f"{report['mfu']:.1%} of the dense" in out.html
    assert out.cards == {
        "Step time": step,
        "Throughput": tokens,
        "MFU": f"{report['mfu']:.1%}",
        "Bubble": f"{report['bubble_fraction']:.1%}",
        "Memory": memory,
        "Bound by": report["bound_by"],
        "Cost": cost(report),
        "Energy": energy(report),
    }


def check_update(table):
    out = Outputs(table, update.cards)
    report, seconds, pause = out.json, format_seconds(out.json["update_time_s"]), format_seconds(out.json["pause_s"])
    opening = "gather_metas" if table["update"]["method"] in ("broadcast", "p2p") else "pause"
    began = out.spans[out.spans.kind == opening].end_s.max()
    step = out.spans.kind.map(lambda kind: op_kind(kind).step)
    busy = {phase: union_s(out.spans[step == phase]) for phase in PHASES}

    assert out.spans.end_s.max() == report["makespan_s"]
    assert report["update_time_s"] == out.spans.end_s.max() - began
    assert busy == {phase: pytest.approx(report[f"{phase}_s"], abs=1e-12) for phase in PHASES}
    assert sum(report["exposed"].values()) == pytest.approx(report["makespan_s"])
    assert out.after("update time") == f"{seconds}   {interval(report)}"
    assert out.after("pause").startswith(f"{pause} ")
    assert out.after("throughput").startswith(format_rate(report["effective_bytes_per_s"]))
    assert f"{seconds} {interval(report)}" in out.html
    assert pause in out.html
    assert out.cards == {
        "Update time": seconds,
        "Rate": format_rate(report["bytes"] / report["update_time_s"]),
        "Pause": pause,
        "Buckets": f"{report['buckets']:,}",
        "Memory": format_bytes(report["peak_memory_bytes"]),
        "Bound by": report["bound_by"],
        "Cost": cost(report),
        "Energy": energy(report),
    }


@law(2)
@given(table=steps())
def test_numbers_of_a_step_agree(table):
    check_step(table)


@law(3)
@given(table=updates())
def test_numbers_of_an_update_agree(table):
    check_update(table)


@pytest.mark.slow
@law(15)
@given(table=steps())
def test_numbers_of_many_steps_agree(table):
    check_step(table)


@pytest.mark.slow
@law(15)
@given(table=updates())
def test_numbers_of_many_updates_agree(table):
    check_update(table)
