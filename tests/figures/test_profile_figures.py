"""Figures about a Profile: what is drawn where, and what is told apart."""

import pandas as pd
import pytest
from runcast.simulator.figures import Marked, Section, page
from runcast.simulator.figures.profile import (
    IN_SAMPLE,
    Axis,
    draw_rows,
    predicted_lines,
    residual_bands,
    scored_samples,
    ticks_of,
)
from runcast.simulator.report.report import Table


@pytest.fixture
def bands() -> pd.DataFrame:
    names = ["model", "band", "rows", "median", "p90", "bias", "reach"]
    rows = [("a", "small", 1200, 0.1, 0.3, -0.1, 0.4), ("a", "large", 5, 0.0, 0.1, 0.0, 0.2)]
    return pd.DataFrame([*rows, ("b", "all", 7, 0.2, 0.4, 0.1, 0.5)], columns=names)


@pytest.fixture
def line() -> pd.DataFrame:
    outside = [True, True, False, False, False, True]
    x = [1.0, 10.0, 100.0, 1e3, 1e4, 1e5]
    numbers = {"x": x, "y": x, "low": [v / 2 for v in x], "high": [v * 2 for v in x]}
    return pd.DataFrame({"panel": "p", "line": "8 GPUs", **numbers, "outside": outside})


@pytest.fixture
def scored() -> pd.DataFrame:
    numbers = {"measured_s": [1e-5, 1e-4, 1e-3], "predicted_s": [1e-5, 2e-4, 1e-3], "size": [1024.0, 2048.0, 4096.0]}
    seen = [IN_SAMPLE, IN_SAMPLE, "not fitted to"]
    return pd.DataFrame({"library": "nccl", "seen": seen, "text": ["one", "two", "three"], **numbers})


def test_bands_stand_below_the_name_of_their_model(bands: pd.DataFrame) -> None:
    axis = residual_bands(bands, "t").layout.yaxis
    shown = dict(zip(axis.tickvals, axis.ticktext, strict=True))
    assert shown == {0: "<b>a</b>", 1: "small (1,200)", 2: "large (5)", 3: "<b>b</b>", 4: "all (7)"}


def test_names_are_text_even_if_they_look_like_markup(bands: pd.DataFrame) -> None:
    axis = residual_bands(bands.assign(model="<i>lib"), "t").layout.yaxis
    assert axis.ticktext[0] == "<b>&lt;i&gt;lib</b>"


def test_errors_are_drawn_at_their_bands(bands: pd.DataFrame) -> None:
    traces = residual_bands(bands, "t").data
    drawn = {trace.name: list(zip(trace.y, trace.x, strict=True)) for trace in traces}
    assert drawn == {
        "p90 of |error|": [(1, 0.3), (2, 0.1), (4, 0.4)],
        "median of |error|": [(1, 0.1), (2, 0.0), (4, 0.2)],
        "bias (median error)": [(1, -0.1), (2, 0.0), (4, 0.1)],
        "stated 90 % interval": [(1, 0.4), (2, 0.2), (4, 0.5)],
    }


def test_a_line_is_dashed_beyond_what_was_measured(line: pd.DataFrame) -> None:
    traces = predicted_lines(line, "t", "", Axis("x"), Axis("y", "B/s")).data
    _, inside, beyond = traces[:3]
    points = [
        (trace.line.dash, [y for x, y in zip(trace.x, trace.y, strict=True) if y == x]) for trace in (inside, beyond)
    ]
    assert points == [(None, [100.0, 1e3, 1e4]), ("5px,4px", [1.0, 10.0, 100.0, 1e4, 1e5])]


def test_the_band_runs_along_the_upper_edge_and_back_along_the_lower(line: pd.DataFrame) -> None:
    band = predicted_lines(line[:2], "t", "", Axis("x"), Axis("y")).data[0]
    edge = list(zip(band.x, band.y, strict=True))
    assert edge == [(1.0, 2.0), (10.0, 20.0), (10.0, 5.0), (1.0, 0.5)]


@pytest.mark.parametrize(("beyond", "legend"), [(True, ["8 GPUs", "extrapolated"]), (False, ["8 GPUs"])])
def test_the_legend_names_each_line_once(line: pd.DataFrame, beyond: bool, legend: list[str]) -> None:
    rows = line if beyond else line[2:5]
    figure = predicted_lines(pd.concat([rows, rows.assign(panel="q")]), "t", "", Axis("x"), Axis("y"))
    assert [trace.name for trace in figure.data if trace.showlegend is not False] == legend


def test_the_name_of_a_panel_begins_at_its_corner(line: pd.DataFrame) -> None:
    figure = predicted_lines(pd.concat([line.assign(panel=name) for name in "abc"]), "t", "", Axis("x"), Axis("y"))
    x, y = ([figure.layout[f"{axis}{i}"].domain for i in ("", 2, 3)] for axis in ("xaxis", "yaxis"))
    corners = [(left, top) for (left, _), (_, top) in zip(x, y, strict=True)]
    assert [(one.x, one.y, one.xanchor) for one in figure.layout.annotations] == [(*at, "left") for at in corners]


def test_a_single_measured_point_is_seen(line: pd.DataFrame) -> None:
    alone = line.assign(outside=[True, True, False, True, True, True])
    inside = predicted_lines(alone, "t", "", Axis("x"), Axis("y")).data[1]
    assert inside.mode == "lines+markers"


@pytest.mark.parametrize(
    ("axis", "values", "text"),
    [
        (Axis("bytes", binary=True), [512.0, 2.0**30], ["1 KiB", "32 KiB", "1 MiB", "32 MiB", "1 GiB"]),
        (Axis("bytes", binary=True), [2.0**20, 2.0**22], ["1 MiB", "2 MiB", "4 MiB"]),
        (Axis("rate", "B/s"), [2e6, 3e9], ["1 MB/s", "10 MB/s", "100 MB/s", "1 GB/s", "10 GB/s"]),
        (Axis("rate", "B/s"), [3e9, 6e9], ["1 GB/s", "2 GB/s", "5 GB/s", "10 GB/s", "20 GB/s", "50 GB/s"]),
        (Axis("time", "s"), [1e-9, 1.0], ["0.1 ns", "10 ns", "1 µs", "100 µs", "10 ms", "1 s"]),
        (Axis("tokens"), [100.0, 1e4], ["100", "1,000", "10,000"]),
    ],
)  # fmt: skip
def test_ticks_are_round_and_in_readable_units(axis: Axis, values: list[float], text: list[str]) -> None:
    ticks = ticks_of(axis, pd.Series(values))
    assert ticks["ticktext"] == text


def test_samples_are_filled_where_the_fit_has_seen_them(scored: pd.DataFrame) -> None:
    traces = scored_samples(scored, "t", "", Axis("bytes", binary=True)).data
    markers = [(t.name, t.marker.symbol, len(t.x)) for t in traces if t.mode == "markers" and t.showlegend is None]
    assert markers == [("nccl, in-sample", "circle", 2), ("nccl, not fitted to", "circle-open", 1)]


def test_the_error_of_a_sample_stands_at_its_size(scored: pd.DataFrame) -> None:
    traces = scored_samples(scored, "t", "", Axis("bytes", binary=True)).data
    right = [t for t in traces if t.mode == "markers" and t.showlegend is False]
    drawn = {x: y for t in right for x, y in zip(t.x, t.y, strict=True)}
    assert drawn == {1024.0: 0.0, 2048.0: 1.0, 4096.0: 0.0}


def test_many_points_are_thinned_the_same_way_each_time() -> None:
    many = pd.DataFrame({"x": range(10_000)})
    once, again = draw_rows(many, 100), draw_rows(many, 100)
    assert (len(once), list(once["x"])) == (100, sorted(again["x"]))


def test_a_marked_cell_marks_its_row() -> None:
    table = Table("c", ["name", "%"], [("good", 1.25), (Marked("<weak>"), -0.0), ("none", "–")])
    text = page("t", [Section("One", tables=[table])])
    rows = text.split("<tbody>")[1].split("</tbody>")[0].splitlines()
    assert rows == [
        '<tr><td>good</td><td class="number">1.2</td></tr>',
        '<tr class="marked"><td><strong>&lt;weak&gt;</strong></td><td class="number">0.0</td></tr>',
        '<tr><td>none</td><td class="number">–</td></tr>',
    ]


def test_figures_of_all_sections_have_their_own_places(bands: pd.DataFrame) -> None:
    one, two = (Section(name, figures={name: residual_bands(bands, name)}) for name in "ab")
    text = page("t", [one, two])
    assert [text.count(f'id="figure-{i}"') for i in range(3)] == [1, 1, 0]
