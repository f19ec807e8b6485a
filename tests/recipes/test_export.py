"""Scenarios as Megatron-LM's arguments: what cannot be said, and that export and import invert each other."""

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from runcast.simulator.base.errors import UserError
from runcast.simulator.formats.recipes import (
    export_recipe,
    import_recipe,
    load_training,
    parse_recipe,
    read_recipe,
    scenario_table,
)
from runcast.simulator.scenario import check_train
from runcast.simulator.systems.train_step.resolve import ResolvedTrain

from ..examples import examples


def test_layers_that_do_not_go_evenly_are_exported_as_a_layout():
    scenario = {"kind": "train_step", "cluster": "dgx-h100", "model": {"preset": "llama3-8b"}, "parallel": {"pp": 8},
                "schedule": {"name": "interleaved", "vpp": 3}, "batch": {"global": 8, "seq_len": 2048}}  # fmt: skip
    exported = export_recipe(check_train(scenario, "r"), where="r")

    assert "--pipeline-model-parallel-layout 'E" + "tt|" * 8 + "t|" * 15 + "tL'" in [
        line.replace("t*2", "tt") for line in exported.lines
    ]


TWO_D = {"parallel": {"tp": 4, "tp_2d": True}, "batch": {"global": 8, "micro": 2, "seq_len": 2048}}
OLMO = {"model_type": "olmo", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32}
OLMO |= {"intermediate_size": 11008, "vocab_size": 50304}


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"schedule": {"name": "zb-v"}, "parallel": {"pp": 2}}, "schedule.name = 'zb-v': Megatron-LM has 1f1b"),
        ({"schedule": {"name": "interleaved"}, "parallel": {"pp": 2}}, "schedule.vpp = None: expected 2 or more"),
        ({"parallel": {"order": "cp-tp-ep-dp-pp"}}, "parallel.order = 'cp-tp-ep-dp-pp': Megatron-LM has"),
        ({"parallel": {"pp": 2}, "schedule": {"name": "interleaved", "vpp": 2}, "overlap": {"pp": False}},
         "Megatron-LM refuses --pipeline-model-parallel-size = '2': expected 3 or more beside an interleaved schedule"),
        ({"precision": {"compute": "tf32"}}, "precision.compute = 'tf32'"),
        ({"lora": {}}, "lora: Megatron-LM's arguments have no adapters"),
        ({"parallel": {"tp": 4, "cp": 4, "cp_type": "ulysses"}, "nodes": 2},
         "Megatron-LM refuses --context-parallel-size = '4': with a2a it must divide the key heads of a rank, 2"),
        ({"parallel": {"zero": 0}, "offload": {"optimizer": True}}, "offload.optimizer = True: needs parallel.zero"),
        ({"cluster": "dgx-b200", "precision": {"compute": "mxfp8", "weights": "fp8"}, "offload": {"optimizer": True}},
         "offload.optimizer = True: goes with weights in FP8 where"),
        ({"parallel": {"dp": 3}}, "parallel.dp = 3"),
        (TWO_D, "parallel.tp_2d = True: Megatron-LM splits widths over all of tp"),
        ({"model": {"bytes": 10, "tensors": 1}}, "give preset or config"),
        ({"model": {"preset": "gemma2-9b"}}, "gemma2-9b has norms behind each part, which no argument says"),
        ({"model": {"preset": "falcon-7b"}}, "falcon-7b has attention and feed-forward side by side"),
        ({"model": {"config": OLMO}}, "olmo has norms without weights, which no argument says"),
    ],
)  # fmt: skip
def test_what_no_argument_says_is_a_fault(change, line):
    scenario = {"kind": "train_step", "cluster": "dgx-h100", "model": {"preset": "llama3-8b"},
                "batch": {"global": 8, "seq_len": 2048}}  # fmt: skip
    with pytest.raises(UserError, match=line):
        export_recipe(check_train(scenario | change, "r"))


@pytest.mark.parametrize(
    ("precision", "lines"),
    [
        ({}, {"--optimizer-cpu-offload", "--use-precision-aware-optimizer"}),
        ({"compute": "fp8", "weights": "fp8"},
         {"--optimizer-cpu-offload", "--use-precision-aware-optimizer", "--fp8-param-gather", "--fp8-recipe delayed"}),
    ],
)  # fmt: skip
def test_an_optimizer_on_the_host_comes_with_the_flags_that_megatron_asks_for(precision, lines):
    table = {"offload": {"optimizer": True}, "precision": precision, "batch": {"global": 8, "seq_len": 2048}}
    scenario = check_train({"kind": "train_step", "cluster": "dgx-h100", "model": {"preset": "llama3-8b"}} | table, "r")
    exported = export_recipe(scenario)
    again = parse_recipe(str(exported), "a.sh", "dgx-h100").table["offload"]["optimizer"]

    assert (lines - {*exported.lines}, exported.unsaid, again) == (set(), (), True)


@pytest.mark.parametrize(("compute", "grouped"), [("bf16", True), ("mxfp8", True), ("fp16", False)])
def test_gemms_of_experts_are_grouped_where_megatron_groups_them(compute, grouped):
    table = {"precision": {"compute": compute}, "batch": {"global": 8, "seq_len": 2048}}
    table |= {"kind": "train_step", "cluster": "dgx-b200", "model": {"preset": "mixtral-8x7b"}}

    assert ("--moe-grouped-gemm" in export_recipe(check_train(table, "r")).lines) == grouped


@pytest.mark.parametrize(("name", "has_bias"), [("deepseek-v3", True), ("glm-4.5-air", True), ("mixtral-8x7b", False)])
def test_a_bias_of_the_router_comes_with_the_scores_that_it_needs(name, has_bias):
    pair = {"--moe-router-enable-expert-bias", "--moe-router-score-function sigmoid"}
    table = {"kind": "train_step", "cluster": "dgx-h100", "model": {"preset": name}}
    exported = export_recipe(check_train(table | {"batch": {"global": 8, "seq_len": 2048}}, "r"))

    assert pair & {*exported.lines} == (pair if has_bias else set())


PAIRED = {"kind": "train_step", "cluster": "dgx-h100", "nodes": 2, "model": {"preset": "qwen3-30b-a3b"},
          "parallel": {"pp": 2, "ep": 8}, "schedule": {"name": "interleaved-overlap", "vpp": 2},
          "batch": {"global": 16, "seq_len": 2048}}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"parallel": {"pp": 2}}, "parallel.ep = 1: expected 2 or more beside schedule interleaved-overlap"),
        ({"recompute": {"mode": "full"}}, "recompute.mode = 'full': expected none or selective beside schedule"),
        ({"recompute": {"mode": "selective", "modules": ["moe"]}}, "recompute.modules = 'moe': expected all but moe"),
        ({"precision": {"compute": "fp32"}}, "precision.compute = 'fp32': expected 16 bits or less beside"),
        ({"model": {"preset": "qwen3-30b-a3b", "overrides": {"num_nextn_predict_layers": 2}}},
         "2 layers of multi-token prediction; expected 1 beside"),
    ],
)  # fmt: skip
def test_what_megatron_does_not_overlap_with_exchanges_of_experts_is_a_fault(change, line):
    with pytest.raises(UserError, match=line):
        export_recipe(check_train(PAIRED | change, "r"))


@pytest.mark.parametrize(
    ("name", "written", "unsaid"), [("interleaved-overlap", True, False), ("interleaved", False, True)]
)
def test_weight_gradients_are_held_back_beside_exchanges_of_experts_alone(name, written, unsaid):
    scenario = check_train(PAIRED | {"schedule": {"name": name, "vpp": 2}, "overlap": {"wgrad": True}}, "r")
    exported = export_recipe(scenario, nearest=True)

    assert ("--delay-wgrad-compute" in exported.lines, "overlap.wgrad" in "".join(exported.unsaid)) == (written, unsaid)


def test_exchanges_of_experts_that_overlap_without_a_pipeline_come_back():
    scenario = check_train(PAIRED | {"parallel": {"ep": 8}, "schedule": {"name": "interleaved-overlap"}}, "r")
    exported = export_recipe(scenario)
    again = parse_recipe(str(exported), "a.sh", "dgx-h100").table["schedule"]

    assert ("--overlap-moe-expert-parallel-comm" in exported.lines, again) == (True, {"name": "interleaved-overlap"})


def test_sends_of_a_pipeline_that_is_none_need_no_argument():
    scenario = PAIRED | {"parallel": {"ep": 8}, "schedule": {"name": "1f1b"}}
    waits, overlaps = (export_recipe(check_train(scenario | {"overlap": {"pp": pp}}, "r")) for pp in (False, True))

    assert waits == overlaps


def test_a_step_that_is_not_simulated_is_not_exported():
    scenario = check_train(PAIRED | {"precision": {"compute": "mxfp8"}}, "r")

    with pytest.raises(UserError, match="'mxfp8': H100 SXM computes in"):
        export_recipe(scenario)


def test_megatrons_fsdp_has_the_checkpoints_that_it_asks_for():
    table = {"kind": "train_step", "cluster": "dgx-h100", "model": {"preset": "llama3-8b"}, "parallel": {"zero": 3}}
    exported = export_recipe(check_train(table | {"batch": {"global": 8, "seq_len": 2048}}, "r"))

    assert {"--use-megatron-fsdp", "--ckpt-format fsdp_dtensor"} <= {*exported.lines}


def test_mechanisms_of_others_are_left_out_of_the_nearest_plan():
    scenario = {"kind": "train_step", "cluster": "dgx-h100", "model": {"preset": "llama3-8b"},
                "parallel": {"zero": 0, "shard_embedding": True}, "overlap": {"fusion": {}},
                "batch": {"global": 8, "seq_len": 2048}}  # fmt: skip

    assert export_recipe(check_train(scenario, "r"), nearest=True).unsaid == (
        "parallel.shard_embedding = true: data-parallel ranks have copies",
        "overlap.fusion = {cycle = 0.001, threshold = 67108864}: buckets of gradients wait for no tick",
    )


DENSE = {"kind": "train_step", "cluster": "dgx-h100", "model": {"preset": "llama3-8b"}, "parallel": {"zero": 3},
         "batch": {"global": 32, "seq_len": 2048}}  # fmt: skip
SPARSE = {"model": {"preset": "qwen3-30b-a3b"}, "parallel": {"tp": 4, "etp": 1, "zero": 3}}


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            {"parallel": {"zero": 3, "sync_each_microbatch": False}},
            "parallel.sync_each_microbatch = false: gradients are",
        ),
        ({"precision": {"reduce": "bf16"}}, 'precision.reduce = "bf16": gradients travel in FP32'),
        ({"precision": {"compute": "fp16"}}, "precision.compute = 'fp16': torchtitan has bf16, fp32, fp8, mxfp8"),
        (SPARSE, "parallel.etp = 1: experts are split over tp where ep is 1"),
    ],
)
def test_what_torchtitan_does_not_take_is_a_fault(change, line):
    with pytest.raises(UserError, match=line):
        export_recipe(check_train(DENSE | change, "r"), "torchtitan")


def test_frozen_parts_are_no_keys_of_hugging_faces_trainer():
    frozen = {"model": {"preset": "qwen2.5-vl-7b"}, "towers": {"vision": {"frozen": True}}, "freeze": {"layers": 2}}
    with pytest.raises(UserError, match=r"freeze: the trainer's file trains(?s:.*)towers\.vision\.frozen: the trainer"):
        export_recipe(check_train(DENSE | {"parallel": {"zero": 3}} | frozen, "r"), "fsdp")


def test_the_nearest_to_zero_2_keeps_weights_until_the_backward_ends():
    exported = export_recipe(check_train(DENSE | {"parallel": {"zero": 2}}, "r"), "fsdp", nearest=True)
    again = parse_recipe(str(exported), "config.yaml", "dgx-h100", form="trl").table["parallel"]

    assert {key: again[key] for key in ("zero", "reshard")} == {"zero": 3, "reshard": False}


def test_what_stands_beside_a_plan_is_in_comments():
    scenario = {
        "kind": "train_step", "cluster": "dgx-h100", "nodes": 2, "stack": "nanotron", "model": {"preset": "gpt3-175b"},
        "parallel": {"tp": 8}, "batch": {"global": 8, "seq_len": 2048}, "attention": "unfused", "bucket": 40_000_000,
        "overlap": {"tp": True, "tp_exposed": 0.5},
    }  # fmt: skip
    exported = export_recipe(check_train(scenario, "r"), where="r")

    assert exported.beside == (
        "# runcast: nodes = 2",
        '# runcast: stack = "nanotron"',
        "# runcast: overlap.tp_exposed = 0.5",
    )
    assert [line for line in exported.lines if "attention-" in line] == [
        "--num-attention-heads 96", "--attention-backend unfused",
    ]  # fmt: skip


def test_what_comments_say_is_not_assumed():
    scenario = {**PLAIN, "model": {"preset": "mixtral-8x7b"}, "parallel": {}, "experts": {"routing": "zipf"}}
    text = str(export_recipe(check_train(scenario, "r")))
    recipe = parse_recipe(text, "a.sh", "dgx-h100")

    assert (recipe.beside["experts.routing"], [line for line in recipe.assumed if "routing" in line]) == ("zipf", [])


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("parallel.tp = 2", "# runcast: parallel.tp: is no key beside a plan"),
        ("nodes =", "# runcast: nodes =: expected KEY = VALUE, as TOML has it"),
        ("nodes = 'two'", "nodes = 'two'"),
        ("nodes = " + "[" * 5000, "expected KEY = VALUE"),
    ],
)
def test_a_comment_that_says_nothing_beside_a_plan_is_a_fault(line, error):
    with pytest.raises(UserError, match=error):
        parse_recipe(f"# runcast: {line}\n--num-layers 32", "a.sh", "dgx-h100")


def test_megatron_recomputes_activations_of_experts_alone():
    """moe_act needs grouped products of experts: TransformerConfig refuses it of a dense model."""
    scenario = {"kind": "train_step", "cluster": "dgx-h100", "batch": {"global": 8, "seq_len": 2048}}
    cases = (("llama3-8b", "activation"), ("deepseek-v2-lite", "activation"), ("deepseek-v2-lite", "moe_act"))
    said = [
        export_recipe(
            check_train(
                scenario
                | {"model": {"preset": name}, "recompute": {"mode": "selective", "modules": ["layernorm", module]}},
                "r",
            ),
            nearest=True,
        )
        for name, module in cases
    ]
    modules = [next(line for line in one.lines if "recompute-modules" in line) for one in said]

    both = "--recompute-modules layernorm moe_act"
    assert (modules, [bool(one.unsaid) for one in said]) == (
        ["--recompute-modules layernorm", both, both],
        [True, True, False],
    )


PLAIN = {"kind": "train_step", "cluster": "dgx-h100", "model": {"preset": "llama3-8b"}, "parallel": {"pp": 2},
         "batch": {"global": 8, "seq_len": 2048}}  # fmt: skip


def test_a_plan_that_no_arguments_say_is_refused_with_all_that_they_do_not_say():
    scenario = check_train({**PLAIN, "precision": {"master": False}, "overlap": {"pp": True}}, "r")
    with pytest.raises(UserError) as refused:
        export_recipe(scenario, where="r")

    assert refused.value.faults == (
        "r: precision.master = false: the optimizer keeps weights in FP32",
        "r: overlap.pp = true: Megatron-LM overlaps sends of interleaved pipelines only (--nearest leaves it out)",
    )


def test_the_nearest_plan_is_headed_by_what_it_leaves_out():
    scenario = {**PLAIN, "precision": {"master": False}, "overlap": {"pp": False}}
    exported = str(export_recipe(check_train(scenario, "r"), nearest=True))

    assert exported.startswith(
        "# another plan than asked for: precision.master = false: the optimizer keeps weights in FP32\n--num-layers"
    )


def test_what_a_scenario_has_by_default_is_refused_too():
    with pytest.raises(UserError, match=r"r: overlap\.pp = true by default: Megatron-LM overlaps sends of interleaved"):
        export_recipe(check_train(PLAIN, "r"), where="r")


def test_one_key_that_says_the_same_as_another_is_no_difference():
    """An uneven split is a layout of Megatron-LM, whether the scenario counts the embedding as a layer or lists all."""
    parallel = {"pp": 4, "embedding_as_layer": True, "zero": 1}
    scenario = {**PLAIN, "parallel": parallel, "precision": {"master": False}, "overlap": {"pp": False}}
    with pytest.raises(UserError) as refused:
        export_recipe(check_train({**scenario, "model": {"preset": "qwen3-30b-a3b"}}, "r"), where="r")

    assert [line.partition(" =")[0] for line in refused.value.faults] == ["r: precision.master"]


@pytest.mark.parametrize("name", ["gpt-oss-20b", "gpt-oss-120b"])
def test_windows_and_sinks_come_back_from_their_arguments(tmp_path, name):
    table = {"name": "r", "kind": "train_step", "cluster": "dgx-h100", "model": {"preset": name},
             "parallel": {"ep": 8}, "batch": {"global": 8, "seq_len": 2048}}  # fmt: skip
    scenario = check_train(table, "r")
    (tmp_path / "r.sh").write_text(str(export_recipe(scenario)))
    again = scenario_table(read_recipe(tmp_path / "r.sh", "dgx-h100"), "r", "dgx-h100", 1)

    assert check_train(again, "r") == scenario


EXPORTED = ("gpt3-175b-1024xa100", "llama3-8b-8xh100")


@pytest.mark.parametrize("name", EXPORTED)
def test_what_is_not_refused_keeps_the_same_in_memory(name, tmp_path):
    scenario = load_training(Path(f"data/scenarios/train-{name}.toml"))
    (tmp_path / "a.sh").write_text(str(export_recipe(scenario)))
    import_recipe(tmp_path / "a.sh", tmp_path / "a.toml", scenario.cluster, scenario.nodes)
    asked, again = (ResolvedTrain(one).plan for one in (scenario, load_training(tmp_path / "a.toml")))

    assert (again.dims, again.stages, again.again, again.offloaded, again.sharding.level) == (
        asked.dims, asked.stages, asked.again, asked.offloaded, asked.sharding.level,
    )  # fmt: skip


# Whatever both can say comes back.

small = st.sampled_from([1, 2, 4])
dense, sparse = (
    st.sampled_from(["llama3-8b", "qwen2.5-7b", "gpt3-6.7b"]),
    st.sampled_from(["mixtral-8x7b", "deepseek-v3"]),
)


@st.composite
def scenarios(draw):
    experts = draw(st.booleans())
    tp, cp, pp = draw(small), draw(small), draw(small)
    model = draw(sparse if experts else dense)
    layers = {"deepseek-v3": 61, "qwen2.5-7b": 28}.get(model, 32)
    zero = draw(st.sampled_from([0, 1, 2, 3]))
    parallel = {"tp": tp, "cp": cp, "pp": pp, "zero": zero}
    if cp > 1:
        parallel["cp_type"] = draw(st.sampled_from(["ring", "all_gather", "ulysses"]))
    if tp > 1 and not experts:
        parallel["sequence_parallel"] = draw(st.booleans())
    if experts:
        parallel["ep"] = draw(small)
        if tp > 1 and parallel["ep"] > 1:
            parallel["etp"] = draw(st.sampled_from([None, 1]))
    chunks = draw(st.sampled_from([1, 2, 4])) if pp > 1 else 1
    schedule = {"name": "interleaved", "vpp": chunks} if chunks > 1 else {}
    overlap = {
        "dp": zero >= 2 or draw(st.booleans()),
        "tp": tp > 1 and parallel.get("sequence_parallel", True) and draw(st.booleans()),
    }
    if zero in (1, 2):
        overlap["params"] = overlap["dp"] and draw(st.booleans())
    if pp > 1:
        overlap["pp"] = chunks > 1 and (pp == 2 or draw(st.booleans()))
    if pp > 1 and layers % (pp * chunks):
        each, more = divmod(layers, pp * chunks)
        parallel["layers"] = [each + (stage < more) for stage in range(pp * chunks)]
    compute = draw(st.sampled_from(["fp32", "bf16", "fp16", "fp8", "fp8-block", "mxfp8", "nvfp4"]))
    gradients = "fp32" if compute == "fp32" else draw(st.sampled_from(["fp32", "bf16"]))
    moments = draw(st.sampled_from(["fp32", "bf16", "fp8"])) if zero else "fp32"
    recompute = draw(
        st.sampled_from(
            [{}, {"mode": "full"}, {"mode": "full", "layers": 2}, {"mode": "selective", "modules": ["layernorm"]}]
        )
    )
    mtp = draw(st.booleans()) if model == "deepseek-v3" else True
    return {
        "name": "r", "kind": "train_step", "cluster": "dgx-b200", "nodes": 8, "model": {"preset": model, "mtp": mtp},
        "parallel": parallel, "schedule": schedule, "overlap": overlap, "recompute": recompute,
        "precision": {"compute": compute, "gradients": gradients, "moments": moments},
        "batch": {"global": 64 * draw(small), "micro": 1, "seq_len": 2048},
    }  # fmt: skip


@examples(60)
@given(scenarios())
def test_a_scenario_comes_back_from_its_arguments(tmp_path_factory, table):
    keys = {"qwen2.5-7b": 4}.get(table["model"]["preset"], 8)
    parallel = table["parallel"]
    assume(keys % parallel["tp"] == 0)
    if parallel.get("cp_type") == "ulysses":
        assume(keys // parallel["tp"] % parallel["cp"] == 0)
    scenario = check_train(table, "r")
    exported = export_recipe(scenario)
    file = tmp_path_factory.mktemp("r") / "r.sh"
    file.write_text(str(exported))
    again = check_train(scenario_table(read_recipe(file, "dgx-b200", 8), "r", "dgx-b200", 8), "r")

    assert exported.unsaid == ()
    assert again == scenario
