"""Megatron-LM's arguments: what each says, what does not go together, and that export and import invert each other."""

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from runcast.simulator.base.errors import UserError
from runcast.simulator.formats.recipes import export_megatron, import_recipe, load_training, read_recipe, scenario_table
from runcast.simulator.formats.recipes.arguments import names_of
from runcast.simulator.scenario import check_train
from runcast.simulator.systems.train_step.resolve import ResolvedTrain

from ..examples import examples

SMALL = (
    "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention "
    "--num-query-groups 8 --swiglu --normalization RMSNorm --disable-bias-linear --position-embedding-type rope "
    "--untie-embeddings-and-output-weights --vocab-size 128256 --make-vocab-size-divisible-by 1 --seq-length 8192 "
    "--micro-batch-size 1 --global-batch-size 128 --bf16 "
)
MOE = SMALL + "--num-experts 8 --moe-router-topk 2 "


@pytest.fixture
def read(tmp_path):
    def table(text, nodes=1):
        (tmp_path / "r.sh").write_text(text)
        recipe = read_recipe(tmp_path / "r.sh", "dgx-h100", nodes)
        return scenario_table(recipe, "r", "dgx-h100", nodes)

    return table


@pytest.mark.parametrize(
    ("more", "key", "value"),
    [
        ("--tensor-model-parallel-size 2", "parallel", {"tp": 2, "sequence_parallel": False, "zero": 0}),
        ("--tensor-model-parallel-size 2 --sequence-parallel", "parallel", {"tp": 2, "zero": 0}),
        ("--context-parallel-size 2 --cp-comm-type a2a", "parallel", {"cp": 2, "cp_type": "ulysses", "zero": 0}),
        ("--use-distributed-optimizer --overlap-grad-reduce", "overlap", {"params": False}),
        ("--use-torch-fsdp2", "parallel", {"zero": 3}),
        ("--make-vocab-size-divisible-by 64", "parallel", {"zero": 0, "pad_vocab": 64}),
        ("--padded-vocab-size 128256", "parallel", {"zero": 0}),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads", "parallel", {"zero": 2}),
        ("--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 2", "schedule",
         {"name": "interleaved", "vpp": 4}),
        ("--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2", "schedule",
         {"name": "interleaved", "vpp": 2}),
        ("--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 5", "parallel",
         {"pp": 4, "layers": [5, 9, 9, 9], "zero": 0}),
        ("--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout 'Et*5|(t*9|)*2t*9L'", "parallel",
         {"pp": 4, "layers": [5, 9, 9, 9], "zero": 0}),
        ("--fp8-format hybrid --fp8-recipe mxfp8", "precision", {"compute": "mxfp8"}),
        ("--fp8-format e4m3 --fp8-recipe blockwise --fp8-param-gather", "precision",
         {"compute": "fp8-block", "weights": "fp8"}),
        ("--fp8-format e4m3 --fp8-recipe blockwise --fp8-param-gather --use-torch-fsdp2", "precision",
         {"compute": "fp8-block"}),
        ("--grad-reduce-in-bf16", "precision", {"gradients": "bf16"}),
        ("--recompute-granularity full --recompute-method block --recompute-num-layers 3", "recompute",
         {"mode": "full", "layers": 3}),
        ("--recompute-granularity full --recompute-method uniform", "recompute", {"mode": "full"}),
        ("--recompute-granularity selective --recompute-modules core_attn mlp", "recompute",
         {"mode": "selective", "modules": ["core_attn", "mlp"]}),
        ("--cpu-offloading-num-layers 8 --optimizer-cpu-offload", "offload", {"activations": 0.25, "optimizer": True}),
        ("--ddp-bucket-size 40000000", "bucket", 40_000_000),
        ("--tensor-model-parallel-size 2 --use-tp-pp-dp-mapping", "parallel",
         {"tp": 2, "sequence_parallel": False, "zero": 0, "order": "tp-cp-ep-pp-dp"}),
    ],
)  # fmt: skip
def test_what_an_argument_says(read, more, key, value):
    assert read(SMALL + more)[key] == value


@pytest.mark.parametrize(
    "more",
    [
        "--cp-comm-type a2a",
        "--tp-comm-overlap --sequence-parallel",
        "--num-experts 8 --moe-token-dispatcher-type flex --moe-enable-deepep",
        "--recompute-granularity selective --recompute-modules moe mla_up_proj",
    ],
)
def test_what_has_no_effect_is_not_said(read, more):
    plain = read(SMALL + "--num-experts 8" if "experts" in more else SMALL)
    table = read(SMALL + more)

    assert [key for key in table if table[key] != plain.get(key)] == []


def test_experts_have_megatrons_tensor_parallelism(read):
    table = read(MOE + "--tensor-model-parallel-size 2 --expert-model-parallel-size 4 --sequence-parallel")

    assert table["parallel"] == {"tp": 2, "ep": 4, "zero": 0}


def test_experts_that_are_whole_say_so(read):
    given = "--tensor-model-parallel-size 2 --expert-model-parallel-size 4 --expert-tensor-parallel-size 1"
    assert read(MOE + f"{given} --sequence-parallel")["parallel"] == {"tp": 2, "ep": 4, "etp": 1, "zero": 0}


def test_a_fault_is_a_line_with_file_argument_and_value(read, tmp_path):
    with pytest.raises(UserError) as caught:
        read(SMALL + "--tensor-model-parallel-size 3")

    wanted = "--tensor-model-parallel-size = '3': tp 3 x cp 1 x pp 1 = 3 must divide the 8 GPUs (1 x 8, dgx-h100)"
    assert caught.value.faults[0] == f"{tmp_path / 'r.sh'}: {wanted}"


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ("--num-layers x", "--num-layers = 'x': expected a whole number"),
        ("--num-layers $((8 * 10))", "--num-layers = '[$]': its value is computed by a shell"),
        ("--num-layers", "--num-layers = '': expected a whole number"),
        ("--pipeline-model-parallel-size 5", "must divide the 8 GPUs"),
        ("--expert-model-parallel-size 2", "needs --num-experts"),
        ("--pipeline-model-parallel-size 8 --num-layers-per-virtual-pipeline-stage 3", "3 x pp 8 must divide the 32"),
        ("--num-virtual-stages-per-pipeline-rank 2", "chunks need a pipeline"),
        ("--pipeline-model-parallel-size 8 --num-layers-per-virtual-pipeline-stage 2 "
         "--num-virtual-stages-per-pipeline-rank 2", "goes not with"),
        ("--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout 'Et|t|t|tL'", "holds 4 layers"),
        ("--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout 'Et|x|tL'", "expected E .embedding."),
        ("--pipeline-model-parallel-layout 'E((t*999)*999)*999L'", "expected E .embedding."),
        ("--overlap-param-gather", "needs --use-distributed-optimizer"),
        ("--use-distributed-optimizer --overlap-param-gather", "needs --overlap-grad-reduce"),
        ("--tp-comm-overlap", "needs --sequence-parallel"),
        ("--fp16", "goes not with --bf16"),
        ("--global-batch-size 12", "micro 1 x dp 8 = 8 must divide it"),
        ("--context-parallel-size 2 --cp-comm-type a2a+p2p", "expected one of p2p"),
        ("--recompute-granularity full", "--recompute-method: is missing"),
        ("--recompute-granularity selective --recompute-modules attn", "'attn': expected some of core_attn"),
        ("--recompute-granularity selective --recompute-modules moe_act", "in experts alone, and this model has none"),
        ("--exp-avg-dtype bf16", "needs --use-precision-aware-optimizer"),
        ("--hybrid-override-pattern M-M*", "not modelled; only decoders"),
        ("--num-query-groups 5", "num_key_value_heads = 5"),
        ("--position-embedding-type relative", "expected one of learned_absolute"),
        ("--num-experts 7 --expert-model-parallel-size 2", "--expert-model-parallel-size = 2: must divide the 7"),
        ("--seq-length 1001 --tensor-model-parallel-size 2 --sequence-parallel", "a multiple of 2 with tp = 2"),
        ("--seq-length 1002 --context-parallel-size 2", "--seq-length = 1002: must be a multiple of 4 with cp = 2"),
        ("--ffn-hidden-size 14335 --tensor-model-parallel-size 2", "width of the feed-forward network, 14335"),
        ("--num-experts 8 --moe-layer-freq ([0]*3+[1]*9)", "a list for 32 layers"),
        ("--num-experts 8 --tensor-model-parallel-size 2", "needed for experts"),
        ("--cpu-offloading-num-layers 33", "at most the 32 layers"),
        ("--data-parallel-sharding-strategy x --use-megatron-fsdp", "expected one of no_shard"),
    ],
)  # fmt: skip
def test_what_does_not_go_together(read, more, line):
    with pytest.raises(UserError, match=line):
        read(SMALL + more)


def test_the_last_of_two_values_counts_and_is_told(tmp_path):
    (tmp_path / "r.sh").write_text(SMALL + "--micro-batch-size 2")
    recipe = read_recipe(tmp_path / "r.sh", "dgx-h100")

    assert recipe.table["batch"]["micro"] == 2
    assert "--micro-batch-size is given as 1 and then 2: the last one counts" in recipe.assumed


def test_an_unknown_argument_is_told_with_near_misses(tmp_path):
    (tmp_path / "r.sh").write_text(SMALL + "--overlap-grad-reduction --foo 3")

    assert read_recipe(tmp_path / "r.sh", "dgx-h100").unknown == (
        "--overlap-grad-reduction: did you mean overlap-grad-reduce?",
        "--foo 3",
    )


@pytest.mark.parametrize("tool", ["megatron", "torchtitan"])
def test_an_argument_is_of_one_kind(tool):
    names = names_of(tool)
    kinds = [*(names.switches | names.valued), *names.untimed, *names.not_modelled, *names.aliases, *names.negated]

    assert sorted(kinds) == sorted(set(kinds))


FIELDS = """
model:
  num_layers: 32
hidden_size: 4096
ffn_hidden_size: 14336
num_attention_heads: 32
num_query_groups: 8
gated_linear_unit: true
normalization: RMSNorm
add_bias_linear: false
share_embeddings_and_output_weights: false
position_embedding_type: rope
vocab_size: 128256
make_vocab_size_divisible_by: 1
seq_length: 8192
micro_batch_size: 1
global_batch_size: 128
bf16: true
overlap_grad_reduce: true
use_distributed_optimizer: true
overlap_p2p_comm: true
"""


def test_fields_of_dataclasses_are_read_like_arguments(read):
    fields, arguments = read(FIELDS), read(SMALL + "--overlap-grad-reduce --use-distributed-optimizer")

    assert fields == arguments
    assert fields["model"] == {"preset": "llama3-8b"}


def test_layers_that_do_not_go_evenly_are_exported_as_a_layout():
    scenario = {"kind": "train_step", "cluster": "dgx-h100", "model": {"preset": "llama3-8b"}, "parallel": {"pp": 8},
                "schedule": {"name": "interleaved", "vpp": 3}, "batch": {"global": 8, "seq_len": 2048}}  # fmt: skip
    exported = export_megatron(check_train(scenario, "r"))

    assert "--pipeline-model-parallel-layout 'E" + "tt|" * 8 + "t|" * 15 + "tL'" in [
        line.replace("t*2", "tt") for line in exported.lines
    ]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"schedule": {"name": "zb-v"}, "parallel": {"pp": 2}}, "schedule.name = 'zb-v': Megatron-LM has 1f1b"),
        ({"schedule": {"name": "interleaved"}, "parallel": {"pp": 2}}, "schedule.vpp = None: expected 2 or more"),
        ({"parallel": {"order": "cp-tp-ep-dp-pp"}}, "parallel.order = 'cp-tp-ep-dp-pp': Megatron-LM has"),
        ({"precision": {"compute": "tf32"}}, "precision.compute = 'tf32'"),
        ({"lora": {}}, "lora: Megatron-LM's arguments have no adapters"),
        ({"parallel": {"dp": 3}}, "parallel.dp = 3"),
        ({"parallel": {"tp": 4, "tp_2d": True}}, "parallel.tp_2d = True: Megatron-LM splits widths over all of tp"),
        ({"model": {"bytes": 10, "tensors": 1}}, "give preset or config"),
        ({"model": {"preset": "gpt-oss-120b"}}, "gpt-oss-120b has sliding windows, which no argument says"),
        ({"model": {"preset": "falcon-7b"}}, "falcon-7b has attention and feed-forward side by side"),
    ],
)
def test_what_no_argument_says_is_a_fault(change, line):
    scenario = {"kind": "train_step", "cluster": "dgx-h100", "model": {"preset": "llama3-8b"},
                "batch": {"global": 8, "seq_len": 2048}}  # fmt: skip
    with pytest.raises(UserError, match=line):
        export_megatron(check_train(scenario | change, "r"))


def test_mechanisms_of_others_are_left_out_of_the_nearest_plan():
    scenario = {"kind": "train_step", "cluster": "dgx-h100", "model": {"preset": "llama3-8b"},
                "parallel": {"zero": 0, "shard_embedding": True}, "overlap": {"fusion": {}},
                "batch": {"global": 8, "seq_len": 2048}}  # fmt: skip

    assert export_megatron(check_train(scenario, "r"), nearest=True).unsaid == (
        "parallel.shard_embedding = true: data-parallel ranks have copies",
        "overlap.fusion: buckets of gradients wait for no tick",
    )


def test_what_no_argument_says_of_attention_and_of_overlap_is_told():
    scenario = {
        "kind": "train_step", "cluster": "dgx-h100", "model": {"preset": "gpt3-175b"}, "parallel": {"tp": 8},
        "batch": {"global": 8, "seq_len": 2048}, "attention": "unfused", "overlap": {"tp": True, "tp_exposed": 0.5},
    }  # fmt: skip

    assert export_megatron(check_train(scenario, "r")).undecided == (
        "attention = 'unfused': --attention-backend and dropout of scores are not written",
        "overlap.tp_exposed = 0.5: how much of it is exposed is measured, not set",
    )


def test_megatron_recomputes_activations_of_experts_alone():
    """moe_act needs grouped products of experts: TransformerConfig refuses it of a dense model."""
    recompute = {"mode": "selective", "modules": ["layernorm", "activation"]}
    scenario = {"kind": "train_step", "cluster": "dgx-h100", "recompute": recompute,
                "batch": {"global": 8, "seq_len": 2048}}  # fmt: skip
    said = [
        export_megatron(check_train(scenario | {"model": {"preset": name}}, "r"), nearest=True)
        for name in ("llama3-8b", "mixtral-8x7b")
    ]
    modules = [next(line for line in one.lines if "recompute-modules" in line) for one in said]

    assert (modules, [bool(one.unsaid) for one in said]) == (
        ["--recompute-modules layernorm", "--recompute-modules layernorm moe_act"],
        [True, False],
    )


PLAIN = {"kind": "train_step", "cluster": "dgx-h100", "model": {"preset": "llama3-8b"}, "parallel": {"pp": 2},
         "batch": {"global": 8, "seq_len": 2048}}  # fmt: skip


def test_a_plan_that_no_arguments_say_is_refused_with_all_that_they_do_not_say():
    scenario = check_train({**PLAIN, "precision": {"master": False}, "overlap": {"pp": True}}, "r")
    with pytest.raises(UserError) as refused:
        export_megatron(scenario, "r")

    assert refused.value.faults == (
        "r: overlap.pp = true: Megatron-LM overlaps sends of interleaved pipelines only",
        "r: precision.master = false: the optimizer keeps weights in FP32",
        "r: Megatron-LM has no arguments for this plan; --nearest prints those of the nearest one",
    )


def test_the_nearest_plan_is_headed_by_what_it_leaves_out():
    exported = str(export_megatron(check_train({**PLAIN, "precision": {"master": False}}, "r"), nearest=True))

    assert exported.startswith(
        "# another plan than asked for: precision.master = false: the optimizer keeps weights in FP32\n--num-layers"
    )


def test_on_what_a_scenario_is_silent_megatron_decides():
    assert export_megatron(check_train(PLAIN, "r")).undecided == (
        "overlap.pp, on which the scenario is silent: sends of interleaved pipelines alone are overlapped",
    )


EXPORTED = ("gpt3-175b-1024xa100", "llama3-8b-8xh100", "qwen3-30b-a3b-16xh100")


@pytest.mark.parametrize("name", EXPORTED)
def test_what_is_not_refused_keeps_the_same_in_memory(name, tmp_path):
    scenario = load_training(Path(f"data/scenarios/train-{name}.toml"))
    (tmp_path / "a.sh").write_text(str(export_megatron(scenario)))
    import_recipe(tmp_path / "a.sh", tmp_path / "a.toml", scenario.cluster, scenario.nodes)
    asked, again = (ResolvedTrain(one).plan for one in (scenario, load_training(tmp_path / "a.toml")))

    assert (again.dims, again.stages, again.again, again.offloaded, again.sharding.level) == (
        asked.dims, asked.stages, asked.again, asked.offloaded, asked.sharding.level,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("more", "experts"),
    [
        ("--moe-token-dispatcher-type alltoall", None),
        ("--moe-token-dispatcher-type flex --moe-enable-deepep", {"dispatcher": "deepep"}),
        ("--moe-token-dispatcher-type flex --moe-router-num-groups 4 --moe-router-group-topk 1",
         {"dispatcher": "deepep", "nodes_per_token": 1}),
    ],
)  # fmt: skip
def test_how_tokens_go_to_experts(read, more, experts):
    table = read(SMALL + "--num-experts 16 --expert-model-parallel-size 16 " + more, nodes=2)

    assert table.get("experts") == experts


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
        "dp": draw(st.booleans()),
        "tp": tp > 1 and parallel.get("sequence_parallel", True) and draw(st.booleans()),
    }
    if zero in (1, 2):
        overlap["params"] = overlap["dp"] and draw(st.booleans())
    if pp > 1:
        overlap["pp"] = chunks > 1 and draw(st.booleans())
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
        "name": "r", "kind": "train_step", "cluster": "dgx-h100", "nodes": 8, "model": {"preset": model, "mtp": mtp},
        "parallel": parallel, "schedule": schedule, "overlap": overlap, "recompute": recompute,
        "precision": {"compute": compute, "gradients": gradients, "moments": moments},
        "batch": {"global": 64 * draw(small), "micro": 1, "seq_len": 2048},
    }  # fmt: skip


@examples(60)
@given(scenarios())
def test_a_scenario_comes_back_from_its_arguments(tmp_path_factory, table):
    heads = {"qwen2.5-7b": 4}.get(table["model"]["preset"], 8)
    parallel = table["parallel"]
    assume(heads % parallel["tp"] == 0)
    if parallel.get("cp_type") == "ulysses":
        assume({"qwen2.5-7b": 28}.get(table["model"]["preset"], 32) // parallel["tp"] % parallel["cp"] == 0)
    scenario = check_train(table, "r")
    exported = export_megatron(scenario)
    file = tmp_path_factory.mktemp("r") / "r.sh"
    file.write_text(str(exported))
    again = check_train(scenario_table(read_recipe(file, "dgx-h100", 8), "r", "dgx-h100", 8), "r")

    assert exported.unsaid == ()
    assert again == scenario
