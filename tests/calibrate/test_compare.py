"""Two tables of spans, made by hand."""

import pandas as pd
import pytest
from runcast.calibrate.compare import by_kind, compare, left_over, read_spans
from runcast.simulator import cli
from runcast.simulator.errors import UserError

COLUMNS = ["rank", "lane", "op", "name", "kind", "ready_s", "start_s", "end_s", "bytes"]
MEASURED = pd.DataFrame(
    [
        (0, "h2d", 0, "h2d b0", "h2d", 0.0, 0.0, 2.0, 8),
        (0, "ps", 0, "h2d b0", "h2d", 0.0, 0.0, 2.0, 8),  # the same op on its other lane
        (0, "comm", 1, "broadcast b0", "broadcast", 2.0, 2.0, 6.0, 8),
        (1, "comm", 1, "broadcast b0", "broadcast", 0.0, 5.0, 6.5, 8),  # joined last
        (0, "ps", 2, "sync", "sync", 6.0, 6.0, 6.0, 0),
    ],
    columns=COLUMNS,
)
SIMULATED = pd.DataFrame(
    [
        (0, "h2d", 0, "h2d b0", "h2d", 0.0, 0.0, 1.0, 8),
        (0, "comm", 1, "broadcast b0", "broadcast", 1.0, 1.0, 3.0, 8),
        (1, "comm", 1, "broadcast b0", "broadcast", 1.0, 1.0, 3.0, 8),
        (0, "ps", 3, "agree", "agree", 3.0, 3.0, 4.0, 0),
    ],
    columns=COLUMNS,
)


def test_a_row_per_op_and_rank_without_the_wait_for_others():
    rows = compare(MEASURED, SIMULATED)
    assert rows.columns.tolist() == ["op", "name", "kind", "rank", "simulated_s", "measured_s", "ratio"]
    both = rows.dropna(subset=["simulated_s", "measured_s"])
    assert both[["op", "rank", "simulated_s", "measured_s", "ratio"]].to_numpy().tolist() == [
        [0, 0, 1.0, 2.0, 2.0],
        [1, 0, 2.0, 1.0, 0.5],
        [1, 1, 2.0, 1.5, 0.75],
    ]


def test_what_only_one_side_has_is_said():
    assert left_over(compare(MEASURED, SIMULATED)) == {
        "simulated_s": ["agree (rank 0)"],
        "measured_s": ["sync (rank 0)"],
    }


def test_sums_by_kind():
    rows = by_kind(compare(MEASURED, SIMULATED)).set_index("kind")
    assert rows.loc["broadcast"].tolist() == [2, 4.0, 2.5, 0.625, 0.625]
    assert rows.index.tolist() == ["h2d", "broadcast"]


def test_the_verb_takes_two_measurements(tmp_path, capsys):
    for name, table in (("a", MEASURED), ("b", SIMULATED)):
        (tmp_path / name).mkdir()
        table.to_csv(tmp_path / name / "spans.csv", index=False)
    with pytest.raises(SystemExit) as leave:
        cli.main(["compare", str(tmp_path / "a"), str(tmp_path / "b" / "spans.csv"), "--csv", str(tmp_path / "c.csv")])
    assert leave.value.code in (0, None)
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "only in other: 1 spans: agree (rank 0)",
        "only in measured: 1 spans: sync (rank 0)",
    ]
    assert pd.read_csv(tmp_path / "c.csv").shape == (5, 7)


@pytest.mark.parametrize(
    ("text", "line"),
    [(None, "no such file"), ("", "cannot be read as CSV"), ("op,rank\n", "lacks the columns name, kind")],
)
def test_a_file_that_holds_no_spans(tmp_path, text, line):
    file = tmp_path / "a.csv"
    if text is not None:
        file.write_text(text)
    with pytest.raises(UserError, match=line):
        read_spans(file)
