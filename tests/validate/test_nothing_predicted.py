"""A table of which no row can be predicted fails; one of which some can does not."""

import csv

import pytest
from runcast.simulator.answers.validate import steps, updates
from runcast.simulator.cli import main

SHIPPED = {"train_step": (steps.shipped_table, "framework"), "weight_update": (updates.shipped_table, "system")}


@pytest.fixture(params=SHIPPED)
def rows(request, tmp_path):
    """A kind, and a function that writes a row of its ledger again, once for each of these names of its software."""
    shipped, column = SHIPPED[request.param]
    with shipped().open(newline="") as file:
        row = next(row for row in csv.DictReader(file) if request.param == "train_step" or row["phase"] == "update")
    path = tmp_path / "rows.csv"

    def write(*names):
        with path.open("w", newline="") as file:
            table = csv.DictWriter(file, row)
            table.writeheader()
            for place, name in enumerate(names):
                unlike = {"id": str(place)} if "id" in row else {}
                table.writerow(row | unlike | {column: row[column] if name == "known" else name})
        return request.param, path

    return write


def validate(capsys, kind, path, *flags):
    with pytest.raises(SystemExit) as leave:
        main(["validate", "--kind", kind, "--rows", str(path), *flags])
    printed = capsys.readouterr()
    return leave.value.code, printed.out, printed.err.splitlines()


def test_no_prediction_at_all_is_one_line_and_exit_code_2(rows, capsys):
    kind, path = rows("mine", "mine")
    code, out, err = validate(capsys, kind, path)

    assert (code, len(err), err[0].startswith(f"error: {path}: no row can be predicted; line 2: ")) == (2, 1, True)
    assert "0 of 2 rows predicted" in out


def test_one_prediction_is_enough(rows, capsys):
    kind, path = rows("mine", "known")
    code, out, err = validate(capsys, kind, path)

    assert (code, err, "1 of 2 rows predicted" in out) == (0, [], True)


def test_what_is_asked_for_is_written_nevertheless(rows, capsys, tmp_path):
    kind, path = rows("mine")
    code, _, _ = validate(capsys, kind, path, "--json", str(tmp_path / "found.json"))

    assert (code, (tmp_path / "found.json").is_file()) == (2, True)
