"""Megatron-LM's arguments: what each says, and what does not go together."""

import pytest
from runcast.simulator.base.errors import UserError
from runcast.simulator.formats.recipes import read_recipe, scenario_table
from runcast.simulator.formats.recipes.arguments import names_of
from runcast.simulator.models import from_hf_config, total_params

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
        ("--optimizer dist_muon --overlap-grad-reduce", "overlap", {"params": False}),
        ("--use-torch-fsdp2", "parallel", {"zero": 3}),
        ("--main-grads-dtype bf16 --use-precision-aware-optimizer --use-distributed-optimizer", "precision",
         {"gradients": "bf16"}),
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
        ("--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --context-parallel-size 2 "
         "--use-tp-pp-dp-mapping --expert-tensor-parallel-size 4", "parallel",
         {"tp": 2, "cp": 2, "pp": 2, "sequence_parallel": False, "zero": 0, "order": "tp-cp-ep-pp-dp"}),
        ("--export-force-local-attention --attention-dropout 0", "attention", "unfused"),
        ("export NVTE_FLASH_ATTN=0\nexport NVTE_FUSED_ATTN=0", "attention", "unfused"),
    ],
)  # fmt: skip
def test_what_an_argument_says(read, more, key, value):
    assert read(SMALL + more)[key] == value


def test_layers_to_offload_count_for_nothing_where_offloading_is_off(read):
    """Configs of NeMo 1 say so many layers, and that none is offloaded."""
    more = "--cpu-offloading-num-layers 31"

    assert read(f"{SMALL} {more} --cpu-offloading false") == read(SMALL)


@pytest.mark.parametrize("sharded", [
    "--use-torch-fsdp2", "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads",
    "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params",
])  # fmt: skip
def test_gradients_that_fsdp_shards_travel_beside_the_backward(read, sharded):
    assert read(SMALL + sharded) == read(f"{SMALL}{sharded} --overlap-grad-reduce")


T5 = (
    "--encoder-num-layers 12 --decoder-num-layers 6 --hidden-size 768 --num-attention-heads 12 --kv-channels 64 "
    "--ffn-hidden-size 3072 --encoder-seq-length 512 --decoder-seq-length 128 --max-position-embeddings 512 "
    "--micro-batch-size 4 --global-batch-size 32 --tokenizer-type BertWordPieceCase --bf16 "
)


def test_an_encoder_and_a_decoder_are_megatrons_t5(tmp_path):
    (tmp_path / "t5.sh").write_text(T5)
    recipe = read_recipe(tmp_path / "t5.sh", "dgx-h100")
    spec = from_hf_config(recipe.config)
    (encoder,) = spec.towers
    read = recipe.table["towers"]["encoder"]["tokens"], recipe.table["batch"]["seq_len"]
    assert (encoder.num_hidden_layers, spec.num_hidden_layers, read) == (12, 2 * 6, (512, 128))


def test_megatrons_t5_of_220_million_parameters_has_as_many(tmp_path):
    (tmp_path / "t5.sh").write_text(T5.replace("decoder-num-layers 6", "decoder-num-layers 12"))
    assert round(total_params(from_hf_config(read_recipe(tmp_path / "t5.sh", "dgx-h100").config)), -7) == 220e6


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ("--pipeline-model-parallel-size 2", "1: how stages divide an encoder and a decoder is not read"),
        ("--kv-channels 32", "kv-channels = '32': of T5 64: the hidden size over the heads"),
        ("--position-embedding-type rope", "expected one of learned_absolute"),
    ],
)
def test_what_megatrons_t5_cannot_be(tmp_path, more, line):
    (tmp_path / "t5.sh").write_text(T5 + more)
    with pytest.raises(UserError, match=line):
        read_recipe(tmp_path / "t5.sh", "dgx-h100")


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


INTERLEAVED = "--num-virtual-stages-per-pipeline-rank 2 --no-overlap-p2p-communication --pipeline-model-parallel-size "


def test_sends_of_two_interleaved_stages_overlap(read, tmp_path):
    with pytest.raises(UserError) as caught:
        read(SMALL + INTERLEAVED + "2")

    wanted = "expected 3 or more beside an interleaved schedule and --no-overlap-p2p-communication"
    assert caught.value.faults == (f"{tmp_path / 'r.sh'}: --pipeline-model-parallel-size = '2': {wanted}",)


def test_sends_of_more_interleaved_stages_may_wait(read):
    assert read(SMALL + INTERLEAVED + "4")["overlap"] == {"dp": False, "pp": False}


def test_a_fault_is_a_line_with_file_argument_and_value(read, tmp_path):
    with pytest.raises(UserError) as caught:
        read(SMALL + "--tensor-model-parallel-size 3")

    wanted = "--tensor-model-parallel-size = '3': tp 3 x cp 1 x pp 1 = 3 must divide the 8 GPUs (1 x 8, dgx-h100)"
    assert caught.value.faults[0] == f"{tmp_path / 'r.sh'}: {wanted}"


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ("--num-layers x", "--num-layers = 'x': expected a whole number"),
        ("--num-layers $(nproc)", "--num-layers = '[$].nproc.': a shell computes it.*; give --set num-layers=VALUE"),
        ("--num-layers ${LAYERS}", "--num-layers = '[$].LAYERS.': the file assigns no LAYERS; give --set LAYERS=VALUE"),
        ("--num-layers", "--num-layers = '': expected a whole number"),
        ("--pipeline-model-parallel-size 5", "must divide the 8 GPUs"),
        ("--expert-model-parallel-size 2", "needs --num-experts"),
        ("--pipeline-model-parallel-size 8 --num-layers-per-virtual-pipeline-stage 3", "3 x pp 8 must divide the 32"),
        ("--num-virtual-stages-per-pipeline-rank 2", "chunks need a pipeline"),
        ("--pipeline-model-parallel-size 8 --num-layers-per-virtual-pipeline-stage 2 "
         "--num-virtual-stages-per-pipeline-rank 2", "cannot go with"),
        ("--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout 'Et|t|t|tL'", "holds 4 layers"),
        ("--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout 'Et|x|tL'", "expected E .embedding."),
        ("--pipeline-model-parallel-layout 'E((t*999)*999)*999L'", "expected E .embedding."),
        ("--overlap-param-gather", "needs --use-distributed-optimizer"),
        ("--use-distributed-optimizer --overlap-param-gather", "needs --overlap-grad-reduce"),
        ("--tp-comm-overlap", "needs --sequence-parallel"),
        ("--fp16", "cannot go with --bf16"),
        ("--global-batch-size 12", "micro 1 x dp 8 = 8 must divide it"),
        ("--context-parallel-size 2 --cp-comm-type x2x", "expected one of p2p"),
        ("--window-size 127", "--window-size = '127': expected tokens before and after, such as 127,0"),
        ("--window-size 127,0 --window-attn-skip-freq [1,0]", "a number, or a list for 32 layers"),
        ("--recompute-granularity full", "--recompute-method: is missing"),
        ("--recompute-granularity selective --recompute-modules attn", "'attn': expected some of core_attn"),
        ("--recompute-granularity selective --recompute-modules moe_act", "in experts alone, and this model has none"),
        ("--exp-avg-dtype bf16", "needs --use-precision-aware-optimizer"),
        ("--hybrid-override-pattern M-M*", "--num-layers = '32': --hybrid-override-pattern has 4 layers"),
        ("--hybrid-layer-pattern MXGM-", "X: not read; expected M .Mamba., G, K .delta rules., . .attention."),
        ("--hybrid-layer-pattern M-M* --num-layers 4 --multi-latent-attention",
         "latent attention in a --hybrid-layer-pattern is ., not ."),
        ("--hybrid-attention-ratio 0.6 --hybrid-mlp-ratio 0.5", "'0.6': expected shares of at most 10,000 layers"),
        ("--hybrid-mlp-ratio 0.5 --num-layers 20000", "'0.5': expected shares of at most 10,000 layers"),
        ("--experimental-attention-variant dsa2", "expected one of gated_delta_net, dsa"),
        ("--experimental-attention-variant dsa", "dsa needs latent queries: give --q-lora-rank"),
        ("--linear-attention-freq [1,0] --experimental-attention-variant gated_delta_net", "a list for 32 layers"),
        ("--decoder-num-layers 12", "--normalization = 'RMSNorm': expected one of layernorm"),
        ("; torchrun pretrain_t5.py", "--swiglu = '': not read of T5, which a program or a decoder"),
        ("; torchrun pretrain_ict.py", "program = pretrain_ict.py: two encoders .ICT. are not read"),
        ("--img-h 336 --decoder-seq-length 128", "--img-h 336: what reads images is in its program"),
        ("--freeze-ViT", "--freeze-ViT: what reads images is in its program"),
        ("--freeze-LM", "--freeze-LM: what reads images is in its program"),
        ("--model-recipe examples.nemotron3.nano", "its model is in that Python module, which is not run"),
        ("--encoder-tensor-model-parallel-size 2 --decoder-seq-length 128", "an encoder with GPUs of its own is not"),
        ("--num-tokens-to-generate 30", "30: it generates text; only training steps are predicted here"),
        ("--num-query-groups 5", "num_key_value_heads = 5"),
        ("--position-embedding-type relative", "expected one of learned_absolute"),
        ("--num-experts 7 --expert-model-parallel-size 2", "--expert-model-parallel-size = 2: must divide the 7"),
        ("--seq-length 1001 --tensor-model-parallel-size 2 --sequence-parallel", "a multiple of 2 with tp = 2"),
        ("--seq-length 1002 --context-parallel-size 2", "--seq-length = 1002: must be a multiple of 4 with cp = 2"),
        ("--ffn-hidden-size 14335 --tensor-model-parallel-size 2", "width of the feed-forward network, 14335"),
        ("--overlap-moe-expert-parallel-comm", "needs --expert-model-parallel-size above 1"),
        ("--context-parallel-size 2 --cp-comm-type a2a --tensor-model-parallel-size 4 --num-query-groups 4",
         "--context-parallel-size = '2': with a2a it must divide the key heads of a rank, 1"),
        ("--main-grads-dtype bf16", "--main-grads-dtype = 'bf16': needs --use-precision-aware-optimizer"),
        ("--main-grads-dtype bf16 --use-precision-aware-optimizer --accumulate-allreduce-grads-in-fp32",
         "--main-grads-dtype = 'bf16': cannot go with --accumulate-allreduce-grads-in-fp32"),
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
    (tmp_path / "r.sh").write_text(SMALL + "--overlap-grad-reduction --api-token 3f9a")

    assert read_recipe(tmp_path / "r.sh", "dgx-h100").unknown == (
        "--overlap-grad-reduction: did you mean overlap-grad-reduce?",
        "--api-token",
    )


@pytest.mark.parametrize("tool", ["megatron", "torchtitan"])
def test_an_argument_is_of_one_kind(tool):
    names = names_of(tool)
    kinds = [*(names.switches | names.valued), *names.untimed, *names.not_modelled, *names.aliases, *names.negated]

    assert sorted(kinds) == sorted(set(kinds))


@pytest.mark.parametrize("tool", ["megatron", "torchtitan"])
def test_no_pattern_takes_an_argument_that_is_read(tool):
    names = names_of(tool)
    taken = [name for name in names.switches | names.valued if names.is_untimed(name) or names.reason(name)]

    assert taken + [name for name in names.valued if name in names.refused] == []


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


@pytest.mark.parametrize(
    ("word", "gated", "function"),
    [("swiglu", True, "silu"), ("squaredrelu", False, "relu2"), ("gelu", False, "gelu")],
)
def test_a_yaml_of_megatron_has_one_word_for_the_function_and_its_gate(tmp_path, word, gated, function):
    sizes = {"num_layers": 4, "hidden_size": 512, "num_attention_heads": 16, "gated_linear_unit": "False"}
    sizes |= {"seq_length": 512, "vocab_size": 1000, "micro_batch_size": 1, "activation_func": word}
    lines = [f"  {name}: {value}" for name, value in sizes.items()]
    (tmp_path / "r.yaml").write_text("\n".join(["language_model:", *lines]))
    recipe = read_recipe(tmp_path / "r.yaml", "dgx-h100")

    assert (recipe.config["gated_ffn"], recipe.config["hidden_act"]) == (gated, function)
    assert [line for line in recipe.not_modelled if "activation" in line] == []


def test_a_script_inside_a_yaml_of_megatron_is_none_of_its_arguments(tmp_path):
    script = "BEFORE_SCRIPT: |\n  cat <<EOF > x\n  swiglu: true\n  num_experts = 8\n  EOF\n"
    sizes = {"num-layers": 4, "hidden-size": 512, "num-attention-heads": 16, "seq-length": 512, "vocab-size": 1000}
    flags = [f"  --{name}: {value}" for name, value in (sizes | {"micro-batch-size": 1}).items()]
    (tmp_path / "r.yaml").write_text(script + "\n".join(["MODEL_ARGS:", *flags]))
    config = read_recipe(tmp_path / "r.yaml", "dgx-h100").config

    assert (config["gated_ffn"], config["model_type"]) == (False, "llama")


def test_context_parallelism_of_two_kinds_is_simulated_as_a_ring(tmp_path):
    (tmp_path / "r.sh").write_text(SMALL + "--context-parallel-size 4 --cp-comm-type a2a+p2p")
    recipe = read_recipe(tmp_path / "r.sh", "dgx-h100")

    assert recipe.table["parallel"]["cp_type"] == "ring"
    assert "--cp-comm-type a2a+p2p: a ring over all of cp is simulated" in recipe.not_modelled


def test_weights_that_layers_of_mtp_share_are_told(tmp_path):
    (tmp_path / "r.sh").write_text(SMALL + "--mtp-num-layers 2 --mtp-use-repeated-layer --check-for-large-grads")
    recipe = read_recipe(tmp_path / "r.sh", "dgx-h100")

    assert "--mtp-use-repeated-layer: each layer of MTP has weights of its own here: one for all takes less memory" in (
        recipe.not_modelled
    )
    assert recipe.unknown == ()


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


BERT = (
    "torchrun {program} --num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 512 --fp16 "
    "--max-position-embeddings 512 --micro-batch-size 4 --global-batch-size 32 {more}"
)


@pytest.mark.parametrize(
    ("program", "more", "sizes"),
    [
        ("pretrain_bert.py", "", (2, 30522)),
        ("pretrain.py", "--vocab-file vocab.txt", (2, 30522)),
        ("pretrain.py", "--tokenizer-type BertWordPieceCase", (2, 28996)),
        ("pretrain_bert.py", "--bert-no-binary-head --vocab-size 1000", (0, 1000)),
    ],
)
def test_arguments_of_bert_are_an_encoder_with_the_tokens_of_its_word_pieces(tmp_path, program, more, sizes):
    (tmp_path / "r.sh").write_text(BERT.format(program=program, more=more))
    config = read_recipe(tmp_path / "r.sh", "dgx-h100").config
    assert (config["model_type"], config["type_vocab_size"], config["vocab_size"]) == ("megatron-bert", *sizes)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("", {}),
        ("--attention-backend flash --attention-dropout 0", {}),
        ("--attention-backend unfused", {"attention": "unfused", "attention_dropout": True}),
        ("--attention-backend local --attention-dropout 0.0", {"attention": "unfused", "attention_dropout": False}),
        ("--transformer-impl transformer_engine", {}),
        ("--transformer-impl local --use-flash-attn", {"attention": "unfused", "attention_dropout": True}),
        ("--transformer-impl local --use-legacy-models", {"attention": "unfused", "attention_dropout": True}),
        ("--transformer-impl local --use-legacy-models --use-flash-attn", {}),
    ],
)
def test_attention_in_separate_kernels_is_read(tmp_path, more, said):
    (tmp_path / "r.sh").write_text(BERT.format(program="pretrain_bert.py", more=more))
    table = read_recipe(tmp_path / "r.sh", "dgx-h100").table
    assert {key: table[key] for key in ("attention", "attention_dropout") if key in table} == said


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ("--num-query-groups 8", "--num-query-groups 8 counts for nothing without --group-query-attention"),
        ("--linear-attention-freq 4", "--linear-attention-freq counts for nothing without --experimental-attention"),
        ("--fp8-format hybrid", "precision: of a BF16 model, though without --bf16 Megatron-LM keeps weights in FP32"),
    ],
)
def test_what_megatron_ignores_is_told(tmp_path, more, line):
    sizes = "--num-layers 4 --hidden-size 512 --num-attention-heads 16 --seq-length 512 --vocab-size 1000"
    batch = "--micro-batch-size 1 --global-batch-size 8"
    (tmp_path / "r.sh").write_text(f"{sizes} --max-position-embeddings 512 {batch} {more}")
    assert any(line in one for one in read_recipe(tmp_path / "r.sh", "dgx-h100").assumed)


@pytest.mark.parametrize(("more", "told"), [("", 1), ("--moe-grouped-gemm", 0)])
def test_experts_one_after_another_count_as_grouped_and_it_is_told(tmp_path, more, told):
    (tmp_path / "r.sh").write_text(MOE + more)
    lines = read_recipe(tmp_path / "r.sh", "dgx-h100").not_modelled

    assert [line for line in lines if "grouped" in line] == told * [
        "experts one after another, without --moe-grouped-gemm: their GEMMs count as grouped"
    ]


@pytest.mark.parametrize(
    ("more", "schedule"),
    [
        ("", {"name": "interleaved-overlap"}),
        ("--pipeline-model-parallel-size 2", None),
        ("--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 4",
         {"name": "interleaved-overlap", "vpp": 4}),
    ],
)  # fmt: skip
def test_exchanges_of_experts_overlap_without_a_pipeline_too(read, more, schedule):
    table = read(MOE + "--expert-model-parallel-size 4 --overlap-moe-expert-parallel-comm " + more)

    assert table.get("schedule") == schedule


def test_a_config_of_nanotron_is_refused(tmp_path):
    (tmp_path / "r.yaml").write_text("parallelism: {dp: 1}\ntokens: {sequence_length: 1}\ndata_stages: []\n")
    with pytest.raises(UserError, match="is a config of nanotron, which is not read"):
        read_recipe(tmp_path / "r.yaml", "dgx-h100")


@pytest.mark.parametrize(
    ("change", "key", "value"),
    [
        (("--num-query-groups 8 ", ""), "num_key_value_heads", 1),  # the default of the argument
        (("--group-query-attention --num-query-groups 8 ", ""), "num_key_value_heads", 32),
        (("--ffn-hidden-size 14336 ", ""), "intermediate_size", 10880),
        (("--ffn-hidden-size 14336 ", "--quick-geglu "), "intermediate_size", 16384),
    ],
)
def test_what_is_not_given_has_the_default_of_its_argument(tmp_path, change, key, value):
    text = SMALL.replace(*change)
    (tmp_path / "r.sh").write_text(text.replace("--swiglu ", "") if "geglu" in text else text)

    assert read_recipe(tmp_path / "r.sh", "dgx-h100", 1).config[key] == value
