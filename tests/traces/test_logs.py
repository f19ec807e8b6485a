"""Logs of training runs: units, warm-up, what their lines say, and the scenario that their arguments are."""

import gzip
import json

import pytest
from runcast.simulator.base.errors import UserError
from runcast.simulator.formats.recipes import read_recipe
from runcast.simulator.formats.traces import read_run

from .kineto_file import HERE
from .log_file import STEPS_MS, bridge, iteration, megatron, titan

LOG = HERE / "fixtures" / "megatron-llama3-70b.log"


def log(folder, text):
    path = folder / "run.out"
    path.write_text(text)
    return read_run(path)


def test_milliseconds_become_seconds_without_warm_up():
    """The median of 2.5501, 2.5613, 2.5576, 2.5542 and 2.5729."""
    run = read_run(LOG)

    assert (run.form, run.steps_s, run.step_s) == (
        "megatron_log", pytest.approx([each / 1e3 for each in STEPS_MS]), pytest.approx(2.5576),
    )  # fmt: skip


def test_a_log_says_what_is_warm_up():
    assert read_run(LOG).notes == ("steps 1, 2, 3 are warm-up",)


@pytest.mark.parametrize(("count", "expected"), [(1, 1.0), (2, 2.0), (3, 2.5), (5, 4.0), (6, 5.0), (7, 5.5)])
def test_warm_up_is_three_steps_or_half_of_few(tmp_path, count, expected):
    run = log(tmp_path, "\n".join(iteration(number, 1000.0 * number) for number in range(1, count + 1)))

    assert run.step_s == expected


def test_one_step_is_told_to_be_warm_up(tmp_path):
    assert log(tmp_path, iteration(1, 1000.0)).notes == ("one step only: it is likely warm-up",)


def test_a_clock_that_goes_backwards_is_counted_and_left_out(tmp_path):
    run = log(tmp_path, titan([("30,400", 1), ("19,900", 10), ("30,400", 20), ("40,400", 30)]))

    assert (run.steps, run.notes[1]) == ((20, 30), "1 line tells no time above zero: left out")


def test_lines_with_negative_times_are_counted_and_left_out(tmp_path):
    run = log(tmp_path, "\n".join(iteration(i, 1000.0 * (-1) ** (i > 6)) for i in range(1, 9)))

    assert (run.steps, run.notes) == (
        (1, 2, 3, 4, 5, 6), ("steps 1, 2, 3 are warm-up", "2 lines tell no time above zero: left out"),
    )  # fmt: skip


def test_a_log_without_any_time_is_told(tmp_path):
    with pytest.raises(UserError, match="tells of 1 steps, but of none a time above zero"):
        log(tmp_path, iteration(1, -1000.0))


def test_the_line_of_sizes_is_read_where_there_are_no_arguments(tmp_path):
    sizes = (
        "using world size: 64, data-parallel size: 4, context-parallel size: 1, hierarchical context-parallel sizes: "
        "None, tensor-model-parallel size: 8, encoder-tensor-model-parallel size: 0, pipeline-model-parallel size: 2, "
        "encoder-pipeline-model-parallel size: 0\n"
    )
    facts = log(tmp_path, sizes + iteration(1, 1000.0)).facts

    assert {name: facts[name] for name in ("world_size", "dp", "cp", "tp", "pp")} == {
        "world_size": 64, "dp": 4, "cp": 1, "tp": 8, "pp": 2,
    }  # fmt: skip


def test_a_step_of_a_log_may_be_asked_for():
    assert read_run(LOG, step=2).step_s == pytest.approx(2.7204)


def test_facts_of_a_log_are_in_si_units():
    facts = read_run(LOG).facts

    assert facts == {
        "world_size": 256, "tp": 8, "cp": 1, "pp": 4, "dp": 8, "ep": 1, "vpp": 4, "seq_len": 4096, "micro_batch": 1,
        "global_batch": 128, "layers": 80, "precision": "bf16", "memory_bytes": 50 * 2**30,
        "reserved_bytes": 60 * 2**30,
        "timers_s": {"forward-backward": pytest.approx(2.4802), "optimizer": pytest.approx(0.065)},
        "flop_per_s_per_gpu": pytest.approx(352e12), "tokens": 128 * 4096,
    }  # fmt: skip


def test_the_fixture_is_what_its_script_writes():
    assert megatron() == LOG.read_text()


def test_printed_arguments_are_the_scenario_that_was_run(tmp_path):
    path = tmp_path / "arguments.yaml"
    path.write_text(read_run(LOG).arguments)

    recipe = read_recipe(path, "dgx-h100", nodes=32)

    assert (recipe.table["model"], recipe.table["schedule"], recipe.table["batch"], recipe.unknown) == (
        {"preset": "llama3-70b"}, {"name": "interleaved", "vpp": 4}, {"global": 128, "micro": 1, "seq_len": 4096}, (),
    )  # fmt: skip


def test_a_log_without_arguments_has_none(tmp_path):
    assert log(tmp_path, iteration(1, 1000.0)).arguments is None


def test_lines_of_megatron_bridge(tmp_path):
    run = log(tmp_path, bridge((50.0, 8.0, 7.25, 7.5)))

    assert (run.form, run.step_s, run.facts) == ("megatron_bridge_log", 7.375, {"flop_per_s_per_gpu": 700.5e12})


def test_lines_of_torchtitan_are_timed_by_their_clock(tmp_path):
    """Nine steps in 9.9 s, then ten in 10.5 s."""
    run = log(tmp_path, titan([("10,000", 1), ("19,900", 10), ("30,400", 20)]))

    assert (run.form, run.steps, run.steps_s, run.facts) == (
        "torchtitan_log", (10, 20), pytest.approx((1.1, 1.05)),
        {"flop_per_s_per_gpu": 407.35e12, "memory_bytes": 30.5 * 2**30, "tokens_per_s_per_gpu": 7034.0},
    )  # fmt: skip


def test_a_packed_log_is_read(tmp_path):
    path = tmp_path / "run.log.gz"
    path.write_bytes(gzip.compress(iteration(1, 1500.0).encode()))

    assert read_run(path).step_s == 1.5


def test_a_log_that_starts_with_a_bracket_is_no_trace(tmp_path):
    assert log(tmp_path, "[rank0]: hello\n" + iteration(1, 1500.0)).step_s == 1.5


@pytest.mark.parametrize(("dtype", "gradients"), [("float32", "fp32"), ("bfloat16", "bf16")])
def test_a_log_says_in_which_type_gradients_are_added_up(tmp_path, dtype, gradients):
    lines = LOG.read_text().replace("accumulate_allreduce_grads_in_fp32 .............. True", "").splitlines()
    more = (
        f"  main_grads_dtype ............... torch.{dtype}",
        "  use_precision_aware_optimizer . True",
    )
    end = next(place for place, line in enumerate(lines) if "end of arguments" in line)
    (tmp_path / "r.yaml").write_text(log(tmp_path, "\n".join([*lines[:end], *more, *lines[end:]])).arguments)

    assert read_recipe(tmp_path / "r.yaml", "dgx-h100", 32).table["precision"]["gradients"] == gradients


def test_a_trainers_state_is_a_log(tmp_path):
    path = tmp_path / "trainer_state.json"
    history = [{"step": 50, "train_runtime": 100.0, "train_steps_per_second": 0.5}]
    path.write_text(json.dumps({"global_step": 50, "max_steps": 50, "log_history": history}, indent=2))

    assert read_run(path).step_s == 2.0


def test_a_log_that_starts_with_a_brace_is_no_trace(tmp_path):
    run = log(tmp_path, "{'loss': 2.1}\n{'train_runtime': 100.0, 'train_steps_per_second': 0.5}\n")

    assert run.step_s == 2.0
