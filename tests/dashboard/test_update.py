"""The page of weight updates: what fields ask, the curve of bucket sizes and its ends, figures that add up."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import expect
from runcast.dashboard import buckets
from runcast.dashboard.answers import Answers
from runcast.dashboard.buckets import Curve
from runcast.dashboard.figures.update import bucket_curve, device_memory, kinds_of_device, phases
from runcast.dashboard.forms.fields import size_text
from runcast.dashboard.library import Library
from runcast.dashboard.page import Here
from runcast.dashboard.pages.update import FORM
from runcast.dashboard.question import Question
from runcast.simulator import simulate
from runcast.simulator.base.errors import UserError
from runcast.simulator.base.units import format_seconds, parse
from runcast.simulator.scenario import value_at
from runcast.simulator.systems.weight_update.methods import FROM_TRAINERS, SERVED

from .conftest import ZOOMS_ARE_HEARD

TINY = ("tiny-2ranks", "tiny-p2p", "tiny-stage-heads", "tiny-colocated")


@pytest.fixture(scope="module")
def answers() -> Answers:
    return Answers(Library())


@given(st.integers(1, 2**50))
def test_a_size_is_written_so_that_it_reads_back(size):
    assert round(parse(size_text(size), "bytes")) == size


@pytest.mark.parametrize(
    ("size", "text"), [(8 * 2**30, "8 GiB"), (3 * 2**29, "1.5 GiB"), (6324339343, "5.89 GiB"), (5, "5 B")]
)
def test_a_size_is_written_as_a_person_would(size, text):
    assert size_text(size) == text


# Methods --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def here() -> Here:
    return Here(Library())


def asked_with(here, base, **fields):
    """What the form asks where fields of a scenario get other values."""
    values = here.answers.values(Question(base))
    shown = {key: one.show(value_at(values, key)) for key, one in FORM.fields.items()}
    return FORM.ask(here, base, shown | {f"update.{key}": value for key, value in fields.items()}, {}, {})


@pytest.mark.parametrize("method", [*SERVED, *FROM_TRAINERS])
@pytest.mark.parametrize("base", ["tiny-4ranks", "tiny-stage-heads"])
def test_every_method_answers_at_once(here, base, method):
    question = asked_with(here, base, method=method)

    assert set(question.changes) <= {"update.method"}
    assert here.answers.predict(question).report.update_time_s > 0


def test_as_many_train_as_receive_where_nobody_says_how_many(here):
    prediction = here.answers.predict(asked_with(here, "tiny-4ranks", method="relays"))

    assert (len(prediction.resolved.trainers), len(prediction.resolved.plan.receivers)) == (2, 2)
    assert "2 of the 4 GPUs train; see update.trainer.gpus" in prediction.report.notes


@pytest.mark.parametrize("method", ["broadcast", "p2p", "relays", "chain", "colocated", "file_system"])
def test_fields_that_say_nothing_for_a_method_are_not_shown(method):
    hidden = {key for key, one in FORM.fields.items() if one.applies and not one.applies({"update.method": method})}

    trainers = {key for key in FORM.fields if ".trainer." in key}
    assert (
        "update.pipeline" in hidden,
        trainers <= hidden,
        "update.ranks" in hidden,
        "update.storage.read" in hidden,
        "update.inference.gpus" in hidden,
    ) == (
        method not in ("broadcast", "p2p"),
        method in ("broadcast", "p2p"),
        method != "p2p",
        method != "file_system",
        method in ("broadcast", "p2p", "colocated"),
    )


# The curve ------------------------------------------------------------------------------------------------------------


def curve_of(answers: Answers, question: Question) -> Curve:
    curve = buckets.new_curve(question, answers.predict(question).resolved)
    while not curve.done:
        curve = buckets.grow(curve, question, answers)
    return curve


def refused(answers: Answers, question: Question, bucket_bytes: int) -> bool:
    try:
        answers.predict(question.change({buckets.KEY: bucket_bytes}))
    except UserError:
        return True
    return False


@pytest.mark.parametrize("name", [*TINY[:3], "what-if-sender"])
def test_the_edge_of_memory_is_the_last_size_that_fits(answers, name):
    most = buckets.new_curve(Question(name), answers.predict(Question(name)).resolved).most_bytes

    assert [refused(answers, Question(name), size) for size in (most, most + 256)] == [False, True]


def test_the_least_size_holds_the_largest_tensor(answers):
    question = Question("tiny-2ranks")
    least = buckets.new_curve(question, answers.predict(question).resolved).least_bytes

    assert [refused(answers, Question("tiny-2ranks"), size) for size in (least, least - 256)] == [False, True]


def test_engines_without_buffers_have_no_edge(answers):
    question = Question("tiny-colocated")

    assert buckets.new_curve(question, answers.predict(question).resolved).most_bytes is None


@pytest.mark.parametrize("name", TINY)
def test_every_size_of_a_curve_is_what_the_api_predicts(answers, name):
    curve = curve_of(answers, Question(name))
    path = f"data/scenarios/{name}.toml"
    again = [simulate(path, [f"update.bucket={size}"]).report.update_time_s for size in curve.sizes[::4]]

    assert list(curve.update_s[::4]) == again


def test_a_curve_is_of_its_question_whatever_the_bucket(answers):
    one, other = (Question("tiny-2ranks", {"nodes": 1, "update.bucket": size}) for size in ("2 MiB", "3 MiB"))

    of = [buckets.new_curve(question, answers.predict(question).resolved).of for question in (one, other)]
    assert of == [Question("tiny-2ranks", {"nodes": 1}).query()] * 2


def test_a_curve_comes_back_from_its_values(answers):
    question = Question("tiny-2ranks")
    curve = buckets.grow(buckets.new_curve(question, answers.predict(question).resolved), question, answers)

    assert (Curve.from_json(curve.to_json()), curve.done) == (curve, False)


def test_a_curve_marks_what_is_asked_and_where_memory_ends(answers):
    question = Question("tiny-2ranks")
    prediction = answers.predict(question)
    curve = curve_of(answers, question)
    figure = bucket_curve(curve, prediction)
    line, mark = figure.data

    assert (
        (tuple(line.x), tuple(line.y)) == (curve.sizes, curve.update_s),
        (mark.x[0], mark.y[0]),
        sorted(shape.x0 for shape in figure.layout.shapes if shape.type == "line"),
    ) == (
        True,
        (prediction.report.bucket_bytes, prediction.report.update_time_s),
        [curve.least_bytes, curve.most_bytes],
    )


# Figures --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TINY)
def test_phases_on_the_critical_path_sum_to_the_whole(answers, name):
    report = answers.predict(Question(name)).report

    assert sum(phases(report).data[0].x) == pytest.approx(report.makespan_s)


@pytest.mark.parametrize("name", TINY)
def test_every_device_stands_once_among_what_is_held_by_kind(answers, name):
    prediction = answers.predict(Question(name))
    kinds = kinds_of_device(prediction)

    assert (sum(kind.devices for kind in kinds), kinds[0].bytes) == (
        prediction.timeline.program.ranks,
        pytest.approx(prediction.report.peak.bytes),
    )


def test_bars_of_memory_add_up_to_what_is_held_by_kind(answers):
    kinds = kinds_of_device(answers.predict(Question("tiny-stage-heads")))
    figure = device_memory(kinds, 96 * 2**30)
    drawn = [sum(bar.x[i] for bar in figure.data) for i in range(len(kinds))]

    assert drawn == pytest.approx([kind.bytes / 2**30 for kind in kinds])


# In a browser ---------------------------------------------------------------------------------------------------------

BUCKET = 'input[id*="update.bucket"]'
UPDATE = ".number:first-child"
CURVE_IS_DONE = """() => {
    const said = document.querySelector("#update-curve")?.textContent ?? "";
    return said.includes("best tried") && !said.includes("trying");
}"""


def test_a_step_of_the_slider_is_the_number_that_the_api_gives(page):
    page.goto("/update?base=glm-4.5-air-8xh800&update.bucket=4+GiB")
    number, bucket = page.locator(UPDATE), page.locator(BUCKET).first
    number.wait_for()
    before = number.inner_text()
    for size in ("3.4 GiB", "2.8 GiB", "2.4 GiB", "2 GiB", "1.7 GiB"):
        page.locator("[role=slider]").press("ArrowLeft")
        expect(bucket).to_have_value(size)
    page.wait_for_url(re.compile("update.bucket=1.7"))

    said = simulate("data/scenarios/glm-4.5-air-8xh800.toml", ["update.bucket=1.7 GiB"]).report
    now = format_seconds(said.update_time_s)
    expect(number).to_contain_text(now)
    assert now not in before


def test_an_answer_that_comes_after_the_one_of_a_later_question_is_dropped(page, hold_back):
    page.goto("/update?base=tiny-2ranks")
    number, bucket = page.locator(UPDATE), page.locator(BUCKET).first
    number.wait_for()
    with hold_back("update-numbers") as release:
        bucket.fill("2 MiB")
    bucket.fill("3 MiB")
    said = simulate("data/scenarios/tiny-2ranks.toml", ["update.bucket=3 MiB"]).report
    expect(number).to_contain_text(format_seconds(said.update_time_s))
    release()
    page.wait_for_url(re.compile("update.bucket=3"))

    expect(number).to_contain_text(format_seconds(said.update_time_s))
    expect(bucket).to_have_value("3 MiB")


def test_a_bucket_beyond_memory_is_refused_beside_its_field(page):
    page.goto("/update?base=tiny-2ranks")
    page.wait_for_selector(UPDATE)
    page.locator(BUCKET).first.fill("40 GiB")

    expect(page.locator(".mantine-TextInput-error")).to_contain_text("at most 28.8 GiB fit")


def choose(page, label, option):
    page.get_by_role("textbox", name=label).click()
    page.get_by_role("option", name=option, exact=True).click()


def test_a_method_from_trainers_shows_their_fields_and_answers(page):
    page.goto("/update?base=tiny-4ranks")
    page.wait_for_selector(UPDATE)
    choose(page, "Method", "single_sender")
    page.wait_for_url("**/update?base=tiny-4ranks&update.method=single_sender")
    gpus = page.locator('input[id*="update.trainer.gpus"]')

    expect(gpus).to_be_visible()
    expect(page.get_by_text("2 of the 4 GPUs train")).to_be_attached()
    assert page.locator('input[id*="update.pipeline"]').is_visible() is False


def test_every_fault_stands_in_sight_with_the_name_of_its_field(page):
    page.goto("/update?base=tiny-stage-heads")
    page.wait_for_selector("#update-timeline .js-plotly-plot")
    page.locator('input[id*="update.trainer.gpus"]').fill("8")
    alert = page.get_by_role("alert")

    expect(alert).to_have_text(re.compile("Trainers, GPUs = 8: there are 4 GPUs"))
    page.evaluate("window.scrollTo(0, 900)")
    expect(alert).to_be_in_viewport()


def test_a_curve_grows_until_it_is_done_and_pictures_are_kept(page, pictured):
    page.goto("/update?base=kimi-k2-16xh20")
    page.wait_for_selector("#update-timeline .js-plotly-plot")
    page.wait_for_function(CURVE_IS_DONE, timeout=60_000)

    assert len(pictured("update")) == 2


def test_a_zoom_tells_ops_apart(page):
    page.goto("/update?base=qwen3-235b-a22b-8xh800&update.bucket=3+GiB")
    page.wait_for_function(CURVE_IS_DONE, timeout=60_000)
    said = page.locator("#update-timeline .gtitle-subtitle")
    expect(said).to_contain_text("are drawn together")
    page.wait_for_function(ZOOMS_ARE_HEARD)
    page.evaluate(
        "Plotly.relayout(document.querySelector('#update-timeline .js-plotly-plot'), "
        "{'xaxis.range[0]': 3, 'xaxis.range[1]': 3.2})"
    )
    expect(said).not_to_contain_text("are drawn together", timeout=60_000)

    assert page.evaluate("document.querySelector('#update-timeline .js-plotly-plot').layout.xaxis.range") == [3, 3.2]
