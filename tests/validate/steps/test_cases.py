"""Rows of the ledger of training steps become scenarios; what does not says why, in the words of the table."""

import pytest
from runcast.simulator.answers.validate.steps import read_cases, shipped_table
from runcast.simulator.base.errors import UserError
from runcast.simulator.systems.train_step.notes import LEAST_OF_EXPERTS_S

HEADER = (
    "id,framework,sw_version,model,arch,layers,hidden,ffn_hidden,heads,kv_heads,vocab,seq_len,n_experts,topk,moe_ffn,gpu,"
    "gpus_per_node,n_gpus,tp,pp,vpp,dp,ep,mbs,gbs,precision,recompute,schedule,dp_mode,extra_flags,iter_time_s"
)
ROW = "a,nanotron,,m,dense,8,1024,4096,8,8,32000,2048,,,,H100-SXM-80GB,8,16,2,2,,4,,1,32,bf16,none,1f1b,zero1,,1.5"


@pytest.fixture
def case(tmp_path):
    def read(**cells):
        row = dict(zip(HEADER.split(","), ROW.split(","), strict=True)) | cells
        path = tmp_path / "rows.csv"
        path.write_text(f"{','.join(row)}\n{','.join(row.values())}\n")
        return read_cases(path)[0]

    return read


def test_every_core_row_is_a_scenario():
    assert [(case.line, case.reason) for case in read_cases(shipped_table()) if case.scenario is None] == []


def test_what_a_row_says_is_what_its_scenario_says(case):
    found = case().scenario
    said = found["stack"], found["nodes"], found["parallel"]["tp"], found["batch"]["global"], found["schedule"]["name"]
    assert said == ("nanotron", 2, 2, 32, "1f1b")


def test_a_row_may_name_a_preset_in_place_of_its_shape(case):
    shape = {"layers": "80", "hidden": "8192", "ffn_hidden": "28672", "heads": "64", "kv_heads": "8", "vocab": "128256"}
    blank = dict.fromkeys(shape, "")

    by_shape, by_name = case(**shape), case(**blank, preset="llama3-70b")

    assert by_name.answer(memory=False).seconds == by_shape.answer(memory=False).seconds


@pytest.mark.parametrize(
    ("cells", "name", "chunks"),
    [
        ({"framework": "NeMo", "vpp": "2"}, "interleaved", 2),
        ({"framework": "NeMo"}, "interleaved", 4),
        ({"framework": "Megatron-LM"}, "1f1b", None),
        ({"schedule": "ZB-1p"}, "zb-h1", None),
        ({"schedule": "1F1B-I", "vpp": "4"}, "interleaved", 4),
    ],
)
def test_schedules_by_their_names_and_chunks(case, cells, name, chunks):
    schedule = case(**cells).scenario["schedule"]
    assert (schedule["name"], schedule.get("vpp")) == (name, chunks)


@pytest.mark.parametrize(
    ("release", "gpu", "stack"),
    [
        ("25.11", "H100-SXM-80GB", "megatron-bridge-25"),
        ("26.04.01", "B200-SXM-180GB", "megatron-bridge-26.02"),
        ("27.1", "H100-SXM-80GB", "megatron-bridge-26.02"),
        ("27.1", "B200-SXM-180GB", "megatron-bridge-26.06"),
    ],
)
def test_a_stack_is_a_framework_its_release_and_gpu(case, release, gpu, stack):
    assert case(framework="Megatron-Bridge", sw_version=release, gpu=gpu).scenario["stack"] == stack


DEEPSEEK = {"framework": "Megatron-Bridge", "model": "DeepSeek-V3", "preset": "", "arch": "moe_mla", "layers": "61",
            "n_dense_layers": "3", "n_experts": "256", "topk": "8", "moe_ffn": "2048", "shared_expert_ffn": "2048",
            "mla_q_lora": "1536", "mla_kv_lora": "512", "mla_qk_nope": "128", "mla_qk_rope": "64", "mla_v": "128",
            "n_gpus": "256", "dp": "256", "tp": "1", "gbs": "1024", "recompute": ""}  # fmt: skip


@pytest.mark.parametrize(
    ("pp", "vpp", "layers"),
    [("16", "", [*15 * [4], 1]), ("8", "2", [*15 * [4], 1]), ("8", "4", [1, *30 * [2], 0]), ("1", "", None)],
)
def test_the_stage_of_the_loss_has_the_fewest_layers(case, pp, vpp, layers):
    cells = DEEPSEEK | {"pp": pp, "vpp": vpp, "dp": str(256 // int(pp))}
    assert case(**cells).scenario["parallel"].get("layers") == layers


def test_a_row_may_list_the_layers_of_its_stages(case):
    found = case(vpp="2", stage_layers="3 2 2 1").scenario
    assert found["parallel"]["layers"] == [3, 2, 2, 1]


@pytest.mark.parametrize(("more", "layers"), [({}, 1), ({"id": "nvidia_megatron_bridge-45b33e1335"}, 0)])
def test_a_model_has_the_mtp_layers_that_its_flop_count(case, more, layers):
    config = case(**DEEPSEEK, **more).scenario["model"]["config"]
    assert config.get("num_nextn_predict_layers", 0) == layers


def test_no_step_with_experts_has_shorter_layers_than_notes_say():
    read = [case for case in read_cases(shipped_table()) if case.seconds and case.cells.whole("n_experts", 0)]
    least = min(case.seconds / passes for case in read if (passes := layers_of_a_rank(case)))
    assert least == pytest.approx(LEAST_OF_EXPERTS_S, rel=0.01)


def layers_of_a_rank(case):
    """Layers of a rank times its micro-batches; 0 where the row is refused."""
    try:
        return case.resolved.spec.n_layers / case.resolved.dims.pp * case.resolved.microbatches
    except UserError:
        return 0


def test_what_a_source_says_elsewhere_is_taken_for_its_row(case):
    moe = {"framework": "NeMo AutoModel (PyTorch FSDP2)", "dp": "128", "n_gpus": "128", "tp": "1", "pp": "1", "vpp": "",
           "arch": "moe", "n_experts": "128", "topk": "4", "moe_ffn": "2880", "ep": "1", "recompute": "",
           "gbs": "512"}  # fmt: skip
    scenarios = [case(**moe, id=key).scenario for key in ("another", "nvidia_automodel-4a4b647522")]
    assert [found["parallel"]["ep"] for found in scenarios] == [8, 64]
    assert [found.get("recompute") for found in scenarios] == [None, {"mode": "none"}]


FSDP = {"dp": "16", "tp": "1", "pp": "1", "dp_mode": "fsdp_full", "recompute": "full", "schedule": "fsdp"}


@pytest.mark.parametrize(("framework", "flags", "again", "ahead"), [
    ("llm-foundry/Composer FSDP", "MP mode DEFAULT; precision label amp_bf16", {"mode": "full", "early_stop": True}, 0),
    ("llm-foundry/Composer FSDP", "MP mode PURE; precision label bf16", {"mode": "full"}, 0),
    ("torchtitan FSDP2", "compile", {"mode": "full", "early_stop": True}, None),
])  # fmt: skip
def test_what_fsdp_gathers_ahead_and_when_it_stops_is_the_software_s(case, framework, flags, again, ahead):
    found = case(**FSDP, framework=framework, extra_flags=flags).scenario
    assert (found["recompute"], found["parallel"].get("prefetch_backward")) == (again, ahead)


@pytest.mark.parametrize(("model", "gpu", "dispatcher"), [
    ("DeepSeek-V3", "H100-SXM-80GB", "deepep"), ("Qwen3-30B-A3B", "H100-SXM-80GB", None),
    ("Qwen3-30B-A3B", "B300-SXM-270GB", "deepep"), ("Qwen3-235B-A22B", "B300-SXM-270GB", None),
    ("GPT-OSS-120B", "GB200-NVL72-186GB", None),
])  # fmt: skip
def test_the_dispatcher_is_that_of_the_model_on_the_gpu(case, model, gpu, dispatcher):
    moe = {"arch": "moe", "n_experts": "128", "topk": "4", "moe_ffn": "2880", "ep": "8", "framework": "Megatron-Bridge"}
    found = case(**moe, model=model, gpu=gpu, schedule="1f1b", vpp="1").scenario
    assert found.get("experts", {}).get("dispatcher") == dispatcher


@pytest.mark.parametrize(("changes", "schedule"), [
    ({"sw_version": "25.11"}, {"name": "interleaved-overlap", "vpp": 4}),
    ({"sw_version": "25.09"}, {"name": "interleaved", "vpp": 4}),
    ({"sw_version": "25.11", "overlap_ep": "0"}, {"name": "interleaved", "vpp": 4}),
    ({"sw_version": "25.09", "overlap_ep": "1"}, {"name": "interleaved-overlap", "vpp": 4}),
    ({"sw_version": "25.09", "overlap_ep": "1", "pp": "1", "vpp": ""}, {"name": "interleaved-overlap", "vpp": 1}),
    ({"sw_version": "25.09", "overlap_ep": "1", "vpp": ""}, {"name": "1f1b"}),
])  # fmt: skip
def test_exchanges_of_experts_are_beside_work_where_the_row_or_its_recipe_says_so(case, changes, schedule):
    """Megatron wants virtual stages for that if there is a pipeline."""
    moe = {"arch": "moe", "n_experts": "128", "topk": "8", "moe_ffn": "1536", "ep": "8", "framework": "Megatron-Bridge"}
    row = moe | {"model": "Qwen3-235B-A22B", "gpu": "H100-SXM-80GB", "schedule": "interleaved", "pp": "8", "vpp": "4"}
    found = case(**row | changes).scenario
    assert (found["schedule"], "wgrad" in found["overlap"]) == (schedule, "overlap" in schedule["name"])


@pytest.mark.parametrize(("cell", "overlaps"), [("", None), ("0", False), ("1", True), ("async_tp", True)])
def test_the_overlap_of_tensor_parallelism_is_that_of_the_row_if_it_says_so(case, cell, overlaps):
    assert case(framework="NeMo", sp="1", overlap_tp=cell).scenario["overlap"].get("tp") is overlaps


def test_words_of_a_row_recompute_the_first_layer_of_chunks_and_keep_activations_on_the_host(case):
    found = case(
        recompute="", extra_flags="first layer of chunks recomputed; activations of 5 layers on the host"
    ).scenario
    assert (found["recompute"], found["offload"]) == ({"mode": "full", "layers": 1}, {"activations": 0.0625})


@pytest.mark.parametrize(
    "cells",
    [
        {"framework": "torchtitan FSDP2", "grad_accum": "8"},  # how often its pipelines are filled, if less than all
        {"arch": "moe", "n_experts": "8", "topk": "2", "moe_ffn": "512", "ep": "4", "pp": "1", "dp": "8"},
    ],
)
def test_replicas_that_a_row_leaves_blank_are_the_gpus_over_its_other_axes(case, cells):
    assert case(**cells | {"dp": ""}).scenario == case(**cells).scenario


def test_adapters_are_trained_however_the_task_is_written(case):
    assert case(task="LoRA").scenario == case(task="lora").scenario


def test_a_row_that_stands_twice_is_refused(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(f"{HEADER}\n{ROW}\n{ROW}\n")
    with pytest.raises(UserError, match="id = 'a': stands there more than once"):
        read_cases(path)


def test_a_stack_may_be_named_itself(case):
    assert case(framework="llm-foundry").scenario["stack"] == "llm-foundry"


def test_the_stages_of_nanotron_are_of_equal_cost_and_the_head_is_a_block(case):
    """A layer is 4 x 1024^2 + 3 x 4096 x 1024 = 16.8 M, the head 32.8 M: half of all is behind layer 5."""
    assert case(layers="8").scenario["parallel"]["layers"] == [5, 3]


def test_a_stage_of_nanotron_ends_where_its_share_is_reached(case):
    """A head of four layers' cost: twenty in all, five for each stage."""
    shape = {"layers": "16", "hidden": "2048", "ffn_hidden": "8192", "heads": "32", "kv_heads": "32", "vocab": "131072"}
    parallel = case(**shape, pp="4", dp="2").scenario["parallel"]
    assert parallel["layers"] == [5, 5, 5, 1]


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (
            {"framework": "jaxformer"},
            "framework = 'jaxformer': no stack is known for it; name the most similar one: --stack NAME",
        ),
        ({"gpu": "H100"}, "gpu = 'H100': expected one of H100-SXM-80GB,"),
        ({"layers": ""}, "layers is not stated"),
        ({"layers": "many"}, "layers = 'many': expected a whole number"),
        ({"heads": "8.5"}, "heads = '8.5': expected a whole number"),
        ({"arch": "rnn"}, "arch = 'rnn': expected one of dense,"),
        ({"recompute": "half"}, "recompute = 'half': expected none, full,"),
        ({"dp_mode": "zero9"}, "dp_mode = 'zero9': expected one of ddp,"),
        ({"n_gpus": "12"}, "n_gpus = 12: expected a multiple of gpus_per_node = 8"),
        ({"mbs": "0"}, "mbs = '0': expected a whole number from 1"),
        ({"pp": "0"}, "pp = '0': expected a whole number from 1"),
        ({"heads": "0"}, "heads = '0': expected a whole number from 1"),
        ({"layers": "1e9"}, "layers = '1e9': expected a whole number from 1 to 10,000"),
        ({"gbs": "-4"}, "gbs = '-4': expected a whole number"),
        ({"schedule": "gpipes"}, "schedule = 'gpipes': expected one of zb-1p,"),
        ({"iter_time_s": "fast"}, "iter_time_s = 'fast': expected a number"),
        ({"iter_time_s": "-1"}, "iter_time_s = '-1': expected a number above zero"),
        ({"stage_layers": "4 5"}, "stage_layers = '4 5': expected 2 whole numbers that add up to layers = 8"),
        ({"stage_layers": "4.5 3.5"}, "stage_layers = '4.5 3.5': expected 2 whole numbers that add up to"),
        ({"stage_layers": "8"}, "stage_layers = '8': expected 2 whole numbers that add up to layers = 8"),
        ({"preset": "llama3-7b"}, "preset = 'llama3-7b': did you mean llama3-70b"),
        ({"preset": "llama3-70b"}, "layers = 8: preset llama3-70b has 80"),
        (
            dict.fromkeys(("layers", "hidden", "ffn_hidden", "heads", "kv_heads", "vocab"), "")
            | {"preset": "qwen3-30b-a3b", "topk": "4"},
            "topk = 4: preset qwen3-30b-a3b has 8",
        ),
        ({"task": "dpo"}, "task = 'dpo': expected pretrain, sft or lora"),
        ({"overlap_tp": "yes"}, "overlap_tp = 'yes': expected one of 0, false, 1, true, async_tp"),
    ],
)
def test_a_row_that_says_too_little_is_left_out_with_its_reason(case, cells, reason):
    found = case(**cells)
    assert (found.scenario, found.reason[: len(reason)]) == (None, reason)
