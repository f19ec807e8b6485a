"""Logs to which several runs have written: which of them are read, and what is warm-up then."""

from pathlib import Path

import pytest
from runcast.simulator.base.errors import UserError
from runcast.simulator.formats.logs import read_log

from .samples import BRIDGE, arguments, bridge, deepspeed, megatron, nemo, titan


def read(text, step=None):
    return read_log(Path("run.log"), text, step)


SECOND = "2 runs found: run 2 is read, the last one"
RESTARTS = {
    "Megatron-LM on other GPUs":
        arguments() + megatron(range(1, 30), 2555) + arguments(world_size=128) + megatron(range(11, 80), 5000),
    "Megatron-LM with its first line alone":
        f"using world size: 8\n{megatron(range(1, 30), 2555)}using world size: 4\n{megatron(range(30, 80), 5000)}",
    "Megatron-LM with its arguments once":
        arguments() + megatron(range(1, 9), 2555) + "using world size: 8\n" + megatron(range(9, 80), 5000),
    "NeMo": nemo(range(100), 0.5) + nemo(range(50, 200), 5.0),
    "Megatron Bridge": bridge([0.9] * 30) + bridge([9.0, 5.0, 5.0, 5.0, 5.0, 5.0]),
    "DeepSpeed, shorter": deepspeed(1, [0.9] * 10) + deepspeed(2, [5.0] * 10),
    "DeepSpeed, longer": deepspeed(1, [0.9] * 10) + deepspeed(2, [5.0] * 30),
    "torchtitan on another mesh": titan(1, [0.9] * 10, "dp_shard=8") + titan(2, [5.0] * 10, "dp_shard=4, tp=2"),
    "torchtitan": titan(1, [0.9] * 10) + titan(2, [5.0] * 10),
}  # fmt: skip


@pytest.mark.parametrize("text", RESTARTS.values(), ids=RESTARTS)
def test_of_runs_that_may_differ_the_last_is_read(text):
    log = read(text)

    assert (log.step_s, log.choice) == (pytest.approx(5.0), (SECOND,))


def test_lines_without_numbers_do_not_tell_runs_apart():
    assert read(BRIDGE).choice == ("lines `Step Time` have no number: whether the log holds several runs is not told",)


def test_a_run_is_of_its_own_setup():
    facts = read(RESTARTS["Megatron-LM on other GPUs"]).facts

    assert facts["world_size"] == 128


def test_a_run_that_prints_its_line_alone_has_no_arguments_of_another():
    log = read(RESTARTS["Megatron-LM with its arguments once"])

    assert (log.facts["world_size"], log.arguments) == (8, None)


def test_a_mesh_is_that_of_the_run_that_is_read():
    assert read(RESTARTS["torchtitan on another mesh"]).facts["tp"] == 2


def test_runs_with_the_same_arguments_are_one_without_the_warm_up_of_each():
    """Twelve crashes; the arguments that no step's time is in may differ."""
    each = [19000, 4000, 3000, 2555]
    text = "".join(
        arguments(consumed_train_samples=run, exit_interval=run) + megatron(range(4 * run, 4 * run + 4), each)
        for run in range(12)
    )
    log = read(text)

    assert (log.step_s, log.runs, log.warm_up, log.notes) == (2.555, 12, 3, (
        "the first 3 steps of each run are warm-up", "12 runs found: all have the same arguments and are read",
    ))  # fmt: skip


def test_runs_of_other_arguments_among_those_that_are_read():
    mine, other = arguments() + megatron(range(1, 8), 2000), arguments(micro_batch_size=2) + megatron(range(1, 8), 9000)
    log = read(mine + other + mine)

    assert (log.step_s, log.choice) == (2.0, ("3 runs found: runs 1, 3 are read, which have the same arguments",))


def test_a_run_that_ended_in_its_warm_up_is_not_read():
    log = read(nemo(range(50), 2.0) + nemo(range(20, 22), 9.0))

    assert (log.step_s, log.choice) == (2.0, ("2 runs found: run 1 is read, the last one with more than 3 steps",))


def test_steps_that_are_repeated_without_a_start_are_of_the_same_setup():
    log = read(arguments(num_layers=80) + megatron(range(1, 30), 2000) + megatron(range(20, 40), 2000))

    assert (log.facts["layers"], log.runs) == (80, 2)


def test_a_start_without_a_step_is_no_run():
    log = read(arguments(world_size=8) + arguments() + megatron(range(1, 8), 2000))

    assert (log.facts["world_size"], log.choice) == (256, ())


def test_ranks_that_print_a_step_apart_are_one_run():
    numbers = [step for pair in zip(range(2, 9), range(1, 8), strict=True) for step in pair]

    assert read(megatron(numbers, 2000)).runs == 1


def test_trainings_of_one_trainer_log_keep_apart():
    start = (
        "***** Running training *****\n  Instantaneous batch size per device = {}\n  Total optimization steps = 60\n"
    )
    end = "{{'train_runtime': {}, 'train_steps_per_second': 0.5}}\n"
    log = read(start.format(1) + end.format(60.0) + start.format(2) + end.format(120.0) + start.format(4))

    assert (log.step_s, log.facts["micro_batch"], log.choice[0]) == (2.0, 2, SECOND)


RAMP = megatron(range(1, 49), 2010, 96) + megatron(range(49, 100), [2555 + step % 11 * 60 for step in range(49, 100)])


@pytest.mark.parametrize("start", ["", arguments()], ids=["by its last line", "by its arguments"])
def test_steps_of_a_batch_that_is_ramped_up_are_left_out(start):
    log = read(start + RAMP)

    assert (log.step_s, log.facts["global_batch"], log.choice) == (
        2.855, 128, ("48 lines tell another global batch than 128: left out",),
    )  # fmt: skip


def test_a_step_of_the_ramp_may_be_asked_for():
    assert read(arguments() + RAMP, step=10).step_s == 2.01


def test_a_ramp_that_did_not_end_is_refused():
    with pytest.raises(UserError) as refused:
        read(arguments() + megatron(range(1, 40), 2010, 96))

    assert str(refused.value) == "run.log: no step has the global batch of its arguments, 128; the last one has 96"
