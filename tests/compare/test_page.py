"""The figures and the page of a comparison."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator.answers.compare import Operand, compare, open_side
from runcast.simulator.answers.compare.text import sections
from runcast.simulator.figures import compare_steps, difference
from runcast.simulator.figures.breakdown import OTHERS, moves_of, reach
from runcast.simulator.timeline import spans_of_ranks

from .sides import STEP, left_with

MOVED = st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(-100, 100)), max_size=6, unique_by=lambda one: one[0])


@given(MOVED)
def test_each_bar_starts_where_the_last_one_ends(moved):
    a_s = 1000.0
    first, *steps, last = moves_of(moved, a_s, a_s + sum(value for _, value in moved))

    ends = [(one.end_s, other.start_s) for one, other in pairwise([first, *steps])]
    assert [end for end, start in ends if end != start] == []
    assert [first, *steps][-1].end_s == last.end_s


@given(MOVED)
def test_the_axis_holds_every_bar(moved):
    bars = moves_of(moved, 1000.0, 1000.0 + sum(value for _, value in moved))
    low, high = reach(bars)

    assert [bar for bar in bars if not low <= bar.end_s <= high] == []


def test_terms_that_hardly_move_share_a_bar():
    bars = moves_of([("tp", -50.0), ("gemm", 0.2), ("dp", 0.1), ("host", 0.0)], 100.0, 50.3)

    assert [(bar.name, bar.moved_s) for bar in bars] == [
        ("A", None), ("tp", -50.0), (OTHERS, pytest.approx(0.3)), ("B", None),
    ]  # fmt: skip


@pytest.mark.parametrize(("b_s", "cropped"), [(99.0, True), (40.0, False)])
def test_a_cropped_axis_is_told(b_s, cropped):
    figure = difference([("tp", b_s - 100.0)], 100.0, b_s)

    assert ("the axis begins at" in figure.layout.title.subtitle.text, figure.layout.xaxis.range[0] > 0) == (
        cropped, cropped,
    )  # fmt: skip


@pytest.fixture(scope="module")
def step(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "step.toml"
    path.write_text(STEP)
    return path


def test_both_timelines_share_an_axis(step):
    found = compare(open_side(Operand(step)), open_side(Operand(step, ("batch.global=16",))))
    figures = sections(found)[-1].figures

    ranges = {tuple(figure.layout.xaxis.range) for figure in figures.values()}
    assert (list(figures), ranges) == (["Timeline of A", "Timeline of B"], {(0, found.b.total_s)})


def test_bars_of_two_steps_are_their_busy_seconds(step):
    timeline = open_side(Operand(step)).drawn.timeline
    figure = compare_steps({"A": (timeline, [0]), "B": (timeline, [0])})
    gemm = next(trace for trace in figure.data if trace.name == "gemm")

    spans = spans_of_ranks(timeline, [0])
    products = spans[spans.kind.isin(["gemm", "dgrad", "wgrad"]) & (spans.lane == "compute")]
    assert sum(gemm.x) == pytest.approx(2 * (products.end_s - products.start_s).sum())


def test_the_page_needs_no_network(step, tmp_path, capsys):
    code = left_with("compare", step, "--what-if", "NDR 800", "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()

    assert (code, "src=" in page.split("</style>")[1].split("<script>")[0], page.count("<h2>")) == (0, False, 5)
    assert capsys.readouterr().out.splitlines()[-1] == f"wrote {tmp_path / 'page.html'}"
