"""Layers of a model that are not all the same: windows, linear attention, Mamba-2 beside attention."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator.base.errors import UserError
from runcast.simulator.formats.recipes import export_recipe, import_recipe, load_training, read_recipe
from runcast.simulator.formats.recipes.layers import deal_out
from runcast.simulator.models import from_hf_config, preset, total_params

COMMON = (
    "--normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights --group-query-attention "
    "--seq-length 4096 --micro-batch-size 1 --bf16 --make-vocab-size-divisible-by 1 "
)
NEMOTRON = (
    "--hidden-size 4480 --ffn-hidden-size 15680 --num-attention-heads 40 --kv-channels 128 --num-query-groups 8 "
    "--squared-relu --position-embedding-type none --mamba-head-dim 80 --mamba-num-heads 128 --vocab-size 131072 "
    "--hybrid-override-pattern M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M- "
)
QWEN = (
    "--num-layers 48 --hidden-size 2048 --ffn-hidden-size 5120 --num-attention-heads 16 --kv-channels 256 "
    "--num-query-groups 2 --swiglu --position-embedding-type rope --qk-layernorm --attention-output-gate "
    "--experimental-attention-variant gated_delta_net --linear-attention-freq 4 --num-experts 512 "
    "--moe-router-topk 10 --moe-ffn-hidden-size 512 --moe-shared-expert-intermediate-size 512 "
    "--moe-shared-expert-gate --vocab-size 151936 "
)
GLM = (
    "--num-layers 78 --hidden-size 6144 --ffn-hidden-size 12288 --num-attention-heads 64 --multi-latent-attention "
    "--q-lora-rank 2048 --kv-lora-rank 512 --qk-head-dim 192 --qk-pos-emb-head-dim 64 --v-head-dim 256 --swiglu "
    "--position-embedding-type rope --num-experts 256 --moe-router-topk 8 --moe-ffn-hidden-size 2048 "
    "--moe-shared-expert-intermediate-size 2048 --moe-layer-freq '([0]*3+[1]*75)' --moe-router-enable-expert-bias "
    "--moe-router-score-function sigmoid --mtp-num-layers 1 --vocab-size 154880 "
    "--experimental-attention-variant dsa --dsa-indexer-n-heads 32 --dsa-indexer-head-dim 128 --dsa-indexer-topk 2048 "
)
SHARED = "--dsa-indexer-topk-freq 4 --dsa-indexer-skip-topk-offset 3"
V4_ATTENTION = (
    "--multi-latent-attention --q-lora-rank 1024 --v-head-dim 512 --qk-pos-emb-head-dim 64 --o-groups 8 "
    "--o-lora-rank 1024 --experimental-attention-variant dsv4_hybrid --csa-window-size 128 "
    "--dsa-indexer-n-heads 64 --dsa-indexer-head-dim 128 --dsa-indexer-topk 512 "
)
V4 = (
    "--num-layers 43 --hidden-size 4096 --ffn-hidden-size 2048 --num-attention-heads 64 --swiglu --num-experts 256 "
    "--position-embedding-type rope --moe-ffn-hidden-size 2048 --moe-shared-expert-intermediate-size 2048 "
    "--moe-router-topk 6 --moe-router-score-function sqrtsoftplus --moe-router-enable-expert-bias --mtp-num-layers 1 "
    "--attention-backend unfused --vocab-size 129280 "
)
STREAMS = "--enable-hyper-connections --num-residual-streams 4 "
RATIOS = '--csa-compress-ratios "([0,0]+[4,128]*20+[4,0])" '
TINY = "--hidden-size 512 --num-attention-heads 8 --num-query-groups 8 --vocab-size 1000 "


@pytest.fixture
def read(tmp_path):
    def recipe(text):
        (tmp_path / "r.sh").write_text(COMMON + text)
        return read_recipe(tmp_path / "r.sh", "dgx-h100")

    return recipe


@pytest.mark.parametrize(
    ("arguments", "preset"),
    [(NEMOTRON, "nemotron-nano-9b-v2"), (QWEN, "qwen3-next-80b-a3b")],
)
def test_a_hybrid_of_a_presets_shape_is_that_preset(read, arguments, preset):
    assert read(arguments).table["model"] == {"preset": preset}


SIZES = (
    "--num-layers 8 --ffn-hidden-size 1024 --swiglu --position-embedding-type rope --num-experts 8 --moe-router-topk 2 "
    "--moe-ffn-hidden-size 256 --linear-num-key-heads 4 --linear-num-value-heads 4 --linear-key-head-dim 32 "
    "--linear-value-head-dim 32 --kv-channels 64 "
)
LATENTS = (
    "--multi-latent-attention --q-lora-rank 64 --kv-lora-rank 96 --qk-head-dim 32 --qk-pos-emb-head-dim 16 "
    "--v-head-dim 32 "
)
EXPERTS_OF = {"num_experts": 8, "moe_intermediate_size": 256, "norm_topk_prob": True}
TWO_PARTS = {
    "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 8,
    "intermediate_size": 1024, "vocab_size": 1000, "tie_word_embeddings": False, "first_k_dense_replace": 1,
    "torch_dtype": "bfloat16",
}  # fmt: skip
KIMI = TWO_PARTS | EXPERTS_OF | {
    "model_type": "kimi_linear", "q_lora_rank": 64, "kv_lora_rank": 96, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16,
    "v_head_dim": 32, "num_experts_per_token": 2, "num_shared_experts": 0,
    "linear_attn_config": {"full_attn_layers": [4], "kda_layers": [1, 2, 3], "num_heads": 4, "head_dim": 32,
                           "short_conv_kernel_size": 4},
}  # fmt: skip


def test_delta_rules_and_latents_in_a_pattern_are_those_of_layers_with_two_parts(read):
    """Kimi Linear has them with an FFN in each layer: three of Kimi Delta Attention, and one of latent attention."""
    halves = from_hf_config(read(TINY + SIZES + LATENTS + "--hybrid-layer-pattern K-KEKE+E").config)
    whole = from_hf_config(KIMI)
    assert (halves.n_layers, total_params(halves)) == (2 * whole.n_layers, total_params(whole))


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ("--hybrid-layer-pattern M-G-*-*-", "G and M in one pattern are not modelled"),
        (LATENTS + "--hybrid-layer-pattern M-M-*-+-", "[*] and [+] in one pattern are not modelled"),
        ("--hybrid-layer-pattern M-M-+-+-", "[+] needs --multi-latent-attention"),
        (LATENTS + "--hybrid-layer-pattern M-M-*-*-", "latent attention in a --hybrid-layer-pattern is [+], not [*]"),
        ("--hybrid-layer-pattern K-K-*-*- --linear-num-key-heads 2", "linear-num-value-heads = '4': 2, as"),
        (
            "--hybrid-layer-pattern D-D-D-D-",
            "D, sparse attention .DeepSeek-V3.2's., is not modelled in a pattern: without",
        ),
        ("--hybrid-layer-pattern C-H-W-*-", "C, attention of DeepSeek-V4, is not modelled in a pattern"),
    ],
)
def test_what_a_pattern_cannot_have(read, more, line):
    with pytest.raises(UserError, match=line):
        read(TINY + SIZES + more)


EXPERTS = (
    "--num-layers 4 --num-experts 8 --moe-router-topk 2 --moe-ffn-hidden-size 256 --softmax-type learnable "
    "--moe-grouped-gemm "
)


@pytest.mark.parametrize(
    ("more", "gate", "one"),
    [("", False, False), ("--attention-output-gate", True, False),
     ("--attention-output-gate --gated-attention-proj-granularity headwise", True, True)],
)  # fmt: skip
def test_what_attention_gives_may_be_gated(read, more, gate, one):
    spec = from_hf_config(read(TINY + "--num-layers 4 " + more).config)
    assert (spec.output_gate, spec.gate_per_head) == (gate, one)


def test_deepseek_v4_is_its_preset_whose_attention_has_kernels_of_its_own(read):
    table = read(V4 + V4_ATTENTION + STREAMS + RATIOS).table
    assert (table["model"], table.get("attention")) == ({"preset": "deepseek-v4-flash"}, None)


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (STREAMS, "csa-compress-ratios = 'nothing': expected a ratio for each of 43 layers, such as"),
        (STREAMS + "--csa-compress-ratios [0,4]", "csa-compress-ratios = '.0,4.': expected a ratio for each of 43"),
        (RATIOS + "--mhc-connection-variant gated_residual", "gated residual streams are not modelled"),
    ],
)
def test_what_a_deepseek_v4_cannot_be(read, more, line):
    with pytest.raises(UserError, match=line):
        read(V4 + V4_ATTENTION + more)


@pytest.mark.parametrize(
    ("arguments", "streams"),
    [("--enable-mhc-connections --mhc-num-residual-streams 2", 2), ("--enable-hyper-connections", 4), ("", 1)],
)
def test_residual_streams_are_mixed(read, arguments, streams):
    spec = from_hf_config(read(TINY + "--num-layers 4 " + arguments).config)
    assert (spec.streams, spec.streams_mix) == (streams, streams > 1)


def test_shares_of_layers_are_dealt_out_as_in_the_published_hybrid():
    """Mamba-2-Hybrid 8B of NVIDIA: --hybrid-attention-ratio 0.08 --hybrid-mlp-ratio 0.5 over 56 layers."""
    published = "M-M-M--M-M*-M-M-M-M--M*-M-M-M-M-M*--M-M-M-M-M*-M--M-M-M-"
    assert deal_out(56, 0.08, 0.5) == published


@given(layers=st.integers(1, 200), attention=st.floats(0, 1), rest=st.floats(0, 1))
def test_shares_of_layers_are_as_many_as_they_say(layers, attention, rest):
    networks = rest * (1 - attention)
    attends, passes = round(layers * attention), round(layers * networks)
    if attends + passes <= layers:
        found = deal_out(layers, attention, networks)
        assert (len(found), found.count("*")) == (layers, attends)
        assert abs(found.count("-") - passes) <= 1


def test_a_recipe_of_shares_is_that_of_its_pattern(read):
    sizes = NEMOTRON.partition("--hybrid-override-pattern")[0]
    shares = read(sizes + "--num-layers 56 --hybrid-attention-ratio 0.08 --hybrid-mlp-ratio 0.5 ")
    pattern = "--hybrid-override-pattern M-M-M--M-M*-M-M-M-M--M*-M-M-M-M-M*--M-M-M-M-M*-M--M-M-M- "
    assert shares.config == read(sizes + pattern).config


def test_shares_of_layers_count_for_nothing_beside_a_pattern(read):
    shares = "--hybrid-attention-ratio 0.08 --hybrid-mlp-ratio 0.5 "
    assert read(NEMOTRON + shares).table["model"] == read(NEMOTRON).table["model"]


LEARNS = "--dsa-indexer-loss-coeff 1e-3 --dsa-indexer-use-sparse-loss "


@pytest.mark.parametrize(
    ("shared", "name"),
    [("", "glm-5"), (SHARED, "glm-5.2")],
)
def test_attention_that_picks_tokens_is_of_a_preset(read, shared, name):
    assert read(GLM + LEARNS + shared).table["model"] == {"preset": name}


def test_a_dense_model_may_pick_tokens_too(read):
    dense = " ".join(re.sub(r"--(num-experts|moe-[a-z-]+)( [^-]\S*)?", "", GLM).split())
    spec = from_hf_config(read(dense + " ").config, "r.sh")
    assert (spec.indexer.num_heads, spec.moe, spec.architecture) == (32, None, "sparse-mla")


@pytest.mark.parametrize("more", ["", "--dsa-indexer-loss-coeff 0"])
def test_an_indexer_without_a_loss_learns_nothing(read, more):
    indexer = from_hf_config(read(GLM + more).config, "r.sh").indexer
    assert indexer == replace(preset("glm-5").indexer, learns=False)


def test_a_loss_on_all_tokens_is_noted(read):
    line = "--dsa-indexer-loss-coeff: the loss is priced on the tokens that are picked"
    assert line in read(GLM + "--dsa-indexer-loss-coeff 0.01").not_modelled


def test_sizes_of_an_indexer_without_its_attention_are_noted(read):
    arguments = GLM.replace("--experimental-attention-variant dsa", "")
    line = "--dsa-indexer-n-heads, --dsa-indexer-head-dim, --dsa-indexer-topk: counts for nothing without "
    assert line + "--experimental-attention-variant dsa, as in Megatron-LM" in read(arguments).assumed


def test_layers_without_an_indexer_have_one_before_them(read):
    shared = SHARED.replace("offset 3", "offset 0")
    with pytest.raises(UserError, match=r"--dsa-indexer-skip-topk-offset = '0': expected a whole number from 1 on"):
        read(GLM + shared)


def test_sizes_of_mamba_that_are_not_given_are_megatrons(read):
    config = read(TINY + "--hybrid-layer-pattern M-M*").config
    keys = ("num_hidden_layers", "mamba_num_heads", "mamba_head_dim", "ssm_state_size", "n_groups", "chunk_size")

    assert [config[key] for key in keys] == [4, 16, 64, 128, 8, 128]


def test_heads_and_shared_experts_that_are_not_given_are_megatrons(read):
    config = read(f"{TINY} --hybrid-override-pattern M*ME --num-experts 8 --moe-ffn-hidden-size 64").config
    spec = from_hf_config(config, "r.sh")
    assert (spec.head_dim, spec.moe.shared_intermediate_size) == (64, 0)


def test_parts_behind_a_pattern_are_layers_of_multi_token_prediction(read):
    recipe = read(TINY + "--hybrid-layer-pattern M-M*/*-/M-")
    line = "--hybrid-layer-pattern /*-/M-: each MTP layer is one of attention and one FFN here, whatever its pattern"

    assert (recipe.config["hybrid_override_pattern"], recipe.config["num_nextn_predict_layers"]) == ("M-M*", 2)
    assert line in recipe.not_modelled
    assert "MTP" not in "".join(read(TINY + "--hybrid-layer-pattern M-M*/*-/*-").not_modelled)


@pytest.mark.parametrize(
    ("pattern", "schedule", "layers"),
    [
        ("M-M|*-", {"name": "1f1b"}, [3, 2]),
        ("M-|M|*-|-", {"name": "interleaved", "vpp": 2}, [2, 1, 2, 1]),
    ],
)
def test_bars_split_a_pattern_into_stages(read, pattern, schedule, layers):
    table = read(
        TINY + f"--pipeline-model-parallel-size 2 --global-batch-size 64 --hybrid-layer-pattern '{pattern}'"
    ).table

    assert (table["schedule"], table["parallel"]["layers"]) == (schedule, layers)


def test_a_pattern_has_stages_for_every_pipeline_rank(read):
    with pytest.raises(UserError, match=r"= 'M\|-\|\*': expected a multiple of pp = 2 stages split by \|"):
        read(TINY + "--pipeline-model-parallel-size 2 --hybrid-layer-pattern 'M|-|*'")


@pytest.mark.parametrize(
    ("more", "shape"),
    [
        ("--num-layers 4 --softmax-type learnable", None),
        (EXPERTS, ((0, 1, 2, 3), 0, 0, False, False)),
        (EXPERTS + "--moe-shared-expert-intermediate-size 128", ((0, 1, 2, 3), 128, 0, False, False)),
        (EXPERTS + "--moe-layer-freq ([0]*1+[1]*3)", ((1, 2, 3), 0, 0, False, False)),
        (EXPERTS + "--moe-latent-size 64", ((0, 1, 2, 3), 0, 64, False, False)),
        (EXPERTS + "--moe-router-enable-expert-bias", ((0, 1, 2, 3), 0, 0, False, True)),
        (EXPERTS + "--moe-shared-expert-gate", ((0, 1, 2, 3), 0, 0, True, False)),
    ],
)
def test_sinks_go_with_dense_models_and_with_what_experts_have(read, more, shape):
    spec = from_hf_config(read(TINY + more).config)
    moe = spec.moe and (
        spec.moe.layers, spec.moe.shared_intermediate_size, spec.moe.latent_size, spec.moe.shared_gate,
        spec.moe.correction_bias,
    )  # fmt: skip

    assert (spec.attention_sinks, moe) == (True, shape)


@pytest.mark.parametrize(
    "more",
    [
        TINY + "--num-layers 4 --softmax-type learnable",
        TINY + "--num-layers 4 --attention-output-gate",
        TINY + "--num-layers 4 --attention-output-gate --gated-attention-proj-granularity headwise",
        TINY + EXPERTS + "--moe-layer-freq ([0]*1+[1]*3)",
        GLM + SHARED,
        (GLM + SHARED).replace("6144", "3072"),
    ],
)
def test_attention_comes_back_from_its_export(tmp_path, more):
    (tmp_path / "a.sh").write_text(COMMON + "--max-position-embeddings 4096 " + more)
    first, _ = import_recipe(tmp_path / "a.sh", tmp_path / "a.toml", "dgx-h100")
    exported = export_recipe(load_training(tmp_path / "a.toml"), where=str(tmp_path / "a.toml"))
    (tmp_path / "b.sh").write_text(str(exported))
    again, _ = import_recipe(tmp_path / "b.sh", tmp_path / "b.toml", "dgx-h100")

    assert (again.config, again.table["model"]) == (first.config, first.table["model"])


def test_dense_layers_beside_gpt_oss_experts_keep_their_width(read):
    spec = from_hf_config(read(TINY + EXPERTS + "--moe-layer-freq ([0]*1+[1]*3) --ffn-hidden-size 1536").config)

    assert (spec.intermediate_size, spec.moe.moe_intermediate_size) == (1536, 256)


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ("--num-layers 4 --multi-latent-attention --softmax-type learnable",
         "--softmax-type learnable: multi-latent attention has no sinks here"),
        (EXPERTS + "--moe-shared-expert-gate --moe-router-enable-expert-bias",
         "--moe-router-enable-expert-bias: the experts of qwen2_moe have no bias here"),
    ],
)  # fmt: skip
def test_what_a_family_does_not_have_is_named(read, more, line):
    assert read(TINY + "--hidden-dropout 0 --attention-dropout 0 " + more).not_modelled == (line,)


@pytest.mark.parametrize(
    ("more", "window", "layers"),
    [
        ("--window-size 127,0", 128, range(6)),
        ("--window-size '(255, 0)' --window-attn-skip-freq 2", 256, range(0, 6, 2)),
        ("--window-size 127,0 --window-attn-skip-freq ([1]*2+[0]*4)", 128, range(2)),
    ],
)
def test_layers_with_a_window(read, more, window, layers):
    config = read(TINY + "--num-layers 6 " + more).config
    found = [layer for layer, kind in enumerate(config["layer_types"]) if kind == "sliding_attention"]

    assert (config["sliding_window"], found) == (window, list(layers))
