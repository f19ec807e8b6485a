"""What may stand on each side of `runcast compare`: scenarios, reports, traces, logs; and what goes wrong."""

import gzip
import json

import pytest
from runcast.simulator.answers.compare import Input, Operand, compare, open_side
from runcast.simulator.answers.explain.case import read_case

from .sides import STEP, left_with

UPDATE = "data/scenarios/tiny-2ranks.toml"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A scenario with its report and trace."""
    place = tmp_path_factory.mktemp("step")
    (place / "step.toml").write_text(STEP)
    assert left_with("simulate", place / "step.toml", "--json", place / "r.json", "--trace", place / "t.json.gz") == 0
    return place


def test_a_scenario_against_itself_has_no_differences(folder):
    a, b = (open_side(Operand(folder / "step.toml")) for _ in "ab")
    found = compare(a, b)

    assert (found.inputs, {term.difference_s for term in found.terms}, found.difference_s) == ((), {0.0}, 0.0)


def test_terms_of_a_scenario_sum_to_its_step(folder):
    found = open_side(Operand(folder / "step.toml"))

    assert sum(found.terms.values()) == pytest.approx(found.total_s, rel=1e-12)


def test_a_side_of_any_kind_says_that_it_does_not_fit(tmp_path, capsys):
    run = tmp_path / "run.toml"
    run.write_text(STEP.replace("train_step", "run") + "[run]\nsteps = 10\n")

    assert left_with("compare", run, run, "--set-b", "cluster.device.memory=8 GiB") == 0
    assert capsys.readouterr().out.endswith("\nB does not fit its devices\n")


def test_a_what_if_changes_what_it_names_and_nothing_else(folder):
    a, b = open_side(Operand(folder / "step.toml")), open_side(Operand(folder / "step.toml", what_ifs=("NDR 800",)))
    found = compare(a, b)

    assert {row.key: (row.a, row.b) for row in found.inputs} == {
        "cluster.nic": ("400 Gb/s", "800 Gb/s"),
        "cluster.pcie_gen": (5, 6),
        "cluster.upstream_pcie_gen": (5, 6),
    }


def test_sets_of_a_model_are_compared_as_lists(folder):
    assert open_side(Operand(folder / "step.toml", ("freeze.layers=2",))).inputs["model.frozen.layers"] == [0, 1]


def test_what_ifs_multiply_what_changes_say(folder):
    given = Operand(folder / "step.toml", ("batch.micro=2",), ("micro-batch x2",))

    assert open_side(given).inputs["batch.micro"] == 4


def test_what_a_name_stands_for_is_an_input_too(folder):
    a, b = open_side(Operand(folder / "step.toml")), open_side(Operand(folder / "step.toml", ("parallel.tp=4",)))

    assert compare(a, b).inputs == (Input("parallel.tp", 2, 4), Input("parallel.dp", 2, 1))


def test_machines_of_several_kinds_are_one_input(folder):
    kinds = [{"base": "dgx-h100", "nodes": 1}, {"base": "h100-hgx", "nodes": 1}]
    mix = "cluster={mix = [{base = 'dgx-h100', nodes = 1}, {base = 'h100-hgx', nodes = 1}]}"
    inputs = open_side(Operand(folder / "step.toml", (mix, "nodes=2"))).inputs

    assert [value for key, value in inputs.items() if key.startswith("cluster")] == [None, kinds]


def test_the_profile_of_the_device_is_an_input(folder):
    a, b = open_side(Operand(folder / "step.toml")), open_side(Operand(folder / "step.toml", ("profile=h100-sxm",)))

    assert compare(a, b).inputs == ()


def test_a_report_equals_its_scenario(folder):
    found = compare(open_side(Operand(folder / "r.json")), open_side(Operand(folder / "step.toml")))

    assert (found.inputs, found.difference_s, {term.difference_s for term in found.terms}, found.a.hash) == (
        (), 0.0, {0.0}, found.b.hash,
    )  # fmt: skip


def test_a_report_tells_all_inputs_of_its_scenario(folder):
    found = compare(
        open_side(Operand(folder / "r.json")), open_side(Operand(folder / "step.toml", ("overlap.pp=false",)))
    )

    assert found.inputs == (Input("overlap.pp", True, False),)


def test_a_report_of_another_prediction_tells_what_it_says_itself(folder, tmp_path):
    report = json.loads((folder / "r.json").read_text())
    (tmp_path / "r.json").write_text(json.dumps(report | {"scenario_hash": "0" * 16}))

    assert "overlap.pp" not in open_side(Operand(tmp_path / "r.json")).inputs


def test_a_packed_report_is_a_report(folder, tmp_path):
    assert left_with("simulate", folder / "step.toml", "--json", tmp_path / "r.json.gz") == 0

    assert open_side(Operand(tmp_path / "r.json.gz")).terms == open_side(Operand(folder / "r.json")).terms


def test_a_folder_of_a_prediction_is_its_report(folder, tmp_path):
    (tmp_path / "report.json").write_text((folder / "r.json").read_text())

    assert open_side(Operand(tmp_path)).terms == open_side(Operand(folder / "r.json")).terms


def test_a_simulations_trace_has_the_terms_of_its_scenario(folder):
    found = compare(open_side(Operand(folder / "t.json.gz")), open_side(Operand(folder / "step.toml")))

    assert (found.same, [term.name for term in found.terms if not found.is_nothing(term)], found.error) == (
        True, [], None,
    )  # fmt: skip


def test_a_log_has_a_total_and_what_it_says_of_the_question(folder, tmp_path):
    line = "iteration {}/ 100 | consumed samples: 8 | elapsed time per iteration (ms): 250.0 | global batch size: 8 |"
    (tmp_path / "train.log").write_text("\n".join(f" [2026-01-01] {line.format(i)}" for i in range(1, 9)) + "\n")
    found = compare(open_side(Operand(tmp_path / "train.log")), open_side(Operand(folder / "step.toml")))

    assert (found.a.total_s, found.terms, found.a.inputs["batch.global"], found.error) == (
        0.25, (), 8, pytest.approx(found.b.total_s / 0.25 - 1),
    )  # fmt: skip


def test_a_trainers_state_is_a_run(tmp_path):
    history = [{"step": 50, "train_runtime": 100.0, "train_steps_per_second": 0.5}]
    path = tmp_path / "trainer_state.json"
    path.write_text(json.dumps({"global_step": 50, "max_steps": 50, "log_history": history}))

    assert open_side(Operand(path)).total_s == 2.0


def test_sizes_that_a_log_tells_of_are_compared_with_those_of_a_scenario(folder, repository):
    log = repository / "tests/traces/fixtures/megatron-llama3-70b.log"
    found = compare(open_side(Operand(log)), open_side(Operand(folder / "step.toml", ("batch.micro=2",))))

    assert {row.key: (row.a, row.b) for row in found.inputs} == {
        "gpus": (256, 8), "tokens": (128 * 4096, 8 * 4096), "batch.global": (128, 8), "batch.micro": (1, 2),
        "schedule.vpp": (4, 1), "model.num_hidden_layers": (80, 4), "parallel.tp": (8, 2), "parallel.pp": (4, 2),
        "parallel.dp": (8, 2),
    }  # fmt: skip


def test_a_measured_trace_is_split_as_a_prediction_is(folder, repository):
    trace = repository / "tests/traces/fixtures/megatron-rank0.json.gz"
    found = compare(open_side(Operand(trace)), open_side(Operand(folder / "step.toml")))
    errors = {term.name: found.error_of(term) for term in found.terms}

    assert (found.a.source, found.a.kind, sum(found.a.terms.values())) == ("run", "train_step", found.a.total_s)
    assert errors["gemm"] == found.b.terms["gemm"] / found.a.terms["gemm"] - 1


def test_a_folder_of_traces_is_one_run(repository, tmp_path):
    for trace in (repository / "tests/traces/fixtures").glob("*.json.gz"):
        (tmp_path / trace.name).write_bytes(trace.read_bytes())

    assert open_side(Operand(tmp_path)).inputs["gpus"] == 4


@pytest.mark.parametrize("key", ["split_s", "makespan_s", "interval_low_s"])
def test_a_report_of_another_version_is_told(folder, tmp_path, capsys, key):
    report = json.loads((folder / "r.json").read_text())
    (tmp_path / "old.json").write_text(json.dumps({name: value for name, value in report.items() if name != key}))

    code = left_with("compare", tmp_path / "old.json", folder / "step.toml")
    told = f"lacks {key}; another version of runcast wrote it: simulate its scenario again"
    assert (code, capsys.readouterr().err) == (2, f"error: {tmp_path / 'old.json'}: this report {told}\n")


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"kind": "nonsense"}, "kind = 'nonsense': expected a report of weight_update, train_step, rl_cycle"),
        ({"makespan_s": "2 s"}, "makespan_s = '2 s': expected a number"),
        ({"makespan_s": 10**400}, "expected a number"),
        ({"makespan_s": 0}, "makespan_s = 0: expected a time above zero"),
        ({"interval_low_s": 9.0, "interval_high_s": 1.0}, "interval_low_s = 9.0: expected at most interval_high_s"),
        ({"interval_high_s": "1 s"}, "interval_high_s = '1 s': expected a number"),
        ({"step_time_s": "1 s"}, "step_time_s = '1 s': expected a number"),
        ({"split_s": 3.0}, "split_s = 3.0: expected seconds by phase"),
        ({"split_s": {"gemm": None}}, "split_s.gemm = None: expected a number"),
        ({"notes": 1}, "notes = 1: expected a list of texts"),
        ({"mfu": float("nan")}, "holds a number that is not finite"),
    ],
)
def test_a_report_that_was_spoilt_is_told(folder, tmp_path, capsys, changes, line):
    (tmp_path / "bad.json").write_text(json.dumps(json.loads((folder / "r.json").read_text()) | changes))

    assert left_with("compare", tmp_path / "bad.json", folder / "step.toml") == 2
    assert line in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["step.toml"], "nothing to compare with: name B, or say with --set or --what-if what changes"),
        (["step.toml", "--what-if", "NDR800"], "--what-if = 'NDR800': unknown; did you mean NDR 800 or NDR 400?"),
        (["step.toml", "step.toml", "--what-if", "NDR 800"], "--what-if compares A with itself changed: leave B out"),
        (["r.json", "--set", "nodes=2"], "--set changes a scenario, but r.json is a report"),
        (["r.json", "r.json", "--set", "nodes=2"], "--set changes a scenario, but r.json is a report"),
        (["r.json", "--what-if", "NDR 800"], "--what-if changes a scenario, but r.json is a report"),
        (["t.json.gz", "step.toml", "--set-a", "nodes=2"], "--set-a changes a scenario, but t.json.gz is a "),
        (["step.toml", "step.toml", "--set-b", "nodes=0"], "step.toml: nodes = 0: expected more than 0"),
        (["step.toml", "gone.json"], "gone.json: no such file"),
        (["step.toml", "r.json", "--html", "x.txt"], "--html x.txt: expected a name that ends in .html"),
    ],
)
def test_a_mistake_is_one_line(folder, monkeypatch, capsys, arguments, line):
    monkeypatch.chdir(folder)

    code = left_with("compare", *arguments)
    told = capsys.readouterr().err
    assert (code, told.startswith(f"error: {line}"), told.count("\n")) == (2, True, 1)


def test_an_update_and_a_step_do_not_go_together(folder, repository, capsys):
    code = left_with("compare", repository / UPDATE, folder / "step.toml")
    kinds = f"{repository / UPDATE} is a weight update, but {folder / 'step.toml'} is a training step"

    assert (code, capsys.readouterr().err) == (2, f"error: {kinds}: expected two of one kind\n")


def test_set_changes_both_scenarios_and_set_b_one(folder, capsys):
    arguments = ["compare", folder / "step.toml", folder / "step.toml", "--set", "batch.global=16", "--json", "-"]
    code = left_with(*arguments, "--set-b", "batch.micro=2")
    rows = json.loads(capsys.readouterr().out)["inputs"]

    assert (code, rows) == (0, [{"key": "batch.micro", "a": 1, "b": 2}])


@pytest.mark.parametrize("name", ["tiny-2ranks", "tiny-stage-heads", "what-if-sender"])
def test_an_update_is_split_as_its_critical_path_from_where_its_time_begins(repository, name):
    path = repository / f"data/scenarios/{name}.toml"
    found, case = open_side(Operand(path)), read_case(path, {})

    assert (found.total_s, found.interval) == (
        case.report.update_time_s, (case.report.interval_low_s, case.report.interval_high_s),
    )  # fmt: skip
    assert found.terms == pytest.approx(case.parts.path_s)
    assert sum(found.terms.values()) == pytest.approx(found.total_s, rel=1e-12)


def test_an_update_begins_where_its_report_says_in_its_trace_too(repository, tmp_path):
    assert left_with("simulate", repository / UPDATE, "--trace", tmp_path / "t.json") == 0
    found = compare(open_side(Operand(tmp_path / "t.json")), open_side(Operand(repository / UPDATE)))

    assert found.a.total_s == pytest.approx(found.b.total_s, abs=1e-8)


@pytest.mark.parametrize("name", ["run-diloco", "rl-split-given-update-8xh100-nodes"])
def test_a_trace_whose_time_is_not_the_reports_is_told(repository, tmp_path, capsys, name):
    trace = tmp_path / "t.json"
    assert left_with("simulate", repository / f"data/scenarios/{name}.toml", "--trace", trace) == 0
    capsys.readouterr()

    title = {"run-diloco": "a training run"}.get(name, "an RL cycle")
    assert (left_with("compare", trace, repository / UPDATE), capsys.readouterr().err) == (
        2, f"error: {trace}: is the trace of {title}: name its report or its scenario instead\n",
    )  # fmt: skip


def test_the_trace_of_another_version_is_told(folder, tmp_path, capsys):
    events = json.loads(gzip.decompress((folder / "t.json.gz").read_bytes()))
    del events["otherData"]["kind"]
    (tmp_path / "old.json").write_text(json.dumps(events))

    assert left_with("compare", tmp_path / "old.json", folder / "step.toml") == 2
    assert "does not say of what kind it is: name its report" in capsys.readouterr().err


def test_the_spans_of_a_run_begin_there_too(tmp_path):
    rows = ["0,0,gather_metas,gather_metas,0,0.2", "1,0,begin,pause,0.2,0.3", "2,0,h2d,h2d,0.3,1.5"]
    (tmp_path / "spans.csv").write_text("\n".join(["op,rank,name,kind,start_s,end_s", *rows]))

    assert open_side(Operand(tmp_path)).total_s == pytest.approx(1.3)


def test_a_folder_of_nothing_says_what_it_may_hold(folder, tmp_path, capsys):
    code = left_with("compare", folder / "step.toml", tmp_path)

    assert (code, capsys.readouterr().err) == (
        2,
        f"error: {tmp_path}: holds nothing to compare: expected report.json (of `simulate --out`), spans.csv (of "
        "`execute --out`), or a trace per rank (.json, .json.gz, .trace, .trace.gz)\n",
    )


@pytest.mark.parametrize("update_time_s", [0, 99.0])
def test_a_report_of_an_update_that_is_no_part_of_it_is_told(repository, tmp_path, capsys, update_time_s):
    assert left_with("simulate", repository / UPDATE, "--json", tmp_path / "r.json") == 0
    report = json.loads((tmp_path / "r.json").read_text()) | {"update_time_s": update_time_s}
    (tmp_path / "r.json").write_text(json.dumps(report))

    assert left_with("compare", tmp_path / "r.json", tmp_path / "r.json") == 2
    line = f"update_time_s = {update_time_s}: expected a time above zero, at most makespan_s = 1.65"
    assert line in capsys.readouterr().err


@pytest.mark.parametrize("name", ["rl-split-given-update-8xh100-nodes", "run-diloco", "tiny-2ranks"])
def test_the_report_of_any_kind_takes_as_long_as_its_scenario(repository, tmp_path, name):
    scenario = repository / f"data/scenarios/{name}.toml"
    assert left_with("simulate", scenario, "--json", tmp_path / "r.json") == 0

    assert compare(*(open_side(Operand(path)) for path in (tmp_path / "r.json", scenario))).ratio == 1.0


@pytest.mark.parametrize(
    ("goes", "work"),
    [
        ("run={steps=10}", 1000.0),
        ("run={wall=45}", 400.0),
        ("target={steps_min=5, noise_scale=100}", None),
        ("target={steps_min=5, noise_scale=100}; run={wall=45}", 400.0),
    ],
)
def test_the_work_of_a_run_is_what_it_trains_on_unless_it_has_a_target(tmp_path, goes, work):
    path = tmp_path / "run.toml"
    path.write_text('kind = "run"\ncluster = "dgx-h100"\nstep = { time = 10, samples = 100 }\n')

    assert open_side(Operand(path, tuple(goes.split("; ")))).work == work


def test_a_cycle_is_told_per_step(repository):
    path = repository / "data/scenarios/rl-split-given-update-8xh100-nodes.toml"
    found = compare(open_side(Operand(path)), open_side(Operand(path, ("cycle.steps=40",))))

    assert (found.a.total_s, sum(found.a.terms.values()), found.ratio) == (
        pytest.approx(8901 / 22), pytest.approx(8901 / 22), pytest.approx(1.0, rel=0.05),
    )  # fmt: skip
