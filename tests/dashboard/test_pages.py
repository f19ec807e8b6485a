"""Pages whose answer is a prediction share one form: each asks its scenarios as they are, and draws what it says."""

import numpy as np
import pytest
from playwright.sync_api import expect
from runcast.dashboard import parts
from runcast.dashboard.forms import pinned
from runcast.dashboard.library import Library
from runcast.dashboard.page import PATHS, Here
from runcast.dashboard.pages import PAGES, cluster, collective, cycle, run, start
from runcast.dashboard.question import Question
from runcast.simulator.insight import link_load
from runcast.simulator.scenario import value_at
from runcast.simulator.systems.registry import SYSTEMS

SHIPPED = [
    (one, name) for one in (cycle, collective) for name in Library().names_of_kind(one.FORM.kind)
]  # fmt: skip


@pytest.fixture(scope="module")
def here():
    return Here(Library())


def test_every_kind_of_scenario_has_a_page():
    assert set(PATHS) == set(SYSTEMS)
    assert set(PATHS.values()) < {one.path for one in PAGES}


@pytest.mark.parametrize(("module", "base"), SHIPPED)
def test_fields_as_they_are_ask_the_scenario_itself(here, module, base):
    table = here.answers.values(Question(base))
    shown = {key: one.show(value_at(table, key)) for key, one in module.FORM.fields.items()}

    assert module.FORM.ask(here, base, shown, {}, {}) == Question(base)


@pytest.mark.parametrize(("module", "base"), SHIPPED)
def test_a_page_draws_numbers_and_figures(here, module, base):
    prediction = here.answers.predict(Question(base))

    assert [card for card in module.cards(prediction) if not card.value] == []
    assert len(module.figures(prediction)) > 1


def test_the_cycle_that_the_page_begins_with_is_predicted_with_an_interval(here):
    report = here.answers.predict(Question(cycle.FORM.base)).report

    assert cycle.cards_of(report)[0].small.startswith(parts.interval(*report.interval_s) + "; p50 ")


SMALLER = {"cluster.device.memory": "8 GiB"}
LARGER = {"model.preset": "qwen3-32b", "cycle.steps": 1, "rollout.requests": 128}


@pytest.mark.parametrize(
    ("module", "base", "changes"),
    [(run, "run-diloco", SMALLER), (cycle, "rl-cycle-qwen3-8b-8xh100", LARGER)],
)
def test_a_card_says_that_the_step_does_not_fit(here, module, base, changes):
    found = [card for card in module.cards(here.answers.predict(Question(base).change(changes))) if card.bad]

    assert [(card.name, card.value) for card in found] == [("Memory", "does not fit")]
    assert "pipeline rank 0 needs " in found[0].small


def test_the_interval_of_a_job_that_starts_late_is_of_when_it_ends(here):
    late = Question("collective-two-jobs").change({"collective.jobs.1.start": "1 s"})
    prediction = here.answers.predict(late)
    time = collective.cards(prediction)[0]

    assert prediction.report.best.job == "experts"
    assert parts.interval(*prediction.report.interval_s) in time.small


def test_sizes_that_double_are_written_as_a_range():
    assert collective.sizes_text([1024, 2048, 4096]) == "1 KiB:4 KiB"
    assert collective.sizes_text([1024, 3072]) == ""


@pytest.mark.parametrize(
    ("now", "said"),
    [(10.0, "compared with this"), (9.0, "10.00% shorter"), (12.0, "20.00% longer than the pinned answer: by 2 s")],
)
def test_an_answer_is_held_against_the_pinned_one(now, said):
    assert said in pinned.difference(now, 10.0)


# The cluster ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", ["tiny-train-pp4", "kimi-k2-16xh20"])
def test_the_busiest_link_is_that_of_the_report(here, base):
    prediction = here.answers.predict(Question(base))
    load = link_load(prediction.resolved.cluster, prediction.costs, prediction.timeline)
    rows = list(cluster.link_rows(prediction.resolved.cluster, load))

    assert rows[0][3] == f"{load.max():.1%}"
    assert sum(int(row[2].replace(",", "")) for row in rows) == len(load)


def test_nodes_of_ranks_that_others_stand_for_are_as_busy(here):
    prediction = here.answers.predict(Question("train-llama3-70b-64xh100", {"level": "coarse"}))
    machine = prediction.resolved.cluster
    load = link_load(machine, prediction.costs, prediction.timeline)
    of_node = [load[machine.node_of_link == node].max() for node in range(machine.n_nodes)]

    assert np.all(np.array(of_node) > 0)


# In a browser --------------------------------------------------------------------------------------------------------


def test_the_first_page_answers_three_questions(page):
    page.goto("/")
    for one in start.QUESTIONS:
        expect(page.get_by_role("heading", name=one.title)).to_be_visible()
        expect(page.locator(f"#start-{one.name}-answer .number").first).to_be_visible()


def test_back_undoes_a_change(page):
    page.goto("/collective?base=collective-all-reduce-512xh100")
    nodes = page.get_by_label("Nodes")
    expect(nodes).to_have_value("64")
    page.wait_for_selector("#collective-figures .js-plotly-plot")  # no answer comes behind what is typed
    page.wait_for_load_state("networkidle")
    nodes.fill("8")
    page.wait_for_url("**&nodes=8")
    page.go_back()

    expect(nodes).to_have_value("64")


@pytest.mark.parametrize("path", ["/", "/collective"])
def test_the_menu_of_a_phone_closes_when_it_has_led_somewhere(page, path):
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(path)
    page.get_by_role("button", name="Menu").click()
    link = page.locator("nav a", has_text="Collective")
    link.click()
    page.wait_for_url("**/collective*")

    expect(link).not_to_be_in_viewport()


def test_a_server_that_has_ended_is_told(page):
    page.goto("/collective")
    page.wait_for_selector(".number")
    page.wait_for_load_state("networkidle")
    page.route("**/*", lambda route: route.abort())
    page.get_by_label("Nodes").fill("8")
    expect(page.get_by_text("The server does not answer")).to_be_visible()
    page.wrong.clear()  # the browser tells of it, too


def test_a_page_that_asks_nothing_notices_that_its_server_has_ended(page):
    page.clock.install()
    page.goto("/collective")
    page.wait_for_selector(".number")
    page.route("**/*", lambda route: route.abort())
    page.clock.fast_forward(20_000)
    expect(page.get_by_text("The server does not answer")).to_be_visible()
    page.unroute("**/*")
    page.clock.fast_forward(20_000)
    expect(page.get_by_text("The server does not answer")).to_be_hidden()
    page.wrong.clear()  # the browser tells of it, too
