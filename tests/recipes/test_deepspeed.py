"""DeepSpeed's JSON: beside a model's config, and as the file that a trainer's recipe names."""

import json

import pytest
from runcast.simulator.base.errors import UserError
from runcast.simulator.formats.recipes import Additions, read_recipe, scenario_table

ADDITIONS = Additions("llama2-7b", 4096)
BF16 = {"bf16": {"enabled": True}, "train_micro_batch_size_per_gpu": 2}
SIXTEEN = {"gradients": "bf16", "reduce": "bf16"}


def zero(stage, **keys):
    return {"zero_optimization": {"stage": stage, **keys}}


@pytest.fixture
def read(tmp_path):
    def recipe(keys, additions=ADDITIONS):
        (tmp_path / "ds.json").write_text(json.dumps(BF16 | keys))
        return read_recipe(tmp_path / "ds.json", "dgx-h100", 2, additions=additions)

    return recipe


@pytest.fixture
def table(read):
    return lambda keys: scenario_table(read(keys), "r", "dgx-h100", 2)


@pytest.mark.parametrize(
    ("keys", "key", "value"),
    [
        (zero(0), "parallel", None),  # as ZeRO 1
        (zero(0) | {"bf16": {"enabled": False}}, "parallel", {"zero": 0}),
        (zero(0) | {"data_types": {"grad_accum_dtype": "bf16"}}, "parallel", {"zero": 0}),
        (zero(0, offload_optimizer={"device": "cpu"}), "offload", None),
        (zero(3, stage3_prefetch_bucket_size=0), "parallel", {"zero": 3, "prefetch": 0, "prefetch_backward": 0}),
        (zero(3, stage3_prefetch_bucket_size=5e7), "parallel", {"zero": 3}),
        ({"bf16": {"enabled": False}, "torch_autocast": {"enabled": True, "dtype": "bfloat16"}}, "precision",
         {"reduce": "fp32"}),
        (zero(1), "parallel", None),
        (zero(3), "parallel", {"zero": 3}),
        ({"zero_optimization": True}, "parallel", None),
        (zero(3, mics_shard_size=8), "parallel", {"zero": 3, "shard": 8}),
        (zero(1) | {"tensor_parallel": {"autotp_size": 4}}, "parallel", {"tp": 4, "sequence_parallel": False}),
        (zero(3) | {"sequence_parallel_size": 2}, "parallel", {"cp": 2, "cp_type": "ulysses", "zero": 3}),
        (zero(1) | {"pipeline": {"stages": 4}}, "parallel", {"pp": 4}),
        (zero(2), "bucket", 500_000_000),
        (zero(2, reduce_bucket_size=1e8), "bucket", 100_000_000),
        (zero(2, reduce_bucket_size="auto"), "bucket", 4096**2),
        (zero(3, reduce_bucket_size=1e8), "bucket", None),
        (zero(1), "overlap", {"dp": False, "params": False}),
        (zero(2, overlap_comm=True), "overlap", {"params": False}),
        (zero(1, overlap_comm=True), "overlap", {"dp": False, "params": False}),
        (zero(0, overlap_comm=True), "overlap", {"dp": False, "params": False}),
        (zero(3), "overlap", None),
        (zero(3, overlap_comm=False), "overlap", {"dp": False}),
        (zero(3, offload_optimizer={"device": "cpu"}), "offload", {"optimizer": True}),
        (zero(2, cpu_offload=True), "offload", {"optimizer": True}),
        (zero(2), "precision", SIXTEEN),
        (zero(0), "precision", {"reduce": "bf16"}),
        (zero(2) | {"data_types": {"grad_accum_dtype": "fp32"}}, "precision", {"reduce": "bf16"}),
        (zero(2) | {"communication_data_type": "fp32"}, "precision", {"gradients": "bf16", "reduce": "fp32"}),
        (zero(2) | {"bf16": {"enabled": False}}, "precision", {"compute": "fp32", "reduce": "fp32"}),
        (zero(2) | {"bf16": {"enabled": "auto"}}, "precision", SIXTEEN),
        (zero(2) | {"activation_checkpointing": {"cpu_checkpointing": True}}, "recompute", {"mode": "full"}),
        (zero(2) | {"activation_checkpointing": {"cpu_checkpointing": True}}, "offload", {"activations": 1.0}),
        ({"train_batch_size": 128}, "batch", {"global": 128, "micro": 2, "seq_len": 4096}),
        ({"gradient_accumulation_steps": 3}, "batch", {"global": 96, "micro": 2, "seq_len": 4096}),
        ({"train_micro_batch_size_per_gpu": "auto", "train_batch_size": 64, "gradient_accumulation_steps": 2}, "batch",
         {"global": 64, "micro": 2, "seq_len": 4096}),
        ({"train_micro_batch_size_per_gpu": "auto"}, "batch", {"global": 128, "micro": 8, "seq_len": 4096}),
    ],
)  # fmt: skip
def test_what_a_key_says(table, keys, key, value):
    """On 16 GPUs; None is what is as by default, and left out."""
    assert table(keys).get(key) == value


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        (zero(4), "zero_optimization.stage = 4: expected 0 to 3"),
        (zero(2) | {"pipeline": {"stages": 2}}, "zero_optimization.stage = 2: expected 0 or 1 with stages"),
        (zero(3, mics_shard_size=3), "zero_optimization.mics_shard_size = 3: must divide the 16 data-parallel ranks"),
        ({"bf16": True}, 'bf16 = true: expected a table, as in DeepSpeed: {"enabled": true}'),
        ({"train_batch_size": 30}, "train_batch_size = 30: micro 2 x accumulation . x dp 16: 32 must divide it"),
        ({"train_batch_size": 128, "gradient_accumulation_steps": 2}, "accumulation 2 x dp 16 = 64 is expected"),
        ({"fp16": {"enabled": True}}, "fp16.enabled = True: cannot go with bf16.enabled"),
        ({"tensor_parallel": {"autotp_size": 3}}, "tensor_parallel.autotp_size = 3: tp 3 x cp 1 x pp 1 = 3 must"),
        (zero(2, offload_optimizer={"device": "disk"}), "offload_optimizer.device = 'disk': expected one of none, cpu"),
        (zero(2, reduce_bucket_size=0), "reduce_bucket_size = 0: expected a number of elements from 1 on"),
    ],
)  # fmt: skip
def test_what_does_not_go_together(read, keys, line):
    with pytest.raises(UserError, match=line):
        read(keys)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{"train_batch_size": 32, "train_batch_size": 64}', "is not JSON: key 'train_batch_size' is there twice"),
        ('{"train_batch_size": 32,}', "is not JSON: "),
    ],
)
def test_json_that_deepspeed_refuses(tmp_path, text, line):
    (tmp_path / "ds.json").write_text(text)

    with pytest.raises(UserError, match=line):
        read_recipe(tmp_path / "ds.json", "dgx-h100", additions=ADDITIONS)


def test_a_file_alone_needs_a_model_and_a_length(read):
    with pytest.raises(UserError, match="says neither model nor length of sequences; give --model and --seq-len"):
        read(zero(2), additions=None)


@pytest.mark.parametrize(
    ("keys", "name"),
    [
        (zero(3, zero_hpz_partition_size=8), "zero_optimization.zero_hpz_partition_size"),
        (zero(2, allgather_partitions=False), "zero_optimization.allgather_partitions"),
        (zero(2, contiguous_gradients=False), "zero_optimization.contiguous_gradients"),
        (zero(3, stage3_max_live_parameters=0), "zero_optimization.stage3_max_live_parameters"),
        (zero(3, reduce_bucket_size=1e8), "zero_optimization.reduce_bucket_size"),
        (zero(3, zero_quantized_weights=True), "zero_optimization.zero_quantized_weights"),
        (zero(3, zero_quantized_gradients=True), "zero_optimization.zero_quantized_gradients"),
        (zero(3, offload_param={"device": "cpu"}), "zero_optimization.offload_param.device"),
        (zero(2, offload_optimizer={"device": "nvme"}), "zero_optimization.offload_optimizer.device"),
        (zero(1, reduce_scatter=False), "zero_optimization.reduce_scatter"),
        (zero(1) | {"optimizer": {"type": "OneBitAdam", "params": {"freeze_step": 400}}}, "optimizer.type"),
        (zero(1) | {"curriculum_learning": {"enabled": True, "min_difficulty": 8}}, "curriculum_learning.enabled"),
    ],
)
def test_what_would_change_a_step_is_named(read, keys, name):
    assert [line.partition(" = ")[0] for line in read(keys).not_modelled] == [name]


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        (zero(0, offload_optimizer={"device": "cpu"}), "offload_optimizer.device has no effect with stage 0"),
        (zero(2, mics_shard_size=8), "mics_shard_size has no effect with stage 2"),
        (zero(1, overlap_comm=True), "overlap_comm has no effect with stage 1"),
    ],
)
def test_keys_of_another_stage_are_named(read, keys, line):
    assert f"zero_optimization.{line}" in read(keys).assumed


RECIPE = "base_model: meta-llama/Llama-2-7b-hf\nsequence_len: 2048\nmicro_batch_size: 4\nbf16: true\n"


@pytest.fixture
def beside(tmp_path, monkeypatch):
    """A trainer's recipe in a folder below that of DeepSpeed's file, read from elsewhere."""
    (tmp_path / "examples/llama").mkdir(parents=True)
    (tmp_path / "configs").mkdir()

    def recipe(keys, text=RECIPE):
        (tmp_path / "configs/ds.json").write_text(json.dumps(keys))
        (tmp_path / "examples/llama/r.yml").write_text(text + "deepspeed: configs/ds.json\n")
        return read_recipe(tmp_path / "examples/llama/r.yml", "dgx-h100")

    return recipe


def test_what_is_auto_is_what_the_trainer_says(beside):
    names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    recipe = beside(zero(2) | dict.fromkeys(names, "auto") | {"bf16": {"enabled": "auto"}})

    assert recipe.table["batch"] == {"global": 32, "micro": 4, "seq_len": 2048}
    assert recipe.table["precision"] == {"compute": "bf16", "moments": "fp32", **SIXTEEN}


def test_a_size_that_is_not_the_trainers_is_refused(beside):
    with pytest.raises(UserError, match=r"ds.json: train_micro_batch_size_per_gpu = 2: the trainer's own file says 4"):
        beside(zero(2) | {"train_micro_batch_size_per_gpu": 2})


FACTORY = "model_name_or_path: Qwen/Qwen3-8B\ndo_train: true\n"
ON, OFF = {"enabled": True}, {"enabled": False}


@pytest.mark.parametrize(
    ("text", "keys", "line"),
    [
        (RECIPE, {"fp16": ON}, "ds.json: fp16.enabled = True: the trainer's own file computes in bf16; expected"),
        (RECIPE, {"fp16": ON, "bf16": OFF}, "fp16.enabled = True: the trainer's own file computes in bf16"),
        (RECIPE, {"bf16": OFF}, "bf16.enabled = False: the trainer's own file computes in bf16; expected the same, or"),
        (FACTORY, {"bf16": ON}, "bf16.enabled = True: the trainer's own file computes in fp32; expected the same, or"),
        (FACTORY + "fp8: true\n", {"fp16": ON}, "fp16.enabled = True: the trainer's own file computes in fp8"),
    ],
)  # fmt: skip
def test_a_type_that_is_not_the_trainers_is_refused(beside, text, keys, line):
    with pytest.raises(UserError, match=line) as refused:
        beside(zero(2) | keys, text)

    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "keys", "compute"),
    [
        (RECIPE, {"bf16": ON, "fp16": OFF}, "bf16"),
        (RECIPE.replace("bf16: true\n", ""), {"bf16": ON, "fp16": {"enabled": "auto"}}, "bf16"),  # Axolotl's default
        (FACTORY, {"bf16": {"enabled": "auto"}}, "fp32"),
        (FACTORY + "fp16: true\n", {"fp16": ON}, "fp16"),
        (FACTORY + "bf16: true\nfp8: true\n", {"bf16": ON}, "fp8"),
    ],
)
def test_types_on_which_both_files_agree(beside, text, keys, compute):
    assert beside(zero(2) | keys, text).table["precision"]["compute"] == compute


def test_keys_of_both_files_are_accounted_for(beside):
    recipe = beside(zero(3, overlap_com=True) | {"steps_per_print": 5}, RECIPE + "seed: 1\n")

    assert recipe.read[-2:] == ("deepspeed = configs/ds.json", "zero_optimization.stage = 3")
    assert recipe.untimed == ("seed", "steps_per_print")
    assert [line.partition(" or ")[0] for line in recipe.unknown] == [
        "zero_optimization.overlap_com: did you mean zero_optimization.overlap_comm"
    ]


def test_a_recipe_may_hold_deepspeeds_keys_itself(tmp_path):
    (tmp_path / "r.yml").write_text(RECIPE + "deepspeed: {zero_optimization: {stage: 2, reduce_bucket_size: 1e8}}\n")
    recipe = read_recipe(tmp_path / "r.yml", "dgx-h100")

    assert (recipe.table["parallel"]["zero"], recipe.table["bucket"]) == (2, 100_000_000)
