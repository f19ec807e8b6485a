"""Ops of a timeline are found by their names, one after the other."""

import pytest
from playwright.sync_api import expect
from runcast.dashboard.find import find
from runcast.simulator import simulate
from runcast.simulator.figures import Window, draw_timeline
from runcast.simulator.figures.drawing import add_mark

SHIPPED = "data/scenarios/{}.toml"


@pytest.fixture(scope="module")
def step():
    return simulate(SHIPPED.format("tiny-train-pp4")).timeline


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("down L1 m1", ["down L1 s1 m1"]),
        ("M1 l1 DOWN", ["down L1 s1 m1"]),
        ("wn L1 m1", []),
        ("down L1 m", ["down L1 s1 m0", "down L1 s1 m1"]),
        ("optimi", ["optimizer"] * 2),
        ("nothing", []),
        ("  ", []),
        ("(", []),
    ],
)
def test_all_words_begin_a_word_of_the_name_and_numbers_are_whole(step, text, names):
    found = [find(step, text, number) for number in range(len(names) or 1)]

    assert [step.program.names[one.op] for one in found if one is not None] == names


def test_ops_go_by_their_start_and_the_first_comes_after_the_last(step):
    many = find(step, "optimizer").many

    found = [find(step, "optimizer", number) for number in range(many + 1)]

    starts = [step.start_s[one.op] for one in found]
    assert (starts[:-1], found[-1]) == (sorted(starts[:-1]), found[0])


def test_what_was_found_is_said():
    timeline = simulate(SHIPPED.format("kimi-k2-256xh20")).timeline

    line = find(timeline, "broadcast b110").line(timeline)

    assert line.startswith("1 of 1: broadcast b110 from r110, r0..r255 (256), from ")


@pytest.mark.parametrize(
    ("name", "ends"),
    [
        ("tiny-2ranks", (0.25, 0.5)),
        ("run-llama3-70b-512xh100", ("2001-01-01 00:00:00.250000", "2001-01-01 00:00:00.500000")),
    ],
)
def test_a_mark_stands_where_the_axis_has_these_seconds(name, ends):
    prediction = simulate(SHIPPED.format(name))
    figure = draw_timeline(prediction.report.kind, prediction.timeline)

    add_mark(figure, Window(0.25, 0.5))

    mark = figure.layout.shapes[-1]
    assert (mark.x0, mark.x1) == ends


def test_enter_goes_from_one_to_the_next(page):
    page.goto("/training?base=tiny-train-pp4")
    typed, said = page.get_by_label("Find an op by its name"), page.locator("#training-timeline-hit")
    typed.fill("optimizer")
    typed.press("Enter")
    expect(said).to_contain_text("1 of ")
    typed.press("Enter")
    expect(said).to_contain_text("2 of ")
    typed.fill("no such op")
    typed.press("Enter")
    expect(said).to_contain_text("No op is called so")
