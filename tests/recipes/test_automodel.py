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
TORCH = {"stack": "pytorch-fsdp", "loss": "passes"}


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
          "attention": "flash-2", "lora": {"rank": 8}}),
        (NAMED.format("meta-llama/Llama-3.3-70B-Instruct"),
         "distributed: {strategy: fsdp2, tp_size: 4, cp_size: 1, pp_size: 2, activation_checkpointing: true, "
         "pipeline: {pp_schedule: interleaved1f1b, pp_microbatch_size: 1, layers_per_stage: 4}}\n" + PEFT.format(16),
         (32, 2, 4096), 2,
         {"model": {"preset": "llama3-70b"}, **AGAIN, "parallel": {"tp": 4, "pp": 2, "zero": 3,
          "sequence_parallel": False, "sync_each_microbatch": False},
          "schedule": {"name": "interleaved", "vpp": 10}, "batch": {"global": 32, "seq_len": 4096},
          "precision": {"reduce": "fp32"}, "attention": "flash-2", "lora": {}}),
        (NAMED.format("Qwen/Qwen3-32B") + "\n  backend: {attn: te, linear: te, rms_norm: torch_fp32}",
         "distributed: {strategy: fsdp2, tp_size: 2, cp_size: 2, pp_size: 1, activation_checkpointing: true}\n"
         "packed_sequence: {packed_sequence_size: 4096}",
         (16, 2, 512), 1,
         {"model": {"preset": "qwen3-32b"}, **AGAIN, "precision": LEAN,
          "parallel": {"tp": 2, "cp": 2, "zero": 3, "sequence_parallel": False, "sync_each_microbatch": False},
          "batch": {"global": 16, "micro": 2, "seq_len": 4096}}),
        (FROM_CONFIG.format("Qwen/Qwen3-30B-A3B") + BACKEND,
         f"distributed: {{{MANAGER}, tp_size: 1, cp_size: 1, pp_size: 1, dp_replicate_size: 1, ep_size: 8}}\n"
         "parallelizer: {activation_checkpointing: true}\nautopipeline: {pp_schedule: 1f1b, pp_microbatch_size: 2}",
         (512, 4, 4096), 1,
         {"model": {"preset": "qwen3-30b-a3b"}, **AGAIN, "precision": LEAN, "experts": {"dispatcher": "deepep"},
          "parallel": {"ep": 8, "zero": 3, "sync_each_microbatch": False}, "batch": {"global": 512, "micro": 4,
          "seq_len": 4096}}),
        (FROM_CONFIG.format("deepseek-ai/DeepSeek-V3") + BACKEND,
         f"distributed: {{{MANAGER}, tp_size: 1, cp_size: 1, pp_size: 4, dp_replicate_size: 1, ep_size: 64}}\n"
         "parallelizer: {activation_checkpointing: true, reshard_after_forward: false}\n"
         "autopipeline: {pp_schedule: interleaved1f1b, pp_microbatch_size: 1, layers_per_stage: 4}",
         (8192, 8, 4096), 128,
         {"model": {"preset": "deepseek-v3", "mtp": False}, **AGAIN, "precision": LEAN,
          "experts": {"dispatcher": "deepep"},
          "parallel": {"pp": 4, "ep": 64, "zero": 3, "layers": 13 * [4] + 3 * [3], "sync_each_microbatch": False},
          "schedule": {"name": "interleaved", "vpp": 4}, "batch": {"global": 8192, "seq_len": 4096}}),
    ],
)  # fmt: skip
def test_recipes_of_automodel(tmp_path, model, more, batch, nodes, table):
    total, local, seq_len = batch
    text = AUTOMODEL.format(model=model, more=more, total=total, local=local, seq_len=seq_len)
    (tmp_path / "r.yaml").write_text(text)

    assert said(tmp_path / "r.yaml", nodes) == {**TORCH, **table}


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (("seq_len: 4096", "split: train"), "seq_len: is missing; .* which the data set leaves open; give --seq-len"),
        (
            ("global_batch_size: 8", "global_batch_size: 12"),
            "global_batch_size = 12: micro 1 x dp 8 = 8 must divide it",
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
