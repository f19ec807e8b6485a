"""NeMo AutoModel's YAML as scenarios.

The rows are recipes of NVIDIA-NeMo/Automodel (examples/), with the numbers that they have there.
"""

import pytest
from runcast.simulator.base.errors import UserError
from runcast.simulator.formats.recipes import read_recipe, scenario_table


def said(file, nodes):
    table = scenario_table(read_recipe(file, "dgx-h100", nodes), "r", "dgx-h100", nodes)
    return {key: value for key, value in table.items() if key not in ("name", "kind", "cluster", "nodes")}


AUTOMODEL = """
recipe: TrainFinetuneRecipeForNextTokenPrediction
step_scheduler: {{global_batch_size: {total}, local_batch_size: {local}, ckpt_every_steps: 50, max_steps: 10}}
dist_env: {{backend: nccl, timeout_minutes: 1}}
rng: {{_target_: nemo_automodel.components.training.rng.StatefulRNG, seed: 1111, ranked: true}}
model:
  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained
  {model}
{more}
checkpoint: {{enabled: false, checkpoint_dir: checkpoints/}}
loss_fn: {{_target_: nemo_automodel.components.loss.masked_ce.MaskedCrossEntropy}}
dataset: {{_target_: nemo_automodel.components.datasets.llm.mock_iterable_dataset.MockIterableDataset,
seq_len: {seq_len}}}
dataloader: {{_target_: torch.utils.data.DataLoader, batch_size: null}}
optimizer: {{_target_: torch.optim.Adam, betas: [0.9, 0.999], lr: 1.0e-5}}
"""
NAMED = "pretrained_model_name_or_path: {}"
FROM_CONFIG = "config: {{_target_: transformers.AutoConfig.from_pretrained, pretrained_model_name_or_path: {}}}"
BACKEND = "\n  backend: {attn: te, linear: te, rms_norm: te, enable_deepep: true, fake_balanced_gate: true}"
MANAGER = "_target_: nemo_automodel.components.distributed.fsdp2.FSDP2Manager"
PEFT = "peft: {{_target_: nemo_automodel.components._peft.lora.PeftConfig, match_all_linear: True, dim: {}, alpha: 32}}"
LEAN = {"gradients": "bf16", "reduce": "fp32", "moments": "bf16", "master": False}
AGAIN = {"recompute": {"mode": "full", "early_stop": True}}
TORCH = {"stack": "transformers", "loss": "passes", "memory": {"gate": False, "norms": 0.0}}


FROZEN = "freeze_config: {{freeze_embeddings: {}, freeze_vision_tower: {}, freeze_language_model: {}}}"


def test_a_frozen_embedding_of_a_tied_model_is_its_output_matrix_too(tmp_path):
    file = tmp_path / "vlm.yaml"
    more = FROZEN.format("true", "true", "false")
    model = NAMED.format("Qwen/Qwen3-0.6B")
    file.write_text(AUTOMODEL.format(total=8, local=1, seq_len=2048, model=model, more=more))
    assert said(file, 1)["freeze"] == {"embedding": True, "head": True}


@pytest.mark.parametrize(("key", "synced"), [("", False), ("defer_fsdp_grad_sync: false", None)])
def test_gradients_are_reduced_behind_the_last_micro_batch_unless_they_are_not(tmp_path, key, synced):
    file = tmp_path / "r.yaml"
    more = f"distributed: {{strategy: fsdp2, {key}}}"
    model = NAMED.format("Qwen/Qwen2.5-7B")
    file.write_text(AUTOMODEL.format(total=64, local=1, seq_len=2048, model=model, more=more))
    assert said(file, 1)["parallel"].get("sync_each_microbatch") is synced


@pytest.mark.parametrize(
    ("more", "towers", "freeze"),
    [
        (FROZEN.format("true", "true", "false"), {"frozen": True}, {"embedding": True}),
        (FROZEN.format("false", "true", "true"), {"frozen": True}, {"layers": "all", "embedding": True, "head": True}),
        (FROZEN.format("true", "false", "false") + "\n" + PEFT.format(8), {}, None),
        ("processor: {_target_: transformers.AutoProcessor.from_pretrained}", {}, None),
    ],
)
def test_a_recipe_for_images_says_what_is_frozen(tmp_path, more, towers, freeze):
    file = tmp_path / "vlm.yaml"
    model = NAMED.format("Qwen/Qwen2.5-VL-7B-Instruct")
    file.write_text(AUTOMODEL.format(total=8, local=1, seq_len=2048, model=model, more=more))
    found = said(file, 1)
    assert (found.get("towers", {"vision": {}})["vision"], found.get("freeze")) == (towers, freeze)


@pytest.mark.parametrize(
    ("model", "more", "batch", "nodes", "table"),
    [
        (NAMED.format("meta-llama/Llama-3.1-8B-Instruct") + "\n  attn_implementation: sdpa",
         f"distributed: {{{MANAGER}, dp_size: 4, tp_size: 2, pp_size: 1, cp_size: 1, ep_size: null}}",
         (8, 1, 2048), 1,
         {"model": {"preset": "llama3-8b"}, "parallel": {"tp": 2, "zero": 3, "sequence_parallel": False,
          "sync_each_microbatch": False},
          "batch": {"global": 8, "seq_len": 2048}, "precision": LEAN, "attention": "flash-2"}),
        (NAMED.format("Qwen/Qwen2.5-7B"),
         "distributed: {strategy: fsdp2, dp_size: none, tp_size: 1, sequence_parallel: false}\n" + PEFT.format(8),
         (128, 4, 2048), 1,
         {"model": {"preset": "qwen2.5-7b"}, "parallel": {"zero": 3, "sync_each_microbatch": False},
          "batch": {"global": 128, "micro": 4, "seq_len": 2048}, "precision": {"reduce": "fp32"},
          "attention": "flash-2", "lora": {"rank": 8, "targets": ["all-linear"]}}),
        (NAMED.format("meta-llama/Llama-3.3-70B-Instruct"),
         "distributed: {strategy: fsdp2, tp_size: 4, cp_size: 1, pp_size: 2, activation_checkpointing: true, "
         "pipeline: {pp_schedule: interleaved1f1b, pp_microbatch_size: 1, layers_per_stage: 4}}\n" + PEFT.format(16),
         (32, 2, 4096), 2,
         {"model": {"preset": "llama3-70b"}, **AGAIN, "parallel": {"tp": 4, "pp": 2, "zero": 3, "reshard": False,
          "sequence_parallel": False, "sync_each_microbatch": False},
          "schedule": {"name": "interleaved", "vpp": 10, "passes": 8}, "batch": {"global": 32, "seq_len": 4096},
          "precision": {"reduce": "fp32"}, "attention": "flash-2", "lora": {"targets": ["all-linear"]}}),
        (NAMED.format("Qwen/Qwen3-32B") + "\n  backend: {attn: te, linear: te, rms_norm: torch_fp32}",
         "distributed: {strategy: fsdp2, tp_size: 2, cp_size: 2, pp_size: 1, activation_checkpointing: true}\n"
         "packed_sequence: {packed_sequence_size: 4096}",
         (16, 2, 512), 1,
         {"model": {"preset": "qwen3-32b"}, **AGAIN, "precision": LEAN, "attention": "flash",
          "parallel": {"tp": 2, "cp": 2, "zero": 3, "sequence_parallel": False, "sync_each_microbatch": False},
          "batch": {"global": 16, "micro": 2, "seq_len": 4096}}),
        (FROM_CONFIG.format("Qwen/Qwen3-30B-A3B") + BACKEND,
         f"distributed: {{{MANAGER}, tp_size: 1, cp_size: 1, pp_size: 1, dp_replicate_size: 1, ep_size: 8}}\n"
         "parallelizer: {activation_checkpointing: true}\nautopipeline: {pp_schedule: 1f1b, pp_microbatch_size: 2}",
         (512, 4, 4096), 1,
         {"model": {"preset": "qwen3-30b-a3b"}, **AGAIN, "precision": LEAN, "experts": {"dispatcher": "deepep"},
          "attention": "flash", "parallel": {"ep": 8, "zero": 3, "reshard": False, "sync_each_microbatch": False},
          "batch": {"global": 512, "micro": 4, "seq_len": 4096}}),
        (FROM_CONFIG.format("deepseek-ai/DeepSeek-V3") + BACKEND,
         f"distributed: {{{MANAGER}, tp_size: 1, cp_size: 1, pp_size: 4, dp_replicate_size: 1, ep_size: 64}}\n"
         "parallelizer: {activation_checkpointing: true, reshard_after_forward: false}\n"
         "autopipeline: {pp_schedule: interleaved1f1b, pp_microbatch_size: 1, layers_per_stage: 4}",
         (8192, 8, 4096), 128,
         {"model": {"preset": "deepseek-v3", "mtp": False}, **AGAIN, "precision": LEAN,
          "experts": {"dispatcher": "deepep"}, "attention": "flash",
          "parallel": {"pp": 4, "ep": 64, "zero": 3, "reshard": False, "layers": 13 * [4] + 3 * [3],
          "sync_each_microbatch": False},
          "schedule": {"name": "interleaved", "vpp": 4, "passes": 4}, "batch": {"global": 8192, "seq_len": 4096}}),
    ],
)  # fmt: skip
def test_recipes_of_automodel(tmp_path, model, more, batch, nodes, table):
    total, local, seq_len = batch
    text = AUTOMODEL.format(model=model, more=more, total=total, local=local, seq_len=seq_len)
    (tmp_path / "r.yaml").write_text(text)

    assert said(tmp_path / "r.yaml", nodes) == {**TORCH, **table}


def backend(attn, dispatcher="torch", more=""):
    return f"\n  backend: {{attn: {attn}, rms_norm: torch, dispatcher: {dispatcher}, fake_balanced_gate: true{more}}}"


def mesh(more="", **sizes):
    axes = ", ".join(f"{axis}_size: {sizes.get(axis, 1)}" for axis in ("tp", "cp", "pp", "ep"))
    return f"distributed: {{strategy: fsdp2, {axes}{more}}}"


def stages(layers, rounds):
    return (
        f", pipeline: {{pp_schedule: interleaved1f1b, pp_microbatch_size: 1, layers_per_stage: {layers}, "
        f"round_virtual_stages_to_pp_multiple: {rounds}}}"
    )


RECOMPUTE = ", activation_checkpointing: true"
PROJ = (
    "\npeft: {_target_: nemo_automodel.components._peft.lora.PeftConfig, target_modules: '*_proj', dim: 16, alpha: 32}"
)
PACKED = "\npacked_sequence: {{packed_sequence_size: {}}}"
DENSE = {"tp": 1, "cp": 1, "pp": 1, "ep": 1, "vpp": 1, "compute": "bf16", "deepep": False, "full": False, "lora": False}
MIXTURE = DENSE | {"ep": 8}


@pytest.mark.parametrize(
    ("model", "kernels", "more", "batch", "nodes", "preset", "expected"),
    [
        # examples/benchmark/configs and examples/llm_benchmark
        ("Qwen/Qwen3-30B-A3B", backend("sdpa"), mesh(RECOMPUTE, ep=8), (256, 4, 4096), 1, "qwen3-30b-a3b",
         MIXTURE | {"full": True}),
        ("Qwen/Qwen3-235B-A22B", backend("te", "deepep"), mesh(RECOMPUTE + stages(2, "up"), pp=4, ep=32),
         (2048, 8, 4096), 32, "qwen3-235b-a22b", DENSE | {"pp": 4, "ep": 32, "vpp": 12, "deepep": True, "full": True}),
        ("openai/gpt-oss-20b", backend("flex", "deepep"), mesh(ep=8), (256, 2, 4096), 1, "gpt-oss-20b",
         MIXTURE | {"deepep": True}),
        ("openai/gpt-oss-20b", backend("flex"), mesh(stages(2, "down"), ep=8), (256, 1, 4096), 1, "gpt-oss-20b",
         MIXTURE),
        ("openai/gpt-oss-120b", backend("flex", "deepep"), mesh(ep=64), (512, 2, 4096), 8, "gpt-oss-120b",
         DENSE | {"ep": 64, "deepep": True}),
        ("moonshotai/Moonlight-16B-A3B", backend("sdpa"), mesh(stages(2, "up"), ep=8), (256, 4, 2048), 1,
         "moonlight-16b-a3b", MIXTURE),
        ("moonshotai/Moonlight-16B-A3B", backend("te", "deepep", ", te_fp8: {_target_: TEFp8Config, recipe: current}"),
         mesh(ep=8), (256, 4, 2048), 1, "moonlight-16b-a3b", MIXTURE | {"deepep": True, "compute": "fp8"}),
        ("moonshotai/Kimi-K2-Base", backend("te", "deepep"), mesh(RECOMPUTE + stages(2, "down"), pp=8, ep=32),
         (512, 8, 4096), 32, "kimi-k2", DENSE | {"pp": 8, "ep": 32, "vpp": 3, "deepep": True, "full": True}),
        ("deepseek-ai/DeepSeek-V3", backend("sdpa"), mesh(stages(2, "down"), pp=4, ep=64), (512, 8, 4096), 32,
         "deepseek-v3", DENSE | {"pp": 4, "ep": 64, "vpp": 7}),
        ("Qwen/Qwen2.5-32B-Instruct", "", mesh(RECOMPUTE + ", enable_compile: true", tp=2) + PROJ, (32, 2, 4096), 2,
         "qwen2.5-32b", DENSE | {"tp": 2, "full": True, "lora": True}),
        ("meta-llama/Llama-3.1-70B", "\n  attn_implementation: sdpa",
         mesh(RECOMPUTE + ", reshard_after_forward: true", cp=2), (128, 1, 8192), 8, "llama3-70b",
         DENSE | {"cp": 2, "full": True}),
        ("meta-llama/Llama-3.1-8B", "\n  force_hf: true", mesh() + PROJ, (32, 2, 4096), 1, "llama3-8b",
         DENSE | {"lora": True}),
        # examples/llm_finetune
        ("Qwen/Qwen3-30B-A3B", backend("te", "deepep"), mesh(ep=8) + PACKED.format(1024), (32, 4, 1024), 1,
         "qwen3-30b-a3b", MIXTURE | {"deepep": True}),
        ("meta-llama/Llama-3.1-8B", "",
         mesh() + "\nfp8: {enabled: true, recipe_name: tensorwise}" + PACKED.format(8192), (32, 1, 8192), 1,
         "llama3-8b", DENSE | {"compute": "fp8"}),
        ("Qwen/Qwen3-32B", backend("te"),
         mesh(RECOMPUTE + ", sequence_parallel: true", tp=4, cp=2) + PACKED.format(4096), (32, 2, 4096), 1, "qwen3-32b",
         DENSE | {"tp": 4, "cp": 2, "full": True}),
    ],
)  # fmt: skip
def test_more_recipes_of_automodel(tmp_path, model, kernels, more, batch, nodes, preset, expected):
    total, local, seq_len = batch
    named = NAMED.format(model) + kernels
    (tmp_path / "r.yaml").write_text(
        AUTOMODEL.format(model=named, more=more, total=total, local=local, seq_len=seq_len)
    )
    recipe = read_recipe(tmp_path / "r.yaml", "dgx-h100", nodes)
    table = recipe.table
    found = {axis: table["parallel"][axis] for axis in ("tp", "cp", "pp", "ep")} | {
        "vpp": table.get("schedule", {}).get("vpp", 1),
        "compute": table["precision"]["compute"],
        "deepep": table.get("experts", {}).get("dispatcher") == "deepep",
        "full": table["recompute"].get("mode") == "full",
        "lora": "lora" in table,
    }
    micro = 1 if expected["pp"] > 1 else local

    sizes = {"global": total, "micro": micro, "seq_len": seq_len}

    assert (table["model"]["preset"], found, table["batch"], recipe.unknown) == (preset, expected, sizes, ())


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (("seq_len: 4096", "split: train"), "seq_len: is missing; .* which the data set leaves open; give --seq-len"),
        (
            ("global_batch_size: 8", "global_batch_size: 12"),
            "global_batch_size = 12: local 1 x dp 8 = 8 must divide it",
        ),
        (("strategy: fsdp2", "strategy: deepspeed"), "expected one of fsdp2, megatron_fsdp, ddp"),
        (("Qwen/Qwen2.5-7B", "ours/answers-7b"), "no preset goes by this name; give its config.json with --model"),
        (("checkpoint:", "teacher_model: {a: 1}\ncheckpoint:"), "distillation is not modelled"),
    ],
)
def test_what_automodel_leaves_open_or_has_wrong_is_one_line(tmp_path, change, line):
    text = AUTOMODEL.format(model=NAMED.format("Qwen/Qwen2.5-7B"), more="distributed: {strategy: fsdp2}", total=8,
    local=1,
                            seq_len=4096)  # fmt: skip
    (tmp_path / "r.yaml").write_text(text.replace(*change))

    with pytest.raises(UserError, match=line):
        said(tmp_path / "r.yaml", 1)


def test_a_local_batch_fills_the_pipeline_a_whole_number_of_times(tmp_path):
    pipeline = "distributed: {strategy: fsdp2, pp_size: 2, pipeline: {pp_schedule: 1f1b, pp_microbatch_size: 1}}"
    text = AUTOMODEL.format(model=NAMED.format("Qwen/Qwen2.5-7B"), more=pipeline, total=48, local=8, seq_len=4096)
    (tmp_path / "r.yaml").write_text(text)

    with pytest.raises(UserError, match="global_batch_size = 48: local 8 x dp 4 = 32 must divide it"):
        said(tmp_path / "r.yaml", 1)
