"""The JSON of every answer is as its published schema says."""

import json

import pytest
import runcast
from jsonschema import Draft202012Validator
from runcast.simulator.answers.schema import FORMS, schema_of, schema_of_all
from runcast.simulator.base.files import digest

from ..command import runcast as command

TINY = "tiny-train-pp4"
PREDICTED = {
    "train_step": [(TINY, {}), (TINY, {"run.tokens": 1e9})],
    "weight_update": [("tiny-2ranks", {}), ("tiny-stage-heads", {})],
    "rl_cycle": [("rl-split-given-update-8xh100-nodes", {}), ("rl-colocated-qwen3-30b-8xh100", {})],
    "run": [("run-jobs", {}), ("run-federated", {}), ("run-parameter-server-async", {})],
    "collective": [("collective-all-reduce-512xh100", {"collective.sizes": "1 MiB"})],
}


def faults(answer):
    """What a schema has against an answer, and the answer as it is read back."""
    said = json.loads(json.dumps(answer.to_json(), allow_nan=False))
    form = said["schema"].split("/")[1]
    found = Draft202012Validator(runcast.schema(form)).iter_errors(said)
    return [f"{'/'.join(map(str, one.path))}: {one.message[:200]}" for one in found], said


def test_every_schema_is_one():
    for form in FORMS:
        Draft202012Validator.check_schema(runcast.schema(form))
    Draft202012Validator.check_schema(schema_of_all())


def test_the_name_in_a_report_finds_its_schema():
    answer = schema_of("train_step")

    assert schema_of(answer["$id"]) == answer


def test_every_kind_of_scenario_is_held_against_its_schema():
    assert set(FORMS) == {*PREDICTED, "explanation", "comparison", "search", "sweep", "schedules", "validation"}


@pytest.mark.parametrize(("name", "changes"), [one for some in PREDICTED.values() for one in some])
def test_predictions(name, changes):
    found, said = faults(runcast.simulate(name, changes))

    assert found == []
    assert set(said) <= set(runcast.schema(said["kind"])["properties"])


@pytest.mark.slow
def test_other_answers():
    answers = [
        runcast.explain(TINY, quick=True),
        runcast.explain("run-jobs", {"run.repeats": 1}, quick=True),
        runcast.explain("rl-split-given-update-8xh100-nodes", quick=True),
        runcast.compare(TINY, changes={"batch.micro": 2}),
        runcast.search(TINY, fix={"parallel.tp": 1, "parallel.cp": 1}, check=1),
        runcast.sweep(TINY, {"batch.micro": [1, 3]}),
    ]

    assert [faults(one)[0] for one in answers] == [[]] * len(answers)


def test_a_validation(tmp_path):
    rows = "cost_class,device,bytes,seconds\ncopy.h2d,H100 SXM,39600000,1e-3\n"
    (tmp_path / "rows.csv").write_text(rows)

    said = json.loads(command("validate", "--kind", "copy", "--rows", tmp_path / "rows.csv", "--json", "-").stdout)

    assert list(Draft202012Validator(runcast.schema("validation")).iter_errors(said)) == []
    assert said["inputs"] == {
        "kind": "copy", "profile": None, "stack": None, "tolerance": None,
        "files": [{"name": str(tmp_path / "rows.csv"), "sha256": digest(tmp_path / "rows.csv")}],
    }  # fmt: skip


def test_schedules():
    said = json.loads(command("schedule", "1f1b", "--scenario", TINY, "--json", "-").stdout)

    assert list(Draft202012Validator(runcast.schema("schedules")).iter_errors(said)) == []


def test_one_schema_of_all_tells_forms_apart():
    validator = Draft202012Validator(schema_of_all())
    said = runcast.simulate("tiny-2ranks").to_json()

    assert validator.is_valid(json.loads(json.dumps(said)))
    assert not validator.is_valid({**said, "schema": "runcast/train_step/1"})


def test_a_report_that_lacks_a_metric_is_refused():
    said = runcast.simulate(TINY).to_json()
    del said["step_time_s"]

    (fault,) = Draft202012Validator(runcast.schema("train_step")).iter_errors(json.loads(json.dumps(said)))

    assert fault.message == "'step_time_s' is a required property"


def test_an_unknown_form_is_told():
    with pytest.raises(runcast.UserError, match="did you mean train_step"):
        runcast.schema("train_steps")
