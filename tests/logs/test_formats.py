"""Each format of logs: who printed it, seconds of its steps, and what else it says, in SI units."""

from pathlib import Path

import pytest
from runcast.simulator.base.errors import UserError
from runcast.simulator.formats.logs import FORMATS, read_log

from . import samples

READ = [
    (samples.NEMO_2, "nemo_log", {0: 21.41, 1: 2.61, 2: 2.31, 3: 2.35}, 2.33),
    (samples.NEMO_1, "nemo_log", {0: 20.9, 1: 2.42, 2: 2.44}, 2.43),
    (samples.BRIDGE, "megatron_bridge_log", {1: 14.26, 2: 2.26, 3: 2.28}, 2.27),
    (samples.NANOTRON, "nanotron_log", {1: 9.21, 2: 1.23, 3: 0.985}, 1.1075),
    (samples.DEEPSPEED, "deepspeed_log", {20: 2.05, 30: 2.06}, 2.06),
    (samples.DEEPSPEED_OLD, "deepspeed_log", {30: 1.5145}, 1.5145),
    (samples.DEEPSPEED_PIPELINE, "deepspeed_pipeline_log", {10: 3.12, 20: 0.563, 30: 0.561}, 0.562),
    (samples.TRAINER_STATE, "trainer_log", {500: 2.469}, 2.469),
    (samples.TRAINER_LOG, "trainer_log", {0: 1 / 0.405}, 1 / 0.405),
    (samples.TRAINER_START, "trainer_log", {60: 222.0}, 222.0),
    (samples.TRAINER_TABLE, "trainer_log", {60: 99720.5 / 60}, 99720.5 / 60),
    (samples.TORCHTITAN_ALL_RANKS, "torchtitan_log", {2: 4.0, 3: 2.0, 4: 2.0}, 2.0),
    (samples.TORCHTITAN_VALIDATED, "torchtitan_log", {4: 2.0, 6: 2.0, 8: 2.0}, 2.0),
]


@pytest.mark.parametrize(("text", "form", "steps_s", "step_s"), READ, ids=[form for _, form, _, _ in READ])
def test_steps_of_a_log(text, form, steps_s, step_s):
    log = read_log(Path("run.log"), text)

    assert (log.format.name, list(log.steps_s), log.step_s) == (form, list(steps_s), pytest.approx(step_s))
    assert list(log.steps_s.values()) == pytest.approx(list(steps_s.values()))


def test_every_format_has_a_sample():
    shown = {read_log(Path("run.log"), text).format.name for text, *_ in READ}

    assert {form.name for form in FORMATS} - shown == {"megatron_log"}  # tests/traces has its fixture


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        (samples.NEMO_2, {"global_batch": 128}),
        (samples.BRIDGE, {"flop_per_s_per_gpu": 411.3e12}),
        (samples.NANOTRON, {"tokens_per_s_per_gpu": 120_000, "flop_per_s_per_gpu": 430.5e12}),
        (samples.TRAINER_START, {"micro_batch": 1, "global_batch": 512, "accumulation": 32}),
        (samples.DEEPSPEED, {"memory_bytes": 40.5 * 2**30}),
        (samples.DEEPSPEED_OLD, {"memory_bytes": 9.02 * 2**30}),
    ],
)
def test_facts_of_a_log_are_in_si_units(text, facts):
    assert read_log(Path("run.log"), text).facts == pytest.approx(facts)


@pytest.mark.parametrize(
    ("mesh", "facts"),
    [
        ("Building 3-D device mesh with ['pp', 'dp_shard', 'tp'], [2, 4, 8]", {"world_size": 64}),
        ("Building device mesh with parallelism: pp=2, dp_replicate=3, dp_shard=4, cp=1, tp=8, ep=4, etp=1",
         {"world_size": 192, "pp": 2, "cp": 1, "tp": 8}),
    ],
)  # fmt: skip
def test_ranks_of_torchtitan_by_its_mesh(mesh, facts):
    log = read_log(Path("run.log"), f"[titan] 2026-02-24 19:46:00,508 - {mesh}\n{samples.TORCHTITAN_ALL_RANKS}")

    assert {name: log.facts[name] for name in facts} == facts


def test_lines_of_megatron_win_over_the_coarser_ones_of_bridge():
    line = " [2025-10-02 22:52:07] iteration {:8}/ 50 | consumed samples: 5120 | elapsed time per iteration (ms): {} |"
    text = "".join(f"{line.format(step, ms)}\nStep Time : {ms / 1e3:.2f}s GPU utilization: 58.2TFLOP/s/GPU\n"
                   for step, ms in ((10, 13212.7), (20, 2260.3)))  # fmt: skip

    assert read_log(Path("run.log"), text).steps_s == {10: 13.2127, 20: 2.2603}


def test_the_mean_of_a_whole_run_says_so():
    assert read_log(Path("run.log"), samples.TRAINER_STATE).notes == (
        "seconds of a step are the mean of the run, warm-up included",
        "whether the run went on from a checkpoint is not told; its step would be longer: give its log then",
    )


@pytest.mark.parametrize(
    "said",
    [
        "  Continuing training from epoch 0\n  Continuing training from global step 20",
        "  Resuming training from checkpoint with epoch 0 and global step 20",
        "TrainOutput(global_step=40, training_loss=1.1)",
    ],
    ids=["resumed", "resumed in 5.x", "stopped"],
)
def test_seconds_of_trainer_are_those_of_the_steps_that_ran(said):
    end = "{'train_runtime': 280.0, 'train_steps_per_second': 0.214, 'epoch': 1.0}"  # 60 steps, as old releases count
    log = read_log(Path("run.log"), f"  Total optimization steps = 60\n{said}\n{end}\n")

    assert log.step_s == 7.0


def test_a_rate_of_fewer_steps_than_were_to_be_is_of_those_that_ran():
    end = "{'train_runtime': 280.0, 'train_steps_per_second': 0.143, 'epoch': 0.7}"  # 40 steps, as 5.x counts
    log = read_log(Path("run.log"), f"  Total optimization steps = 60\n{end}\n")

    assert log.step_s == pytest.approx(7.0, rel=2e-3)


def test_a_run_that_stopped_early_is_no_time_where_nothing_tells_its_steps():
    start = samples.TRAINER_START.replace("Num examples = 30,720", "Num examples = 30,720\n  Num Epochs = 1")
    with pytest.raises(UserError) as refused:
        read_log(Path("run.log"), start.replace("'epoch': 1.0", "'epoch': 0.6"))

    assert str(refused.value) == (
        "run.log: the run stopped before the end of its 60 steps (epoch 0.6, not 1), and nothing tells how many it "
        "ran; expected trainer_state.json, or TrainOutput(global_step=…)"
    )


def test_a_log_without_a_step_time_says_what_was_expected():
    with pytest.raises(UserError, match=r"^run.log: no line tells the time of a step; expected a log of Megatron-LM, "):
        read_log(Path("run.log"), "loss: 1.93\n")


def test_a_rate_of_one_digit_is_no_time():
    lines = samples.TRAINER_START.splitlines()
    with pytest.raises(UserError) as refused:
        read_log(Path("run.log"), lines[-1])

    assert str(refused.value) == (
        "run.log: train_steps_per_second = 0.005: has fewer than three digits; expected train_runtime beside the "
        "number of steps (step, global_step, Total optimization steps = 60)"
    )


def test_micro_batches_of_an_old_deepspeed_are_no_steps():
    with pytest.raises(UserError) as refused:
        read_log(Path("run.log"), samples.DEEPSPEED_OLD_TIMER)

    assert str(refused.value) == (
        "run.log: 0/40, SamplesPerSec counts micro-batches; expected lines `[Rank 0] step=10, skipped=0` beside"
    )


def test_checkpoints_of_torchtitan_are_no_part_of_a_step():
    """Each rank tells of its checkpoint, which the rate of the next line counts."""
    log = read_log(Path("run.log"), samples.titan(1, [0.9] * 10, saved_s=3.0))

    assert (log.step_s, "tokens_per_s_per_gpu" in log.facts) == (pytest.approx(0.9), False)


def test_evaluations_that_trainer_tells_are_no_part_of_a_step_of_deepspeed():
    """They have no clock of their own."""
    first, *others = samples.DEEPSPEED.splitlines(keepends=True)
    evaluation = "{'eval_loss': 2.2, 'eval_runtime': 10.5, 'eval_samples_per_second': 16.6, 'epoch': 0.1}\n"

    log = read_log(Path("run.log"), first + evaluation.join(others))

    assert list(log.steps_s.values()) == pytest.approx([1.0, 1.01])


SAVES = """\
[2024-07-17 19:53:31,000] [INFO] [logging.py:96:log_dist] [Rank 0] \
[Torch] Checkpoint global_step20 is about to be saved!
[2024-07-17 19:53:36,000] [INFO] [torch_checkpoint_engine.py:33:commit] [Torch] Checkpoint global_step20 is ready now!
[2024-07-17 19:53:36,600] [INFO] [torch_checkpoint_engine.py:33:commit] [Torch] Checkpoint global_step20 is ready now!
"""


def test_checkpoints_of_deepspeed_are_no_part_of_a_step():
    """They end when the last rank says so."""
    log = read_log(Path("run.log"), samples.DEEPSPEED.replace("[2024-07-17 19:53:51", f"{SAVES}[2024-07-17 19:53:51"))

    assert list(log.steps_s.values()) == pytest.approx([2.05, 1.5])


@pytest.mark.parametrize(("text", "note"), [
    (samples.DEEPSPEED + SAVES.splitlines()[0],
     "time of 1 checkpoint is in the steps around: no line tells when they end"),
    (samples.TRAINER_START.replace("{'train_runtime", "Saving model checkpoint to out/checkpoint-20\n{'train_runtime"),
     "time of 1 checkpoint is in the mean: no line tells how long"),
])  # fmt: skip
def test_checkpoints_whose_end_is_not_told_are_told(text, note):
    assert note in read_log(Path("run.log"), text).notes


STATE = """\
{"log_history": [
  {"eval_loss": 1.4, "eval_runtime": 20.0, "step": 100},
  {"eval_code_loss": 1.4, "eval_code_runtime": 10.5, "step": 200},
  {"step": 200, "train_runtime": 230.5, "train_steps_per_second": 0.868},
  {"eval_loss": 1.4, "eval_runtime": 99.0, "step": 200}],
 "max_steps": 200}
"""
SAID_TWICE = """\
  Total optimization steps = 200
{'eval_loss': 1.4, 'eval_runtime': 20.0, 'epoch': 0.5}
{'eval_loss': 1.4, 'eval_runtime': 10.5, 'epoch': 1.0}
{'train_runtime': 230.5, 'train_steps_per_second': 0.868, 'epoch': 1.0}
***** train metrics *****
  train_runtime            = 0:03:50.50
***** eval metrics *****
  eval_runtime             = 0:01:39.00
"""


@pytest.mark.parametrize("text", [STATE, SAID_TWICE], ids=["state", "log"])
def test_evaluations_are_no_part_of_a_step(text):
    """Those during the training, of any data; not the one behind it."""
    log = read_log(Path("run.log"), text)

    assert (log.step_s, log.choice[0]) == (1.0, "30.5 s of 2 evaluations are taken out")


@pytest.mark.parametrize("epoch", ["0", "0.0"])
def test_an_evaluation_before_the_training_is_none_of_its_runtime(epoch):
    before = f"{{'eval_loss': 2.5, 'eval_runtime': 60.12, 'epoch': {epoch}}}\n"

    assert read_log(Path("run.log"), before + SAID_TWICE).step_s == 1.0


MEGATRON = samples.arguments(num_layers=80) + samples.megatron(range(1, 9), 2000)


@pytest.mark.parametrize(
    "prefix",
    [
        "2025-08-01 07:20:00 ", "2025-08-01T07:20:00.1234Z ", "(TrainWorker pid=1234, ip=10.0.0.1) ", "master | ",
        "[1,0]<stdout>:", "255: ", "[default7]:", "pod/train-0/main: ",
    ],
)  # fmt: skip
def test_arguments_of_megatron_behind_what_launchers_print(prefix):
    log = read_log(Path("run.log"), "".join(prefix + line for line in MEGATRON.splitlines(keepends=True)))

    assert log.arguments == read_log(Path("run.log"), MEGATRON).arguments


def test_thousands_may_have_commas():
    log = read_log(Path("run.log"), MEGATRON.replace("2000.0", "2,000.0"))

    assert log.step_s == 2.0


def test_lines_that_end_as_on_windows():
    log = read_log(Path("run.log"), MEGATRON.replace("\n", "\r\n"))

    assert log.facts["layers"] == 80
