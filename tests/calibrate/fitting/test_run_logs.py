"""Logs of training as runs: with a scenario beside them, with a recipe, or with the arguments that they print."""

import pytest
from runcast.calibrate.fitting.run_files import read_runs
from runcast.simulator import engine
from runcast.simulator.base.errors import UserError

from ...command import runcast

BASE = "megatron-core"
SCENARIO = """
name = "own"
kind = "train_step"
cluster = "dgx-h100"
model = { preset = "llama3-8b" }
batch = { global = 16, micro = 1, seq_len = 8192 }
parallel = { tp = 2 }
"""
ARGUMENTS = {
    "add_bias_linear": False, "bf16": True, "context_parallel_size": 1, "data_parallel_size": 4,
    "ffn_hidden_size": 14336, "fp8": None, "global_batch_size": 16, "group_query_attention": True,
    "hidden_size": 4096, "micro_batch_size": 1,
    "max_position_embeddings": 8192, "normalization": "RMSNorm", "num_attention_heads": 32, "num_experts": None,
    "num_layers": 32, "num_query_groups": 8, "overlap_grad_reduce": True, "overlap_param_gather": True,
    "padded_vocab_size": 128256, "pipeline_model_parallel_size": 1, "position_embedding_type": "rope",
    "recompute_granularity": None, "seq_length": 8192, "sequence_parallel": True, "swiglu": True,
    "tensor_model_parallel_size": 2, "untie_embeddings_and_output_weights": True, "use_distributed_optimizer": True,
    "virtual_pipeline_model_parallel_size": None, "vocab_size": 128256, "world_size": 8,
}  # fmt: skip
TITAN = """
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 2
seq_len = 8192
[parallelism]
data_parallel_shard_degree = -1
tensor_parallel_degree = 1
"""


def block(**changes):
    """What Megatron-LM (core 0.13) prints of its arguments."""
    lines = [f"  {name} {'.' * (48 - len(name))} {value}" for name, value in {**ARGUMENTS, **changes}.items()]
    return "\n".join(["-" * 24 + " arguments " + "-" * 24, *lines, "-" * 20 + " end of arguments " + "-" * 21, ""])


def megatron(*seconds, batch=16):
    """Lines of its training log."""
    return "".join(
        f" [2025-08-01 07:20:{step:02}] iteration {step:8}/     500 | consumed samples: {step * batch:12} | "
        f"elapsed time per iteration (ms): {1e3 * each:.1f} | throughput per GPU (TFLOP/s/GPU): 352.0 | "
        f"learning rate: 6.9E-08 | global batch size: {batch:5} | lm loss: 1.04E+01 |\n"
        for step, each in enumerate(seconds, 1)
    )


def titan(seconds, tokens):
    """torchtitan of 2025: 16 sequences of 8,192 tokens on 8 GPUs."""
    mesh = "[rank0]:[titan] 2025-06-26 18:12:46,592 - root - INFO - Building 1-D device mesh with ['dp_shard'], [8]\n"
    return mesh + "".join(
        f"[rank0]:[titan] 2025-06-26 18:23:{step * seconds:09.6f} - root - INFO - step: {step:2}  loss:  8.1996  "
        f"memory: 52.65GiB(66.79%)  tps: {tokens:,}  tflops: 400.13  mfu: 40.46%\n".replace(".", ",", 1)
        for step in range(1, 9)
    )


def trainer(sequences=16, accumulation=4):
    """What Hugging Face's Trainer prints where it starts and ends."""
    return f"""\
  Instantaneous batch size per device = 1
  Total train batch size (w. parallel, distributed & accumulation) = {sequences:,}
  Gradient Accumulation steps = {accumulation}
  Total optimization steps = 500
{{'train_runtime': 855.0, 'train_steps_per_second': 0.585, 'epoch': 1.0}}
"""


@pytest.fixture
def read(tmp_path, monkeypatch):
    """Write files, and read one of them as a run; nothing may be simulated."""

    def fail(*_):
        raise AssertionError("simulated before faults were found")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(engine, "simulate", fail)

    def run(files, cluster=None, base=BASE):
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        return read_runs([tmp_path.joinpath("own.log").relative_to(tmp_path)], base, cluster)[0]

    return run


def layout(run):
    """What a run is: model, machines, axes, batch, whose software."""
    scenario, dims = run.resolved.scenario, run.resolved.dims
    batch = scenario.batch
    return (run.resolved.spec.name, dims.world_size, dims.tp, dims.dp, scenario.parallel.zero, batch.global_,
            batch.micro, batch.seq_len, scenario.stack)  # fmt: skip


MEGATRON = ("llama3-8b", 8, 2, 4, 1, 16, 1, 8192, BASE)


def test_a_log_with_a_scenario_beside_it(read):
    run = read({"own.log": megatron(9, 2, 1.9, 1.5, 1.6, 1.7), "own.toml": SCENARIO})

    assert (layout(run), run.seconds) == (MEGATRON, 1.6)


def test_a_log_with_its_own_arguments(read):
    run = read({"own.log": block() + megatron(9, 2, 1.9, 1.5, 1.6, 1.7)}, "dgx-h100")

    assert (layout(run), run.seconds) == (MEGATRON, 1.6)


def test_a_log_with_arguments_of_megatron_beside_it(read):
    switches = [f"--{name.replace('_', '-')}" for name, value in ARGUMENTS.items() if value is True]
    values = [f"--{name.replace('_', '-')} {value}" for name, value in ARGUMENTS.items() if type(value) in (int, str)]
    shell = " ".join(["torchrun pretrain_gpt.py --disable-bias-linear", *switches, *values])
    header = "using world size: 8, data-parallel size: 4, context-parallel size: 1, tensor-model-parallel size: 2\n"
    run = read({"own.log": header + megatron(1.7), "own.sh": shell}, "dgx-h100")

    assert layout(run) == MEGATRON


def test_a_log_with_a_config_of_torchtitan_beside_it(read):
    run = read({"own.log": titan(1.5, 10_922), "own.toml": TITAN}, "dgx-h100", "torchtitan")

    assert (layout(run), run.seconds) == (("llama3-8b", 8, 1, 8, 3, 16, 2, 8192, "torchtitan"), 1.5)


def test_some_gpus_of_a_node(read):
    run = read({"own.log": block(world_size=4, data_parallel_size=2) + megatron(3.2)}, "dgx-h100")

    assert layout(run)[1:4] == (4, 2, 2)


def test_what_a_recipe_says_that_is_not_modelled_is_told(read):
    run = read({"own.log": block(hidden_dropout=0.1, lora_ranks=16) + megatron(1.6)}, "dgx-h100")

    said = [line.strip().partition(":")[0] for line in run.log.splitlines()]
    assert said == ["own.log", "not modelled", "unknown"]


FAULTS = {
    "no step": ({"own.log": "loss 1.9\n", "own.toml": SCENARIO}, None, "no line tells the time of a step; expected "),
    "no set-up": ({"own.log": megatron(1.6)}, None, "expected own.toml, own.sh, own.yaml beside it: "),
    "no machines": ({"own.log": block() + megatron(1.6)}, None, "expected --cluster, or the scenario own.toml"),
    "no world": ({"own.log": titan(1.5, 10_922).partition("\n")[2], "own.toml": TITAN}, "dgx-h100", "on how many GPUs"),
    "another batch": ({"own.log": megatron(1.6, batch=32), "own.toml": SCENARIO}, None, "= 32: own.toml says 16"),
    "trainer's batch": ({"own.log": trainer(1024), "own.toml": SCENARIO}, None, "_batch = 1024: own.toml says 16"),
    "accumulation": ({"own.log": trainer(16, 2), "own.toml": SCENARIO}, None, "accumulation = 2: own.toml says 4"),
    "layers": ({"own.log": block(num_layers=16) + megatron(1.6), "own.toml": SCENARIO}, None, "= 16: own.toml says 32"),
    "type": ({"own.log": block(fp8="hybrid") + megatron(1.6), "own.toml": SCENARIO}, None, "= fp8: own.toml says bf16"),
    "chunks": ({"own.log": block(virtual_pipeline_model_parallel_size=2) + megatron(1.6), "own.toml": SCENARIO}, None,
               "vpp = 2: own.toml says 1"),
    "experts": ({"own.log": block(expert_model_parallel_size=2) + megatron(1.6), "own.toml": SCENARIO}, None,
                "ep = 2: own.toml says 1"),
    "too fast": ({"own.log": megatron(0.0016), "own.toml": SCENARIO}, None, "of the peak of the GPUs; expected s"),
    "tenths": ({"own.log": megatron(1.7).replace("352.0", "35.2"), "own.toml": SCENARIO}, None, " per GPU: exp"),
    "tokens of a node": ({"own.log": titan(1.5, 87_381), "own.toml": TITAN}, "dgx-h100", "this is that of a node"),
    "plan": ({"own.log": block(tensor_model_parallel_size=3) + megatron(1.6)}, "dgx-h100", "tp 3 x cp 1 x pp 1 = 3 "),
    "kind": ({"own.log": megatron(1.6), "own.toml": 'kind = "weight_update"'}, None, "expected 'train_step'"),
}  # fmt: skip


@pytest.mark.parametrize(("files", "cluster", "said"), FAULTS.values(), ids=FAULTS)
def test_a_log_that_is_no_run_is_one_line(read, files, cluster, said):
    with pytest.raises(UserError) as caught:
        read(files, cluster)

    assert ([said in line for line in caught.value.faults], str(caught.value)[:4]) == ([True], "own.")


def test_logs_and_tables_make_one_stack(tmp_path):
    """The log is of the same step as the table's second row, and as long."""
    head = "framework,layers,hidden,ffn_hidden,heads,kv_heads,vocab,seq_len,gpu,gpus_per_node,n_gpus,tp,dp,mbs,gbs"
    row = "mine,32,4096,14336,32,8,128256,8192,H100-SXM-80GB,8,8"
    rows = [f"{row},2,4,1,16,bf16,1.75", f"{row},4,2,1,16,bf16,1.85"]
    (tmp_path / "own.csv").write_text("\n".join([f"{head},precision,iter_time_s", *rows]) + "\n")
    (tmp_path / "one.log").write_text(megatron(9, 2, 1.9, 1.7, 1.72, 1.71))
    (tmp_path / "one.toml").write_text(SCENARIO)
    done = runcast("calibrate", "runs", "own.csv", "one.log", "--base", BASE, "--out", "mine.toml", cwd=tmp_path)

    assert (done.returncode, done.stderr, done.stdout.splitlines()[:2]) == (0, "", [
        "3 runs of own.csv, one.log, from the stack megatron-core",
        "  one.log: Megatron-LM, 6 steps, the first 3 skipped as warm-up: 1.71 s a step (median); set up by one.toml",
    ])  # fmt: skip


MEMORY = "[Rank 0] (after 2 iterations) memory (MB) | allocated: 30210.5 | max allocated: 51200.0 | reserved: 60000.0\n"


def test_peak_memory_of_a_log_is_what_was_allocated(read):
    run = read({"own.log": megatron(9, 1.7) + MEMORY, "own.toml": SCENARIO})

    assert (run.memory_bytes, run.convention) == (50 * 2**30, ("fullest", "allocated"))


def test_what_an_allocator_took_is_no_peak(read):
    assert read({"own.log": titan(1.5, 10_922), "own.toml": TITAN}, "dgx-h100", "torchtitan").memory_bytes is None


def test_a_mean_of_a_whole_run_says_that_it_holds_the_warm_up(read):
    results = "{'train_runtime': 855.0, 'train_steps_per_second': 0.585, 'epoch': 1.0}\n{'step': 500}"
    run = read({"own.log": results, "own.toml": SCENARIO})

    said = (
        "seconds of a step are the mean of the run, warm-up included; whether the run went on from a checkpoint is not "
        "told; its step would be longer: give its log then"
    )
    assert f"Trainer, 1 step ({said}): 1.71 s a step" in run.log


def test_which_of_two_runs_in_a_log_is_read_is_said(read):
    first, last = block(micro_batch_size=2) + megatron(*[3.0] * 8), block() + megatron(9, 2, 1.9, 1.7, 1.72, 1.71)
    run = read({"own.log": first + last}, "dgx-h100")

    assert "6 steps, the first 3 skipped as warm-up (2 runs found: run 2 is read, the last one): 1.71 s" in run.log


def test_one_run_has_no_others_to_disagree_with(tmp_path):
    (tmp_path / "own.log").write_text(megatron(9, 4.1))
    (tmp_path / "own.toml").write_text(SCENARIO)
    done = runcast("calibrate", "runs", "own.log", "--base", BASE, "--out", "mine.toml", cwd=tmp_path)

    assert (done.returncode, "disagrees" in done.stdout) == (0, False)
