"""A ledger beside predictions of an earlier time, and the shipped one beside those that are kept."""

import json
from dataclasses import replace

import pytest
from runcast.simulator import cli
from runcast.simulator.answers.validate.gate import Comparison, read_gate
from runcast.simulator.answers.validate.steps import read_cases, read_step_ledger, shipped_table
from runcast.simulator.answers.validate.steps.cases import PREDICTED
from runcast.simulator.base.errors import UserError

GOLDEN = shipped_table().with_name("training_predictions.csv")
CHEAP = [
    "narayanan21-991938f6ac", "mosaic_llmfoundry-fa52e3acc8", "mosaic_llmfoundry-565cfee8bc",
    "mosaic_llmfoundry-b41fbcafcf", "nvidia_dgxc-dcabd3bfff", "nvidia_megatron_bridge-9afbe1e1c2",
    "nvidia_megatron_bridge-56f7996c01", "nvidia_megatron_bridge-496c6533b1", "megatron_moe_modelzoo-d576498914",
    "bigscience_1b3_v100-1910ad282d", "simumax_b200-17035df9ab", "megatron2020_tex-2fb2376f18",
    "hf_ultrascale-1fe9f806ea", "hf_ultrascale-458de8cbee", "hf_ultrascale-69051d8367",
    "nvidia_dgxc-b6aafb6133", "nvidia_dgxc-a1bfe6bf79", "nvidia_dgxc-5103f1a1ae",
    "nvidia_automodel-4a4b647522", "mlperf_nvidia-631bb786ac", "mlperf_nvidia-c2b6e86d4e",
    "nvidia_dgxc-2c7e132ede", "torchtitan-96a3bc0b4d", "zero_bubble-bc4ad99074",
]  # fmt: skip
"""Rows that take a tenth of a second each, of every stack at least one."""


@pytest.fixture
def compared(written, tmp_path):
    """What has moved between the predictions of some rows and those of others."""

    def compare(before, after, tolerance="0.5%"):
        old = tmp_path / "old.csv"
        old.write_bytes(read_step_ledger(written(*before)).predictions())
        return Comparison(read_gate(old, PREDICTED, tolerance), read_step_ledger(written(*after)))

    return compare


@pytest.fixture
def runcast(capsys):
    def run(*arguments):
        with pytest.raises(SystemExit) as leave:
            cli.main(["validate", *map(str, arguments)])
        return leave.value.code, *capsys.readouterr()

    return run


def test_nothing_moves_by_itself(compared):
    found = compared([{}, {"gpu": "TPU"}], [{}, {"gpu": "TPU"}])
    assert (found.moved, next(found.lines()).partition(" of 1 in ")[0]) == (False, "no row moved by more than 0.50%")


def test_a_step_that_moved_is_named_with_its_family(compared):
    found = compared([{}, {"gbs": "64"}], [{}, {"gbs": "96"}])
    names = found.families[["family", "name"]].to_numpy().tolist()
    assert (found.moved, found.moves["id"].tolist(), names[:2]) == (True, ["b"], [["all", "all"], ["kind", "dense"]])


def test_a_move_is_after_over_before(compared):
    found = compared([{}], [{"gbs": "64"}])
    (move,) = found.moves.to_dict("records")
    assert (move["what"], move["change"]) == ("step time", move["after"] / move["before"] - 1)


def test_a_move_within_the_tolerance_is_none(compared):
    assert compared([{}], [{"gbs": "40"}], tolerance="50%").moved is False


def test_memory_may_not_move_either(compared):
    head = {"vocab": "512000"}  # the last rank holds most
    found = compared([{"mem_convention": "nanotron logged", **head}], [{"mem_convention": "", **head}])
    assert found.moves["what"].tolist() == ["memory"]


def test_rows_that_come_and_go_have_moved(compared):
    found = compared([{}, {"gpu": "TPU"}], [{"gpu": "TPU"}, {}])
    assert (found.gone, found.new, found.moved) == (["a"], ["b"], True)


@pytest.mark.parametrize("tolerance", ["-1%", "fast", "200%", "nan"])
def test_a_tolerance_is_a_share(tmp_path, tolerance):
    old = tmp_path / "old.csv"
    old.write_text("id,predicted_s,interval_low_s,interval_high_s,predicted_gib\n")

    with pytest.raises(UserError) as caught:
        read_gate(old, PREDICTED, tolerance)

    assert str(caught.value) == f"--tolerance = {tolerance!r}: expected a share such as 0.5% or 0.005"


def test_the_verb_leaves_with_one_where_a_row_moved(runcast, written, tmp_path):
    first = runcast("--kind", "train_step", "--rows", written({}), "--csv", tmp_path / "old.csv")
    same = runcast("--kind", "train_step", "--rows", written({}), "--against", tmp_path / "old.csv")
    other = runcast("--kind", "train_step", "--rows", written({"gbs": "64"}), "--against", tmp_path / "old.csv")

    assert [code for code, *_ in (first, same, other)] == [0, 0, 1]


def test_json_says_what_moved(runcast, written, tmp_path):
    runcast("--kind", "train_step", "--rows", written({}), "--csv", tmp_path / "old.csv")
    moved = written({"gbs": "64"})
    _, said, _ = runcast("--kind", "train_step", "--rows", moved, "--against", tmp_path / "old.csv", "--json", "-")
    found = json.loads(said)
    assert (found["moved"], [move["id"] for move in found["moves"]]) == (True, ["a"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--kind", "copy", "--against", "old.csv"], "--against: goes with --kind train_step, run, rl_cycle and "
         "executed only"),
        (["--kind", "train_step", "--tolerance", "1%"], "--tolerance: goes with --against only"),
        (["--kind", "train_step", "--profile", "x"], "--profile: does not go with --kind train_step: each row's "
         "device has its own"),
    ],
)  # fmt: skip
def test_options_that_do_not_go_together_are_one_line(runcast, arguments, said):
    assert runcast(*arguments) == (2, "", f"error: {said}\n")


def kept():
    """The predictions that are kept, with the tolerance of their digits and of other machines' arithmetic."""
    if not GOLDEN.is_file():
        pytest.skip(f"{GOLDEN.name} is not there: make ledger writes it")
    return read_gate(GOLDEN, PREDICTED, "0.1%")


def test_cheap_rows_are_predicted_as_they_were(tmp_path):
    gate = kept()
    gate = replace(gate, before={key: gate.before[key] for key in CHEAP})
    lines = shipped_table().read_text().splitlines(keepends=True)
    some = [lines[case.line - 1] for case in read_cases(shipped_table()) if case.key in CHEAP]
    (tmp_path / "rows.csv").write_text(lines[0] + "".join(some))

    now = read_step_ledger(tmp_path / "rows.csv")

    assert list(Comparison(gate, now).lines())[:-1] == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_row_is_predicted_as_it_was():
    assert list(Comparison(kept(), read_step_ledger()).lines())[:-1] == []
