"""A user's own weight updates are rows too: on a stated stack, or as scenario files with their seconds."""

import csv
import tomllib

import pytest
from runcast.simulator.answers.validate.updates import read_cases, read_ledger, shipped_table
from runcast.simulator.base.errors import UserError
from runcast.simulator.scenario import check_scenario
from runcast.simulator.systems.weight_update.system import predict, resolve

UPDATE = """
kind = "weight_update"
cluster = "h800-hgx"
nodes = 1
stack = "checkpoint-engine"
model = { preset = "qwen3-30b-a3b" }
update = { method = "broadcast" }
"""


def published(line):
    """The cells of a row of the shipped ledger."""
    with shipped_table().open(newline="") as file:
        return list(csv.DictReader(file))[line - 2]


def write(path, *rows):
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, rows[0])
        table.writeheader()
        table.writerows(rows)
    return path


def test_all_rows_are_on_a_stated_stack(tmp_path):
    rows = write(tmp_path / "rows.csv", published(3), published(30))

    assert {case.stack for case in read_cases(rows, "generic")} == {"generic"}


def test_on_a_stated_stack_a_row_needs_no_system_and_no_phase(tmp_path):
    row = {key: cell for key, cell in published(3).items() if key not in ("system", "phase")}
    known = write(tmp_path / "known.csv", published(3))

    (case,) = read_cases(write(tmp_path / "rows.csv", row), "generic")

    assert case.answer() == read_cases(known, "generic")[0].answer()


def test_nodes_have_as_many_gpus_as_a_row_says_whether_or_not_it_states_nics(tmp_path):
    row = published(3) | {"gpus_per_node": "4", "nics_per_node": ""}

    (case,) = read_cases(write(tmp_path / "rows.csv", row), "generic")

    assert (case.scenario["cluster"]["gpus_per_node"], case.scenario["nodes"]) == (4, 2)


def test_notes_on_published_rows_are_not_of_own_ones(tmp_path):
    """vime's rows in the ledger leave their layout to a note; a user's row states its own."""
    row = published(62) | {"seconds": "9.9", "src_gpus": "16", "dst_gpus": "16", "tp": "4", "max_bucket_bytes": ""}

    (own,) = read_cases(write(tmp_path / "rows.csv", row), "vime")

    assert (own.scenario["nodes"], own.scenario["update"]["inference"]) == (2, {"tp": 4, "ep": 1})


def test_a_published_row_keeps_its_notes_on_a_stated_stack(tmp_path):
    rows = write(tmp_path / "rows.csv", published(62))

    (stated,), (own) = read_cases(rows, "vime"), read_cases(rows)

    assert stated.scenario == own[0].scenario


def test_a_row_may_name_a_scenario_file_beside_it(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/mine.toml").write_text(UPDATE)
    (tmp_path / "deep/soft.toml").write_text('schema = 2\nbase = "generic"\n')
    rows = write(tmp_path / "deep/rows.csv", {"scenario": "mine.toml", "seconds": "3.4"})

    found = [read_cases(rows, stack)[0].answer().seconds for stack in (None, str(tmp_path / "deep/soft.toml"))]

    tables = [{**tomllib.loads(UPDATE), "stack": stack} for stack in ("checkpoint-engine", "generic")]
    known = [predict(resolve(check_scenario(table))).report.update_time_s for table in tables]
    assert found == known


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('kind = "train_step"\n', r"mine.toml: kind = 'train_step': expected 'weight_update'$"),
        (UPDATE.replace("broadcast", "pigeon"), r"mine.toml: update.method = 'pigeon': expected "),
    ],
)
def test_a_fault_in_a_scenario_file_names_that_file(tmp_path, text, said):
    (tmp_path / "mine.toml").write_text(text)
    rows = write(tmp_path / "rows.csv", {"scenario": "mine.toml", "seconds": "3.4"})

    with pytest.raises(UserError, match=said):
        _ = read_cases(rows)[0].resolved


def test_errors_of_a_shipped_fit_are_not_those_of_a_stated_stack(tmp_path):
    rows = write(tmp_path / "rows.csv", published(3))

    assert read_ledger(rows, stack="generic").table["model_left_out"].isna().all()
