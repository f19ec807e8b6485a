"""NeMo: recipes of 2.0 in Python, and configs of 1.0 and of its launcher, as scenarios.

The rows are recipes of NVIDIA/NeMo and NVIDIA/NeMo-Framework-Launcher, with the numbers that they have there.
"""

import shutil
from pathlib import Path

import pytest
from runcast.simulator.base.errors import UserError
from runcast.simulator.formats.recipes import Additions, read_recipe, scenario_table

FILES = Path(__file__).parent / "files/nemo"
LLAMA = {"model": {"preset": "llama3-70b"}, "schedule": {"name": "interleaved", "vpp": 5}}
BUCKET = {"bucket": 128 * 2**20}


def said(file, nodes, recipe=None, cluster="dgx-h100", **more):
    found = read_recipe(file, cluster, nodes, additions=Additions(recipe=recipe, **more))
    table = scenario_table(found, "r", cluster, nodes)
    return {key: value for key, value in table.items() if key not in ("name", "kind", "cluster", "nodes")}


def padded(**parallel):
    return {"parallel": {**parallel, "pad_vocab": 128}}


@pytest.mark.parametrize(
    ("file", "recipe", "nodes", "settings", "table"),
    [
        ("llama3_70b.py", "pretrain_recipe", 4, {},
         {**LLAMA, **padded(tp=4, cp=2, pp=4), "batch": {"global": 512, "seq_len": 8192}, "overlap": {"pp": False}}),
        ("llama3_70b.py", "pretrain_recipe_performance", 4, {},
         {**LLAMA, **BUCKET, **padded(tp=4, cp=2, pp=4), "batch": {"global": 512, "seq_len": 8192},
          "overlap": {"tp": True}}),
        ("llama3_70b.py", "finetune_recipe", 4, {},
         {**LLAMA, **padded(tp=4, cp=2, pp=4), "batch": {"global": 512, "seq_len": 8192}, "overlap": {"pp": False},
          "lora": {"rank": 32}}),
        ("llama3_70b_16k.py", None, 4, {},
         {**LLAMA, **padded(tp=2, cp=2, pp=4), "batch": {"global": 512, "seq_len": 16384}, "overlap": {"pp": False}}),
        ("nemotron4_340b.py", "pretrain_recipe", 768, {},
         {"model": {"preset": "nemotron-4-340b"}, **padded(tp=8, cp=2, pp=12), "overlap": {"pp": False},
          "schedule": {"name": "interleaved", "vpp": 8}, "batch": {"global": 2304, "seq_len": 4096}}),
        ("nemotron4_340b.py", "pretrain_recipe", 768, {"performance_mode": "true"},
         {"model": {"preset": "nemotron-4-340b"}, **BUCKET, **padded(tp=8, cp=2, pp=12), "overlap": {"tp": True},
          "schedule": {"name": "interleaved", "vpp": 8}, "batch": {"global": 2304, "seq_len": 4096},
          "precision": {"gradients": "bf16"}}),
        ("nemotron4_340b.py", "finetune_recipe", 4, {},
         {"model": {"preset": "nemotron-4-340b"}, **padded(tp=8, pp=4, sequence_parallel=False),
          "batch": {"global": 128, "seq_len": 2048}, "overlap": {"dp": False, "params": False, "pp": False},
          "lora": {"rank": 32}}),
        ("nemotron4_340b.py", "finetune_recipe", 12, {"peft_scheme": "none", "num_nodes": "12"},
         {"model": {"preset": "nemotron-4-340b"}, **padded(tp=8, pp=12, sequence_parallel=False),
          "batch": {"global": 128, "seq_len": 2048}, "overlap": {"dp": False, "params": False, "pp": False}}),
        ("deepseek_v3.py", None, 128, {},
         {"model": {"preset": "deepseek-v3"}, **BUCKET, "batch": {"global": 4096, "seq_len": 4096},
          **padded(tp=2, pp=16, ep=64, etp=1, layers=[3] + 14 * [4] + [2]),
          "recompute": {"mode": "selective", "modules": ["mla_up_proj", "layernorm", "moe", "mlp"]},
          "overlap": {"pp": False}, "experts": {"dispatcher": "deepep"}}),
    ],
)  # fmt: skip
def test_a_recipe_of_2_0_is_what_its_functions_return(file, recipe, nodes, settings, table):
    assert said(FILES / file, nodes, recipe, settings=settings) == table


def test_a_recipe_whose_base_is_not_beside_it_takes_what_most_recipes_have(tmp_path):
    shutil.copy(FILES / "llama3_70b_16k.py", tmp_path / "alone.py")

    assert said(tmp_path / "alone.py", 4) == said(FILES / "llama3_70b_16k.py", 4)


RECIPE = """
import nemo_run as run
import torch
from nemo import lightning as nl
from nemo.collections.llm.api import pretrain

NAME = "{name}"

def model() -> run.Config:
    return run.Config({model}, config=run.Config({config}))

def trainer(num_nodes=1, num_gpus_per_node=8, callbacks=None) -> run.Config[nl.Trainer]:
    strategy = run.Config(nl.MegatronStrategy, {strategy}, gradient_as_bucket_view=True, ckpt_async_save=True{ddp})
    return run.Config(
        nl.Trainer, accelerator="gpu", accumulate_grad_batches=1, callbacks=callbacks, devices=num_gpus_per_node,
        max_steps=1168251, num_nodes=num_nodes, plugins={plugins}, strategy=strategy, val_check_interval=2000,
    )

def pretrain_recipe(dir=None, name="default", num_nodes=1, num_gpus_per_node=8, fn=pretrain) -> run.Partial:
    return run.Partial(
        fn,
        model=model(),
        trainer={trainer},
        data=run.Config(MockDataModule, {data}),
        log=default_log(dir=dir, name=name, tensorboard_logger=tensorboard_logger(name=name)),
        optim=distributed_fused_adam_with_cosine_annealing(max_lr=3e-4),
        resume=default_resume(),
    )
"""
DDP = ", ddp=run.Config(DistributedDataParallelConfig, check_for_nan_in_grad=True, grad_reduce_in_fp32=True{0})"
OVERLAPPED = DDP.format(", overlap_grad_reduce=True, overlap_param_gather=True, average_in_collective=True")
AXES = {
    "tp": "tensor_model_parallel_size", "pp": "pipeline_model_parallel_size",
    "vpp": "virtual_pipeline_model_parallel_size",
    "cp": "context_parallel_size", "sp": "sequence_parallel", "ep": "expert_model_parallel_size",
}  # fmt: skip
OFF = {"overlap": {"dp": False, "params": False}}


@pytest.mark.parametrize(
    ("name", "config", "axes", "batch", "more", "nodes", "table"),
    [
        ("llama3_8b", "Llama3Config8B", {"tp": 1, "pp": 1, "vpp": None, "cp": 2, "sp": False}, (512, 1, 8192),
         {"ddp": ""}, 1,
         {"model": {"preset": "llama3-8b"}, **padded(cp=2), **OFF}),
        ("llama32_1b", "Llama32Config1B", {"tp": 1, "pp": 1, "vpp": None, "cp": 1, "sp": False}, (512, 1, 8192), {}, 1,
         {"model": {"preset": "llama3.2-1b"}, **padded()}),
        ("mixtral_8x7b", "MixtralConfig8x7B", {"tp": 1, "pp": 4, "vpp": 8, "cp": 1, "sp": True, "ep": 8}, (512, 1,
         8192),
         {"ddp": DDP.format(""), "plugins": 'run.Config(nl.MegatronMixedPrecision, precision="bf16-mixed")'}, 8,
         {"model": {"preset": "mixtral-8x7b"}, **padded(pp=4, ep=8), "schedule": {"name": "interleaved", "vpp": 8},
          "overlap": {"dp": False, "params": False, "pp": False}}),
        ("mixtral_8x22b", "MixtralConfig8x22B", {"tp": 2, "pp": 4, "vpp": 14, "cp": 2, "sp": True, "ep": 8}, (512, 1,
         4096),
         {"plugins": 'run.Config(nl.MegatronMixedPrecision, precision="bf16-mixed")'}, 16,
         {"model": {"preset": "mixtral-8x22b"}, **padded(tp=2, cp=2, pp=4, ep=8),
          "schedule": {"name": "interleaved", "vpp": 14}, "overlap": {"pp": False}}),
        ("gpt3_175b", "GPTConfig175B", {"tp": 4, "pp": 8, "vpp": 6, "cp": 1, "sp": True}, (2048, 2, 2048),
         {"plugins": "bf16_with_fp8_mixed()"}, 64,
         {"model": {"preset": "gpt3-175b"}, **padded(tp=4, pp=8), "schedule": {"name": "interleaved", "vpp": 6},
          "precision": {"compute": "fp8", "weights": "fp8"}, "overlap": {"pp": False}}),
        ("nemotronh_8b", "llm.NemotronHConfig8B", {"tp": 2, "pp": 1, "cp": 1, "sp": True}, (8, 1, 8192),
         {"ddp": DDP.format(", overlap_grad_reduce=True, overlap_param_gather=False"),
          "plugins": "[bf16_with_fp8_mixed_current_scaling()]"}, 1,
         {"model": {"preset": "nemotron-h-8b"}, **padded(tp=2), "precision": {"compute": "fp8"},
          "overlap": {"params": False}}),
    ],
)  # fmt: skip
def test_pretraining_recipes_of_2_0(tmp_path, name, config, axes, batch, more, nodes, table):
    strategy = ", ".join(f"{AXES[axis]}={size}" for axis, size in axes.items())
    data = "global_batch_size={}, micro_batch_size={}, seq_length={}".format(*batch)
    parts = {"ddp": OVERLAPPED, "plugins": "bf16_mixed()"} | more
    call = "trainer(num_nodes=num_nodes, num_gpus_per_node=num_gpus_per_node, callbacks=[run.Config(TimingCallback)])"
    text = RECIPE.format(
        name=name, model="GPTModel", config=config, strategy=strategy, data=data, trainer=call, **parts
    )
    (tmp_path / "r.py").write_text(text)
    total, micro, seq_len = batch
    sizes = {"global": total, "seq_len": seq_len} | ({"micro": micro} if micro > 1 else {})

    assert said(tmp_path / "r.py", nodes) == {"batch": sizes, **table}


def test_a_recipe_that_megatron_core_would_not_start_is_refused(tmp_path):
    strategy = "tensor_model_parallel_size=8, pipeline_model_parallel_size=9, virtual_pipeline_model_parallel_size=2"
    parts = {"name": "llama31_405b", "model": "LlamaModel", "config": "Llama31Config405B", "ddp": OVERLAPPED}
    data = "seq_length=8192, global_batch_size=512, micro_batch_size=1"
    parts |= {"strategy": f"{strategy}, context_parallel_size=4, sequence_parallel=True", "plugins": "bf16_mixed()"}
    (tmp_path / "r.py").write_text(RECIPE.format(**parts, trainer="trainer()", data=data))

    with pytest.raises(UserError, match=r"data.global_batch_size = 512: makes 256 .*; chunks need a multiple of 9"):
        said(tmp_path / "r.py", 72)


QWEN = """
import nemo_run as run
from nemo.collections.llm.recipes.{family} import {family}_model, {family}_trainer

NAME = "{name}"

def pretrain_recipe(tensor_parallelism={tp}, pipeline_parallelism={pp}, sequence_parallelism={sp},
{ep}precision="bf16-mixed",
                    global_batch_size=32, micro_batch_size=2, seq_length=4096, fn=pretrain) -> run.Partial:
    recipe = run.Partial(
        fn,
        model={family}_model(version=NAME),
        trainer={family}_trainer(
            tensor_parallelism=tensor_parallelism, pipeline_parallelism=pipeline_parallelism,
            sequence_parallelism=sequence_parallelism, {given}precision=precision, num_nodes=1, num_gpus_per_node=8,
        ),
        data=run.Config(MockDataModule, seq_length=seq_length, global_batch_size=global_batch_size,
                        micro_batch_size=micro_batch_size),
        optim=distributed_fused_adam_with_cosine_annealing(precision=precision, max_lr=3e-4),
    )
    {lines}
    return recipe
"""
FULL = """recipe.model.config.recompute_granularity = "full"
    recipe.model.config.recompute_method = "uniform"
    recipe.model.config.recompute_num_layers = 1"""


@pytest.mark.parametrize(
    ("parts", "table"),
    [
        ({"family": "qwen2", "name": "qwen25_7b", "tp": 2, "pp": 1, "sp": False},
         {"model": {"preset": "qwen2.5-7b"}, **padded(tp=2, sequence_parallel=False), **OFF}),
        ({"family": "qwen3", "name": "qwen3_30b_a3b", "tp": 4, "pp": 2, "sp": True, "ep": "expert_parallelism=4, ",
          "given": "expert_parallelism=expert_parallelism, ", "lines": FULL},
         {"model": {"preset": "qwen3-30b-a3b"}, **padded(tp=4, pp=2, ep=4, etp=1), "recompute": {"mode": "full"},
          "overlap": {"dp": False, "params": False, "pp": False}}),
    ],
)  # fmt: skip
def test_a_model_and_a_trainer_of_other_files_go_by_their_parameters(tmp_path, parts, table):
    (tmp_path / "r.py").write_text(QWEN.format(**{"ep": "", "given": "", "lines": "", **parts}))

    assert said(tmp_path / "r.py", 1) == {"batch": {"global": 32, "micro": 2, "seq_len": 4096}, **table}


@pytest.mark.parametrize(
    ("config", "model"),
    [
        ("GemmaConfig2B", {"preset": "gemma-2b"}),
        ("Gemma2Config2B", {"preset": "gemma2-2b"}),
        ("Gemma3Config1B", {"preset": "gemma3-1b"}),
        ("Llama31NemotronNano8BConfig", {"preset": "llama3-8b"}),
        ("MistralNeMoConfig12B", {"preset": "mistral-nemo-12b"}),
        ("OlMoEModelProvider", {"preset": "olmoe-7b-a1b"}),
        ("Phi3ConfigMini", {"preset": "phi-3-mini"}),
        ("Starcoder2Config15B", {"preset": "starcoder2-15b"}),
        ("BaseMambaConfig1_3B", {"preset": "mamba2-1.3b", "overrides": {"tie_word_embeddings": False}}),
    ],
)
def test_classes_of_models_are_presets(tmp_path, config, model):
    parts = {"name": "x", "model": "GPTModel", "config": config, "ddp": "", "trainer": "trainer()", "plugins": "None"}
    parts["strategy"] = ", ".join(f"{key}=1" for key in ("tensor_model_parallel_size", "context_parallel_size"))
    data = "seq_length=2048, global_batch_size=32, micro_batch_size=1"
    (tmp_path / "r.py").write_text(RECIPE.format(**parts, data=data))

    assert said(tmp_path / "r.py", 1)["model"] == model


EXPORTED = """
_target_: nemo.collections.llm.api.pretrain
_partial_: true
model:
  _target_: nemo.collections.llm.gpt.model.llama.LlamaModel
  config: {_target_: nemo.collections.llm.gpt.model.llama.Llama3Config8B, seq_length: 8192}
trainer:
  _target_: nemo.lightning.pytorch.trainer.Trainer
  callbacks:
  - {_target_: nemo.utils.exp_manager.TimingCallback}
  - _target_: nemo.lightning.pytorch.callbacks.megatron_comm_overlap.MegatronCommOverlapCallback
    tp_comm_overlap: true
  devices: 8
  num_nodes: 1
  plugins: {_target_: nemo.lightning.MegatronMixedPrecision, precision: bf16-mixed, grad_reduce_in_fp32: true,
            params_dtype: {_target_: torch.bfloat16, _call_: false}}
  strategy: {_target_: nemo.lightning.MegatronStrategy, tensor_model_parallel_size: 2, sequence_parallel: true}
data: {_target_: nemo.collections.llm.gpt.data.mock.MockDataModule, seq_length: 8192, global_batch_size: 512,
       micro_batch_size: 1}
optim: {_target_: nemo.lightning.MegatronOptimizerModule, config: {use_distributed_optimizer: true}}
"""


def test_what_nemo_run_writes_of_a_recipe_of_2_0(tmp_path):
    (tmp_path / "r.yaml").write_text(EXPORTED)

    assert said(tmp_path / "r.yaml", 1) == {
        "model": {"preset": "llama3-8b"},
        **padded(tp=2),
        "batch": {"global": 512, "seq_len": 8192},
        "overlap": {"tp": True},
        **BUCKET,
    }


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ("bert_binary_head: True", "model.bert_binary_head = true: BERT and T5 by sizes are not read in this form"),
        ("retro: {retro_project_dir: x}", "retrieval .RETRO. is not modelled"),
        ("num_query_groups: 12", "model.num_layers = 'x': expected a whole number"),
    ],
)
def test_what_a_config_of_1_0_has_that_is_not_read_is_one_line(tmp_path, more, line):
    sizes = {"micro": 4, "total": 256, "tp": 1, "pp": 1, "layers": "x", "hidden": 768, "heads": 12, "more": more}
    (tmp_path / "r.yaml").write_text(CONFIG.format(**{**GPT, "nodes": 1, **sizes}))

    with pytest.raises(UserError, match=line):
        said(tmp_path / "r.yaml", 1)


def test_an_activation_that_is_not_modelled_is_told(tmp_path):
    sizes = {"micro": 4, "total": 256, "tp": 1, "pp": 1, "layers": 12, "hidden": 768, "heads": 12}
    sizes["more"] = "activation: reglu"
    (tmp_path / "r.yaml").write_text(CONFIG.format(**{**GPT, "nodes": 1, **sizes}))

    found = read_recipe(tmp_path / "r.yaml", "dgx-h100").not_modelled
    assert [line for line in found if line.startswith("activation = reglu: GELU")]


def test_a_config_of_the_launcher_is_the_scenario(tmp_path):
    assert said(FILES / "llama3_1_70b.yaml", 128) == {
        "model": {"preset": "llama3-70b"},
        **padded(tp=4, cp=2, pp=4),
        "schedule": {"name": "interleaved", "vpp": 10},
        "batch": {"global": 2048, "seq_len": 8192},
        "overlap": {"tp": True},
    }


def test_every_key_of_the_launchers_config_is_known():
    assert read_recipe(FILES / "llama3_1_70b.yaml", "dgx-h100", 128).unknown == ()


CONFIG = """
trainer: {{num_nodes: {nodes}, devices: 8, accelerator: gpu, precision: {precision}, max_steps: 75000}}
exp_manager: {{name: megatron_gpt}}
model:
  mcore_gpt: True
  micro_batch_size: {micro}
  global_batch_size: {total}
  tensor_model_parallel_size: {tp}
  pipeline_model_parallel_size: {pp}
  virtual_pipeline_model_parallel_size: {vpp}
  sequence_parallel: {sp}
  encoder_seq_length: {seq_len}
  max_position_embeddings: ${{.encoder_seq_length}}
  num_layers: {layers}
  hidden_size: {hidden}
  ffn_hidden_size: {ffn}
  num_attention_heads: {heads}
  kv_channels: null
  make_vocab_size_divisible_by: 128
  {more}
  tokenizer: {{library: {library}, vocab_file: "${{data_dir}}/bpe/vocab.json"}}
  megatron_amp_O2: {o2}
  data: {{data_impl: mmap, seq_length: "${{model.encoder_seq_length}}"}}
  optim: {{name: {optim}, lr: 2e-4}}
"""
FUSED = "distributed_fused_adam, overlap_grad_sync: True, overlap_param_sync: true, contiguous_grad_buffer: True"
GPT = {"precision": "bf16", "seq_len": 2048, "ffn": "${multiply:4, ${.hidden_size}}", "optim": FUSED, "o2": True,
"vpp": "null",
       "library": "megatron, type: GPT2BPETokenizer", "more": "overlap_p2p_comm: False", "sp": False}  # fmt: skip
LLAMAS = "\n  ".join([
    "normalization: rmsnorm", "bias: false", "activation: fast-swiglu", "position_embedding_type: rope",
    "share_embeddings_and_output_weights: false",
])  # fmt: skip


@pytest.mark.parametrize(
    ("name", "sizes", "nodes", "table"),
    [
        ("gpt3/126m", {"micro": 4, "total": 256, "tp": 1, "pp": 1, "layers": 12, "hidden": 768, "heads": 12,
                       "more": "activations_checkpoint_granularity: selective"}, 8,
         {"model": {"preset": "gpt3-125m"}, **padded(), "batch": {"global": 256, "micro": 4, "seq_len": 2048},
          "recompute": {"mode": "selective"}}),
        ("gpt3/5b", {"micro": 4, "total": 2048, "tp": 1, "pp": 1, "layers": 24, "hidden": 4096, "heads": 32}, 16,
         {"model": {"config": "config.json"}, **padded(), "batch": {"global": 2048, "micro": 4, "seq_len": 2048}}),
        ("gpt3/20b", {"micro": 4, "total": 2048, "tp": 4, "pp": 1, "sp": True, "layers": 44, "hidden": 6144,
         "heads": 48,
                      "more": "activations_checkpoint_granularity: selective\n  ub_tp_comm_overlap: True"}, 64,
         {"model": {"config": "config.json"}, **padded(tp=4), "batch": {"global": 2048, "micro": 4, "seq_len": 2048},
          "recompute": {"mode": "selective"}, "overlap": {"tp": True}}),
        ("gpt3/175b_fp8", {"micro": 2, "total": 2048, "tp": 8, "pp": 8, "vpp": 12, "sp": True, "layers": 96,
         "hidden": 12288,
                           "heads": 96,
                           "more": "overlap_p2p_comm: True\n  fp8: True\n  fp8_e4m3: False\n  fp8_hybrid: True",
                           "optim": FUSED + ", grad_sync_dtype: bf16"}, 128,
         {"model": {"preset": "gpt3-175b"}, **padded(tp=8, pp=8), "schedule": {"name": "interleaved", "vpp": 12},
          "batch": {"global": 2048, "micro": 2, "seq_len": 2048}, "precision": {"compute": "fp8",
          "gradients": "bf16"}}),
        ("gpt3/70b_32n_gbs256_fsdp_tp2_mbs2ga1", {"micro": 2, "total": 256, "tp": 2, "pp": 1, "sp": True, "layers": 80,
                                                  "hidden": 8192, "heads": 64, "optim": "fused_adam", "o2": False,
                                                  "more": "fsdp: True\n  fsdp_grad_reduce_dtype: bf16"}, 32,
         {"model": {"preset": "mpt-70b"}, **padded(tp=2, zero=3), "batch": {"global": 256, "micro": 2, "seq_len": 2048},
          "precision": {"gradients": "bf16"}}),
        ("llama/llama2_70b", {"micro": 1, "total": 2048, "tp": 4, "pp": 4, "vpp": 20, "sp": True, "seq_len": 4096,
         "layers": 80,
                              "hidden": 8192, "ffn": 28672, "heads": 64,
                              "library": 'sentencepiece, model: "${data_dir}/llama/llama_tokenizer.model"',
                              "more": LLAMAS + "\n  num_query_groups: 8\n  overlap_p2p_comm: true"}, 128,
         {"model": {"preset": "llama2-70b"}, **padded(tp=4, pp=4), "schedule": {"name": "interleaved", "vpp": 20},
          "batch": {"global": 2048, "seq_len": 4096}}),
        ("megatron_gpt_config", {"precision": 16, "micro": 4, "total": 32, "tp": 1, "pp": 1, "seq_len": 512,
         "layers": 12,
                                 "hidden": 768, "ffn": 3072, "heads": 12, "optim": "fused_adam", "o2": True}, 1,
         {"model": {"config": "config.json"}, **padded(zero=0), "batch": {"global": 32, "micro": 4, "seq_len": 512},
          "precision": {"compute": "fp16", "gradients": "bf16"}, "overlap": {"dp": False}}),
        ("megatron_llama_config", {"precision": 32, "micro": 4, "total": 32, "tp": 1, "pp": 1, "seq_len": 4096,
         "layers": 12,
                                   "hidden": 768, "ffn": 3072, "heads": 12, "optim": "fused_adam", "o2": False,
                                   "library": 'sentencepiece, model: "???"', "more": LLAMAS}, 1,
         {"model": {"config": "config.json"}, **padded(zero=0), "batch": {"global": 32, "micro": 4, "seq_len": 4096},
          "precision": {"compute": "fp32"}, "overlap": {"dp": False}}),
    ],
)  # fmt: skip
def test_configs_of_1_0(tmp_path, name, sizes, nodes, table):
    (tmp_path / "r.yaml").write_text(CONFIG.format(**{**GPT, "nodes": nodes, **sizes}))

    assert said(tmp_path / "r.yaml", nodes) == table


OF_LIBRARY = """import nemo_run as run
from nemo.collections import llm

def mine():
    recipe = llm.llama3_8b.pretrain_recipe(name="mine", num_nodes=1, num_gpus_per_node=8)
    recipe.trainer.strategy.tensor_model_parallel_size = 4
    recipe.trainer.strategy.pipeline_model_parallel_size = 1
    recipe.trainer.strategy.context_parallel_size = 1
    recipe.trainer.strategy.sequence_parallel = True
    recipe.data.global_batch_size = 64
    recipe.data.micro_batch_size = 1
    recipe.data.seq_length = 8192
    recipe.trainer.callbacks.append(run.Config(MegatronCommOverlapCallback, tp_comm_overlap=True))
    return recipe
"""


def test_a_change_of_the_librarys_recipe_has_its_model_bf16_and_what_is_appended(tmp_path):
    (tmp_path / "mine.py").write_text(OF_LIBRARY)
    table = said(tmp_path / "mine.py", 1)
    assert (table["model"], table["parallel"]["tp"], table["overlap"]["tp"]) == ({"preset": "llama3-8b"}, 4, True)
    assert "compute" not in table.get("precision", {})


def test_the_plan_of_an_unseen_recipe_is_asked_for(tmp_path):
    text = OF_LIBRARY.replace("pipeline_model_parallel_size = 1", "use_te_rng_tracker = True")
    (tmp_path / "mine.py").write_text(text)

    with pytest.raises(UserError, match="says pipeline_model_parallel_size, virtual_pipeline_model_parallel_size; put"):
        said(tmp_path / "mine.py", 1)


def test_a_named_model_has_the_sizes_that_a_recipe_gives_it(tmp_path):
    sizes = {"vocab_size": 32000, "num_query_groups": 32, "kv_channels": 64, "num_layers": 16}
    lines = [f"    recipe.model.config.{name} = {size}\n" for name, size in sizes.items()]
    (tmp_path / "mine.py").write_text(OF_LIBRARY.replace("    return", "".join([*lines, "    return"])))

    assert said(tmp_path / "mine.py", 1)["model"]["overrides"] == {
        "num_hidden_layers": 16, "num_key_value_heads": 32, "head_dim": 64, "vocab_size": 32000,
    }  # fmt: skip


SMALL = (
    "trainer: {precision: bf16}\nmodel:\n  encoder_seq_length: 4096\n  micro_batch_size: 1\n  num_layers: 32\n"
    "  hidden_size: 4096\n  ffn_hidden_size: 14336\n  num_attention_heads: 32\n  num_query_groups: 8\n"
    "  normalization: rmsnorm\n  activation: fast-swiglu\n  bias: false\n  position_embedding_type: rope\n"
    "  share_embeddings_and_output_weights: false\n"
)


def test_a_config_with_a_trainer_and_a_model_is_nemos(tmp_path):
    """Megatron-LM's own YAML has neither section, and other words for the activation and biases."""
    (tmp_path / "r.yaml").write_text(SMALL)

    recipe = read_recipe(tmp_path / "r.yaml", "dgx-h100")

    assert (recipe.form, recipe.table["model"], recipe.unknown) == ("nemo", {"preset": "llama3-8b"}, ())


@pytest.mark.parametrize(("strategy", "reshard"), [("full", {}), ("grad", {"reshard": False})])
def test_fsdp_of_nemo_1_keeps_weights_after_the_forward_where_gradients_alone_are_sharded(tmp_path, strategy, reshard):
    (tmp_path / "r.yaml").write_text(f"{SMALL}  fsdp: true\n  fsdp_sharding_strategy: {strategy}\n")

    assert said(tmp_path / "r.yaml", 1)["parallel"] == {"zero": 3, "pad_vocab": 128, **reshard}
