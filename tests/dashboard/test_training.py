"""The page of training steps: its number is that of the Python API, and addresses and files hold its question."""

import gzip
import json
import re
import tomllib
from pathlib import Path

import pytest
from playwright.sync_api import expect
from runcast.dashboard.app import make_app
from runcast.dashboard.forms import fields
from runcast.dashboard.library import Library
from runcast.dashboard.page import Here
from runcast.dashboard.pages.training import FORM, PAGE, cards
from runcast.dashboard.parts import headline
from runcast.dashboard.question import Question, parse_query
from runcast.simulator import simulate
from runcast.simulator.base.errors import UserError
from runcast.simulator.base.files import read_toml
from runcast.simulator.base.units import format_seconds
from runcast.simulator.models import preset_config
from runcast.simulator.scenario import check_question, to_toml, value_at
from runcast.simulator.schedules import build
from runcast.simulator.uncertainty import budget_line

CONFIG = dict(preset_config("llama3-8b")) | {"num_hidden_layers": 8}


@pytest.fixture(scope="module")
def here(folder):
    return Here(Library(folder))


@pytest.fixture(scope="module")
def client(folder):
    return make_app(folder).server.test_client()


def shown(here, base="mine"):
    """What the fields of a scenario show."""
    table = here.answers.values(Question(base))
    return {key: one.show(value_at(table, key)) for key, one in FORM.fields.items()}


def test_fields_as_they_are_ask_the_scenario_itself(here):
    assert FORM.ask(here, "mine", shown(here), {}, {}) == Question("mine")


def test_a_pasted_config_takes_the_models_place_in_the_address_too(here):
    beside = {"null_says_nothing": None, "use_cache": True, "architectures": ["LlamaForCausalLM"]}
    given = shown(here) | {"model.config": json.dumps(CONFIG | beside)}
    asked = FORM.ask(here, "mine", given, {}, {})

    assert FORM.question(here, asked.query()) == asked == Question("mine", {"model.config": CONFIG})


def test_a_pasted_config_stands_in_its_field_again(here):
    asked = Question("mine", {"model": {"config": CONFIG}})

    assert json.loads(FORM.fields["model.config"].show(asked.changes["model"]["config"])) == CONFIG


def test_a_field_that_does_not_apply_is_hidden_from_the_start(here):
    around = {"form": "training", "key": "model.preset", "part": "around"}
    asked = (Question("mine"), Question("mine", {"model": {"config": CONFIG}}))

    assert [FORM.draw(here, one.query())[around].hidden for one in asked] == [False, True]


@pytest.mark.parametrize("query", ["?base=none&parallel.tp=8", "?base=tiny-2ranks", "?cluster=../x"])
def test_an_address_that_cannot_be_followed_is_told_above_the_pages_own(here, query):
    assert "cannot be followed" in str(PAGE.draw(here, query))


def test_another_model_takes_what_was_said_of_the_last_one_with_it(here):
    given = shown(here) | {"model.preset": "llama3-70b"}
    address = {"model.overrides": {"num_hidden_layers": 4}, "overlap.pp": False}

    asked = FORM.ask(here, "mine", given, address, {})

    assert asked.changes == {"overlap.pp": False, "model.preset": "llama3-70b"}


def test_a_table_of_the_address_gives_way_to_a_field(here):
    address = {"parallel": {"tp": 2, "zero": 3, "prefetch": 2}}
    given = shown(here) | {"parallel.tp": 2, "parallel.zero": 1}

    asked = FORM.ask(here, "mine", given, address, {})

    assert (asked.changes["parallel"], asked.changes["parallel.zero"]) == ({"tp": 2, "zero": 1}, 1)


def test_a_field_that_follows_another_one_changes_nothing(here):
    schedule = {"schedule.name": "zb-v", "schedule.vpp": None}
    base = "train-llama3-70b-64xh100"

    asked = FORM.ask(here, base, shown(here, base) | schedule, {}, schedule)
    back = FORM.ask(here, base, shown(here, base) | {"schedule.vpp": None}, {}, {"schedule.vpp": None})

    assert (asked.changes, back.changes) == ({}, {})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ("[1]", "expected a JSON object"),
        ("1", "expected a JSON object"),
        ('{"hidden_size": NaN}', "no number"),
        ('{"a": "\\ud800"}', "is not JSON"),
        ("[" * 10_000, "is not JSON"),
        ('{"a":' * 500 + "1" + "}" * 500, "more than 100 levels deep"),
        (" " * 20_000, "at most 16,000"),
    ],
)
def test_what_is_no_config_is_refused_beside_its_field(here, text, said):
    with pytest.raises(UserError, match=said) as caught:
        FORM.ask(here, "mine", shown(here) | {"model.config": text}, {}, {})

    assert [key for key, _ in fields.faults_by_key(caught.value, FORM.fields)] == ["model.config"]


QUERY = "base=mine&parallel.tp=8&batch.seq_len=8192"


def test_the_page_says_what_the_interval_is_made_of(here):
    prediction = here.answers.predict(parse_query(QUERY, ""))
    *_, opened = headline(prediction.report, cards(prediction))
    notes = [line.children for line in opened.children[1].children]

    assert notes[:2] == [budget_line(prediction.report.budget), prediction.report.distance[0]]


@pytest.mark.parametrize(("memory", "bad"), [("80 GB", False), ("8 GB", True)])
def test_a_step_that_does_not_fit_is_seen_at_once(here, memory, bad):
    prediction = here.answers.predict(Question("mine", {"cluster.device": {"base": "h100-sxm", "memory": memory}}))
    marked = {card.name: card.bad for card in cards(prediction)}

    assert {name for name, is_bad in marked.items() if is_bad} == ({"Memory"} if bad else set())


def test_a_downloaded_scenario_is_the_one_that_was_asked(client, here):
    table = tomllib.loads(client.get(f"/download/scenario.toml?{QUERY}").text)

    assert simulate(check_question(table)).report.scenario_hash == (
        here.answers.predict(parse_query(QUERY, "")).report.scenario_hash
    )


def test_a_downloaded_report_is_that_of_the_api(client, here):
    report = here.answers.predict(parse_query(QUERY, "")).to_json()

    assert json.loads(client.get(f"/download/report.json?{QUERY}").data) == json.loads(json.dumps(report))


def test_a_downloaded_trace_holds_the_whole_step(client, here):
    found = json.loads(gzip.decompress(client.get(f"/download/trace.json.gz?{QUERY}").data))

    assert found["otherData"]["makespan_s"] == here.answers.predict(parse_query(QUERY, "")).timeline.makespan_s


def test_a_downloaded_timeline_has_a_row_per_span(client, here):
    lines = client.get(f"/download/timeline.csv?{QUERY}").text.splitlines()

    assert len(lines) - 1 == len(here.answers.predict(parse_query(QUERY, "")).timeline.spans())


def test_a_scenario_with_a_schedule_of_its_own_is_drawn_and_kept(tmp_path):
    table = read_toml(Path(__file__).parents[2] / "data/scenarios/tiny-train-pp4.toml") | {
        "schedule": {"file": "mine.txt"}
    }
    (tmp_path / "own.toml").write_text(to_toml(table))
    (tmp_path / "mine.txt").write_text(str(build("zb-h1", 4, 8)))
    here = Here(Library(tmp_path))
    prediction = here.answers.predict(Question("own"))
    kept = make_app(tmp_path).server.test_client().get("/download/scenario.toml?base=own").text

    assert FORM.ask(here, "own", shown(here, "own"), {}, {}) == Question("own")
    assert headline(prediction.report, cards(prediction))
    assert tomllib.loads(kept)["schedule"] == {"file": "mine.txt"}


def test_a_download_of_what_cannot_be_simulated_says_why(client):
    refused = client.get("/download/report.json?base=mine&parallel.tp=3")

    assert (refused.status_code, "must divide" in refused.text) == (400, True)


def step_time(folder, **changes):
    """What the Python API predicts, as the page prints it."""
    table = read_toml(folder / "mine.toml")
    for key, (name, value) in changes.items():
        table.setdefault(key, {})[name] = value
    return format_seconds(simulate(check_question(table)).report.step_time_s)


def answers(page, text):
    """Waits until the first number of the answer is this one."""
    page.wait_for_function("text => document.querySelector('.number dd')?.firstChild?.textContent === text", arg=text)
    return True


def test_a_changed_field_shows_the_number_of_the_api_and_the_address_keeps_it(page, folder):
    page.goto("/training?base=mine")
    answers(page, step_time(folder))
    page.get_by_label("Tensor (TP)").fill("8")
    expected = step_time(folder, parallel=("tp", 8))
    answers(page, expected)
    page.wait_for_url("**/training?base=mine&parallel.tp=8")
    page.reload()

    answers(page, expected)
    expect(page.get_by_label("Tensor (TP)")).to_have_value("8")


def test_a_heavy_question_is_cancelled_and_the_next_one_answered(page, folder):
    page.goto("/training?base=train-llama3-70b-64xh100&batch.global=32000")  # half a minute
    page.get_by_role("button", name="Cancel").click(timeout=30_000)
    expect(page.locator("#training-numbers")).to_have_text("Stopped before the end.")
    page.get_by_label("Global batch").fill("256")
    said = simulate("train-llama3-70b-64xh100", ["batch.global=256"]).report

    assert answers(page, format_seconds(said.step_time_s))
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)


def test_a_fault_stands_beside_its_field_and_old_figures_are_dimmed(page, folder):
    page.goto("/training?base=mine")
    page.wait_for_selector(".js-plotly-plot")
    page.get_by_label("Tensor (TP)").fill("3")
    expect(page.locator(".mantine-TextInput-error")).to_contain_text("must divide the 32 heads")

    expect(page.locator("#training-figures")).to_have_class(re.compile("stale"))


def test_a_number_stays_as_it_is_typed_and_is_refused_where_it_is_none(page):
    page.goto("/training?base=mine")
    batch = page.get_by_label("Global batch")
    batch.clear()
    batch.press_sequentially("16k")
    expect(page.locator(".mantine-TextInput-error")).to_contain_text("expected a whole number")
    refused = batch.input_value()
    batch.fill("3.2e1")
    page.wait_for_url("**/training?base=mine&batch.global=32")

    assert (refused, batch.input_value()) == ("16k", "3.2e1")


def test_a_file_is_saved_by_the_browser(page):
    page.goto("/training?base=mine")
    with page.expect_download() as saved:
        page.get_by_role("link", name="scenario (TOML)").click()

    assert saved.value.suggested_filename == "mine.toml"
    assert tomllib.loads(saved.value.path().read_text())["kind"] == "train_step"


def test_a_pasted_config_is_answered(page, folder):
    page.goto("/training?base=mine")
    answers(page, step_time(folder))
    page.get_by_label("config.json").fill(json.dumps(CONFIG))
    table = read_toml(folder / "mine.toml") | {"model": {"config": CONFIG}}

    assert answers(page, format_seconds(simulate(check_question(table)).report.step_time_s))


def choose(page, label, option):
    page.get_by_role("textbox", name=label, exact=True).click()
    page.get_by_role("option", name=option, exact=True).click()


DEBOUNCED_MS = 500
"""A number field of Mantine says what it shows 400 ms later, also what a page wrote into it: a choice that comes sooner
is answered, and then written over."""


def test_a_field_whose_value_is_left_out_is_empty_until_it_means_something_again(page):
    address = "/training?base=train-llama3-70b-64xh100&level=coarse"
    page.goto(address)
    chunks = page.get_by_label("Chunks per rank")
    expect(chunks).to_have_value("5")
    choose(page, "Schedule", "zb-v")
    page.wait_for_url("**&schedule.name=zb-v&level=coarse")
    expect(chunks).to_have_value("")
    expect(page.get_by_text("left out: schedule.vpp = 5")).to_be_attached()
    page.wait_for_timeout(DEBOUNCED_MS)
    choose(page, "Schedule", "interleaved")
    page.wait_for_url(f"**{address}")

    expect(chunks).to_have_value("5")


def test_a_field_does_not_follow_an_answer_that_was_overtaken(page, hold_back):
    page.goto("/training?base=train-llama3-70b-64xh100&level=coarse")
    chunks = page.get_by_label("Chunks per rank")
    expect(chunks).to_have_value("5")
    with hold_back("training-numbers") as release:
        choose(page, "Schedule", "zb-v")
    with page.expect_request(re.compile("_dash-update-component")):
        choose(page, "Schedule", "interleaved")
    release()
    page.wait_for_timeout(DEBOUNCED_MS)

    expect(chunks).to_have_value("5")


@pytest.mark.parametrize("mode", ["none", "full"])
def test_recomputation_is_chosen_without_a_fault(page, mode):
    page.goto("/training?base=train-llama3-70b-64xh100&level=coarse")
    page.wait_for_selector(".number")
    choose(page, "Recomputation", mode)
    page.wait_for_url(f"**&recompute.mode={mode}")

    expect(page.get_by_role("alert")).to_have_count(0)


VIEWER = """<script>
addEventListener("message", ({data, source}) => {
    if (data === "PING") return source.postMessage("PONG", "*");
    document.title = `${data.perfetto.title}: ${data.perfetto.buffer.byteLength}`;
});
</script>"""
"""What stands for Perfetto's page: it answers once it listens, then says what it was handed."""


def test_a_trace_is_handed_to_perfetto(page, client):
    page.context.route("https://ui.perfetto.dev/**", lambda route: route.fulfill(body=VIEWER, content_type="text/html"))
    page.goto("/training?base=mine")
    with page.expect_popup() as opened:
        page.get_by_role("link", name="open in Perfetto").click()
    size = len(client.get("/download/trace.json.gz?base=mine").data)

    expect(opened.value).to_have_title(f"mine: {size}")
