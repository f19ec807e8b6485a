"""Recipes of trainers on Hugging Face models: Axolotl and LLaMA-Factory, alone, with FSDP and with DeepSpeed."""

import json
from pathlib import Path

import pytest
from runcast.simulator.base.errors import UserError
from runcast.simulator.base.files import read_toml
from runcast.simulator.formats.recipes import Additions, read_recipe, scenario_table
from runcast.simulator.formats.recipes.finetuning import fit_adapters, read_adapters
from runcast.simulator.formats.recipes.tables import to_arguments
from runcast.simulator.models import preset, preset_names

AXOLOTL = "base_model: meta-llama/Llama-3.1-8B\nsequence_len: 4096\nmicro_batch_size: 2\nsample_packing: true\n"
FACTORY = "model_name_or_path: Qwen/Qwen3-8B\ndo_train: true\nfinetuning_type: full\n"
LORA = "adapter: lora\nlora_r: 16\n"
SHARDED = "fsdp_version: 2\nfsdp_config: {reshard_after_forward: true}\n"


@pytest.fixture
def read(tmp_path):
    def recipe(text, nodes=1, additions=None):
        (tmp_path / "r.yaml").write_text(text)
        return read_recipe(tmp_path / "r.yaml", "dgx-h100", nodes, additions=additions)

    return recipe


@pytest.fixture
def table(read):
    def scenario(text, nodes=1, additions=None):
        return scenario_table(read(text, nodes, additions), "r", "dgx-h100", nodes)

    return scenario


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("gradient_accumulation_steps: 4", "batch", {"global": 64, "micro": 2, "seq_len": 4096}),
        ("batch_size: 8", "batch", {"global": 64, "micro": 2, "seq_len": 4096}),
        (LORA + "lora_target_linear: true", "lora", {"targets": ["all-linear"]}),
        (LORA + "lora_target_modules: [q_proj, v_proj, down_proj]", "lora", {"targets": ["q_proj", "v_proj", "down"]}),
        (LORA, "lora", {"targets": ["q_proj", "v_proj"]}),
        ("", "parallel", {"zero": 0}),
        (SHARDED, "parallel", {"zero": 3}),
        (SHARDED + "gradient_accumulation_steps: 2", "parallel", {"zero": 3, "sync_each_microbatch": False}),
        (SHARDED + "dp_replicate_size: 2", "parallel", {"zero": 3, "shard": 4}),
        (SHARDED + "tensor_parallel_size: 2", "parallel", {"tp": 2, "sequence_parallel": False, "zero": 3}),
        (SHARDED + "context_parallel_size: 2", "parallel", {"cp": 2, "cp_type": "all_gather", "zero": 3}),
        (SHARDED + "sequence_parallel_degree: 2\nring_attn_func: batch_ring", "parallel", {"cp": 2, "zero": 3}),
        (SHARDED + "context_parallel: {size: 4, backend: ulysses}", "parallel",
         {"cp": 4, "cp_type": "ulysses", "zero": 3}),
        (SHARDED + "context_parallel: {size: 8, load_balance: auto}\ndp_shard_size: 1", "parallel",
         {"cp": 8, "zero": 3}),
        ("fsdp_version: 2\nfsdp_config: {state_dict_type: FULL_STATE_DICT}", "parallel", {"zero": 3}),
        ("fsdp_config: {fsdp_version: 2}", "parallel", {"zero": 3}),
        ("fsdp_config: {transformer_layer_cls_to_wrap: LlamaDecoderLayer}", "precision", {"reduce": "bf16"}),
        ("fsdp: [shard_grad_op, auto_wrap]", "parallel", {"zero": 3, "reshard": False}),
        ("fsdp_config: {fsdp_reshard_after_forward: SHARD_GRAD_OP}", "parallel", {"zero": 3, "reshard": False}),
        ("fsdp_config: {fsdp_sharding_strategy: NO_SHARD}", "parallel", {"zero": 0}),
        ("fsdp_config: {fsdp_sharding_strategy: 2}", "parallel", {"zero": 3, "reshard": False}),
        ("fsdp_config: {sharding_strategy: FULL_SHARD, backward_prefetch: BACKWARD_POST}", "parallel",
         {"zero": 3, "prefetch_backward": 0}),
        ("fsdp_config: {backward_prefetch: NO_PREFETCH}", "parallel", {"zero": 3, "prefetch_backward": 0}),
        ("fsdp_config: {fsdp_backward_prefetch_policy: NO_PREFETCH}", "parallel", {"zero": 3, "prefetch_backward": 0}),
        ("fsdp_config: {backward_prefetch: BACKWARD_PRE}", "parallel", {"zero": 3}),
        ("fsdp_config: {fsdp_version: 2, backward_prefetch: BACKWARD_POST}", "parallel", {"zero": 3}),
        ("bf16: true", "precision", {"gradients": "bf16", "reduce": "bf16", "moments": "bf16", "master": False}),
        ("", "precision", {"gradients": "bf16", "reduce": "bf16", "moments": "bf16", "master": False}),
        ("bf16: true\noptimizer: adamw_8bit", "precision",
         {"gradients": "bf16", "reduce": "bf16", "moments": "fp8", "master": False}),
        ("bf16: true\nfsdp: [full_shard]", "precision", {"reduce": "bf16"}),
        ("fp16: true", "precision", {"compute": "fp16", "reduce": "fp32"}),
        ("bf16: false\ntf32: true", "precision", {"compute": "tf32", "reduce": "fp32"}),
        ("bf16: true\nfp8: true", "precision",
         {"compute": "fp8", "gradients": "bf16", "reduce": "bf16", "moments": "bf16", "master": False}),
        ("gradient_checkpointing: true", "recompute", {"mode": "full"}),
        ("gradient_checkpointing: true\ngradient_checkpointing_kwargs: {use_reentrant: false}", "recompute",
         {"mode": "full", "early_stop": True}),
        ("gradient_checkpointing: true\nactivation_offloading: true", "offload", {"activations": 1.0}),
        ("fsdp_config: {offload_params: true}", "offload", {"optimizer": True}),
        ("eager_attention: true", "attention", "unfused"),
        ("flash_attention: true", "attention", "flash-2"),
        ("attn_implementation: flash_attention_3", "attention", "flash"),
        ("liger_fused_linear_cross_entropy: true", "loss", "fused"),
        ("liger_fused_linear_cross_entropy: true", "memory", {"logits": 0.0}),
        ("liger_cross_entropy: true", "loss", "fused"),
        ("liger_cross_entropy: true", "memory", {"logits": 6.0}),
        ("chunked_cross_entropy: true", "memory", {"logits": 4.0}),
        ("", "loss", "passes"),
    ],
)  # fmt: skip
def test_what_a_key_of_axolotl_says(table, text, key, value):
    """None is what is as by default, and left out."""
    assert table(AXOLOTL + text).get(key) == value


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("", "batch", {"global": 64, "micro": 8, "seq_len": 2048}),
        ("cutoff_len: 4096\nper_device_train_batch_size: 1", "batch", {"global": 8, "seq_len": 4096}),
        ("", "recompute", {"mode": "full"}),
        ("disable_gradient_checkpointing: true", "recompute", None),
        ("use_reentrant_gc: false", "recompute", {"mode": "full", "early_stop": True}),
        ("bf16: true", "precision", {"reduce": "fp32"}),
        ("pure_bf16: true", "precision", {"gradients": "bf16", "reduce": "bf16", "moments": "bf16", "master": False}),
        ("bf16: true\nfp8: true", "precision", {"compute": "fp8", "reduce": "fp32"}),
        ("", "precision", {"compute": "fp32", "reduce": "fp32"}),
        ("tf32: true", "precision", {"compute": "tf32", "reduce": "fp32"}),
        ("finetuning_type: lora", "precision", {"reduce": "fp32"}),
        ("finetuning_type: lora\nfp16: true", "precision", {"compute": "fp16", "reduce": "fp32"}),
        ("finetuning_type: lora\nlora_rank: 4", "lora", {"rank": 4, "targets": ["all-linear"]}),
        ("finetuning_type: lora\nlora_target: q_proj,k_proj", "lora", {"rank": 8, "targets": ["q_proj", "k_proj"]}),
        ("sequence_parallel_size: 4\nsequence_parallel_mode: ulysses", "parallel",
         {"cp": 4, "cp_type": "ulysses", "zero": 0}),
        ("fsdp: full_shard auto_wrap", "parallel", {"zero": 3}),
        ("flash_attn: fa3", "attention", "flash"),
        ("flash_attn: disabled", "attention_dropout", False),
        ("enable_liger_kernel: true", "loss", "fused"),
        ("finetuning_type: freeze", "freeze", {"layers": -2, "embedding": True, "head": True}),
        ("finetuning_type: freeze\nfreeze_trainable_layers: -3\nfreeze_extra_modules: embed_tokens,lm_head", "freeze",
         {"layers": "3-"}),
    ],
)  # fmt: skip
def test_what_a_key_of_llama_factory_says(table, text, key, value):
    assert table(FACTORY + text).get(key) == value


@pytest.mark.parametrize(
    ("model", "text", "freeze"),
    [
        ("Qwen3-8B", "freeze_trainable_layers: 40", {"embedding": True, "head": True}),
        ("Qwen3-8B", "freeze_trainable_layers: -40", {"embedding": True, "head": True}),
        ("Qwen3-8B", "freeze_extra_modules: norm", {"layers": -2, "embedding": True, "head": True}),
        ("Qwen3-8B", "freeze_extra_modules: embed_tokens", {"layers": -2, "head": True}),
        ("Qwen3-0.6B", "freeze_extra_modules: embed_tokens", {"layers": -2}),
        ("Qwen3-0.6B", "", {"layers": -2, "embedding": True, "head": True}),
    ],
)
def test_llama_factory_freezes_what_the_model_has(table, model, text, freeze):
    """Of a tied model embedding and output matrix are one parameter; Qwen3 0.6B is one."""
    found = table(FACTORY.replace("Qwen3-8B", model) + "finetuning_type: freeze\n" + text)
    assert found["freeze"] == freeze


SEES = FACTORY.replace("Qwen3-8B", "Qwen2.5-VL-7B-Instruct")


@pytest.mark.parametrize(
    ("text", "towers", "freeze"),
    [
        ("", {"inputs": 0}, None),
        ("dataset: mllm_demo", {"frozen": True, "frozen_projector": True}, None),
        ("image_max_pixels: 262144\nfreeze_multi_modal_projector: false", {"frozen": True}, None),
        ("freeze_vision_tower: false", {}, None),
        ("freeze_language_model: true\nfreeze_multi_modal_projector: false", {"frozen": True},
         {"layers": "all", "embedding": True, "head": True}),
        ("finetuning_type: lora\nfreeze_vision_tower: true", {"frozen": True}, None),
    ],
)  # fmt: skip
def test_what_sees_is_frozen_in_llama_factory_unless_it_says_otherwise(table, text, towers, freeze):
    found = table(SEES + text)
    assert (found.get("towers", {}).get("vision", {}), found.get("freeze")) == (towers, freeze)


@pytest.mark.parametrize(
    ("text", "towers"),
    [("", {"inputs": 0}), ("processor_type: AutoProcessor", {}),
     ("processor_type: AutoProcessor\nfreeze_mm_modules: true", {"frozen": True}),
     ("processor_type: AutoProcessor\n" + LORA, {"frozen": True})],
)  # fmt: skip
def test_what_sees_is_trained_in_axolotl_unless_adapters_are(table, text, towers):
    found = table(AXOLOTL.replace("meta-llama/Llama-3.1-8B", "Qwen/Qwen2.5-VL-7B-Instruct") + text)
    assert found.get("towers", {}).get("vision", {}) == towers


@pytest.mark.parametrize(
    ("tuning", "line"),
    [
        ("full", "precision.compute = fp32: neither bf16 nor fp16 is on, and the weights are made FP32"),
        ("lora", "precision.compute = bf16: neither bf16 nor fp16 is on, and a frozen model computes in"),
    ],
)
def test_llama_factory_without_a_type_says_in_which_it_computes(read, tuning, line):
    recipe = read(FACTORY.replace("full", tuning))

    assert [one.startswith(line) for one in recipe.assumed if "precision.compute" in one] == [True]


def test_the_same_model_by_its_id_by_a_preset_and_by_its_config(table, tmp_path):
    config = {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 2, "num_attention_heads": 32}
    sizes = {"num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "rope_theta": 5e5}
    (tmp_path / "config.json").write_text(json.dumps(config | sizes))
    models = [
        table(AXOLOTL, additions=Additions(model))["model"] for model in (None, "llama3-8b", tmp_path / "config.json")
    ]

    assert models == [{"preset": "llama3-8b"}, {"preset": "llama3-8b"}, {"config": "config.json"}]


def test_a_models_folder_may_stand_above_the_recipe(table, tmp_path):
    folder = tmp_path.parent / f"{tmp_path.name}-models/ours"
    folder.mkdir(parents=True)
    sizes = {"hidden_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8, "intermediate_size": 1024}
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": 1000, **sizes}))
    found = table(AXOLOTL.replace("meta-llama/Llama-3.1-8B", f"{tmp_path.name}-models/ours"))

    assert found["model"] == {"config": "config.json"}


@pytest.mark.parametrize(
    ("name", "preset"),
    [
        ("NousResearch/Meta-Llama-3.1-8B-Instruct", "llama3-8b"),
        ("mistralai/Mixtral-8x7B-v0.1", "mixtral-8x7b"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b"),
        ("TheBloke/Llama-2-7B-GPTQ", "llama2-7b"),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-FP8", "nemotron-3-nano"),
        ("models/deepseek-ai/DeepSeek-V3.1-Base/", "deepseek-v3.1"),
    ],
)
def test_a_model_goes_by_its_name_whoever_owns_it(table, name, preset):
    assert table(AXOLOTL.replace("meta-llama/Llama-3.1-8B", name))["model"]["preset"] == preset


def test_every_preset_that_stands_for_other_models_is_there():
    table = read_toml(Path(__file__).parents[2] / "data/recipes/hugging_face.toml")["presets"]

    assert set(table) <= set(preset_names())


def test_every_key_is_accounted_for(read):
    recipe = read(AXOLOTL + "seed: 1\nload_in_4bit: true\nload_in_8bit: false\ncontext_parallell_size: 2\ndebug:\n")

    assert (len(recipe.read), recipe.untimed) == (5, ("seed", "load_in_8bit"))
    assert [line.partition(" = ")[0] for line in recipe.not_modelled] == [
        "sample_packing: attention spans whole sequences here; batch.documents says how long packed samples are",
    ]  # fmt: skip
    assert recipe.unknown == ("context_parallell_size: did you mean context_parallel_size or context_parallel.size?",)


def test_kernels_of_liger_that_are_read_are_not_said_to_be_left_out(read):
    recipe = read(AXOLOTL + "liger_rms_norm: true\nliger_glu_activation: true\n")

    assert (recipe.table["memory"], [line for line in recipe.not_modelled if "liger" in line]) == (
        {"norms": 0.0, "gate": False}, [],
    )  # fmt: skip


def test_what_an_optimizer_and_adapters_leave_out_is_named(read):
    recipe = read(AXOLOTL + LORA + "lora_target_modules: [q_proj, lm_head]\noptimizer: muon\n")

    assert recipe.not_modelled[1:] == (
        "lora_target_modules lm_head: only GEMMs of attention and MLP have adapters",
        "optimizer = muon: AdamW's states and step are assumed",
    )


@pytest.mark.parametrize(
    ("model", "modules", "targets"),
    [
        ("phi-4", "q_proj, k_proj, gate_proj, down_proj", ("qkv", "up", "down")),
        ("llama3-8b", "q_proj, qkv_proj, o_proj", ("q_proj", "proj")),
        ("deepseek-v3", "q_proj, q_b_proj, linear_kv_up_proj", ("q_b_proj", "kv_b_proj")),
    ],
)
def test_adapters_are_on_modules_that_the_model_has(model, modules, targets):
    args = to_arguments({"lora_target_modules": modules.split(", ")}, "axolotl", "lora.yaml")
    found = read_adapters(args, "lora_r", "lora_target_modules", all_linear=False)

    assert fit_adapters(args, found, preset(model))["targets"] == targets


def test_tokens_of_a_sequence_may_be_given_in_place_of_the_files(table):
    assert table(AXOLOTL, additions=Additions(seq_len=1024))["batch"]["seq_len"] == 1024


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (AXOLOTL.replace("Llama-3.1-8B", "Llama-9-8B"), "base_model = 'meta-llama/Llama-9-8B': no preset goes by"),
        (AXOLOTL + "rl: dpo", "rl = 'dpo': not modelled"),
        (AXOLOTL + "adapter: qlora", "adapter = 'qlora': needs load_in_4bit: true"),
        (AXOLOTL + "adapter: vera", "adapter = 'vera': expected one of none, lora, qlora"),
        (AXOLOTL + LORA + "lora_target_modules: [lm_head]", "lora_target_modules = 'lm_head': expected some of q_proj"),
        (
            AXOLOTL + "dp_shard_size: 3",
            "dp_shard_size = 3: dp_replicate_size 1 x dp_shard_size 3 must be 8: the 8 GPUs",
        ),
        (AXOLOTL + "tensor_parallel_size: 3", "tensor_parallel_size = 3: tp 3 x cp 1 x pp 1 = 3 must divide the 8"),
        (
            AXOLOTL.replace("Llama-3.1-8B", "Qwen3-30B-A3B") + "expert_parallel_size: 16",
            "expert_parallel_size = 16: must",
        ),
        (AXOLOTL + "micro_batch_size: two", "micro_batch_size = 'two': expected a whole number"),
        (AXOLOTL + "deepspeed: none.json", "deepspeed = 'none.json': no such file here, beside the recipe"),
        (AXOLOTL + "context_parallel_size: 8\nsequence_len: 4100", "sequence_len = 4100: must be a multiple of 16"),
        (AXOLOTL + "a: [1, 2", "is not YAML: "),
        (AXOLOTL + "a: !!python/object/apply:os.getcwd []", "is not YAML: could not determine a constructor"),
        (FACTORY + "stage: dpo", "stage = 'dpo': not modelled"),
        (FACTORY + "finetuning_type: oft", "finetuning_type = 'oft': not modelled"),
        (FACTORY + "quantization_bit: 4", "quantization_bit = 4: needs finetuning_type: lora"),
        (FACTORY.replace("do_train: true", ""), "do_train: is missing; expected true"),
        (FACTORY + "finetuning_type: freeze\nfreeze_trainable_layers: 0", "freeze_trainable_layers = 0: expected how"),
        (SEES + "freeze_language_model: true", "freezes all of qwen2.5-vl-7b"),
        (FACTORY + "use_kt: true", "use_kt = True: not modelled"),
        (FACTORY + "tensor_model_parallel_size: 2", "tensor_model_parallel_size = 2: not read"),
        ("model_name_or_path:\ndo_train: true", "model_name_or_path: is missing; expected a model"),
    ],
)
def test_what_does_not_go_together(read, text, line):
    with pytest.raises(UserError, match=line):
        read(text)


def test_a_file_that_blows_up_is_refused(read):
    anchors = "".join(f"a{number}: &a{number} [{', '.join([f'*a{number - 1}'] * 9)}]\n" for number in range(1, 9))

    with pytest.raises(UserError, match="holds more than 100,000 values"):
        read(AXOLOTL + "a0: &a0 [1, 1]\n" + anchors)


@pytest.fixture
def launch(read, tmp_path):
    """A recipe of LLaMA-Factory that accelerate starts with this config."""

    def recipe(config, text=FACTORY + "bf16: true\ngradient_accumulation_steps: 2\n"):
        (tmp_path / "launch.yaml").write_text(config)
        (tmp_path / "zero1.json").write_text('{"zero_optimization": {"stage": 1}}')
        return read(text, additions=Additions(accelerate=str(tmp_path / "launch.yaml")))

    return recipe


@pytest.mark.parametrize(
    ("config", "parallel"),
    [
        ("distributed_type: MULTI_GPU", {"zero": 0}),
        ("distributed_type: FSDP", {"zero": 3, "reshard": True, "sync_each_microbatch": False}),
        ("distributed_type: FSDP\nfsdp_config: {fsdp_version: 2, fsdp_reshard_after_forward: false}",
         {"zero": 3, "reshard": False, "sync_each_microbatch": False}),
        ("distributed_type: DEEPSPEED", {"zero": 2}),
        ("distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 3, zero3_init_flag: true}", {"zero": 3}),
        ("distributed_type: DEEPSPEED\ndeepspeed_config: {deepspeed_config_file: zero1.json}", {"zero": 1}),
    ],
)  # fmt: skip
def test_accelerates_config_says_who_shares_the_model(launch, config, parallel):
    recipe = launch(config)

    assert recipe.table["parallel"] == {"tp": 1, "cp": 1, "pp": 1, "ep": 1, **parallel}


@pytest.mark.parametrize(
    ("config", "compute"),
    [
        ("distributed_type: MULTI_GPU", "bf16"),
        ("distributed_type: DEEPSPEED", "fp32"),
        ("distributed_type: DEEPSPEED\nmixed_precision: bf16", "bf16"),
        ("distributed_type: MULTI_GPU\nmixed_precision: fp16", "fp16"),
    ],
)
def test_a_recipe_without_a_type_computes_in_that_of_its_launcher(launch, config, compute):
    recipe = launch(config, FACTORY.replace("full", "lora"))

    assert recipe.table["precision"].get("compute", "bf16") == compute


def test_what_accelerate_starts_is_compared_with_the_machine(launch):
    recipe = launch("distributed_type: FSDP\nnum_processes: 4\nsame_network: true\n")

    assert "the 8 GPUs (1 x 8, dgx-h100): accelerate's config starts 4" in recipe.assumed
    assert recipe.untimed == ("same_network",)


@pytest.mark.parametrize(
    ("config", "text", "line"),
    [
        ("distributed_type: TPU", FACTORY, "launch.yaml: distributed_type = 'TPU': expected one of NO, MULTI_GPU"),
        (
            "distributed_type: DEEPSPEED\ndeepspeed_config: {gradient_accumulation_steps: 3}",
            FACTORY + "gradient_accumulation_steps: 2",
            "deepspeed_config.gradient_accumulation_steps = 3: the trainer's own file says 2; expected the same",
        ),
        (
            "distributed_type: DEEPSPEED\ndeepspeed_config: {deepspeed_config_file: none.json}",
            FACTORY,
            "launch.yaml: deepspeed_config.deepspeed_config_file = 'none.json': no such file here",
        ),
        ("distributed_type: FSDP", AXOLOTL, "--accelerate: goes with recipes of llamafactory, trl, not with axolotl"),
    ],
)
def test_a_config_of_accelerate_that_does_not_go_with_the_recipe(launch, config, text, line):
    with pytest.raises(UserError, match=line):
        launch(config, text)


def test_a_device_of_accelerates_deepspeed_is_that_of_deepspeeds_file(launch):
    recipe = launch("distributed_type: DEEPSPEED\ndeepspeed_config: {offload_optimizer_device: cpu, zero_stage: 2}\n")

    assert (recipe.table["offload"], recipe.read[-3:-1], recipe.unknown) == (
        {"optimizer": True},
        ("distributed_type = DEEPSPEED", "deepspeed_config.offload_optimizer_device = cpu"), (),
    )  # fmt: skip


def test_a_model_on_the_command_line_must_exist(read):
    with pytest.raises(
        UserError, match=r"^--model = 'llama3-9b': no such config\.json, and no preset of this name; did you mean"
    ):
        read(AXOLOTL, additions=Additions("llama3-9b"))


def test_other_recipes_name_their_own_model(tmp_path):
    (tmp_path / "r.sh").write_text("--num-layers 8")

    with pytest.raises(UserError, match=r"^--seq-len: goes with recipes of bridge, nemo, axolotl, llamafactory"):
        read_recipe(tmp_path / "r.sh", "dgx-h100", additions=Additions(seq_len=1024))


def test_layers_that_spectrum_freezes_are_not_modelled(read):
    plugin = "plugins: [axolotl.integrations.spectrum.SpectrumPlugin]\nspectrum_top_fraction: 0.5\n"

    recipe = read(AXOLOTL + plugin)

    reason = "all weights are trained here: fewer take less time and memory"
    assert f"spectrum_top_fraction = 0.5: {reason}" in recipe.not_modelled
