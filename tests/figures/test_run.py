"""Figures of runs: what is drawn adds up to what happened, on an axis that goes from years to milliseconds."""

import pytest
from runcast.simulator import simulate
from runcast.simulator.answers.outputs import figures_of
from runcast.simulator.figures import Window, course, difference, look_at, staleness, waterfall
from runcast.simulator.figures.run import MARKS, dates, second_of
from runcast.simulator.figures.theme import CAUSE
from runcast.simulator.systems.run.chart import timeline
from runcast.simulator.systems.run.history import CAUSES, Happening, History, Span

DAY_S = 86_400.0
STEP = """
name = "three workers"
kind = "run"
cluster = "dgx-h100"
nodes = 1
step = { time = "1 s", gradient = "1 MB" }
run = { steps = 50, repeats = 1 }
sync = { workers = 8 }
"""


def a_run(days: int = 10, fine: int = 0, events: int = 1) -> History:
    """A day of work and an hour of restart in turn, with `fine` steps of a second beside the first of them."""
    spans = [Span("run", "compute", day * DAY_S, day * DAY_S + 82_800, f"{day}") for day in range(days)]
    spans += [Span("run", "restart", day * DAY_S + 82_800, (day + 1) * DAY_S) for day in range(days)]
    spans += [Span("step", "compute", i, i + 1.0, f"step {i}") for i in range(fine)]
    happened = [Happening(82_800.0 + i, "failures", f"GPU {i}") for i in range(events)]
    return History(days * DAY_S, 1, 1.0, {"compute": 1.0}, {0: 1}, tuple(happened), tuple(spans))


def drawn_s(figure) -> dict[str, float]:
    return {trace.name: sum(trace.x) / 1000 for trace in figure.data if trace.type == "bar"}


def test_bars_of_a_course_add_up_to_its_spans() -> None:
    figure = course(timeline(a_run()))

    assert drawn_s(figure) == pytest.approx({"compute": 10 * 82_800, "restart": 10 * 3600})


def test_rounds_of_a_lane_are_wide_enough_to_be_seen() -> None:
    ends = [(float(i), i + 0.9) for i in range(1000)]
    spans = [Span("client", "compute", start, end) for start, end in ends]
    spans += [Span("client", "exchange", end, start + 1.0) for start, end in ends]
    figure = course(timeline(History(1000.0, 1000, 1.0, {}, {}, (), tuple(spans))))

    assert sum(len(bar.x) for bar in figure.data) <= 250
    assert drawn_s(figure) == pytest.approx({"compute": 900.0, "exchange": 100.0})


def test_lanes_are_rows_below_the_events() -> None:
    figure = course(timeline(a_run(fine=3)))

    assert list(figure.layout.yaxis.ticktext) == ["events", "run", "step"]


def test_lanes_that_differ_by_numbers_are_in_their_order() -> None:
    names = ("run", "worker 10", "link 1", "worker 9", "link 0")
    run = History(1.0, 1, 1.0, {}, {}, (), tuple(Span(name, "compute", 0.0, 1.0) for name in names))

    assert list(course(timeline(run)).layout.yaxis.ticktext) == ["run", "worker 9", "worker 10", "link 0", "link 1"]


def test_thousands_of_steps_are_drawn_together_and_told_apart_where_one_looks() -> None:
    run = timeline(a_run(fine=9000))
    whole, near = course(run), course(run, window_s=(0.0, 300.0))

    assert "are drawn together" in whole.layout.title.subtitle.text
    assert "are drawn together" not in near.layout.title.subtitle.text
    assert drawn_s(whole) == pytest.approx(drawn_s(near))


def test_events_close_to_each_other_share_a_mark() -> None:
    (marks,) = (trace for trace in course(timeline(a_run(events=50))).data if trace.type == "scatter")

    assert 10 * DAY_S / MARKS > 50
    assert list(marks.hovertext) == ["<b>failures: GPU 0</b><br>at 23 h<br>and 49 close to it"]


def test_buttons_show_the_beginning_closer_and_closer() -> None:
    (menu,) = course(timeline(a_run(fine=20))).layout.updatemenus

    assert [one.label for one in menu.buttons] == ["all", "a day", "an hour", "a minute", "first event"]


def test_a_course_that_is_recorded_in_part_says_so() -> None:
    run = a_run(days=100)
    first = History(run.wall_s, 1, 1.0, {}, {}, (Happening(99 * DAY_S, "stops"),), run.spans[:10])

    assert "lanes are recorded for the first 9.96 days" in course(timeline(first)).layout.title.subtitle.text


@pytest.mark.parametrize("at_s", [0.0, 0.001, 82_800.5, 100 * DAY_S])
def test_a_date_of_the_axis_is_its_second(at_s) -> None:
    assert second_of(dates((at_s, at_s))[0]) == pytest.approx(at_s)


def test_a_run_begins_on_day_one_of_year_one() -> None:
    figure = course(timeline(a_run(days=400)))

    assert figure.layout.xaxis.range == ("2001-01-01 00:00:00", "2002-02-05 00:00:00")
    assert {stop.value.partition("\n")[2] or stop.value for stop in figure.layout.xaxis.tickformatstops} == {
        "day %-j, year %-y"
    }


def test_a_course_longer_than_all_years_is_cut() -> None:
    assert dates((0.0, 1e15))[1].startswith("9999")


def test_looking_at_a_part_of_a_course_takes_seconds() -> None:
    figure = course(timeline(a_run()))
    look_at(figure, Window(0.0, 120.0), Window(0.0, 60.0))

    assert figure.layout.xaxis.range == ("2001-01-01 00:00:00", "2001-01-01 00:01:00")
    assert figure.layout.xaxis.maxallowed == "2001-01-01 00:02:00"


def test_names_in_a_course_are_text() -> None:
    run = History(1.0, 1, 1.0, {}, {}, (), (Span("<b>", "compute", 0.0, 1.0, "<i>"),))
    figure = course(timeline(run))

    assert (figure.layout.yaxis.ticktext[0], "<i>" in figure.data[0].hovertext[0]) == ("&lt;b&gt;", False)


def test_a_run_without_spans_is_an_empty_course() -> None:
    assert len(course(timeline(History(1.0, 0, 0.0, {}, {}))).data) == 0


def test_every_cause_has_a_colour_of_its_own() -> None:
    assert (set(CAUSE), len(set(CAUSE.values()))) == (set(CAUSES), len(CAUSES))


@pytest.mark.parametrize(("scale", "unit", "ends"), [(1.0, "s", (0.0, 75.0)), (DAY_S, " d", (0.0, 75.0))])
def test_weeks_are_drawn_in_days(scale, unit, ends) -> None:
    figure = waterfall({"compute": 50 * scale, "lost": 25 * scale}, "run")

    assert figure.layout.xaxis.ticksuffix == unit
    assert (figure.data[0].base[-1], figure.data[0].x[-1]) == pytest.approx(ends)


def test_a_difference_of_weeks_is_drawn_in_days() -> None:
    figure = difference([("lost", 2 * DAY_S)], 10 * DAY_S, 12 * DAY_S)
    texts = {trace.name: trace.text for trace in figure.data if trace.name}

    assert texts == {"total": ("10 days", "12 days"), "longer": ("+2 days",), "shorter": ()}


def test_bars_of_staleness_are_shares_of_gradients() -> None:
    figure = staleness({0: 10, 2: 30})

    assert (list(figure.data[0].x), list(figure.data[0].y)) == ([0, 2], [25.0, 75.0])
    assert figure.layout.title.subtitle.text == "40 gradients, 1.50 updates behind on average, at most 2"


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    file = tmp_path_factory.mktemp("run") / "run.toml"
    file.write_text(STEP)
    return simulate(file)


def test_figures_of_a_run_are_its_course_and_its_causes(done) -> None:
    assert list(figures_of(done)) == ["Timeline of the run", "Where the time goes"]
