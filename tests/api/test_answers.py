"""`import runcast`: scenarios by name, file and table; answers as text, HTML, DataFrame and JSON."""

import json
import tomllib
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import runcast
from runcast.simulator.base.files import digest, read_toml, to_toml
from runcast.simulator.base.shipped import shipped
from runcast.simulator.scenario import check_question, open_table, resolve

from ..command import runcast as command

TINY = "tiny-train-pp4"
FILE = shipped()[TINY]


def test_a_name_a_file_and_a_table_are_one_scenario():
    given = [TINY, TINY.upper().replace("-", "_"), FILE, str(FILE), tomllib.loads(FILE.read_text())]

    found = {json.dumps(runcast.simulate(one, {"batch.micro": 2}).to_json()) for one in given}

    assert len(found) == 1


def test_changes_are_values_lines_or_one_line():
    ways = [{"batch.micro": 2}, ["batch.micro=2"], "batch.micro=2"]

    assert len({str(runcast.simulate(TINY, one)) for one in ways}) == 1


def test_an_unknown_name_is_told_with_the_nearest():
    with pytest.raises(
        runcast.UserError, match=r"'tiny-train-pp5'.*no such scenario ships; did you mean tiny-train-pp4"
    ):
        runcast.simulate("tiny-train-pp5")


def test_faults_of_a_shipped_scenario_begin_with_its_name():
    with pytest.raises(runcast.UserError, match=r"^tiny-train-pp4: batch\.micro = 0"):
        runcast.simulate(TINY, {"batch.micro": 0})


def test_a_shipped_scenario_finds_the_files_that_it_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    loaded = runcast.load("what-if-pipeline-hgx", {"stack": "stacks/fast-loader.toml"})

    assert loaded["stack"] == str(shipped()["what-if-pipeline-hgx"].resolve().parent / "stacks/fast-loader.toml")


def test_a_file_of_the_user_comes_before_a_shipped_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path(TINY).write_text(FILE.read_text().replace('name = "tiny Llama, PP4, 1F1B"', 'name = "mine"'))

    assert runcast.simulate(TINY).report.name == "mine"


def test_a_folder_of_a_shipped_name_does_not_hide_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path(TINY).mkdir()

    assert runcast.simulate(TINY).report.name == "tiny Llama, PP4, 1F1B"


def test_print_shows_what_the_command_prints():
    assert f"{runcast.simulate(TINY)}\n" == command("simulate", TINY).stdout


def test_an_answer_is_called_by_its_first_line():
    assert repr(runcast.simulate(TINY)) == "<TrainPrediction: tiny Llama, PP4, 1F1B>"


def test_a_notebook_shows_tables_and_escapes_words():
    tables = runcast.simulate(TINY, {"name": "<script>"})._repr_html_()
    lines = runcast.compare(TINY, changes={"name": "<script>"})._repr_html_()

    assert (tables.count("<table>"), lines.count("<pre>")) == (len(runcast.simulate(TINY).tables()), 1)
    assert [html.count("<script>") for html in (tables, lines)] == [0, 0]
    assert "<p><b>&lt;script&gt;</b></p>" in tables


@pytest.mark.parametrize("name", ["run-diloco", "rl-split-given-update-8xh100-nodes", "collective-all-reduce-512xh100"])
def test_a_system_whose_ops_have_no_costs_has_a_time(name):
    prediction = runcast.simulate(name)

    assert (prediction.costs, prediction.answer_s(prediction.timeline)) == (None, prediction.timeline.makespan_s)


def test_a_frame_has_a_row_with_the_columns_of_sweeps():
    prediction = runcast.simulate(TINY)

    frame = prediction.frame()

    assert len(frame) == 1
    assert frame.step_time_s[0] == prediction.report.step_time_s


def test_a_loaded_scenario_names_its_files_in_full(tmp_path):
    (tmp_path / "fast.toml").write_text(
        'name = "fast"\nbase = "generic"\nsource = "a test"\nschema = 2\ndate = "2026-01-01"\n'
    )
    (tmp_path / "mine.toml").write_text('stack = "fast.toml"\n' + FILE.read_text().replace("stack =", "# stack ="))

    scenario = runcast.load(tmp_path / "mine.toml")

    assert scenario["stack"] == str(tmp_path / "fast.toml")
    assert runcast.simulate(scenario).report.scenario_hash


def test_a_mix_of_nodes_is_of_the_devices_beside_the_scenario(tmp_path, monkeypatch):
    devices = read_toml(Path(str(files("runcast.data"))) / "hardware/devices/h100-sxm.toml")
    for folder, memory in ((tmp_path, "70 GB"), (tmp_path / "elsewhere", "60 GB")):
        folder.mkdir(exist_ok=True)
        (folder / "gpu.toml").write_text(to_toml({**devices, "memory": memory}))
    mix = [{"base": "dgx-h100", "nodes": 1, "device": "gpu.toml"}]
    (tmp_path / "mine.toml").write_text(
        to_toml({**tomllib.loads(FILE.read_text()), "cluster": {"mix": mix}, "nodes": 1})
    )
    monkeypatch.chdir(tmp_path / "elsewhere")

    found = [runcast.simulate(one).memory[1] for one in (tmp_path / "mine.toml", runcast.load(tmp_path / "mine.toml"))]

    assert found == [70e9, 70e9]


def test_files_on_axes_are_beside_the_scenario(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "fast.toml").write_text(
        'name = "fast"\nbase = "generic"\nsource = "a test"\nschema = 2\ndate = "2026-01-01"\n'
    )
    (tmp_path / "mine.toml").write_text(FILE.read_text())
    monkeypatch.chdir(tmp_path / "elsewhere")

    found = runcast.sweep(tmp_path / "mine.toml", {"stack": ["fast.toml"]})

    assert found.frame().status.tolist() == ["ok"]


def test_numbers_of_numpy_are_numbers():
    plain = runcast.sweep(TINY, {"batch.micro": [1, 2]}, {"batch.global": 8})

    numpy = runcast.sweep(
        {**runcast.load(TINY), "nodes": np.int64(1)},
        {"batch.micro": np.array([np.int64(1), np.int64(2)], dtype=object)},
        {"batch.global": np.int64(8)},
    )

    assert numpy.frame().step_time_s.tolist() == plain.frame().step_time_s.tolist()


@pytest.mark.parametrize(
    ("axes", "line"),
    [
        ({"cluster": "dgx-h100"}, "axes: cluster = 'dgx-h100': expected a list of values, such as [0, 1, 2]"),
        ({"nodes": 2}, "axes: nodes = 2: expected a list of values, such as [0, 1, 2]"),
        ([("nodes", [1])], "axes = [['nodes', [1]]]: expected lists of values by key"),
        ({("nodes",): [1]}, "axes: ('nodes',) = [1]: expected a key as text, such as \"parallel.tp\""),
    ],
)
def test_what_is_no_axis_is_one_line(axes, line):
    with pytest.raises(runcast.UserError) as error:
        runcast.sweep(TINY, axes)

    assert error.value.faults == (line,)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (None, "changes = None: expected values by key, or key=value lines"),
        ([5], "changes = [5]: expected values by key, or key=value lines"),
        ({5: 2}, 'changes: 5 = 2: expected a key as text, such as "parallel.tp"'),
    ],
)
def test_what_is_no_change_is_one_line(changes, line):
    with pytest.raises(runcast.UserError) as error:
        runcast.simulate(TINY, changes)

    assert error.value.faults == (line,)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"schedules": "1f1b"}, "search: schedules = '1f1b': expected a list of names, such as ['1f1b']"),
        ({"schedules": None}, "search: schedules = None: expected a list of names, such as ['1f1b']"),
        ({"headroom": "much"}, "search: headroom = 'much': expected a share, such as 0.05 or 5%"),
        ({"headroom": None}, "search: headroom = None: expected a share, such as 0.05 or 5%"),
        ({"budget": "x"}, "search: budget = 'x': expected a whole number"),
        ({"budget": 2.5}, "search: budget = 2.5: expected a whole number"),
        ({"check": None}, "search: check = None: expected a whole number"),
        ({"seed": 1.5}, "search: seed = 1.5: expected a whole number"),
        ({"gpus": "4"}, "search: gpus = '4': expected a whole number"),
        ({"workers": True}, "search: workers = True: expected a whole number"),
        ({"vary": {"nodes": 2}}, "vary: nodes = 2: expected a list of values, such as [0, 1, 2]"),
        ({"fix": [5]}, "changes = [5]: expected values by key, or key=value lines"),
    ],
)
def test_what_is_no_option_of_a_search_is_one_line(options, line):
    with pytest.raises(runcast.UserError) as error:
        runcast.search(TINY, **options)

    assert error.value.faults == (line,)


def test_headroom_of_a_search_is_a_share_or_a_text():
    one = {"budget": 1, "check": 0, "fix": {"parallel.pp": 4, "parallel.cp": 1, "batch.micro": 1}}
    searches = [runcast.search(TINY, headroom=headroom, **one).to_json() for headroom in (0.05, "5%")]

    assert searches[0] == searches[1]


@pytest.mark.parametrize("out", [3, ["x"]])
def test_a_sweep_into_no_folder_is_one_line(out):
    with pytest.raises(runcast.UserError, match=r"sweep: out = .*: expected a folder"):
        runcast.sweep(TINY, {"batch.micro": [1]}, out=out)


def test_a_scenario_that_is_not_allowed_is_not_loaded():
    with pytest.raises(runcast.UserError, match=r"batch\.micro = 0"):
        runcast.load(TINY, {"batch.micro": 0})


def test_a_comparison_takes_predictions_tables_and_changes():
    slow = runcast.load(TINY, {"batch.micro": 2})

    by_table, by_changes = runcast.compare(TINY, slow), runcast.compare(runcast.simulate(TINY), slow)

    assert (
        by_table.difference_s == by_changes.difference_s == runcast.compare(TINY, changes="batch.micro=2").difference_s
    )
    assert [one.key for one in by_table.inputs] == ["batch.micro"]


def test_a_comparison_of_one_side_is_refused():
    with pytest.raises(runcast.UserError, match="nothing to compare with"):
        runcast.compare(TINY)


@pytest.mark.parametrize("sides", [(3, TINY), (TINY, 3), (None, TINY)])
def test_a_side_that_is_no_scenario_is_refused(sides):
    with pytest.raises(runcast.UserError, match=r"a side is of type .*; expected a name, a path, a table or a"):
        runcast.compare(*sides)


def test_a_sweep_around_a_scenario_has_a_row_per_point():
    found = runcast.sweep(TINY, {"batch.micro": [1, 2, 3]})

    frame = found.frame()

    assert frame.status.tolist() == ["ok", "ok", "infeasible"]
    assert frame.step_time_s[1] == runcast.simulate(TINY, {"batch.micro": 2}).report.step_time_s
    assert str(found).startswith("tiny Llama, PP4, 1F1B by batch.micro: 3 of 3 points")


def test_a_kept_sweep_goes_on(tmp_path):
    for _ in range(2):
        found = runcast.sweep("bucket-tiny", changes={"nodes": 1}, out=tmp_path / "out")

    assert found.swept.complete
    assert (tmp_path / "out" / "report.csv").is_file()


@pytest.mark.slow
def test_a_search_gives_plans():
    found = runcast.search(TINY, fix={"parallel.tp": 1, "parallel.cp": 1}, check=1)

    assert found.winner is not None
    assert found.frame().status.eq("simulated").sum() == found.counts["simulated"]


def test_an_explanation_of_a_table():
    found = runcast.explain(tomllib.loads(FILE.read_text()), quick=True)

    assert found.total_s == runcast.simulate(TINY).report.step_time_s
    assert "critical path" in str(found)


def test_names_of_what_ships():
    assert "dgx-h100" in runcast.shipped("clusters")
    with pytest.raises(runcast.UserError, match="did you mean clusters"):
        runcast.shipped("cluster")


@pytest.mark.parametrize("name", [name for name in shipped() if name != "run-diloco"])
def test_the_inputs_of_a_shipped_scenario_say_it_again(name):
    table, where = open_table(name)
    resolved = resolve(check_question(table, where), where)

    again = check_question(json.loads(json.dumps(resolved.inputs["scenario"])), where)

    assert again == resolved.scenario


def test_a_report_is_a_scenario_too(tmp_path):
    command("simulate", TINY, "--set", "batch.micro=2", "--json", tmp_path / "report.json")

    again = runcast.simulate(tmp_path / "report.json")

    assert again.to_json() == json.loads((tmp_path / "report.json").read_text())


def test_a_report_whose_files_changed_is_refused(tmp_path):
    (tmp_path / "fast.toml").write_text(
        text := 'name = "fast"\nbase = "generic"\nsource = "x"\nschema = 2\ndate = "2026-01-01"\n'
    )
    (tmp_path / "mine.toml").write_text('stack = "fast.toml"\n' + FILE.read_text().replace("stack =", "# stack ="))
    command("simulate", tmp_path / "mine.toml", "--json", tmp_path / "report.json")
    assert runcast.load(tmp_path / "report.json")["stack"] == str(tmp_path / "fast.toml")

    (tmp_path / "fast.toml").write_text(text + "# changed\n")

    with pytest.raises(runcast.UserError, match=r"is not the file that the report rests on: /.*/fast\.toml$"):
        runcast.load(tmp_path / "report.json")


def test_a_report_elsewhere_finds_the_files_of_its_scenario(tmp_path, monkeypatch):
    folder, elsewhere = tmp_path / "mine", tmp_path / "elsewhere"
    for one in (folder, elsewhere):
        one.mkdir()
    stack = 'name = "fast"\nbase = "generic"\nsource = "x"\nschema = 2\ndate = "2026-01-01"\n'
    (folder / "fast.toml").write_text(stack)
    (folder / "mine.toml").write_text('stack = "fast.toml"\n' + FILE.read_text().replace("stack =", "# stack ="))
    command("simulate", folder / "mine.toml", "--json", elsewhere / "report.json")
    monkeypatch.chdir(elsewhere)

    again = runcast.simulate("report.json")

    assert again.to_json() == json.loads((elsewhere / "report.json").read_text())


def test_a_prediction_keeps_its_files_where_they_were(tmp_path, monkeypatch):
    folder, elsewhere = tmp_path / "mine", tmp_path / "elsewhere"
    for one in (folder, elsewhere):
        one.mkdir()
    (folder / "ours.toml").write_text('base = "dgx-h100"\n')
    (folder / "mine.toml").write_text(to_toml({**tomllib.loads(FILE.read_text()), "cluster": "ours.toml"}))
    monkeypatch.chdir(tmp_path)
    prediction = runcast.simulate("mine/mine.toml")
    monkeypatch.chdir(elsewhere)

    again = runcast.simulate(prediction)

    assert again.to_json() == prediction.to_json()


def test_a_report_of_an_earlier_release_names_files_beside_it(tmp_path):
    (tmp_path / "fast.toml").write_text(
        'name = "fast"\nbase = "generic"\nsource = "x"\nschema = 2\ndate = "2026-01-01"\n'
    )
    files = [{"name": "fast.toml", "sha256": digest(tmp_path / "fast.toml")}]
    inputs = {"scenario": {**runcast.load(TINY), "stack": "fast.toml"}, "files": files}
    (tmp_path / "report.json").write_text(json.dumps({"inputs": inputs}))

    assert runcast.load(tmp_path / "report.json")["stack"] == str(tmp_path / "fast.toml")


def test_a_report_says_where_it_looked_for_a_file(tmp_path):
    inputs = {"scenario": {**runcast.load(TINY), "stack": "gone.toml"}, "files": []}
    (tmp_path / "report.json").write_text(json.dumps({"inputs": inputs}))

    with pytest.raises(runcast.UserError) as error:
        runcast.load(tmp_path / "report.json")

    assert str(error.value).endswith(f": inputs.files = 'gone.toml': no such file: {tmp_path / 'gone.toml'}")


@pytest.mark.parametrize("as_given", [lambda found: found, lambda found: found.to_json()])
def test_a_prediction_is_a_scenario_too(as_given):
    given = as_given(runcast.simulate(TINY, {"name": "mine"}))

    found = [str(runcast.simulate(given, change)) for change in ((), {"batch.micro": 2, "name": "two"})]

    assert found == [
        str(runcast.simulate(TINY, {"name": "mine"})),
        str(runcast.simulate(TINY, {"batch.micro": 2, "name": "two"})),
    ]


def test_a_prediction_is_compared_with_its_changes():
    found = runcast.compare(runcast.simulate(TINY), None, {"batch.micro": 2})

    assert found.difference_s == runcast.compare(TINY, changes="batch.micro=2").difference_s


def test_changes_beside_a_second_side_are_refused():
    with pytest.raises(runcast.UserError, match="changes: go with a alone"):
        runcast.compare(TINY, TINY, {"batch.micro": 2})


def test_a_name_is_no_file(tmp_path):
    (tmp_path / "mine.toml").write_text(FILE.read_text())

    assert runcast.simulate(tmp_path / "mine.toml", {"name": "mine.toml"}).to_json()["inputs"]["files"] == []


def test_a_report_without_inputs_is_no_scenario(tmp_path):
    (tmp_path / "report.json").write_text('{"kind": "train_step"}')

    with pytest.raises(runcast.UserError, match=r"inputs\.scenario: is missing"):
        runcast.simulate(tmp_path / "report.json")


@pytest.mark.parametrize("given", [3, None, ["tiny-2ranks"]])
def test_what_is_no_scenario_is_one_line(given):
    with pytest.raises(runcast.UserError, match=r"scenario: is of type .*; expected a name, a path or a table"):
        runcast.simulate(given)


@pytest.mark.parametrize("name", ["tiny-2ranks", TINY])
def test_a_nic_that_is_faster_than_its_slot_is_noted(name):
    notes = [runcast.simulate(name, {"nodes": 2, "cluster.nic": nic}).report.notes for nic in ("400 GB/s", "100 Gb/s")]

    assert [sum("is bound by its PCIe slot" in note for note in one) for one in notes] == [1, 0]


@pytest.mark.parametrize("workers", [0, -1, 2.5, True])
def test_a_sweep_of_no_number_of_workers_is_one_line(workers):
    with pytest.raises(
        runcast.UserError, match=r"sweep: workers = .*: expected a whole number of processes, at least 1"
    ):
        runcast.sweep("tiny-train-pp4", {"batch.global": [8, 16]}, workers=workers)


def test_ctrl_c_ends_a_sweep_as_any_function(monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("runcast.simulator.answers.sweep.run._run", interrupt)
    with pytest.raises(KeyboardInterrupt):
        runcast.sweep("tiny-train-pp4", {"batch.global": [8, 16]})


@pytest.mark.parametrize(
    "ask",
    [
        runcast.simulate,
        runcast.sweep,
        lambda name: runcast.simulate(TINY, {"cluster": name}),
        lambda name: runcast.compare(TINY, f"{name}.json"),
    ],
)
@pytest.mark.parametrize("letters", [300, 5000])
def test_a_name_that_no_file_can_have_is_one_line(ask, letters):
    with pytest.raises(runcast.UserError) as error:
        ask("a" * letters)

    assert len(error.value.faults) == 1
