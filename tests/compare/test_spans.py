"""Two tables of spans, made by hand."""

import json
from pathlib import Path

import pandas as pd
import pytest
from runcast.simulator import cli
from runcast.simulator.answers.compare.spans import (
    compare,
    ops_of_one_side,
    read_spans,
    simulate_spans,
    sum_by_kind,
    unfold,
)
from runcast.simulator.base.errors import UserError
from runcast.simulator.figures.gantt import overlay

ROOT = Path(__file__).parents[2]
TINY = ROOT / "data/scenarios/tiny-2ranks.toml"
HOSTS = ROOT / "data/validation/executed/4-fast-hosts-weight-update.toml"
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
    assert ops_of_one_side(compare(MEASURED, SIMULATED)) == {
        "simulated": ["agree (rank 0)"],
        "measured": ["sync (rank 0)"],
    }


def test_sums_by_kind():
    rows = sum_by_kind(compare(MEASURED, SIMULATED)).set_index("kind")
    assert rows.loc["broadcast"].tolist() == [2, 4.0, 2.5, 0.625, 0.625]
    assert rows.index.tolist() == ["h2d", "broadcast"]


def test_the_verb_takes_two_measurements(tmp_path, capsys):
    for name, table in (("a", MEASURED), ("b", SIMULATED)):
        (tmp_path / name).mkdir()
        table.to_csv(tmp_path / name / "spans.csv", index=False)
    with pytest.raises(SystemExit) as leave:
        cli.main(["compare", str(tmp_path / "a"), str(tmp_path / "b" / "spans.csv"), "--csv", str(tmp_path / "c.csv")])
    assert leave.value.code in (0, None)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "seconds summed over ops and ranks:"
    assert lines[-4:] == [
        "only in other: 1 spans: agree (rank 0)",
        "only in measured: 1 spans: sync (rank 0)",
        "A takes 6.5 s, B 4 s: 2.5 s less (-38.5%)",
        f"wrote {tmp_path / 'c.csv'}",
    ]
    assert pd.read_csv(tmp_path / "c.csv").shape == (5, 7)


@pytest.mark.parametrize(("changes", "warned"), [([], False), (["fold=false"], False), (["seed=7"], True)])
def test_another_scenario_than_was_run_is_said_on_top(tmp_path, capsys, changes, warned):
    MEASURED.to_csv(tmp_path / "spans.csv", index=False)
    (tmp_path / "summary.json").write_text(json.dumps({"scenario_hash": unfold(TINY).hash}))
    with pytest.raises(SystemExit):
        cli.main(["compare", str(tmp_path), str(TINY), *(word for change in changes for word in ("--set", change))])
    first = capsys.readouterr().out.splitlines()[0]
    line = f"warning: {tmp_path} ran scenario {unfold(TINY).hash}, but {TINY} is {unfold(TINY, changes).hash} ("
    assert first.startswith(line if warned else "seconds")


@pytest.mark.parametrize("fold", ["true", "false"])
def test_a_prediction_is_no_measurement(tmp_path, capsys, fold):
    file = tmp_path / "timeline.csv"
    for arguments in (["simulate", str(TINY), "--set", f"fold={fold}", "--csv", str(file)],
                      ["compare", str(file), str(TINY)]):  # fmt: skip
        with pytest.raises(SystemExit) as leave:
            cli.main(arguments)
    assert leave.value.code == 2
    assert capsys.readouterr().err == (
        f"error: {file}: is a prediction (of `runcast simulate`), where a row may stand for many ranks; expected what "
        "`runcast execute` measured. To compare with a prediction, name its scenario file\n"
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (None, "no such file"),
        ("", "cannot be read as CSV"),
        ("op,rank\n", "lacks the columns name, kind"),
        ("op,rank,name,kind,start_s,end_s\n0,0,a,b,0,1\n0,1,a,b,0,x\n", "a.csv:3: end_s = 'x': expected a number"),
        ("op,rank,name,kind,start_s,end_s\n0,0,a,b,0,inf\n", "a.csv:2: end_s = inf: expected a number"),
        ("op,rank,name,kind,start_s,end_s\n", "holds no span that takes time"),
    ],
)
def test_a_file_that_holds_no_spans(tmp_path, text, line):
    file = tmp_path / "a.csv"
    if text is not None:
        file.write_text(text)
    with pytest.raises(UserError, match=line):
        read_spans(file)


def test_a_run_is_joined_with_its_scenario_by_file_or_name_in_either_order(tmp_path, capsys):
    MEASURED.to_csv(tmp_path / "spans.csv", index=False)
    printed = []
    for sides in ([tmp_path, TINY], [TINY, tmp_path], [tmp_path, "tiny-2ranks"], ["Tiny_2ranks", tmp_path]):
        with pytest.raises(SystemExit):
            cli.main(["compare", *map(str, sides), "--json", "-"])
        printed.append(json.loads(capsys.readouterr().out))
    assert all(one == printed[0] for one in printed)
    assert [row["kind"] for row in printed[0]["by_kind"]] == []  # other ops than these three


def test_a_name_that_does_not_ship_is_told_with_the_nearest(tmp_path, capsys):
    MEASURED.to_csv(tmp_path / "spans.csv", index=False)
    with pytest.raises(SystemExit) as leave:
        cli.main(["compare", str(tmp_path), "tiny-2rank"])
    assert leave.value.code == 2
    assert "did you mean tiny-2ranks" in capsys.readouterr().err


def test_a_run_is_laid_over_its_prediction(tmp_path, capsys):
    """The simulated spans themselves, half as fast, are the run."""
    resolved = unfold(TINY)
    spans = simulate_spans(resolved).drop(columns="place")
    spans[["ready_s", "start_s", "end_s"]] *= 2
    spans.to_csv(tmp_path / "spans.csv", index=False)
    with pytest.raises(SystemExit):
        cli.main(["compare", str(tmp_path), str(TINY), "--html", str(tmp_path / "a.html")])
    page = (tmp_path / "a.html").read_text()
    figure = overlay({"measured": spans, "simulated": simulate_spans(resolved)})
    rows = [*dict.fromkeys(name for name in figure.layout.yaxis.ticktext)]

    assert all(text in page for text in ("measured over simulated", "Farthest apart", "comm, measured"))
    assert all(name.endswith(side) for name, side in zip(rows, ["measured", "simulated"] * len(rows), strict=False))


@pytest.fixture
def run(tmp_path):
    """A folder of a run that took twice as long as predicted."""
    resolved = unfold(TINY)
    spans = simulate_spans(resolved).drop(columns="place")
    spans[["ready_s", "start_s", "end_s"]] *= 2
    spans.to_csv(tmp_path / "spans.csv", index=False)
    predicted_s = float(spans["end_s"].max()) / 2
    summary = {"name": "tiny", "scenario_hash": resolved.hash, "ranks": 2, "machine": "2 cores", "started": "today",
               "measured_s": 2 * predicted_s, "predicted_s": predicted_s}  # fmt: skip
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    return tmp_path


def compared(*arguments):
    with pytest.raises(SystemExit) as leave:
        cli.main(["compare", *map(str, arguments)])
    return leave.value.code or 0


def test_a_run_and_its_prediction_are_told_by_their_totals(run, capsys):
    assert compared(run, TINY) == 0
    told = capsys.readouterr().out.splitlines()[-1]
    assert compared(run, TINY, "--json", "-") == 0
    found = json.loads(capsys.readouterr().out)

    assert (told.split()[0], told.split(": ")[1]) == ("predicted", "the prediction is -50.0% off")
    assert (found["measured_s"] / found["simulated_s"], found["error"]) == pytest.approx((2.0, -0.5))


def test_both_sides_are_processes_of_one_trace(run):
    assert compared(run, TINY, "--trace", run / "both.json") == 0
    events = json.loads((run / "both.json").read_text())["traceEvents"]
    sides = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    ends = [max(one["ts"] + one["dur"] for one in events if one["ph"] == "X" and one["pid"] == pid) for pid in sides]
    threads = [{one["args"]["name"] for one in events if one["name"] == "thread_name" and one["pid"] == pid}
               for pid in sides]  # fmt: skip

    assert sides == {0: "measured", 1: "simulated"}
    assert ends[0] == pytest.approx(2 * ends[1])
    assert threads[0] == threads[1] > {"rank 0, h2d", "rank 1, comm"}


def test_a_run_is_once_in_a_ledger(run):
    ledger = run / "own.csv"
    assert [compared(run, TINY, "--ledger", ledger) for _ in range(2)] == [0, 0]
    rows = pd.read_csv(ledger)
    whole = rows[rows["kind"] == "(whole run)"]

    assert (len(whole), rows["error"].round(6).unique().tolist()) == (1, [-0.5])
    assert set(rows["kind"]) > {"h2d", "broadcast"}


def test_a_ledger_is_of_runs_and_their_predictions(run, capsys):
    assert compared(TINY, "--set", "update.inference.tp=1", "--ledger", run / "own.csv") == 2
    assert "--ledger: takes what `runcast execute` wrote and its scenario" in capsys.readouterr().err
    (run / "own.csv").write_text("a,b\n1,2\n")
    assert compared(run, TINY, "--ledger", run / "own.csv") == 2
    assert "is no ledger of runs: expected the columns run, scenario" in capsys.readouterr().err


def test_messages_of_a_tree_are_laid_over_the_broadcast_that_ranks_execute():
    """The root and those that pass on, too: each rank ends with its own last message."""
    resolved = unfold(
        HOSTS, ["update.pipeline=three_stage", "model.bytes=16 MiB", "model.tensors=32", "model.largest=512 KiB"]
    )
    program = resolved.executed

    spans = simulate_spans(resolved)

    assert set(zip(spans["op"], spans["rank"], strict=True)) == {
        (op, rank) for op in range(len(program)) for rank in program.ranks_of(op)
    }
    first = spans[spans["name"] == "broadcast b0 from r0"].groupby("rank")
    assert first["start_s"].first().nunique() == 1
    assert (first["end_s"].last() - first["start_s"].first()).rank(method="dense").tolist() == [1, 2, 1, 2]
