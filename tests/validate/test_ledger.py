"""The ledger of published weight updates: how rows become scenarios, and how far off predictions may be."""

from importlib.resources import files

import numpy as np
import pytest
from runcast.simulator.answers.validate import read_ledger
from runcast.simulator.answers.validate.updates import free_parameters, read_cases, shipped_table
from runcast.simulator.base.errors import UserError
from runcast.simulator.base.files import read_json

HEAD = "system,model,method,gpu,seconds,phase,src_gpus,dst_gpus,bytes,n_tensors,tp\n"


@pytest.fixture(scope="module")
def ledger(update_ledger):
    return update_ledger


@pytest.fixture(scope="module")
def cases():
    return {case.line: case for case in read_cases(shipped_table())}


def test_every_row_is_predicted_or_has_a_reason(ledger, cases):
    assert sorted([*ledger.table["line"], *ledger.reasons]) == sorted(cases)
    assert all(ledger.reasons.values())


def test_parameters_are_fewer_than_rows_and_none_is_a_rows_own(ledger):
    rows_of = ledger.table.groupby("stack")["model"].nunique()

    assert ledger.parameters == sum(map(len, free_parameters().values())) < len(ledger.table) / 2
    assert all(stack in rows_of for stack in free_parameters())


def first_tables(ledger):
    """Rows of checkpoint-engine and miles, without those that the ledger added from the same sources."""
    table = ledger.table
    return table[table["system"].isin(["checkpoint-engine", "miles"]) & (table["line"] < 85)]


def test_checkpoint_engine_and_miles_are_met(ledger):
    error = first_tables(ledger)["error"]

    assert (len(error), error.abs().median() <= 0.10, error.abs().max() <= 0.30, abs(error.median()) <= 0.05) == (
        32, True, True, True,
    )  # fmt: skip


def test_they_are_met_with_the_model_left_out(ledger):
    assert first_tables(ledger)["model_left_out"].abs().median() <= 0.15


def test_other_systems_are_within_a_factor_of_one_and_a_half(ledger):
    table = ledger.table
    others = table[~table["system"].isin(["checkpoint-engine", "miles"])]

    assert others["error"].between(1 / 1.5 - 1, 0.5).all()


def test_rows_and_their_scenarios(cases):
    assert cases[4].scenario == {
        "name": "checkpoint-engine: GLM-4.5-Air, p2p_read+broadcast",
        "kind": "weight_update",
        "cluster": {"base": "h800-hgx", "gpus_per_node": 8},
        "nodes": 1,
        "stack": "checkpoint-engine",
        "model": {"preset": "glm-4.5-air"},
        "update": {"method": "p2p", "process_group": "new", "bucket": 3242700308, "inference": {"tp": 8}},
    }
    assert cases[30].scenario["update"] == {
        "method": "stage_heads",
        "max_bucket": 2**30,
        "inference": {"tp": 8, "ep": 8, "gpus": 32},
        "trainer": {"gpus": 32, "tp": 1, "pp": 4, "cp": 1, "ep": 8},
    }


def test_an_older_revision_is_software_of_its_own(cases):
    assert (cases[7].stack, cases[7].scenario["update"]["readers"]) == ("checkpoint-engine-7185b55", "one")


def test_nics_that_a_row_states_replace_the_vendors(cases):
    assert cases[45].scenario["cluster"] == {"base": "gh200", "gpus_per_node": 4, "nics": 4, "nic": "200 Gb/s"}


def test_rows_of_a_users_own_are_predicted_and_not_left_out(tmp_path):
    rows = tmp_path / "mine.csv"
    rows.write_text(HEAD + "checkpoint-engine,my model,broadcast_two_stage,H800,5.0,update,8,8,300000000000,20000,8\n")

    (row,) = read_ledger(rows).to_json()["table"]

    assert (row["stack"], row["model_left_out"], 2 < row["predicted_s"] < 8) == ("checkpoint-engine", None, True)


def test_what_was_left_out_is_shown_as_it_was_fitted(ledger, cases):
    fitted = read_json(files("runcast.data") / "validation" / "weight_update_fit.json")["left_out"]

    for _, row in ledger.table.iterrows():
        kept = fitted[cases[row["line"]].key]
        assert (row["model_left_out"], row["system_left_out"]) == (kept["model"], kept["system"])


def test_the_interval_of_a_part_is_that_of_the_whole_in_proportion(ledger):
    parts = ledger.table[ledger.table["phase"] == "gather_metas"]

    assert len(parts)
    assert (parts["interval_low_s"] <= parts["predicted_s"]).all()
    assert (parts["predicted_s"] <= parts["interval_high_s"]).all()


def test_one_sided_writes_are_rdma(tmp_path):
    rows = tmp_path / "mine.csv"
    row = "miles,glm-4.5-air,p2p_write_cpu_replica,H100,1.0,{},8,8,,,8\n"
    rows.write_text(HEAD + row.format("rdma") + row.format("update"))

    predicted = read_ledger(rows).table.set_index("phase")["predicted_s"]

    assert 0 < predicted["rdma"] < predicted["update"]


def test_a_summary_has_the_ninetieth_percentile(ledger):
    shown = ledger.summary.query("system == 'all' and errors == 'as shipped'")["p90_abs_error"]

    assert shown.tolist() == pytest.approx([np.quantile(ledger.table["error"].abs(), 0.9)])


@pytest.mark.parametrize(
    ("text", "said"),
    {
        "system,model\na,b\n": ":1: no column method, gpu, seconds, phase",
        HEAD: "holds no rows",
        HEAD + "verl,x,m,H100,fast,update,8,8,1,1,1\n": ":2: seconds = 'fast': expected a number above zero",
        HEAD + "verl,x,m,H100,-1,update,8,8,1,1,1\n": ":2: seconds = '-1'",
    }.items(),
)
def test_a_bad_table_is_one_line(tmp_path, text, said):
    rows = tmp_path / "bad.csv"
    rows.write_text(text)

    with pytest.raises(UserError) as caught:
        read_cases(rows)

    assert str(rows) in str(caught.value)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("cells", "reason"),
    {
        "checkpoint-engine,glm-4.5-air,teleport,H800,1,update,8,8,,": "method = 'teleport': unknown; known: ",
        "homemade,glm-4.5-air,pp_head_broadcast,H800,1,update,8,8,,": "no software stack for 'homemade'",
        "miles,glm-4.5-air,pp_head_broadcast,H100,1,update,eight,8,,": "src_gpus = 'eight': expected a whole number",
        "miles,mine,pp_head_broadcast,H100,1,update,8,8,-5,100": "bytes = '-5': expected a whole number above zero",
        "miles,glm-4.5-air,pp_head_broadcast,TPU,1,update,8,8,,": "no cluster for 'TPU'",
        "miles,glm-4.5-air,pp_head_broadcast,,1,update,8,8,,": "the GPU is not stated",
        "miles,glm-4.5-air,pp_head_broadcast,H100,1,update,,8,,": "the number of GPUs is not stated",
        "miles,unheard-of,pp_head_broadcast,H100,1,update,8,8,,": "neither a model that runcast knows nor its bytes",
        "miles,glm-4.5-air,pp_head_broadcast,H100,1,coffee,8,8,,": "phase = 'coffee': no prediction has it",
        "checkpoint-engine,kimi-k2,broadcast_two_stage,H800,1,update,8,8,,,8": "resident weights take 120 GiB",
    }.items(),
)
def test_a_row_that_says_too_little_has_a_reason(tmp_path, cells, reason):
    rows = tmp_path / "rows.csv"
    rows.write_text(HEAD + cells + "\n")

    assert reason in read_ledger(rows).reasons[2]


def test_names_of_methods_and_stacks_may_be_runcasts_own_and_numbers_as_tables_write_them(tmp_path):
    rows = tmp_path / "mine.csv"
    rows.write_text(HEAD + "generic,my model,relays,H100,5.0,update,8.0,8,65e9,2e4,8\n")

    (row,) = read_ledger(rows).to_json()["table"]

    assert (row["stack"], row["gpus"], row["predicted_s"] > 0) == ("generic", "8.0 to 8", True)


def test_every_row_has_a_source(cases):
    assert all(case.cells["source"] for case in cases.values())
