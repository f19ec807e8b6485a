"""Figures of a Timeline: what is drawn adds up to what ran."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from runcast.simulator.costs import kind_costs
from runcast.simulator.engine import simulate
from runcast.simulator.figures import gantt
from runcast.simulator.figures.spans import hover, thin_bars
from runcast.simulator.predict import simulate as predict
from runcast.simulator.program import ProgramBuilder
from runcast.simulator.systems.weight_update.lower import BucketSize, make_plan, two_stage
from runcast.simulator.timeline import Timeline, chart

SECONDS = {"gather_metas": 2, "h2d": 4, "copy": 0.5, "broadcast": 0.5, "reload": 1, "sync": 0.01}


def update(ranks: int = 4, rounds: int = 2, folded: bool = True) -> Timeline:
    classes = [range(ranks)] if folded else None
    sizes = np.full(ranks * rounds, 2**30)
    program = two_stage(make_plan(sizes, ranks, BucketSize(2**30, 3), classes=classes))
    return simulate(program, kind_costs(program, SECONDS))


def subtitle(figure) -> str:
    return figure.layout.title.subtitle.text


def drawn_s(figure) -> dict[str, float]:
    return {trace.name: float(np.sum(trace.x)) for trace in figure.data if trace.type == "bar"}


def test_one_trace_per_label_and_their_seconds() -> None:
    seconds = drawn_s(gantt(update(ranks=2), title="two"))
    assert {label: round(value, 6) for label, value in seconds.items()} == {
        "H2D": 16,
        "copy": 2,
        "broadcast (source)": 2,
        "broadcast (destination)": 2,
        "reload": 8,
        "set-up, sync, clean-up": 4.08,
    }


def test_rows_are_buffers_from_top_to_bottom() -> None:
    figure = gantt(update(ranks=2))
    assert list(figure.layout.yaxis.ticktext) == ["H2D buffer", "IPC half 0", "IPC half 1", "other steps"] * 2
    assert figure.layout.yaxis.range[0] > figure.layout.yaxis.range[1]
    assert [note.text for note in figure.layout.annotations] == ["<b>device 0</b>", "<b>device 1</b>"]


@pytest.mark.parametrize(
    ("timeline", "ranks", "expected"),
    [
        (update(4), None, "19.1 s in all; 4 devices"),
        (update(16), None, "43.3 s in all; 1 of 16 devices shown, all alike"),
        (update(4, folded=False), [1], "19.1 s in all; 1 of 4 devices shown"),
    ],
)
def test_the_subtitle_says_what_is_shown(timeline: Timeline, ranks: list[int] | None, expected: str) -> None:
    assert subtitle(gantt(timeline, ranks)) == expected


def test_devices_that_do_the_same_at_one_time_are_shown_once() -> None:
    timeline = predict("data/scenarios/what-if-bucket-from-trainers.toml").timeline

    figure = gantt(timeline)

    assert "; 3 of 32 devices shown, alike ones once; " in subtitle(figure)
    assert [note.text for note in figure.layout.annotations] == [f"<b>device {rank}</b>" for rank in (0, 1, 16)]


def test_hover_says_what_moved_how_fast() -> None:
    (h2d, *_) = gantt(update(), [1]).data
    assert h2d.hovertext[0] == "<b>h2d b1 on r1</b><br>h2d, rank 1, lane h2d<br>from 2 s for 4 s<br>1 GiB at 268 MB/s"


def test_quotes_in_a_hover_are_shown_as_they_are() -> None:
    bar = {"name": 'say "a" & <b>', "kind": "it's", "rank": 0, "lane": "l", "start_s": 0.0, "end_s": 1.0}
    bars = pd.DataFrame([{**bar, "queued_s": 0.0, "bytes": 0.0, "count": 1}])

    assert hover(bars) == ['<b>say "a" &amp; &lt;b&gt;</b><br>it\'s, rank 0, lane l<br>from 0 s for 1 s']


def test_thinned_bars_keep_the_seconds_and_the_ops() -> None:
    spans = chart(update(16, 8))
    bars, shared_s = thin_bars(spans, most=500)
    assert len(bars) < len(spans) / 2
    assert shared_s > 0
    assert bars["count"].sum() == (spans.end_s > spans.start_s).sum()
    assert np.isclose((bars.end_s - bars.start_s).sum(), (spans.end_s - spans.start_s).sum())


def test_bars_drawn_together_do_not_hide_each_other() -> None:
    bars, _ = thin_bars(chart(update(8, 4), [0]), most=50)
    together = bars[bars["count"] > 1].sort_values(["row", "start_s"])
    for _, row in together[together.row != "other steps"].groupby(["row", "bin"]):
        assert (row.start_s.to_numpy()[1:] >= row.end_s.to_numpy()[:-1] - 1e-9).all()


def test_a_large_update_is_drawn_with_a_few_thousand_bars() -> None:
    figure = gantt(update(64, 8), list(range(16)))
    assert sum(len(trace.x) for trace in figure.data if trace.type == "bar") <= 15_000
    assert "are drawn together" in subtitle(figure)


def test_a_window_is_told_apart_further() -> None:
    spans = chart(update(16, 8))
    whole, _ = thin_bars(spans, most=500)
    near, shared_s = thin_bars(spans, most=500, window=(20.0, 22.0))
    seen = spans[(spans.end_s > 20) & (spans.start_s < 22) & (spans.end_s > spans.start_s)]
    assert shared_s == 0
    assert set(near[near["count"] == 1].op) >= set(seen.op)
    assert near["count"].sum() == whole["count"].sum()


def test_a_crowded_window_is_thinned_by_its_own_pixels() -> None:
    spans = chart(update(16, 8))
    _, of_all_s = thin_bars(spans, most=20)
    _, of_window_s = thin_bars(spans, most=20, window=(10.0, 20.0))
    assert of_window_s == pytest.approx(of_all_s * 10 / spans.end_s.max())


@pytest.mark.slow
def test_a_window_is_what_is_seen_and_all_is_drawn() -> None:
    timeline = update(64, 8)
    whole, near = (gantt(timeline, list(range(16)), window_s=window) for window in (None, (20.0, 30.0)))
    assert (list(near.layout.xaxis.range), near.layout.yaxis.ticktext) == ([20, 30], whole.layout.yaxis.ticktext)
    assert sum(drawn_s(near).values()) == pytest.approx(sum(drawn_s(whole).values()))


def test_rows_of_other_programs_are_lanes() -> None:
    builder = ProgramBuilder()
    place = builder.place("r0", [0])
    forward = builder.op("forward", [builder.lane(place, "compute")])
    builder.op("fetch", [builder.lane(place, "h2d")], [forward])
    program = builder.build()
    figure = gantt(simulate(program, kind_costs(program, {"forward": 2, "fetch": 3})))
    assert list(figure.layout.yaxis.ticktext) == ["compute", "h2d"]
    assert drawn_s(figure) == {"forward": 2, "fetch": 3}


def test_an_empty_program_is_an_empty_figure() -> None:
    program = ProgramBuilder().build()
    assert len(gantt(simulate(program, kind_costs(program, {}))).data) == 0


def test_importing_figures_loads_neither_plotly_nor_pandas() -> None:
    code = "import sys, runcast.simulator.figures; print({'plotly', 'pandas', 'kaleido', 'jinja2'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
