"""Training steps by real processes: whatever the plan, their gradients are those of one process."""

import json
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="executing needs the [calibrate] extra")

import torch
from runcast.calibrate.execute.training.exchanges import Exchanges
from runcast.calibrate.execute.training.memory import needed_bytes
from runcast.calibrate.execute.training.reference import gradients, loss, make_weights
from runcast.calibrate.execute.training.slots import NotThereError, Slot, act
from runcast.calibrate.execute.training.view import SEED, batch_of, check
from runcast.calibrate.execute.world import TIMEOUT
from runcast.simulator.answers.compare.spans import unfold
from runcast.simulator.scenario import load_question, resolve

from ..command import runcast
from ..once import once
from .step_ranks import LLAMA, MOE, SCENARIOS, SETS, SMALL, SPOILED
from .test_execute import RUNCAST, run, torchrun
from .threads import wrong_values

CASES = [("llama", case) for case in LLAMA if case not in SPOILED] + [("moe", case) for case in MOE]
RANKS = Path(__file__).with_name("step_ranks.py")


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """`executed(set)`: the folder of a set, all of whose plans have run once."""

    def executed(name):
        return once(tmp_path_factory, f"steps of {name}", lambda folder: run_set(name, folder))

    return executed


def run_set(name, folder):
    done = torchrun(4, RANKS, folder, name)
    assert done.returncode == 0, done.stderr
    return folder


def summary(folder):
    return json.loads((folder / "summary.json").read_text())


@pytest.mark.slow
def test_a_step_by_the_command_itself(tmp_path):
    done = run(RUNCAST, "execute", SCENARIOS / "tiny-train-moe-ep2.toml", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    found = summary(tmp_path / "out")

    assert (found["wrong"], found["checked_bytes"] > 3e6, found["predicted_s"] > 0) == (0, True, True)


@pytest.mark.slow
@pytest.mark.parametrize(("set_", "case"), CASES)
def test_gradients_are_those_of_one_process(executed, set_, case):
    found = summary(executed(set_) / case)

    assert (found["ranks"], found["wrong"]) == (4, 0)


@pytest.mark.parametrize(
    "case",
    ["zero_1_after", "gpt_tp_2_whole_sequences", pytest.param("shared_experts_tp_2_ep_2", marks=pytest.mark.slow)],
)
def test_ranks_that_are_threads_have_the_gradients_and_weights_of_one_process(case):
    scenario, changes = next((scenario, cases[case]) for scenario, cases in SETS.values() if case in cases)

    assert wrong_values(unfold(SCENARIOS / scenario, [*SMALL, *changes])) == []


@pytest.mark.slow
def test_wrong_activations_are_found(executed):
    found = summary(executed("llama") / "wrong_activations")

    assert found["wrong"] > 30


@pytest.mark.slow
def test_wrong_new_weights_are_found(executed):
    """Each of 39 parameters is wrong on the rank that owns a part of it, and whole on each of four after the gather."""
    found = summary(executed("llama") / "wrong_optimizer")

    assert (found["wrong"], [name[:4] for name in found["first_wrong"]]) == (156, ["new "] * 10)


@pytest.mark.slow
def test_a_run_is_joined_with_its_prediction_op_by_op(executed, tmp_path):
    scenario = SCENARIOS / "tiny-train-pp4.toml"
    flags = [flag for change in [*SMALL, *LLAMA["dualpipe"]] for flag in ("--set", change)]
    done = runcast("compare", executed("llama") / "dualpipe", scenario, *flags)

    assert "only in simulated: 0 spans\nonly in measured: 0 spans" in done.stdout, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["tiny-train-moe-ep2.toml", "tiny-train-pp4.toml"])
def test_every_tensor_is_made_on_the_device_of_its_rank(scenario):
    alone = [*SMALL, "parallel.ep=1", "parallel.pp=1", "cluster.gpus_per_node=1", "offload.optimizer=true"]
    script = RANKS.with_name("no_default_device.py")
    done = run(sys.executable, script, SCENARIOS / scenario, *alone, OMP_NUM_THREADS="1")

    assert done.stdout == "0 wrong\n", done.stderr


def test_the_reference_itself_by_differences():
    """The gradient of one weight of a middle layer, and of one of the embedding, by moving it a little."""
    resolved = unfold(SCENARIOS / "tiny-train-pp4.toml", SMALL)
    tokens = batch_of(resolved)[:1]
    right = gradients(resolved.plan, SEED, tokens)
    for key, at in (((1, "mlp.down_proj.weight"), (3, 5)), ((-1, "model.embed_tokens.weight"), (int(tokens[0, 0]), 7))):
        losses = []
        for move in (-1e-2, 1e-2):
            weights = make_weights(resolved.plan, SEED)
            weights[key][at] += move
            doubles = {name: value.double() for name, value in weights.items()}
            losses.append(float(loss(resolved.plan, doubles, tokens[0])))
        assert right[key][at] == pytest.approx((losses[1] - losses[0]) / 2e-2, rel=2e-3)


def test_a_group_whose_experts_no_token_has_chosen(monkeypatch):
    monkeypatch.setattr(Exchanges, "gather", lambda self, key, rows: torch.cat([rows, rows]))
    nothing, key = torch.zeros(0, 4), ("etp", (0, 1))
    exchanges = Exchanges([], 0, "gloo", TIMEOUT)
    rows, counts = exchanges.gather_uneven(key, nothing)

    assert (rows.shape, counts, exchanges.reduce_uneven(key, rows, counts).shape) == ((0, 4), [0, 0], (0, 4))


def test_a_value_that_is_not_there_yet_is_an_error():
    slot = Slot()
    work = act(lambda value: value, [slot])

    with pytest.raises(NotThereError, match="the Program lacks a dependency"):
        work()


LLAMA_8B = SCENARIOS / "train-llama3-8b-8xh100.toml"


def test_a_step_that_is_too_large_names_a_scale_that_fits():
    done = runcast("execute", LLAMA_8B, "--set", "precision.compute=fp32")

    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "8 ranks on this machine need about 4.35 TiB of memory, but" in done.stderr
    assert re.search(r"take execute.scale = (4|8|16|32|64), or fewer GPUs", done.stderr)


@pytest.mark.parametrize("scale", [2, 16, 1000])
def test_a_scaled_step_needs_about_its_square_less(scale):
    resolved = unfold(LLAMA_8B, ["precision.compute=fp32"])
    smaller = unfold(LLAMA_8B, ["precision.compute=fp32", f"execute.scale={scale}"])
    check(smaller)

    assert needed_bytes(smaller.plan, 1) <= max(needed_bytes(resolved.plan, 1) / scale**1.5, 4e8)


def test_predictions_take_no_notice_of_the_scale():
    whole, scaled = (load_question(LLAMA_8B, changes) for changes in ([], ["execute.scale=8"]))

    assert resolve(scaled, "").hash == resolve(whole, "").hash


def test_the_flag_overrides_the_scenario(tmp_path):
    file = tmp_path / "a.toml"
    file.write_text(LLAMA_8B.read_text() + "[execute]\nscale = 64\n")
    done = runcast("execute", file, "--set", "precision.compute=fp32", "--scale", "2")

    assert (done.returncode, "8 ranks on this machine need about" in done.stderr) == (2, True)


def test_sizes_of_an_update_are_keys_of_its_scenario():
    done = runcast("execute", SCENARIOS / "tiny-2ranks.toml", "--scale", "2")

    assert (done.returncode, len(done.stderr.splitlines()), "execute" in done.stderr) == (2, 1, True)


REFUSED = {
    "precision.compute=bf16": "precision.compute = 'bf16': steps are executed in 'fp32'",
    "level=coarse": "level = 'coarse': a step is executed kernel by kernel",
    "model.preset=deepseek-v3": "executed are layers of Llama and of mixtures of experts",
    "batch.seq_len=129": "batch.seq_len = 129: must be a multiple of 2",
    "model={preset='gpt-oss-20b',overrides={num_hidden_layers=2}}": "self_attn.sinks, mlp.router.bias",
    "model={preset='gpt-neox-20b',overrides={num_hidden_layers=2}}": "parallel_residual: is simulated only",
    "batch.documents={mean=64}": "batch.documents: is simulated only",
    "overlap.tp=true": "overlap.tp: is simulated only",
    "parallel.tp=4": "parallel.tp = 4: must divide the 2 heads of k and v",
}


@pytest.mark.parametrize("change", REFUSED)
def test_what_is_not_executed_is_one_line(change):
    done = runcast("execute", SCENARIOS / "tiny-train-tp2-dp2.toml", "--set", change)

    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert REFUSED[change] in done.stderr
