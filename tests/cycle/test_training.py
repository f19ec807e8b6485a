"""Cycles that predict their own training, and what goes with it: the step, its batch, the split of nodes."""

import json
from pathlib import Path
from typing import Any

import pytest
from runcast.simulator import UserError, simulate
from runcast.simulator.scenario import check_question

DATA = Path(__file__).parents[2] / "data"
STEP = {"parallel": {"tp": 2}, "level": "coarse"}


def table(cycle: dict[str, Any] | None = None, rollout: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """A cycle whose rollouts take 8 s and whose update takes 2 s; training is predicted."""
    return {
        "kind": "rl_cycle", "cluster": "h100-hgx", "model": {"preset": "qwen3-0.6b"},
        "cycle": {"train": STEP, "update_time": 2, "steps": 2, **(cycle or {})},
        "rollout": {
            "requests": 64, "engines": 8, "slots": 8, "token_time": 0.008,
            "length": {"kind": "fixed", "tokens": 1000}, **(rollout or {}),
        },
        **changes,
    }  # fmt: skip


def predicted(*arguments: Any, **changes: Any) -> Any:
    """Its prediction."""
    return simulate(check_question(table(*arguments, **changes)))


def test_the_step_is_that_of_a_scenario_of_kind_train_step():
    step = {"kind": "train_step", "cluster": "h100-hgx", "model": {"preset": "qwen3-0.6b"}, **STEP}
    alone = simulate(check_question({**step, "batch": {"global": 64, "seq_len": 1000}})).report
    cycle = predicted().report

    assert cycle.train_s == pytest.approx(alone.step_time_s, rel=1e-12)
    assert cycle.step_time_s == pytest.approx(8 + alone.step_time_s + 2)
    assert cycle.training.scenario_hash == alone.scenario_hash


def test_minibatches_are_steps_on_equal_parts_of_the_batch():
    report = predicted({"minibatches": 4}).report

    assert report.training.tokens == 16 * 1000
    assert report.train_s == pytest.approx(4 * report.training.step_time_s)


def test_a_pass_without_gradients_takes_the_forward_part_of_a_step():
    """Without recomputation a forward is about a third of a step's work."""
    plain, passes = predicted().report.train_s, predicted({"forward_passes": 2}).report.train_s

    assert 0.25 < (passes / plain - 1) / 2 < 0.4


def test_a_pass_without_gradients_has_no_optimizer():
    """On the host an optimizer takes several times as long as on the device, and a pass as long as it did."""
    steps = ({**STEP, "offload": {"optimizer": on_host}} for on_host in (False, True))
    device, host = (predicted({"train": step, "minibatches": 16, "forward_passes": 1}).report for step in steps)

    assert host.learn_s > 2 * device.learn_s
    assert host.forward_s == pytest.approx(device.forward_s)


def test_training_is_its_optimizer_steps_and_its_passes():
    report = predicted({"minibatches": 2, "forward_passes": 1}).report

    assert report.learn_s == pytest.approx(2 * report.training.step_time_s)
    assert report.learn_s + report.forward_s == pytest.approx(report.train_s)


def test_passes_have_micro_batches_of_their_own():
    """Hosts that hold up each micro-batch of layers with experts do so half as often."""
    step = {"stack": "megatron-bridge-eager", "parallel": {"ep": 8}, "level": "coarse"}
    given = {"model": {"preset": "qwen3-30b-a3b"}, "cluster": "h100-hgx"}
    one, two = (
        predicted({"train": step, "forward_passes": 1, "forward_micro": micro}, **given).report for micro in (1, 2)
    )

    assert one.learn_s == two.learn_s
    assert 0.4 < two.forward_s / one.forward_s < 0.7


def test_samples_may_be_padded():
    report = predicted({"pad_to": 1536}).report

    assert report.training.tokens == 64 * 1536


def test_a_sample_is_as_long_as_its_ranks_can_share():
    training = predicted(rollout={"length": {"kind": "fixed", "tokens": 1001}}).report.training

    assert training.tokens == 64 * 1002


def test_with_a_sequence_length_requests_are_packed():
    train = {**STEP, "batch": {"seq_len": 4096, "micro": 2}}
    training = predicted({"train": train}).resolved.training.step

    assert training.resolved.scenario.batch.documents.mean == 1000
    assert training.report.tokens == 16 * 4096  # 64,000 tokens in whole micro-batches of 4 replicas


def test_a_step_from_a_shipped_file_is_on_the_machines_of_the_cycle():
    step = predicted({"train": "train-llama3-8b-8xh100"}).resolved.training.step.resolved.scenario

    assert (step.model.preset, step.parallel.zero, step.batch.seq_len) == ("qwen3-0.6b", 3, 8192)
    assert step.batch.global_ == 8  # 64,000 tokens in sequences of 8,192


def test_a_step_from_a_file_beside_the_scenario(tmp_path):
    (tmp_path / "step.toml").write_text('kind = "train_step"\nlevel = "coarse"\n[parallel]\ntp = 4\n')
    where = tmp_path / "cycle.toml"
    where.write_text("")
    cycle = simulate(check_question(table({"train": "step.toml"}), str(where)), where=str(where))

    assert cycle.resolved.training.step.resolved.dims.tp == 4


def test_the_profile_of_a_cycle_is_that_of_its_training(tmp_path):
    own = json.loads((DATA / "profiles/h100-sxm.json").read_text()) | {"name": "own"}
    (tmp_path / "own.json").write_text(json.dumps(own))
    cycle = predicted(profile=str(tmp_path / "own.json")).resolved

    assert cycle.training.step.resolved.profile_names == cycle.profile_names


def test_a_profile_of_other_devices_is_refused_where_only_training_is_predicted():
    with pytest.raises(UserError) as error:
        predicted(profile="a100-sxm")

    assert str(error.value).startswith("scenario: profile = 'a100-sxm': ")


def test_the_stack_of_a_cycle_is_not_that_of_training():
    with pytest.raises(UserError) as error:
        predicted(stack="megatron-lm")

    assert str(error.value).startswith("scenario: stack = 'megatron-lm': is for an update that is simulated")


def memory_line(prediction: Any) -> str | None:
    """What a report says of memory near its top."""
    return next((line for line in prediction.lines() if line.startswith("  memory ")), None)


def test_a_cycle_fits_if_its_training_step_does():
    small = predicted(cluster={"base": "h100-hgx", "device": {"base": "h100-sxm", "memory": "4 GiB"}})
    given = predicted({"train": None, "train_time": 3}, model=None)

    assert not small.fits
    assert "training DOES NOT FIT: pipeline rank 0 needs " in memory_line(small)
    assert small.memory == small.resolved.training.step.memory
    assert (given.fits, given.memory, memory_line(given)) == (None, None, None)


def test_nothing_is_given_but_the_update():
    report = predicted(rollout={"engine": {}, "engines": None, "slots": None, "token_time": None}).report

    assert report.provenance["given"] == pytest.approx(report.exposed["update"] / report.makespan_s)
    assert sum(report.provenance.values()) == pytest.approx(1)
    assert report.interval_s[0] < report.step_time_s < report.interval_s[1]


def test_typed_in_times_have_no_interval_and_are_given():
    report = predicted({"train": None, "train_time": 4}, model=None).report

    assert (report.provenance, report.interval_s, report.training, report.engine) == ({"given": 1.0}, None, None, None)


@pytest.mark.parametrize(("rolls", "gpus"), [(1, (8, 16)), (2, (16, 8))])
def test_nodes_that_do_not_roll_out_train(rolls, gpus):
    split = {"mode": "asynchronous", "placement": "disaggregated", "rollout_nodes": rolls}
    found = predicted(split, {"engines": 8}, nodes=3)

    assert found.report.gpus == gpus
    assert found.resolved.training.step.resolved.dims.world_size == gpus[1]


def test_a_split_of_an_update_from_trainers():
    split = {"mode": "asynchronous", "placement": "disaggregated", "rollout_nodes": 1, "update_time": None}
    update = {"method": "relays", "bucket": "1 GiB"}

    assert predicted(split, nodes=3, update=update).report.gpus == (8, 16)


@pytest.mark.parametrize(("trainer", "said"), [({}, 1), ({"tp": 2}, 0)])
def test_an_update_from_trainers_of_another_split_than_the_training_is_told(trainer, said):
    update = {"method": "colocated", "bucket": "1 GiB", "trainer": trainer}
    notes = predicted({"update_time": None}, update=update).report.notes

    told = "the update takes weights from trainers of tp 1, but training has tp 2; see update.trainer"
    assert notes.count(told) == said


@pytest.mark.parametrize(
    ("cycle", "line"),
    [
        (
            {"train_time": 4},
            "cycle.train = {'parallel': {'tp': 2}, 'level': 'coarse'}: cycle.train_time is given: leave",
        ),
        ({"train": None}, "cycle: give train_time, or train, the step that is predicted"),
        ({"minibatches": 3}, "cycle.minibatches = 3: expected a divisor of rollout.requests = 64"),
        ({"train": {"parallel": {"pp": 3}}}, "cycle.train.parallel"),
        ({"train": {"paralel": {"tp": 2}}}, "cycle.train.paralel"),
        ({"train": {"parallel": {"tp": "2"}}}, "cycle.train.parallel.tp = '2'"),
        ({"train": {"parallel": 2}}, "cycle.train.parallel = 2: expected a table"),
        ({"train": {"batch": 2}}, "cycle.train.batch = 2: expected a table"),
        ({"train": {"batch": {"seq_len": "long"}}}, "cycle.train.batch.seq_len = 'long'"),
        (
            {"train": {"batch": {"seq_len": 999}}},
            "cycle.train.batch.seq_len = 999: samples have 1,000 tokens on average",
        ),
        ({"pad_to": 999}, "cycle.pad_to = 999: samples have 1,000 tokens on average"),
        ({"train": {"batch": {"seq_len": 2048}}, "pad_to": 2048}, "cycle.pad_to"),
        ({"train": {"nodes": 2}}, "cycle.train.nodes = 2: follows from the cycle"),
        ({"train": {"model": {"preset": "llama3-70b"}}}, "cycle.train.model = {'preset': 'llama3-70b'}: follows from"),
        ({"train": {"batch": {"global": 2}}}, "cycle.train.batch.global = 2: follows from the cycle"),
        ({"train": {"batch": {"micro": 5}}}, "rollout.requests / cycle.minibatches = 64: must be a multiple of micro"),
        ({"train": "rl-colocated-qwen3-30b-8xh100"}, "expected a scenario of kind train_step"),
        ({"train": "no-such-step"}, "cycle.train = 'no-such-step': no such file: /"),
        (
            {"placement": "disaggregated", "rollout_nodes": 1},
            "cycle.rollout_nodes = 1: expected fewer than the 1 nodes",
        ),
        (
            {"placement": "disaggregated", "trainer_gpus": 4},
            "cycle.trainer_gpus = 4: a predicted step is on whole nodes",
        ),
        ({"rollout_nodes": 1}, "cycle.rollout_nodes = 1: goes with cycle.placement = 'disaggregated'"),
    ],
)
def test_a_fault_is_one_line_that_names_the_key(cycle, line):
    with pytest.raises(UserError) as error:
        predicted(cycle)

    assert line in str(error.value)
    assert len(error.value.faults) == 1


@pytest.mark.parametrize(
    ("rollout", "line"),
    [
        ({"token_time": None}, "rollout: give token_time, or engine, whose steps are predicted"),
        ({"engine": {}}, "rollout.slots = 8: is for decoding whose times are given"),
        ({"engine": {}}, "rollout.engine = {}: rollout.token_time is given: leave one of the two out"),
        ({"prompt": {"kind": "fixed", "tokens": 9}}, "goes with rollout.engine"),
        ({"samples": 3}, "samples = 3 must divide requests = 64"),
    ],
)
def test_faults_of_rollouts(rollout, line):
    with pytest.raises(UserError) as error:
        predicted(rollout=rollout)

    assert line in str(error.value)


def test_shipped_cycles_predict_all_but_the_switch():
    path = DATA / "scenarios/rl-cycle-qwen3-8b-8xh100.toml"
    report = simulate(path, ["cycle.steps=1", "cycle.train.level=coarse"]).report

    assert report.provenance["given"] < 0.05
    assert report.to_json()["cache_requests"] < 256 < report.to_json()["cache_tokens"]
