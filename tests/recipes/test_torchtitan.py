"""torchtitan configs, old and new, and plain tables of FSDP settings."""

import json

import pytest
from runcast.simulator.base.errors import UserError
from runcast.simulator.formats.recipes import read_recipe, scenario_table

MODEL = '[model]\nname = "llama3"\nflavor = "8B"\n'


@pytest.fixture
def read(tmp_path):
    def table(text, nodes=1):
        (tmp_path / "r.toml").write_text(text)
        return scenario_table(read_recipe(tmp_path / "r.toml", "dgx-h100", nodes, "torchtitan"), "r", "dgx-h100", nodes)

    return table


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("", "batch", {"global": 64, "micro": 8, "seq_len": 2048}),
        ("", "recompute", {"mode": "full", "layers": 16}),
        ('[activation_checkpoint]\nmode = "selective"', "recompute", {"mode": "full", "layers": 16}),
        ('[activation_checkpoint]\nmode = "none"', "recompute", None),
        ("[training]\nlocal_batch_size = 4\nseq_len = 4096", "batch", {"global": 32, "micro": 4, "seq_len": 4096}),
        ("[parallelism]\ntensor_parallel_degree = 8", "parallel", {"tp": 8, "zero": 0}),
        ("[parallelism]\ndata_parallel_replicate_degree = 8\ndata_parallel_shard_degree = 1", "parallel", {"zero": 0}),
        ("[parallelism]\ndata_parallel_replicate_degree = 2", "parallel", {"zero": 3, "shard": 4}),
        ('[parallelism]\nfsdp_reshard_after_forward = "never"', "parallel", {"zero": 3, "reshard": False}),
        ("[parallelism]\ntensor_parallel_degree = 8\nenable_sequence_parallel = false", "parallel",
         {"tp": 8, "zero": 0, "sequence_parallel": False}),
        ("[parallelism]\ncontext_parallel_degree = 8", "parallel", {"cp": 8, "cp_type": "all_gather", "zero": 3}),
        ('[quantize]\nconverters = ["quantize.linear.float8"]', "precision",
         {"compute": "fp8", "reduce": "fp32"}),
        ('converters = ["quantize.grouped_mm.float8"]', "precision", {"reduce": "fp32"}),
        ('[training]\nmixed_precision_reduce = "bfloat16"', "precision", {"reduce": "bf16"}),
        ('[training]\nmixed_precision_reduce = "bfloat16"\n[parallelism]\nfsdp_defer_gradient_reduction = true',
         "precision", {"gradients": "bf16", "reduce": "bf16"}),
        ("[parallelism]\nfsdp_defer_gradient_reduction = true", "precision", {"reduce": "fp32"}),
        ('[training]\ndtype = "bfloat16"', "precision",
         {"gradients": "bf16", "reduce": "fp32", "moments": "bf16", "master": False}),
        ('[activation_checkpoint]\nmode = "selective"\nselective_ac_option = "2"', "recompute",
         {"mode": "full", "layers": 16}),
        ("", "stack", "pytorch-fsdp"),
        ("[compile]\nenable = false", "stack", "pytorch-fsdp"),
        ("[compile]\nenable = true", "stack", "torchtitan"),
        ("[training]\ncompile = true", "stack", "torchtitan"),
        ('[compile]\nenable = true\ncomponents = ["loss"]', "stack", "pytorch-fsdp"),
        ("", "loss", "passes"),
        ('[compile]\nenable = true\ncomponents = ["model"]', "loss", "passes"),
        ('[compile]\nenable = true\ncomponents = ["loss"]', "loss", "fused"),
    ],
)  # fmt: skip
def test_what_a_key_says(read, text, key, value):
    """None is what is as by default, and left out."""
    assert read(MODEL + text).get(key) == value


def test_stages_hold_the_modules_that_are_listed(read):
    parts = [["tok_embeddings", *(f"layers.{number}" for number in range(20))], ["layers.20"], ["layers.21"]]
    parts.append([*(f"layers.{number}" for number in range(22, 32)), "norm", "output"])
    text = f"[parallelism]\npipeline_parallel_degree = 4\nmodule_fqns_per_model_part = {json.dumps(parts)}"

    assert read(MODEL + text)["parallel"]["layers"] == [20, 1, 1, 10]


@pytest.mark.parametrize(
    ("first", "last", "split"),
    [
        (0, 0, {}),
        (1, 1, {"embedding_as_layer": True}),
        (0, 1, {"layers": [9, 8, 8, 7]}),
        (2, 2, {"layers": [7, 9, 9, 7]}),
    ],
)
def test_embedding_and_head_count_as_many_layers_as_they_are_said_to(read, first, last, split):
    less = f"pipeline_parallel_first_stage_less_layers = {first}\npipeline_parallel_last_stage_less_layers = {last}\n"
    table = read(MODEL + f"[parallelism]\npipeline_parallel_degree = 4\n{less}")

    assert {
        key: table["parallel"][key] for key in ("embedding_as_layer", "layers") if key in table["parallel"]
    } == split


def test_gradients_that_add_up_over_local_batches_fill_and_empty_the_pipeline_each_time(read):
    """Of two replicas, each has 32 sequences in 8 local batches."""
    text = "[parallelism]\npipeline_parallel_degree = 4\n[training]\nlocal_batch_size = 4\nglobal_batch_size = 64"
    table = read(MODEL + text)

    assert table["schedule"] == {"passes": 8}


@pytest.mark.parametrize(("value", "noted"), [("true", False), ("false", True)])
def test_a_loss_that_is_not_split_is_told(tmp_path, value, noted):
    (tmp_path / "r.toml").write_text(f"{MODEL}[parallelism]\nenable_loss_parallel = {value}\n")
    told = read_recipe(tmp_path / "r.toml", "dgx-h100").not_modelled

    assert any("the loss is split over tp" in line for line in told) is noted


def test_what_saves_steps_of_synchronization_is_not_modelled(tmp_path):
    more = (
        '[optimizer]\nearly_step_in_backward = true\n[fault_tolerance]\nsemi_sync_method = "diloco"\nsync_steps = 5\n'
    )
    (tmp_path / "r.toml").write_text(MODEL + "[training]\nlocal_batch_size = 1\n" + more)
    recipe = read_recipe(tmp_path / "r.toml", "dgx-h100")

    assert [line.partition(" = ")[0] for line in recipe.not_modelled] == [
        "optimizer.early_step_in_backward",
        "fault_tolerance.semi_sync_method",
        "fault_tolerance.sync_steps",
    ]


@pytest.mark.parametrize(
    ("parts", "line"),
    [
        ('[["layers.0"], ["layers.1"]]', "module_fqns_per_model_part = 2: expected the 32 layers of llama3-8b"),
        ('["layers.0", "layers.1"]', "module_fqns_per_model_part = 'layers.0 layers.1': expected a list of lists"),
    ],
)
def test_a_list_of_other_modules_is_a_fault(read, parts, line):
    with pytest.raises(UserError) as refused:
        read(MODEL + f"[parallelism]\npipeline_parallel_degree = 2\nmodule_fqns_per_model_part = {parts}")

    assert line in str(refused.value)


def test_experts_are_whole_where_nothing_is_said(read):
    """Unlike Megatron-LM's, which are split as all else."""
    model = '[model]\nname = "deepseek_v3"\nflavor = "671B"\n'
    sizes = "[parallelism]\ntensor_parallel_degree = 2\nexpert_parallel_degree = 2\n"
    given = [read(model + sizes + f"expert_tensor_parallel_degree = {etp}")["parallel"] for etp in (1, 2)]

    assert given == [read(model + sizes)["parallel"], {"tp": 2, "ep": 2, "zero": 3}]
    assert given[0] == {"tp": 2, "ep": 2, "etp": 1, "zero": 3}


def test_experts_are_split_over_tp_without_ep(read):
    model = '[model]\nname = "qwen3"\nflavor = "30B-A3B"\n'
    table = read(model + "[parallelism]\ntensor_parallel_degree = 4\nexpert_tensor_parallel_degree = 1")

    assert table["parallel"] == {"tp": 4, "zero": 3}


@pytest.mark.parametrize(
    ("name", "schedule"),
    [
        ("1F1B", {}),
        ("GPipe", {"name": "gpipe"}),
        ("Interleaved1F1B", {"name": "interleaved", "vpp": 2}),
        ("ZBVZeroBubble", {"name": "zb-v"}),
        ("DualPipeV", {"name": "dualpipe-v"}),
    ],
)
def test_pipelines(read, name, schedule):
    pipeline = f'[parallelism]\npipeline_parallel_degree = 4\npipeline_parallel_schedule = "{name}"\n'
    table = read(MODEL + pipeline + "[training]\nlocal_batch_size = 8\nseq_len = 8192")

    assert table.get("schedule", {}) == schedule
    assert table["batch"] == {"global": 16, "seq_len": 8192}
    assert table["parallel"]["sync_each_microbatch"] is False


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('[model]\nname = "llama3"\nflavor = "9B"', "model.flavor = '9B': did you mean"),
        ('[model]\nname = "flux"\nflavor = "flux-dev"', "model.name = flux: its tokens are of images and of T5"),
        ("[training]\nseq_len = 4096", "model.name: is missing; expected a model"),
        ('model = "xyzxyz"', "model = 'xyzxyz': no preset has the name xyzxyz"),
        (MODEL + "[parallelism]\ndata_parallel_shard_degree = 3", "data_parallel_shard_degree = 3: .* so 8"),
        (MODEL + "[parallelism]\ntensor_parallel_degree = 3", "which 3 does not divide"),
        (MODEL + "[parallelism]\ntensor_parallel_degree = 0", "= 0: expected a whole number from 1 on"),
        (MODEL + "[parallelism]\nexpert_parallel_degree = 2", "llama3-8b has no experts"),
        (MODEL + '[parallelism]\npipeline_parallel_schedule = "LoopedBFS"', "expected one of 1F1B"),
        (
            MODEL + "[parallelism]\npipeline_parallel_degree = 4\npipeline_parallel_layers_per_stage = 7",
            "makes 5 stages",
        ),
        (MODEL + "[parallelism]\ntensor_parallel_degree = 4\n[training]\nseq_len = 1002", "multiple of 4 with tp = 4"),
        (MODEL + "[training]\nglobal_batch_size = 9", "local 8 x dp 8 = 64 must divide it"),
        (
            MODEL + '[activation_checkpoint]\nselective_ac_option = "opp"',
            "selective_ac_option = 'opp': expected op, or n to recompute every n-th layer",
        ),
        (
            MODEL + "[parallelism]\nenable_async_tensor_parallel = true",
            "parallel = True: expected false, or compile.en",
        ),
        (MODEL + '[activation_checkpoint]\nmode = "memory_budget"', "expected one of none, selective, full"),
        (
            MODEL + "[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_layers_per_stage = 17\n"
            'pipeline_parallel_schedule = "DualPipeV"',
            "DualPipeV.: has 2 stages per rank; .* make 1",
        ),
        ("a = b", r"is not TOML: Invalid value \(at line 1, column 5\)"),
        ('{"a": ', "is not JSON: Expecting value"),
    ],
)
def test_what_does_not_go_together(read, text, line):
    with pytest.raises(UserError, match=line):
        read(text)


@pytest.mark.parametrize(
    ("strategy", "parallel"),
    [
        ("FULL_SHARD", {"zero": 3}),
        ("SHARD_GRAD_OP", {"zero": 3, "reshard": False}),
        ("HYBRID_SHARD", {"zero": 3, "shard": 8}),
        ("NO_SHARD", {"zero": 0}),
    ],
)
def test_a_plain_table_of_fsdp_settings(tmp_path, strategy, parallel):
    settings = {"fsdp_sharding_strategy": strategy, "fsdp_use_orig_params": True, "fsdp_backward_prefech": "X"}
    more = {"model": "llama3-8b", "seq_len": 4096, "micro_batch_size": 2, "gradient_accumulation_steps": 4}
    (tmp_path / "fsdp.json").write_text(json.dumps({"fsdp_config": settings} | more))
    recipe = read_recipe(tmp_path / "fsdp.json", "dgx-h100", 2)
    table = scenario_table(recipe, "r", "dgx-h100", 2)

    assert table["parallel"] == parallel
    assert table["batch"] == {"global": 128, "micro": 2, "seq_len": 4096}
    assert "recompute" not in table
    assert recipe.unknown == ("fsdp_config.fsdp_backward_prefech",)
