"""The ledger of training steps: what stands in its rows, and how far off families of rows are."""

import json
from math import nan

import pandas as pd
import pytest
from runcast.simulator.answers.outputs import json_text
from runcast.simulator.answers.validate.steps import ledger as ledgers
from runcast.simulator.answers.validate.steps import read_cases, read_step_ledger, restore, shipped_table
from runcast.simulator.answers.validate.steps.ledger import (
    markdown,
    over_sources,
    scores_by_family,
    scores_of_memory,
    wide_scores,
)
from runcast.simulator.base.errors import UserError
from runcast.simulator.base.files import read_toml
from runcast.simulator.runner import InProcess, Processes

EXPERTS = {"framework": "Megatron-Core", "arch": "moe", "n_experts": "8", "topk": "2", "moe_ffn": "1024"}


@pytest.fixture
def ledger(written):
    def read(*rows):
        return read_step_ledger(written(*rows), InProcess())

    return read


def scored(**columns):
    """A table of scored rows; what is not given is as good as nothing."""
    rows = pd.DataFrame(columns)
    plain = {"source": "s", "gpu": "g", "arch": "dense", "stack": "k", "precision": "bf16", "pattern": "dp",
             "measured_s": 1.0, "interval_low_s": 0.5, "interval_high_s": 2.0,
             "group_left_out": nan, "stack_left_out": nan, "source_left_out": nan}  # fmt: skip
    return rows.assign(**{name: value for name, value in plain.items() if name not in rows})


def test_a_row_is_its_cells_and_its_prediction(ledger):
    (row,) = ledger({}).table.to_dict("records")

    told = {name: row[name] for name in ("line", "id", "source", "stack", "gpus", "pattern", "measured_s")}
    assert told == {
        "line": 2, "id": "a", "source": "here", "stack": "nanotron", "gpus": 16, "pattern": "tp+pp+dp",
        "measured_s": 0.5,
    }  # fmt: skip


def test_errors_are_predicted_over_measured(ledger):
    (row,) = ledger({"peak_mem_gib": "10"}).table.to_dict("records")

    errors = row["predicted_s"] / 0.5 - 1, row["predicted_gib"] / 10 - 1
    assert (row["error"], row["memory_error"]) == errors


@pytest.mark.parametrize(
    ("cells", "pattern"),
    [
        ({"tp": "1", "pp": "1", "dp": "16", "dp_mode": "zero3"}, "fsdp"),
        ({"pp": "1", "tp": "8", "dp": "2"}, "tp+dp"),
        ({"n_gpus": "8", "tp": "8", "pp": "1", "dp": "1"}, "tp"),
        ({"n_gpus": "1", "tp": "1", "pp": "1", "dp": "1"}, "one rank"),
    ],
)
def test_the_axes_above_one_name_a_pattern(ledger, cells, pattern):
    assert ledger(cells).table["pattern"].tolist() == [pattern]


def test_memory_is_that_of_the_rank_which_was_logged_as_it_counts(ledger, written):
    head = {"vocab": "512000"}  # the last rank holds most
    (case,) = read_cases(written(head))
    first, last = (rank.peak_bytes for rank in case.answer().memory)
    context, unused = (case.resolved.profile.value(f"memory.{name}") for name in ("context_bytes", "fragmentation"))
    words = "nanotron logged GPU memory", "max over ranks", "nvidia-smi GB", "max reserved GiB", "max_allocated"

    found = ledger(*({"mem_convention": convention, **head} for convention in words))

    reserved, allocated = context * (1 + unused), last / (1 + unused) - context
    expected = [first - reserved, last, last, last - reserved, allocated]
    assert found.table["predicted_gib"].tolist() == pytest.approx([size / 2**30 for size in expected])


def test_a_row_without_a_time_is_predicted_and_not_scored(ledger):
    found = ledger({}, {"iter_time_s": ""})
    assert (len(found.table), len(found.scored), found.to_json()["table"][1]["error"]) == (2, 1, None)


def test_a_row_that_is_not_predicted_has_a_reason(ledger):
    found = ledger({"gpu": "TPU"}, {}, {"tp": "3", "n_gpus": "24"})
    reasons = {line: reason[:30] for line, reason in found.reasons.items()}
    assert reasons == {2: "gpu = 'TPU': expected one of H", 4: "parallel.tp = 3: must divide t"}


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"iter_time_s": "fast"}, "iter_time_s = 'fast': expected a number above zero"),
        ({"iter_time_s": "-1"}, "iter_time_s = '-1': expected a number above zero"),
        ({"peak_mem_gib": "0"}, "peak_mem_gib = '0': expected a number above zero"),
    ],
)
def test_what_was_measured_is_a_number_above_zero(ledger, cells, reason):
    assert ledger(cells).reasons == {2: reason}


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"dp": "2"}, "n_gpus = 16: expected tp 2 x pp 2 x cp 1 x dp 2 = 8"),
        ({"gbs": "34"}, "gbs = 34: expected a multiple of mbs x dp = 4"),
        ({"pp": "1", "dp": "8", "vpp": "2"}, "vpp = 2: expected pp above 1"),
        ({"ep": "4"}, "ep = 4: expected a model with experts, which arch says"),
    ],
)
def test_a_row_that_contradicts_itself_is_not_predicted(ledger, cells, reason):
    assert ledger(cells).reasons == {2: reason}


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"overlap_tp": "1"}, "overlap.tp = True: goes with parallel.tp above 1 and parallel.sequence_parallel = true"),
        (EXPERTS, "parallel.sequence_parallel = False: experts with tp > 1 need true, as in Megatron"),
    ],
)
def test_a_row_without_sequence_parallelism_is_refused_where_a_scenario_is(ledger, cells, reason):
    (said,) = ledger({"sp": "0", **cells}).reasons.values()
    assert said.endswith(reason)


def test_a_column_that_is_nearly_known_is_a_slip(written, tmp_path):
    slip = tmp_path / "slip.csv"
    slip.write_text(written({}).read_text().replace(",pp,vpp,", ",PP,vpp,", 1))

    with pytest.raises(UserError, match=r"slip.csv:1: column 'PP': unknown; did you mean pp\?$"):
        read_step_ledger(slip)


def test_a_column_beside_the_one_that_it_is_nearly_called_is_the_users_own(written):
    rows = written({})
    header, *rest = rows.read_text().splitlines()
    rows.write_text("\n".join([f"{header},iter_time_std", *(f"{row},0.1" for row in rest), ""]))

    assert len(read_step_ledger(rows).cases) == len(rest)


def test_a_table_of_which_nothing_is_predicted_says_only_why(ledger):
    found = ledger({"gpu": "TPU"})
    said = [line.partition(" = ")[0].rpartition(" ")[2] for line in found.lines()]
    assert (said, found.to_json()["summary"], found.to_csv().count(b"\n")) == (["row", "gpu"], [], 2)


def test_what_was_left_out_is_shown_as_it_was_fitted(ledger, monkeypatch):
    fitted = {"a": {"group": 0.1, "stack": -0.2, "source": None}}
    monkeypatch.setattr(ledgers, "read_left_out", lambda fit, path: (fitted, 7))

    found = ledger({}, {})

    told = [[row[name] for name in ("group_left_out", "stack_left_out", "source_left_out")]
            for row in found.to_json()["table"]]  # fmt: skip
    assert (sorted(told, key=str), found.parameters) == ([[0.1, -0.2, None], [None, None, None]], 7)


def test_errors_with_rows_left_out_are_those_of_the_shipped_table_alone(ledger):
    known = read_cases(shipped_table())[0].key
    assert ledger({"id": known}).table["group_left_out"].isna().all()


def test_rows_that_contradict_their_neighbours_are_rows_of_the_ledger():
    words = read_toml(shipped_table().with_suffix(".toml"))
    assert set(words["contradicts"]) - {case.key for case in read_cases(shipped_table())} == set()


@pytest.mark.parametrize("write", ["predictions", "to_csv"])
def test_a_ledger_is_restored_from_what_it_wrote(ledger, written, tmp_path, write):
    rows = {}, {"gpu": "TPU"}, {"iter_time_s": ""}
    found = ledger(*rows)
    (tmp_path / "old.csv").write_bytes(getattr(found, write)())

    again = restore(tmp_path / "old.csv", written(*rows))

    pd.testing.assert_frame_equal(again.table, found.table, rtol=2e-4)
    assert again.reasons == found.reasons


@pytest.mark.slow
def test_many_processes_say_what_one_says(ledger, written):
    rows = [{"gbs": str(32 * i)} for i in range(1, 7)]
    told = []

    both = read_step_ledger(written(*rows), Processes(2), lambda done, of: told.append((done, of)))

    assert (both.to_csv(), told) == (ledger(*rows).to_csv(), [(i, 6) for i in range(1, 7)])


@pytest.mark.parametrize(
    ("text", "said"),
    {
        "id,seconds\na,1\n": ":1: no column predicted_s, interval_low_s, interval_high_s, predicted_gib; expected what",
        "id,predicted_s,interval_low_s,interval_high_s,predicted_gib\na,1,1,1,x\n": ":2: predicted_gib = 'x'",
        "id,predicted_s,interval_low_s,interval_high_s,predicted_gib\na,0,1,1,1\n": ":2: predicted_s = '0': expected",
        "id,predicted_s,interval_low_s,interval_high_s,predicted_gib\na,1,1,1,1\na,1,1,1,1\n": ": id = 'a': stands",
    }.items(),
)
def test_a_file_that_holds_no_predictions_is_one_line(tmp_path, text, said):
    path = tmp_path / "old.csv"
    path.write_text(text)

    with pytest.raises(UserError) as caught:
        restore(path)

    assert str(caught.value)[: len(f"{path}{said}")] == f"{path}{said}"


def test_scores_of_a_family():
    rows = scored(error=[0.1, -0.3, 0.2], source=["s", "s", "t"], measured_s=[1.0, 3.0, 1.0])
    score = scores_by_family(rows).set_index(["family", "name"]).loc[("source", "s")]

    told = score[["rows", "median_abs_error", "p90_abs_error", "bias", "interval_coverage"]].tolist()
    assert told == pytest.approx([2, 0.2, 0.28, -0.1, 0.5])


def test_mixtures_of_experts_are_a_family_whatever_their_attention():
    rows = scored(error=[0.1, 0.2, 0.3], arch=["dense", "moe", "moe_mla"])
    kinds = scores_by_family(rows).query("family == 'kind'")
    assert dict(zip(kinds["name"], kinds["rows"], strict=True)) == {"dense": 1, "MoE": 2}


def test_a_source_counts_once_however_many_rows_it_has():
    rows = scored(error=[0.1, 0.1, 0.1, -0.3, 0.5], source=["s", "s", "s", "t", "u"])
    assert over_sources(rows) == {"as shipped": pytest.approx(0.3)}


def test_reserved_memory_is_shown_and_not_scored():
    rows = pd.DataFrame({"memory_error": [0.1, -0.5], "mem_convention": ["max_allocated", "max reserved GiB"]})
    found = scores_of_memory(rows)
    assert found[["measured", "scored", "bias"]].to_numpy().tolist() == [
        ["max_allocated", True, 0.1], ["max reserved GiB", False, -0.5],
    ]  # fmt: skip


def test_json_has_everything_and_no_number_that_is_none(ledger):
    found = json.loads(json_text(ledger({}, {"gpu": "TPU"}).to_json()))
    told = found["rows"], found["predicted"], found["scored"], len(found["table"]), found["not_predicted"][0]["line"]
    assert told == (2, 1, 1, 1, 3)


def test_the_terminal_says_errors_rows_and_reasons(ledger):
    text = list(ledger({}, {"gpu": "TPU"}).lines())
    ends = text[-2].partition(";")[0], text[-1].partition(": gpu")[0].rpartition("/")[2]
    assert ends == ("1 of 2 rows predicted, 1 scored", "rows.csv:3")


def test_columns_that_say_nothing_are_left_out(ledger):
    found = ledger({})
    columns = {"name": ("rows", "text"), "group left out": ("left", "text")}
    table = list(markdown(wide_scores(found.summary, "all"), columns))
    assert table == ["| rows |", "|---|", "| all |", "| dense |"]


def test_tokens_per_second_are_scored_as_the_time_that_they_say(ledger):
    """32 sequences of 2,048 tokens on 16 GPUs in half a second."""
    table = ledger({}, {"iter_time_s": "", "tokens_per_s_per_gpu": "8192"}).table

    assert table["measured_s"].tolist() == [0.5, 0.5]
