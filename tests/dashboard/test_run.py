"""The page of runs: its numbers are those of the Python API, its fields those of the scenario, zooms reach steps."""

import re

import pytest
from playwright.sync_api import expect
from runcast.dashboard.forms.fields import link_text, rate_text, time_text
from runcast.dashboard.library import Library
from runcast.dashboard.page import Here
from runcast.dashboard.pages.run import EVENTS, FORM, PAGE, cards, figures
from runcast.dashboard.question import Question
from runcast.dashboard.sweeps.points import Table
from runcast.simulator.base.errors import UserError
from runcast.simulator.base.units import parse
from runcast.simulator.scenario import value_at
from runcast.simulator.systems.run.text import format_long

from .conftest import ZOOMS_ARE_HEARD

RUN = """
name = "failing"
kind = "run"
cluster = "dgx-h100"
nodes = 4
step = { time = "10 s", gradient = "1 GB", samples = 4096 }
run = { wall = "20 d", repeats = 2 }
sync = { workers = 4 }
checkpoint = { interval = "30 min", stall = "20 s" }

[failures]
detect = "1 min"
init = "5 min"
spares = 1

[[failures.cause]]
name = "GPU"
mtbf = "600 h"
"""


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    (folder / "failing.toml").write_text(RUN)
    return Here(Library(folder))


def shown(here, base):
    """What the fields of a scenario show."""
    table = here.answers.values(Question(base))
    return {key: one.show(value_at(table, key)) for key, one in FORM.fields.items()}


def fields_of(here, base):
    """The keys that have a field on the page of a scenario, in its order."""
    drawn = FORM.draw(here, Question(base).query())
    keys = {key for key in FORM.fields if FORM.fields[key].of is None or _drawn(drawn, key)}
    return [key for key in FORM.fields if key in keys and not _hidden(drawn, key)]


def _drawn(drawn, key):
    return {"form": "run", "key": key} in [getattr(one, "id", None) for one in drawn._traverse()]


def _hidden(drawn, key):
    around = {"form": "run", "key": key, "part": "around"}
    return any(getattr(one, "id", None) == around and one.hidden for one in drawn._traverse())


SHIPPED = [name for name in Library().scenarios() if name.startswith("run-")]


@pytest.mark.parametrize("base", [*SHIPPED, "failing"])
def test_fields_as_they_are_ask_the_scenario_itself(here, base):
    assert FORM.ask(here, base, shown(here, base), {}, {}) == Question(base)


def test_a_page_has_the_fields_that_its_scenario_has_keys_for(here):
    pool, failing = fields_of(here, "run-jobs"), fields_of(here, "failing")

    assert pool == ["run.repeats", "seed", "cluster", "nodes", "jobs.policy", "jobs.preempt", "jobs.arrivals.rate"]
    assert {"failures.cause.0.mtbf", "checkpoint.interval", "failures.spares", "step.time", "sync.workers"} < set(
        failing
    )
    assert not {"failures.cause.1.mtbf", "sync.inner", "model.preset", "jobs.policy"} & set(failing)


def test_fields_that_the_mode_does_not_simulate_are_hidden(here):
    gossip = FORM.draw(here, "?base=failing&sync.mode=gossip")

    hidden = {key: _hidden(gossip, key) for key in ("checkpoint.interval", "sync.inner", "sync.workers")}
    assert hidden == {"checkpoint.interval": True, "sync.inner": True, "sync.workers": False}


def test_how_often_a_cause_strikes_can_be_changed(here):
    asked = FORM.ask(here, "failing", shown(here, "failing") | {"failures.cause.0.mtbf": "1200 h"}, {}, {})
    rarer, often = (here.answers.predict(one).report for one in (asked, Question("failing")))

    assert asked == Question("failing", {"failures.cause.0.mtbf": "1200 h"})
    assert rarer.mtbf_s == 2 * often.mtbf_s


def test_a_file_of_jobs_cannot_be_named_in_an_address():
    with pytest.raises(UserError, match=r"jobs.trace = .*opened from the command line"):
        Question("run-jobs").change({"jobs.trace": "passwd"})


def test_cards_say_what_the_report_says(here):
    report = here.answers.predict(Question("failing")).report
    said = {card.name: card.value for card in cards(here.answers.predict(Question("failing")))}

    assert said["Wall clock"] == "20 days"
    assert said["Goodput"] == f"{report.goodput:.1%}"
    assert said["Failures"] == f"{report.history.counts['failures']:,.0f}"
    assert list(said)[-2:] == ["Failures", "Checkpoints"]


def test_a_card_says_how_likely_a_deadline_holds(here):
    asked = Question("failing").change({"run.wall": None, "run.steps": 10_000, "run.deadline": "1000 d"})
    said = {card.name: (card.value, card.small) for card in cards(here.answers.predict(asked))}

    assert said["Deadline"] == ("over 99%", "ended within 1,000 days")


@pytest.mark.parametrize(
    ("changes", "of"), [({"run.wall": None, "run.steps": 10_000}, r"\)$"), ({}, " per million [a-z]+\\)$")]
)
def test_the_card_of_the_cost_has_its_interval(here, changes, of):
    said = {card.name: card.small for card in cards(here.answers.predict(Question("failing").change(changes)))}

    assert re.search(r"\(90 %: \$[\d,.]+ to \$[\d,.]+" + of, said["Cost"])


def test_the_page_draws_course_causes_and_events(here):
    drawn = figures(here.answers.predict(Question("failing")))
    events = next(one for part in drawn for one in part._traverse() if getattr(one, "id", None) == {"grid": EVENTS})

    assert len(drawn) == 4
    assert len(events.rowData) == len(here.answers.predict(Question("failing")).history.events)


def test_an_address_of_another_kind_cannot_be_followed(here):
    assert "cannot be followed" in str(PAGE.draw(here, "?base=tiny-2ranks"))


@pytest.mark.parametrize(
    ("write", "value", "text"),
    [
        (time_text, 54 * 86_400.0, "54 d"),
        (time_text, 79_231 * 3600.0, "79231 h"),
        (time_text, 0.03, "30 ms"),
        (time_text, 0.0, "0"),
        (time_text, 1.23456789, "1.23456789"),
        (link_text, 1.25e8, "1 Gb/s"),
        (rate_text, 2e12, "2 TB/s"),
    ],
)
def test_quantities_read_back(write, value, text):
    assert write(value) == text
    assert parse(text, "seconds" if write is time_text else "bytes_per_s") == value


@pytest.mark.parametrize(
    ("column", "kind"),
    [("wall_s", "run"), ("mfu", "train_step"), ("rollout_s", "rl_cycle"), ("update_time_s", "weight_update"),
     ("peak_memory_bytes", None)],
)  # fmt: skip
def test_the_kind_of_a_sweep_is_that_of_its_columns(column, kind):
    pandas = pytest.importorskip("pandas")

    assert Table(pandas.DataFrame({"point": [0], column: [1.0]}), 1).kind == kind


XAXIS = "document.querySelector('#run-timeline .js-plotly-plot').layout.xaxis.range"


def test_a_run_is_changed_and_looked_at_closer(page):
    page.goto("/run?base=run-parameter-server-async&run.samples=50_000_000&sync.mode=all_reduce")
    page.wait_for_function(ZOOMS_ARE_HEARD)
    whole = page.evaluate(XAXIS)
    page.locator("#run-timeline .updatemenu-button", has_text="a minute").click()
    page.wait_for_function(f"{XAXIS}[1] === '2001-01-01 00:01:00'")
    page.get_by_label("Backup workers").fill("2")
    page.wait_for_url("**&sync.backup=2")

    assert whole[1] > "2001-01-01 00:10"
    expect(page.get_by_role("alert")).to_have_count(0)


def test_a_page_of_a_long_run_shows_its_wall_clock_and_events(page, pictured):
    page.goto("/run?base=run-llama3-405b-16384xh100&run.repeats=1")
    expect(page.locator(".number dd").first).to_contain_text(format_long(54 * 86_400.0))
    page.wait_for_selector("#run-timeline .js-plotly-plot")
    expect(page.get_by_text("GPU, node").first).to_be_visible()

    assert len(pictured("run")) == 2
