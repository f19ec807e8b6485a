"""The YAML of Hugging Face's trainer as TRL's scripts read it: FSDP stands in it."""

import pytest
from runcast.simulator.base.errors import UserError
from runcast.simulator.formats.recipes import Additions, parse_recipe, scenario_table

LLAMA = "model_name_or_path: meta-llama/Llama-3.1-8B\nmax_length: 4096\npacking: true\n"
SHARDED = "fsdp: full_shard auto_wrap\nfsdp_config: {fsdp_version: 2, reshard_after_forward: true}\n"


def said(text, additions=None):
    return scenario_table(parse_recipe(text, "r.yaml", "dgx-h100", additions=additions), "r", "dgx-h100", 1)


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("", "batch", {"global": 64, "micro": 8, "seq_len": 4096}),
        ("per_device_train_batch_size: 2\ngradient_accumulation_steps: 4", "batch",
         {"global": 64, "micro": 2, "seq_len": 4096}),
        ("", "parallel", {"zero": 0}),
        (SHARDED, "parallel", {"zero": 3}),
        (SHARDED + "gradient_accumulation_steps: 2", "parallel", {"zero": 3, "sync_each_microbatch": False}),
        ("fsdp: full_shard\nfsdp_config: {reshard_after_forward: false}", "parallel", {"zero": 3, "reshard": False}),
        (SHARDED, "precision", {"reduce": "bf16"}),
        (SHARDED + "gradient_accumulation_steps: 2", "precision", {"gradients": "bf16", "reduce": "bf16"}),
        ("fsdp: full_shard\ngradient_accumulation_steps: 2", "precision", {"gradients": "bf16", "reduce": "bf16"}),
        (SHARDED + "gradient_accumulation_steps: 2\nbf16: false", "precision", {"compute": "fp32", "reduce": "fp32"}),
        (SHARDED + "bf16: false", "precision", {"compute": "fp32", "reduce": "fp32"}),
        ("dtype: bfloat16", "precision", {"gradients": "bf16", "reduce": "bf16", "moments": "bf16", "master": False}),
        ("dtype: auto", "precision", {"gradients": "bf16", "reduce": "bf16", "moments": "bf16", "master": False}),
        ("torch_dtype: float16", "precision",
         {"gradients": "bf16", "reduce": "bf16", "moments": "bf16", "master": False}),
        ("dtype: float32", "precision", {"reduce": "fp32"}),
        ("optim: adamw_bnb_8bit", "precision", {"reduce": "fp32", "moments": "fp8"}),
        ("", "recompute", {"mode": "full", "early_stop": True}),
        ("gradient_checkpointing_kwargs: {use_reentrant: true}", "recompute", {"mode": "full"}),
        ("gradient_checkpointing_kwargs: {use_reentrant: false}", "recompute", {"mode": "full", "early_stop": True}),
        ("gradient_checkpointing: false", "recompute", None),
        ("attn_implementation: flash_attention_3", "attention", "flash"),
        ("use_liger_kernel: true", "loss", "fused"),
        ("", "loss", "fused"),
        ("loss_type: nll", "loss", "passes"),
        ("loss_type: chunked_nll", "memory", {"logits": 0.0}),
        ("use_peft: true", "lora", {"targets": ["q_proj", "v_proj"]}),
        ("use_peft: true\nlora_r: 32\nlora_target_modules: [all-linear]", "lora",
         {"rank": 32, "targets": ["all-linear"]}),
        ("use_peft: true\nload_in_4bit: true", "lora", {"targets": ["q_proj", "v_proj"], "base": "nf4"}),
        ("use_peft: true\nload_in_4bit: true\nuse_bnb_nested_quant: true", "lora",
         {"targets": ["q_proj", "v_proj"], "base": "nf4-double"}),
    ],
)  # fmt: skip
def test_what_a_key_says(text, key, value):
    assert said(LLAMA + text).get(key) == value


def test_a_file_without_a_length_has_trls_default():
    recipe = parse_recipe(LLAMA.replace("max_length: 4096", "dataset_name: ours"), "r.yaml", "dgx-h100")

    assert (recipe.form, recipe.table["batch"]["seq_len"], recipe.assumed[:2]) == (
        "trl", 1024, ("model.preset = llama3-8b: the shape of meta-llama/Llama-3.1-8B, by its name",
                      "batch.seq_len = 1024: TRL's default of max_length"),
    )  # fmt: skip


def test_accelerates_own_config_says_how_gpus_share_the_model(tmp_path):
    (tmp_path / "fsdp.yaml").write_text("distributed_type: FSDP\nfsdp_config: {fsdp_reshard_after_forward: false}\n")

    assert said(LLAMA, Additions(accelerate=str(tmp_path / "fsdp.yaml")))["parallel"] == {"zero": 3, "reshard": False}


@pytest.mark.parametrize("text", ["fsdp: false", "fsdp: false\n" + SHARDED.partition("\n")[2]])
def test_fsdp_alone_asks_for_fsdp(text):
    """transformers reads fsdp_config beside fsdp only."""
    assert said(LLAMA + text)["parallel"] == {"zero": 0}


def test_weights_in_four_bits_are_not_trained():
    with pytest.raises(UserError, match=r"^r\.yaml: load_in_4bit = True: needs use_peft: true$"):
        said(LLAMA + "load_in_4bit: true")


def test_a_type_that_weights_cannot_have_is_one_line():
    with pytest.raises(UserError, match=r"r\.yaml: dtype = 'float8': expected one of float32, auto, bfloat16, float16"):
        said(LLAMA + "dtype: float8")


@pytest.mark.parametrize(
    "key",
    ["beta: 0.1", "max_prompt_length: 512", "num_generations: 8", "use_vllm: true", "vllm_mode: colocate",
     "desirable_weight: 1.0", "center_rewards_coefficient: 0.01", "teacher_model_name_or_path: Qwen/Qwen3-8B"],
)  # fmt: skip
def test_a_script_that_is_not_of_sft_is_one_line(key):
    name, _, value = key.partition(": ")
    with pytest.raises(UserError) as refused:
        said(LLAMA.replace("max_length: 4096\n", "dataset_name: ours\n") + key)
    line = f"r.yaml: {name} = {value}: not modelled: only steps of SFT, which train one model on texts"

    assert str(refused.value) == f"{line}, without a reference or reward"


def test_a_loss_of_dpo_is_none_of_sft():
    with pytest.raises(UserError) as refused:
        said(LLAMA + "loss_type: sigmoid")

    assert str(refused.value) == "r.yaml: loss_type = 'sigmoid': expected one of chunked_nll, nll, dft"


@pytest.mark.parametrize(
    ("text", "noted"),
    [("", True), ("packing_strategy: bfd", True), ("packing_strategy: wrapped", False), ("packing: false", False)],
)
def test_samples_that_are_packed_attend_to_themselves_unless_they_are_wrapped(text, noted):
    recipe = parse_recipe(LLAMA + text, "r.yaml", "dgx-h100")

    assert any(line.startswith("packing: attention spans whole") for line in recipe.not_modelled) is noted
