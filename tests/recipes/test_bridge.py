"""Megatron Bridge: what its YAML and its recipes in Python say as scenarios.

The rows are recipes of NVIDIA-NeMo/Megatron-Bridge, with the numbers that they have there.
"""

from pathlib import Path

import pytest
from runcast.simulator.base.errors import UserError
from runcast.simulator.formats.recipes import Additions, read_recipe, scenario_table

FILES = Path(__file__).parent / "files/bridge"
DEEPSEEK_LAYERS = [1] + 30 * [2] + [0]


def read(name, nodes, recipe=None, seq_len=None, **settings):
    file = name if isinstance(name, Path) else FILES / name
    return read_recipe(file, "dgx-h100", nodes, additions=Additions(recipe=recipe, seq_len=seq_len, settings=settings))


def said(recipe, nodes, cluster="dgx-h100"):
    table = scenario_table(recipe, "r", cluster, nodes)
    return {key: value for key, value in table.items() if key not in ("name", "kind", "cluster", "nodes")}


def test_what_a_run_writes_is_the_scenario_with_overlap_as_comm_overlap_sets_it():
    assert said(read("deepseek-v3.yaml", 128), 128) == {
        "model": {"preset": "deepseek-v3"},
        "parallel": {"tp": 2, "pp": 8, "ep": 64, "etp": 1, "layers": DEEPSEEK_LAYERS},
        "schedule": {"name": "interleaved", "vpp": 4},
        "batch": {"global": 8192, "seq_len": 4096},
        "precision": {"compute": "fp8-block", "gradients": "bf16", "moments": "bf16"},
        "recompute": {"mode": "selective", "modules": ["mla_up_proj", "mlp"]},
        "overlap": {"dp": False, "params": False},
        "experts": {"dispatcher": "deepep", "nodes_per_token": 4},
        "bucket": 128 * 2**20,
    }


def test_every_key_of_what_a_run_writes_is_known():
    assert read("deepseek-v3.yaml", 128).unknown == ()


SEES = """
from megatron.bridge import AutoBridge
from megatron.bridge.recipes.common import _sft_common_vlm


def qwen25_vl_7b_sft_config() -> ConfigContainer:
    cfg = _sft_common_vlm()
    cfg.model = AutoBridge.from_hf_pretrained("{model}").to_megatron_provider(load_weights=False)
    cfg.model.seq_length = 4096
    cfg.model.freeze_language_model = {}
    cfg.model.freeze_vision_model = {}
    cfg.model.freeze_vision_projection = {}
    cfg.train.global_batch_size = 32
    cfg.train.micro_batch_size = 2
    return cfg
"""
QWEN_VL = "Qwen/Qwen2.5-VL-7B-Instruct"


@pytest.mark.parametrize(
    ("model", "frozen", "towers", "freeze"),
    [
        (QWEN_VL, (False, False, False), {}, None),
        (QWEN_VL, (False, True, False), {"frozen": True}, None),
        (QWEN_VL, (False, True, True), {"frozen": True, "frozen_projector": True}, None),
        (QWEN_VL, (True, True, False), {"frozen": True}, {"layers": "all", "embedding": True, "head": True}),
        ("Qwen/Qwen3-8B", (False, True, False), None, None),
    ],
)
def test_a_model_of_images_is_frozen_as_its_recipe_says(tmp_path, model, frozen, towers, freeze):
    (tmp_path / "r.py").write_text(SEES.format(*frozen, model=model))
    found = said(read(tmp_path / "r.py", 1), 1)
    has_towers = read(tmp_path / "r.py", 1).table.get("towers", {"vision": None})["vision"]
    assert (has_towers, found.get("freeze")) == (towers, freeze)


PLAN = {"precision": {"gradients": "bf16"}, "bucket": 128 * 2**20}
FP8 = {"precision": {"compute": "fp8", "gradients": "bf16", "weights": "fp8"}}
MIXED = {"model": {"preset": "llama3-70b"}, **PLAN}
SHARDED = {key: said for key, said in MIXED.items() if key != "bucket"}  # each layer is a unit


@pytest.mark.parametrize(
    ("recipe", "nodes", "table"),
    [
        ("llama32_1b_pretrain_config", 8, {"model": {"preset": "llama3.2-1b"}, "batch": {"global": 512,
         "seq_len": 8192}}),
        ("llama3_8b_16k_pretrain_config", 8,
         {"model": {"preset": "llama3-8b"}, "parallel": {"tp": 4, "cp": 2, "pp": 2},
          "batch": {"global": 512, "seq_len": 16384}, "overlap": {"pp": False}}),
        ("llama3_70b_pretrain_config", 8,
         {**MIXED, "parallel": {"tp": 4, "cp": 2, "pp": 4}, "schedule": {"name": "interleaved", "vpp": 5},
          "batch": {"global": 512, "seq_len": 8192}, "overlap": {"tp": True}}),
        ("llama3_8b_sft_config", 1,
         {"model": {"preset": "llama3-8b"}, "parallel": {"tp": 2, "sequence_parallel": False},
          "batch": {"global": 128, "seq_len": 2048}, "overlap": {"dp": False, "params": False}}),
        ("llama3_70b_peft_config", 1,
         {"model": {"preset": "llama3-70b"}, "parallel": {"tp": 8}, "batch": {"global": 128, "seq_len": 2048},
          "overlap": {"dp": False, "params": False}, "lora": {"targets": ["qkv"]}}),
    ],
)  # fmt: skip
def test_a_function_is_followed_to_the_recipe_that_it_returns(recipe, nodes, table):
    assert said(read("llama3.py", nodes, recipe), nodes) == table


def clone(folder, **files):
    """A recipe in a clone of the tool, with files of the tool's own."""
    for name, text in files.items():
        path = folder / f"megatron/bridge/{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        for parent in path.relative_to(folder).parents[:-1]:
            (folder / parent / "__init__.py").touch()
    return folder / "megatron/bridge/recipes/mine.py"


@pytest.mark.parametrize(
    ("own", "call", "key", "value"),
    [
        ("def apply_flex_dispatcher_backend(model, backend=None):\n    if torch.cuda.is_available():\n"
         "        model.moe_token_dispatcher_type = 'flex'\n",
         "apply_flex_dispatcher_backend(cfg.model, cfg.model.moe_flex_dispatcher_backend)",
         "experts", {"dispatcher": "deepep"}),
        ("def get_mixed_precision_config(name):\n    return REGISTRY[name]()\n",
         "cfg.mixed_precision = get_mixed_precision_config('bf16_with_mxfp8_mixed')",
         "precision", {"compute": "mxfp8", "weights": "fp8"}),
    ],
)  # fmt: skip
def test_what_asks_the_gpu_at_hand_is_known_in_a_clone_too(tmp_path, own, call, key, value):
    name = call.rpartition("= ")[2].partition("(")[0]
    recipe = f"""
from megatron.bridge import AutoBridge
from megatron.bridge.recipes.common import _pretrain_common
from megatron.bridge.training.own import {name}
def mine_pretrain_config() -> ConfigContainer:
    cfg = _pretrain_common()
    cfg.model = AutoBridge.from_hf_pretrained("Qwen/Qwen3-30B-A3B").to_megatron_provider(load_weights=False)
    cfg.model.expert_model_parallel_size, cfg.model.moe_flex_dispatcher_backend = 8, "deepep"
    {call}
    return cfg
"""
    path = clone(tmp_path, recipes__mine=recipe, training__own=own)
    assert read(path, 1).table[key].items() >= value.items()


EP = {"experts": {"dispatcher": "deepep"}}
QWEN = {"model": {"preset": "qwen3-30b-a3b"}, **EP}
DEEPSEEK = {"model": {"preset": "deepseek-v3"}, "batch": {"global": 4096, "seq_len": 4096}, "overlap": {"pp": False},
            "precision": {"gradients": "bf16", "moments": "bf16"}, "bucket": 128 * 2**20}  # fmt: skip


@pytest.mark.parametrize(
    ("file", "recipe", "nodes", "table"),
    [
        ("qwen3_moe.py", "qwen3_30b_a3b_pretrain_8gpu_h100_bf16_config", 1,
         {**QWEN, "parallel": {"tp": 4, "pp": 2, "ep": 4, "etp": 1}, "batch": {"global": 32, "micro": 2,
          "seq_len": 4096},
          "recompute": {"mode": "full"}, "overlap": {"pp": False}}),
        ("qwen3_moe.py", "qwen3_30b_a3b_pretrain_16gpu_h100_bf16_config", 2,
         {**QWEN, **PLAN, "parallel": {"ep": 16}, "batch": {"global": 1024, "seq_len": 4096}}),
        ("qwen3_moe.py", "qwen3_235b_a22b_pretrain_256gpu_h100_bf16_config", 32,
         {"model": {"preset": "qwen3-235b-a22b"},
          "parallel": {"tp": 4, "cp": 2, "pp": 16, "ep": 8, "etp": 1, "embedding_as_layer": True},
          "batch": {"global": 32, "seq_len": 4096}, "overlap": {"pp": False}}),
        ("deepseek_v3.py", "deepseek_v3_pretrain_config", 128,
         {**DEEPSEEK, "parallel": {"tp": 2, "pp": 16, "ep": 64, "etp": 1, "layers": 15 * [4] + [1]},
          "recompute": {"mode": "selective"}}),
        ("deepseek_v3.py", "deepseek_v3_pretrain_config_32nodes", 32,
         {**DEEPSEEK, "parallel": {"tp": 2, "pp": 8, "ep": 32, "etp": 1, "layers": 7 * [8] + [5]},
          "recompute": {"mode": "full"}}),
        ("llama3_perf.py", "llama3_70b_pretrain_64gpu_gb300_bf16_config", 8,
         {**SHARDED, "parallel": {"zero": 3, "pad_vocab": 128}, "batch": {"global": 128, "micro": 2, "seq_len": 8192},
          "offload": {"activations": 0.375}}),
        ("llama3_perf.py", "llama3_70b_pretrain_64gpu_gb200_fp8mx_config", 8,
         {**MIXED, "parallel": {"tp": 2, "pp": 4, "pad_vocab": 128}, "schedule": {"name": "interleaved", "vpp": 5},
          "batch": {"global": 128, "seq_len": 8192}, "overlap": {"tp": True},
          "precision": {"compute": "mxfp8", "gradients": "bf16", "weights": "fp8"}}),
        ("llama3_70b.py", None, 8,
         {"model": {"preset": "llama3-70b"}, "parallel": {"tp": 4, "cp": 2, "pp": 4}, "bucket": 128 * 2**20,
          "schedule": {"name": "interleaved", "vpp": 5}, "batch": {"global": 512, "seq_len": 8192},
          "overlap": {"tp": True}}),
        ("kimi_k2.py", None, 64,
         {"model": {"preset": "kimi-k2"},
          "parallel": {"tp": 2, "pp": 16, "ep": 32, "etp": 1, "zero": 0, "layers": 15 * [4] + [1]},
          "batch": {"global": 4096, "seq_len": 4096}, "recompute": {"mode": "selective"}, "overlap": {"pp": False}}),
    ],
)  # fmt: skip
def test_functions_of_one_file_and_of_files_beside_it_are_followed(file, recipe, nodes, table):
    assert said(read(file, nodes, recipe), nodes) == table


@pytest.mark.parametrize(
    ("plan", "nodes", "seq_len", "table"),
    [
        ("LLAMA3_70B_PRETRAIN_CONFIG_GB200_BF16_V1", 8, 8192,
         {**SHARDED, "parallel": {"zero": 3}, "batch": {"global": 128, "seq_len": 8192},
          "offload": {"activations": 0.25}}),
        ("LLAMA3_70B_PRETRAIN_CONFIG_GB200_FP8_MX_V1", 8, 8192,
         {**MIXED, "parallel": {"tp": 2, "pp": 4}, "schedule": {"name": "interleaved", "vpp": 5},
          "batch": {"global": 128, "seq_len": 8192},
          "precision": {"compute": "mxfp8", "gradients": "bf16", "weights": "fp8"}}),
        ("LLAMA3_70B_PRETRAIN_CONFIG_H100_BF16_V1", 8, 8192,
         {**MIXED, "parallel": {"tp": 4, "cp": 2, "pp": 4}, "schedule": {"name": "interleaved", "vpp": 5},
          "batch": {"global": 128, "seq_len": 8192}}),
        ("LLAMA3_70B_PRETRAIN_CONFIG_H100_FP8_CS_V1", 8, 8192,
         {**MIXED, **FP8, "parallel": {"tp": 4, "pp": 8}, "schedule": {"name": "interleaved", "vpp": 5},
          "batch": {"global": 128, "seq_len": 8192}}),
        ("LLAMA3_8B_PRETRAIN_CONFIG_GB200_FP8_MX_V1", 1, 8192,
         {"model": {"preset": "llama3-8b"}, "batch": {"global": 128, "micro": 2, "seq_len": 8192},
          "precision": {"compute": "mxfp8", "gradients": "bf16", "weights": "fp8"}, "bucket": 128 * 2**20}),
        ("LLAMA3_8B_PRETRAIN_CONFIG_H100_BF16_V1", 1, 8192,
         {"model": {"preset": "llama3-8b"}, **PLAN, "parallel": {"cp": 2}, "batch": {"global": 128, "seq_len": 8192}}),
        ("LLAMA3_8B_PRETRAIN_CONFIG_H100_FP8_CS_V1", 1, 8192,
         {"model": {"preset": "llama3-8b"}, **FP8, "batch": {"global": 128, "seq_len": 8192}, "bucket": 128 * 2**20,
          "recompute": {"mode": "full", "layers": 5}}),
        ("LLAMA3_70B_LORA_CONFIG_GB300_BF16_V1", 1, 4096,
         {**MIXED, "batch": {"global": 32, "seq_len": 4096}, "lora": {"rank": 32}}),
        ("LLAMA3_70B_SFT_CONFIG_H100_BF16_V1", 4, 4096,
         {**MIXED, "parallel": {"tp": 4, "pp": 4}, "schedule": {"name": "interleaved", "vpp": 5},
          "batch": {"global": 32, "seq_len": 4096}}),
        ("DEEPSEEK_V3_PRETRAIN_CONFIG_GB200_BF16_V1", 32, 4096,
         {"model": {"preset": "deepseek-v3"}, **PLAN, **EP, "parallel": {"pp": 4, "ep": 64, "layers": 15 * [4] + [1]},
          "schedule": {"name": "interleaved", "vpp": 4}, "batch": {"global": 2048, "seq_len": 4096},
          "recompute": {"mode": "selective", "modules": ["mla_up_proj"]}}),
        ("DEEPSEEK_V3_PRETRAIN_CONFIG_H100_FP8_SC_V1", 128, 4096,
         {"model": {"preset": "deepseek-v3"}, **PLAN, **EP,
          "parallel": {"tp": 2, "pp": 8, "ep": 64, "etp": 1, "layers": DEEPSEEK_LAYERS},
          "schedule": {"name": "interleaved", "vpp": 4}, "batch": {"global": 8192, "seq_len": 4096},
          "recompute": {"mode": "selective", "modules": ["mla_up_proj", "mlp"]},
          "precision": {"compute": "fp8-block", "gradients": "bf16"}}),
    ],
)  # fmt: skip
def test_a_plan_of_the_benchmarks_has_its_model_and_precision_in_its_name(plan, nodes, seq_len, table):
    assert said(read("workloads.py", nodes, plan, seq_len), nodes) == table


@pytest.mark.parametrize(
    ("switch", "overlap", "schedule"),
    [(True, {"wgrad": True}, {"name": "interleaved-overlap"}), (False, None, None)],
)
def test_a_plan_that_overlaps_experts_holds_weight_gradients_back(tmp_path, switch, overlap, schedule):
    sizes = f"num_gpus=16, global_batch_size=256, expert_model_parallel_size=8, moe_a2a_overlap={switch}"
    name = "QWEN3_30B_A3B_PRETRAIN_CONFIG_H100_BF16_V1"
    lines = "from utils.utils import WorkloadBaseConfig", f"{name} = WorkloadBaseConfig({sizes})"
    (tmp_path / "plans.py").write_text("\n".join(lines))
    table = said(read(tmp_path / "plans.py", 2, name, seq_len=4096), 2)

    assert (table.get("overlap"), table.get("schedule")) == (overlap, schedule)


PRETRAIN = """
from megatron.bridge import AutoBridge
from megatron.bridge.recipes.common import _pretrain_common

def {name}() -> ConfigContainer:
    cfg = _pretrain_common()
    cfg.model = AutoBridge.from_hf_pretrained("{model}").to_megatron_provider(load_weights=False)
    cfg.model.pipeline_model_parallel_layout = None
    cfg.model.virtual_pipeline_model_parallel_size = None
    {lines}
    cfg.ddp.use_megatron_fsdp = False
    return cfg
"""
LLAMA = "dataset.seq_length = {0}, model.seq_length = {0}, train.global_batch_size = 512, train.micro_batch_size = 1"


@pytest.mark.parametrize(
    ("name", "model", "lines", "table"),
    [
        ("llama32_3b_pretrain_config", "meta-llama/Llama-3.2-3B", LLAMA.format(8192),
         {"model": {"preset": "llama3.2-3b"}, "batch": {"global": 512, "seq_len": 8192}}),
        ("llama3_8b_pretrain_config", "meta-llama/Meta-Llama-3-8B",
         "model.context_parallel_size = 2, model.sequence_parallel = False, " + LLAMA.format(8192),
         {"model": {"preset": "llama3-8b"}, "parallel": {"cp": 2}, "batch": {"global": 512, "seq_len": 8192}}),
        ("llama3_8b_64k_pretrain_config", "meta-llama/Meta-Llama-3-8B",
         "model.tensor_model_parallel_size = 4, model.pipeline_model_parallel_size = 2, "
         "model.context_parallel_size = 4, "
         "model.sequence_parallel = True, " + LLAMA.format(65536),
         {"model": {"preset": "llama3-8b"}, "parallel": {"tp": 4, "cp": 4, "pp": 2},
          "batch": {"global": 512, "seq_len": 65536}, "overlap": {"pp": False}}),
        ("qwen3_600m_pretrain_config", "Qwen/Qwen3-0.6B", "model.seq_length = 4096",
         {"model": {"preset": "qwen3-0.6b"}, "batch": {"global": 32, "micro": 2, "seq_len": 4096}}),
        ("qwen3_1p7b_pretrain_config", "Qwen/Qwen3-1.7B", "model.seq_length = 4096",
         {"model": {"preset": "qwen3-1.7b"}, "batch": {"global": 32, "micro": 2, "seq_len": 4096}}),
        ("qwen3_4b_pretrain_config", "Qwen/Qwen3-4B", "model.tensor_model_parallel_size = 2, model.seq_length = 4096",
         {"model": {"preset": "qwen3-4b"}, "parallel": {"tp": 2, "sequence_parallel": False},
          "batch": {"global": 32, "micro": 2, "seq_len": 4096}}),
        ("qwen3_8b_pretrain_config", "Qwen/Qwen3-8B", "model.tensor_model_parallel_size = 4, model.seq_length = 4096",
         {"model": {"preset": "qwen3-8b"}, "parallel": {"tp": 4, "sequence_parallel": False},
          "batch": {"global": 32, "micro": 2, "seq_len": 4096}}),
        ("qwen3_14b_pretrain_config", "Qwen/Qwen3-14B", "model.tensor_model_parallel_size = 8, model.seq_length = 4096",
         {"model": {"preset": "qwen3-14b"}, "parallel": {"tp": 8, "sequence_parallel": False},
          "batch": {"global": 32, "micro": 2, "seq_len": 4096}}),
    ],
)  # fmt: skip
def test_pretraining_recipes_have_the_common_settings_of_the_library(tmp_path, name, model, lines, table):
    text = PRETRAIN.format(name=name, model=model, lines="\n    ".join(f"cfg.{line}" for line in lines.split(", ")))
    (tmp_path / "recipes.py").write_text(text)

    nodes = 4 if "64k" in name else 2
    assert said(read(tmp_path / "recipes.py", nodes), nodes) == table


OVERRIDES = """
model_config: {tensor_model_parallel_size: 2, pipeline_model_parallel_size: 2, context_parallel_size: 1}
train_config: {train_iters: 500000, global_batch_size: 256, micro_batch_size: 4}
ddp_config: {grad_reduce_in_fp32: true}
profiling_config: {use_nsys_profiler: false, profile_ranks: [0, 1]}
"""


def test_overrides_take_the_model_and_the_length_of_sequences_from_flags(tmp_path):
    (tmp_path / "o.yaml").write_text(OVERRIDES)
    recipe = read_recipe(tmp_path / "o.yaml", "dgx-h100", additions=Additions(model="llama3-8b", seq_len=8192))

    assert said(recipe, 1) == {
        "model": {"preset": "llama3-8b"},
        "parallel": {"tp": 2, "pp": 2, "sequence_parallel": False},
        "batch": {"global": 256, "micro": 4, "seq_len": 8192},
        "overlap": {"pp": False},
    }


FSDP = """
model: {seq_length: 4096, init_model_with_meta_device: true}
train: {train_iters: 20, global_batch_size: 8, micro_batch_size: 1, eval_iters: 0}
dist: {use_megatron_fsdp: true, use_torch_fsdp2: false}
dataset: {sequence_length: 4096}
ddp: {grad_reduce_in_fp32: true, data_parallel_sharding_strategy: optim_grads_params}
profiling: {_target_: megatron.bridge.training.config.ProfilingConfig, use_nsys_profiler: false}
"""


def test_fsdp_may_be_asked_for_beside_the_settings_of_data_parallelism(tmp_path):
    (tmp_path / "o.yaml").write_text(FSDP)
    recipe = read_recipe(tmp_path / "o.yaml", "dgx-h100", additions=Additions(model="llama3-8b"))

    assert said(recipe, 1)["parallel"] == {"zero": 3}


LLAMA3, DEEPSEEK3 = "meta-llama/Meta-Llama-3-8B", "deepseek-ai/DeepSeek-V3"


@pytest.mark.parametrize(
    ("model", "lines", "overrides"),
    [
        ("Qwen/Qwen3-8B", "num_layers = 8, ffn_hidden_size = 1024",
         {"num_hidden_layers": 8, "intermediate_size": 1024}),
        (LLAMA3, "vocab_size = 32000, num_query_groups = 32, kv_channels = 64",
         {"vocab_size": 32000, "num_key_value_heads": 32, "head_dim": 64}),
        (LLAMA3, "share_embeddings_and_output_weights = True, qk_layernorm = True, num_layers = 2",
         {"num_hidden_layers": 2, "qk_norm": True, "tie_word_embeddings": True}),
        (LLAMA3, "num_layers = 2, window_size = (127; 0)",
         {"num_hidden_layers": 2, "sliding_window": 128, "layer_types": 2 * ["sliding_attention"]}),
        (LLAMA3, "hidden_size = 2048", {"hidden_size": 2048}),
        (LLAMA3, "hidden_size = 4096", None),
        ("Qwen/Qwen3-30B-A3B", "num_moe_experts = 64, moe_router_topk = 4, moe_ffn_hidden_size = 1024",
         {"num_experts": 64, "num_experts_per_tok": 4, "moe_intermediate_size": 1024}),
        (DEEPSEEK3, "moe_layer_freq = [0] * 31 + [1] * 30, q_lora_rank = 512, mtp_num_layers = 2",
         {"q_lora_rank": 512, "first_k_dense_replace": 31, "num_nextn_predict_layers": 2}),
        ("Qwen/Qwen3.5-27B", "mtp_num_layers = 2", {"mtp_num_hidden_layers": 2}),
        ("nvidia/Nemotron-H-8B-Base-8K", "hybrid_override_pattern = 'M-M*-'",
         {"hybrid_override_pattern": "M-M*-", "num_hidden_layers": 5}),
        (DEEPSEEK3, "num_layers = 3, moe_layer_freq = [1; 0; 1], moe_shared_expert_intermediate_size = 4096",
         {"num_hidden_layers": 3, "shared_expert_intermediate_size": 4096, "moe_layer_freq": [1, 0, 1]}),
        ("zai-org/GLM-5", "dsa_indexer_topk = 1024, dsa_indexer_topk_freq = 4, dsa_indexer_skip_topk_offset = 3",
         {"index_topk": 1024, "index_topk_freq": 4, "index_skip_topk_offset": 3}),
        ("zai-org/GLM-5", "dsa_indexer_loss_coeff = 0.0, dsa_kernel_backend = 'tilelang'", {"index_loss": False}),
        ("zai-org/GLM-5", "dsa_indexer_loss_coeff = 1e-3, dsa_indexer_use_sparse_loss = True", None),
    ],
)  # fmt: skip
def test_a_named_model_has_the_sizes_that_a_recipe_gives_it(tmp_path, model, lines, overrides):
    changes = "\n    ".join(f"cfg.model.{line}" for line in lines.split(", ")).replace(";", ",")
    (tmp_path / "r.py").write_text(PRETRAIN.format(name="proxy_config", model=model, lines=changes))

    assert said(read(tmp_path / "r.py", 2), 2)["model"].get("overrides") == overrides


@pytest.mark.parametrize(("value", "mtp"), [("None", False), ("0", False), ("1", None)])
def test_a_recipe_switches_off_multi_token_prediction_by_none(tmp_path, value, mtp):
    lines = f"cfg.model.mtp_num_layers = {value}"
    (tmp_path / "r.py").write_text(PRETRAIN.format(name="proxy_config", model=DEEPSEEK3, lines=lines))

    assert said(read(tmp_path / "r.py", 2), 2)["model"].get("mtp") is mtp


def test_a_size_that_no_key_of_a_named_model_says_is_not_modelled(tmp_path):
    lines = "cfg.model.q_lora_rank = 512\n    cfg.model.num_moe_experts = 8"
    (tmp_path / "r.py").write_text(PRETRAIN.format(name="proxy_config", model=LLAMA3, lines=lines))
    recipe = read(tmp_path / "r.py", 2)

    assert [line for line in recipe.not_modelled if "preset" in line] == [
        "model.q_lora_rank = 512: preset llama3-8b has none, and no key of it says another",
        "model.num_moe_experts = 8: preset llama3-8b has none, and no key of it says another",
    ]


@pytest.mark.parametrize(
    ("precision", "table"),
    [
        ("MixedPrecisionConfig(bf16=True)", None),
        ("MixedPrecisionConfig(bf16=True, grad_reduce_in_fp32=False)", {"gradients": "bf16"}),
        ("'fp16_with_mxfp8_mixed'", {"compute": "mxfp8", "gradients": "bf16", "weights": "fp8"}),
        ("'fp16_with_fp8_subchannel_scaling_mixed'", {"compute": "fp8-block", "gradients": "bf16"}),
    ],
)
def test_a_precision_has_the_defaults_of_its_class_or_of_its_name(tmp_path, precision, table):
    head = "from megatron.bridge.training.mixed_precision import MixedPrecisionConfig\n"
    lines = f"cfg.mixed_precision = {precision}"
    (tmp_path / "r.py").write_text(head + PRETRAIN.format(name="mine_config", model=LLAMA3, lines=lines))

    assert said(read(tmp_path / "r.py", 2), 2).get("precision") == table


@pytest.mark.parametrize(
    ("file", "more", "line"),
    [
        ("llama3.py", {}, "holds 5 recipes: llama32_1b_pretrain_config, .*; name one with --recipe"),
        (
            "llama3.py",
            {"recipe": "llama3_8b_sft"},
            "--recipe llama3_8b_sft: not in .*did you mean llama3_8b_sft_config",
        ),
        (
            "llama3.py",
            {"recipe": "llama3_70b_peft_config", "peft_shceme": "x"},
            "--set peft_shceme: .*mean peft_scheme",
        ),
        ("llama3.py", {"recipe": "llama3_8b_sft_config", "num_query_groups": "12"}, "num_key_value_heads = 12: a div"),
        ("deepseek-v3.yaml", {"recipe": "x"}, "--recipe: goes with a Python file"),
        ("deepseek-v3.yaml", {"scheme": "x"}, "--set scheme: no argument of a bridge recipe"),
        ("workloads.py", {"recipe": "LLAMA3_8B_PRETRAIN_CONFIG_H100_BF16_V1"}, "seq_length: is missing"),
    ],
)
def test_a_mistake_is_one_line(file, more, line):
    with pytest.raises(UserError, match=line):
        read(file, 128, **more)


def test_a_parameter_of_a_recipe_can_be_set():
    recipe = read("llama3.py", 1, "llama3_70b_peft_config", peft_scheme="dora")

    assert "peft = dora: LoRA is assumed, which takes fewer passes" in recipe.not_modelled


def test_a_plan_says_how_many_gpus_it_is_for():
    recipe = read("workloads.py", 8, "LLAMA3_8B_PRETRAIN_CONFIG_H100_BF16_V1", 8192)

    assert "the 64 GPUs (8 x 8, dgx-h100): the plan is for 8" in recipe.assumed


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("perf_matrix: {h100: {common: {mbs: 1}}}\nddp: {}", "it holds several plans .* workload_base_configs.py"),
        (
            "ddp: {}\nmixed_precision: bf16_mixt\nmodel: {hf_model_id: Qwen/Qwen3-8B}",
            "mixed_precision = 'bf16_mixt': expected one of bf16_mixed",
        ),
        ("ddp: {}\nmodel: {vision_config: {depth: 2}}", "what reads images is not read of its own sizes"),
        ("ddp: {}\nmixed_precision: bf16_mixed\nmodel: {a: 1}", "hf_model_id: is missing; expected a model"),
    ],
)
def test_what_is_no_training_step_of_a_known_model_is_refused(tmp_path, text, line):
    (tmp_path / "r.yaml").write_text(text)

    with pytest.raises(UserError, match=line):
        read(tmp_path / "r.yaml", 1)


OF_LIBRARY = """from megatron.bridge.recipes.llama import {function}

def mine():
    cfg = {function}()
    cfg.model.tensor_model_parallel_size = 4
    cfg.model.pipeline_model_parallel_size = 1
    cfg.model.context_parallel_size = 1
    cfg.model.virtual_pipeline_model_parallel_size = None
    cfg.model.sequence_parallel = True
    cfg.train.global_batch_size = 64
    return cfg
"""


@pytest.mark.parametrize(
    ("function", "overlap", "lora"),
    [("llama3_8b_pretrain_config", None, False), ("llama3_8b_sft_config", {"dp": False, "params": False}, False),
     ("llama3_8b_peft_config", {"dp": False, "params": False}, True)],
)  # fmt: skip
def test_a_change_of_the_librarys_recipe_has_what_most_such_recipes_have(tmp_path, function, overlap, lora):
    (tmp_path / "mine.py").write_text(OF_LIBRARY.format(function=function))
    recipe = read(tmp_path / "mine.py", 1, seq_len=4096)
    table = said(recipe, 1)
    assert (table["model"], table["parallel"], table["batch"]["global"]) == ({"preset": "llama3-8b"}, {"tp": 4}, 64)
    assert (table.get("precision", {}).get("compute"), table.get("overlap"), "lora" in table) == (None, overlap, lora)
    assert f"{function}: its file is not beside this one" in "".join(recipe.assumed)


PLAN_OF_LIBRARY = """from megatron.bridge.recipes.x import {name}

def mine():
    cfg = {name}()
    cfg.train.global_batch_size = 64
    cfg.model.seq_length = 4096
    {lines}
    return cfg
"""
TP, PP, CP, EP = (f"{axis}_parallel_size" for axis in ("tensor_model", "pipeline_model", "context", "expert_model"))
VPP, SP = "virtual_pipeline_model_parallel_size", "sequence_parallel"


@pytest.mark.parametrize(
    ("name", "lines", "settings", "asked"),
    [
        ("llama3_70b_pretrain_config", "", {}, [TP, PP, CP, VPP, SP]),
        ("deepseek_v3_pretrain_config", "", {}, [TP, PP, CP, EP, VPP, SP]),
        ("llama3_70b_pretrain_config", f"cfg.model.{TP} = 4; cfg.model.{VPP} = None", {PP: "2"}, [CP, SP]),
        ("llama3_8b_pretrain_config", f"cfg.model.{TP} = cfg.model.{PP} = 1", {}, [CP]),
    ],
)
def test_the_plan_of_an_unseen_recipe_is_asked_for(tmp_path, name, lines, settings, asked):
    (tmp_path / "mine.py").write_text(PLAN_OF_LIBRARY.format(name=name, lines=lines))

    with pytest.raises(UserError) as caught:
        read(tmp_path / "mine.py", 8, **settings)

    line = f"{name}: its file is not beside this one, and says {', '.join(asked)}; put it there, or give each with"
    assert line in str(caught.value)


def test_overrides_are_known_by_what_they_say_of_training(tmp_path):
    model = "model:\n  tensor_model_parallel_size: 4\n  seq_length: 8192\n"
    (tmp_path / "o.yaml").write_text(f"{model}train:\n  train_iters: 20\n  global_batch_size: 64\n")

    recipe = read_recipe(tmp_path / "o.yaml", "dgx-h100", additions=Additions(model="llama3-8b"))

    assert (recipe.form, said(recipe, 1)["parallel"]["tp"]) == ("bridge", 4)
