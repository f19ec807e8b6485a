"""Reading Hugging Face configs: families, and one clear line for each fault."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator.base.errors import UserError
from runcast.simulator.models import (
    Fp8,
    from_hf_config,
    load_hf_config,
    preset,
    preset_config,
    preset_names,
    total_params,
)

LLAMA = preset_config("llama3-8b")
QWEN_MOE = preset_config("qwen3-30b-a3b")
DEEPSEEK = preset_config("deepseek-v3")
GLM_DSA = preset_config("glm-5")
QWEN_LINEAR = preset_config("qwen3.5-27b")
GPT2, MPT = preset_config("gpt2"), preset_config("mpt-7b")
OPT = {"model_type": "opt", "hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 32, "ffn_dim": 8192}
OPT |= {"vocab_size": 50272, "max_position_embeddings": 2048, "activation_function": "relu"}


def test_a_folder_and_a_file_read_alike(tmp_path):
    folder = tmp_path / "Llama-8B"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    assert load_hf_config(folder) == load_hf_config(folder / "config.json")
    assert load_hf_config(folder).name == "Llama-8B"


def test_an_mla_moe_config():
    spec = preset("deepseek-v3")
    assert (spec.mla.q_lora_rank, spec.mla.kv_lora_rank, spec.qk_head_dim, spec.v_head_dim) == (1536, 512, 192, 128)
    assert (spec.moe.n_routed_experts, spec.moe.num_experts_per_tok, spec.moe.layers[0]) == (256, 8, 3)
    assert (spec.quantization, spec.num_nextn_predict_layers) == (Fp8((128, 128)), 1)
    assert spec.is_moe(61)


def test_attention_bias_covers_the_output_projection_by_family():
    biased = {"attention_bias": True}
    assert from_hf_config(LLAMA | biased).attention_out_bias
    assert not preset("glm-4.5-air").attention_out_bias
    assert (preset("qwen2.5-7b").attention_bias, preset("qwen2.5-7b").attention_out_bias) == (True, False)


def test_sliding_windows_by_family():
    mistral = from_hf_config(LLAMA | {"model_type": "mistral", "sliding_window": 4096})
    assert {mistral.window(layer) for layer in range(32)} == {4096}
    qwen = preset_config("qwen2.5-7b") | {"sliding_window": 1024, "max_window_layers": 20}
    assert from_hf_config(qwen).window(27) is None
    assert from_hf_config(qwen | {"use_sliding_window": True}).sliding_layers == tuple(range(20, 28))
    assert preset("gpt-oss-120b").window(0) == 128
    assert preset("gpt-oss-120b").window(1) is None


def test_layer_types_say_which_layers_slide():
    types = ["full_attention", "sliding_attention"] * 16
    spec = from_hf_config(LLAMA | {"layer_types": types, "sliding_window": 512})
    assert spec.sliding_layers == tuple(range(1, 32, 2))
    with pytest.raises(UserError, match="layer_types"):
        from_hf_config(LLAMA | {"layer_types": ["linear_attention"] * 32})


def test_indexers_by_list_and_by_step():
    """GLM-5.2: layers 0, 1, 2 and then every fourth, the MTP layer 78 among them."""
    assert preset("glm-5").indexer.layers == frozenset(range(79))
    stepped = preset("glm-5.2")
    assert stepped.indexer.layers == {0, 1, *range(2, 79, 4)}
    types = ["full" if layer in stepped.indexer.layers else "shared" for layer in range(78)]
    listed = from_hf_config(preset_config("glm-5") | {"indexer_types": types}, name="glm-5.2")
    assert listed.indexer == stepped.indexer


def test_linear_attention_by_list_and_by_interval():
    spec = preset("qwen3.5-27b")
    assert [layer for layer in range(65) if not spec.kind(layer).linear] == [*range(3, 64, 4), 64]
    types = ["full_attention"] + ["linear_attention"] * 63
    assert from_hf_config(QWEN_LINEAR | {"layer_types": types}).linear_attention.layers == frozenset(range(1, 64))


def test_dense_exceptions_among_moe_layers():
    spec = from_hf_config(QWEN_MOE | {"decoder_sparse_step": 2, "mlp_only_layers": [3]})
    assert spec.moe.layers[:3] == (1, 5, 7)


def test_an_unknown_family_is_read_as_llama_like_and_says_so():
    spec = from_hf_config(QWEN_MOE | {"model_type": "newcomer"})
    assert spec.moe.n_routed_experts == 128
    assert spec.assumptions == ("model_type 'newcomer' is not known and read as llama-like",)


def test_a_plain_gpt():
    """GPT-3 175B: 12 L h^2 and the biases, norms and embeddings beside."""
    gpt3 = {"hidden_size": 12288, "num_hidden_layers": 96, "num_attention_heads": 96, "intermediate_size": 49152}
    gpt3 |= {"vocab_size": 50257, "position_embeddings": 2048, "tie_word_embeddings": True, "gated_ffn": False}
    gpt3 |= {"attention_bias": True, "mlp_bias": True, "norm_bias": True}
    h = 12288
    assert total_params(from_hf_config(gpt3)) == 96 * (12 * h * h + 13 * h) + (50257 + 2048 + 2) * h


def sized(model_type, hidden, layers, heads, vocab, **others):
    shape = {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads, "vocab_size": vocab}
    return {"model_type": model_type} | shape | others


MULTI_QUERY = {"num_key_value_heads": 1, "head_dim": 256}
EIGHT = {"num_experts_per_tok": 8}
PHI_MOE = {"num_key_value_heads": 8, "num_local_experts": 16, "num_experts_per_tok": 2, "intermediate_size": 6400}
GPT_NEO = {"model_type": "gpt_neo", "hidden_size": 2560, "num_layers": 32, "num_heads": 20, "vocab_size": 50257}
GPT_NEO |= {"max_position_embeddings": 2048}
STARCODER = {"model_type": "gpt_bigcode", "n_embd": 6144, "n_layer": 40, "n_head": 48, "vocab_size": 49152}
STARCODER |= {"n_positions": 8192, "n_inner": 24576}


@pytest.mark.parametrize(
    ("config", "params"),
    [
        # What Hugging Face prints for bloom-560m, bloom-7b1, pythia-160m, pythia-6.9b, mpt-7b, opt-125m, opt-1.3b,
        # starcoder2-3b, starcoder2-7b, gemma-2b, gemma-7b: configs of families beside those of the presets.
        ({"model_type": "bloom", "n_embed": 1024, "n_layer": 24, "n_head": 16, "vocab_size": 250880}, 559_214_592),
        (sized("bloom", 4096, 30, 32, 250880), 7_069_016_064),
        (sized("gpt_neox", 768, 12, 12, 50304, intermediate_size=3072), 162_322_944),
        (sized("gpt_neox", 4096, 32, 32, 50432, intermediate_size=16384), 6_857_302_016),
        (MPT | {"vocab_size": 50432, "no_bias": True, "attn_config": {"alibi": True}}, 6_649_286_656),
        (sized("opt", 768, 12, 12, 50272, ffn_dim=3072, max_position_embeddings=2048), 125_239_296),
        (OPT, 1_315_758_080),
        (sized("starcoder2", 3072, 30, 24, 49152, num_key_value_heads=2, intermediate_size=12288), 3_030_371_328),
        (sized("starcoder2", 4608, 32, 36, 49152, num_key_value_heads=4, intermediate_size=18432), 7_173_923_840),
        (sized("gemma", 2048, 18, 8, 256000, **MULTI_QUERY, intermediate_size=16384), 2_506_172_416),
        (sized("gemma", 3072, 28, 16, 256000, head_dim=256, intermediate_size=24576), 8_537_680_896),
        # Likewise for phi-2, gemma-3-1b, command-r-plus, OLMo-2 7B, OLMoE 1B-7B, Phi-3.5-MoE, stablelm-2-1.6b,
        # gpt-neo-2.7B, starcoder, gpt-j-6b, with the keys of their config.json.
        (sized("phi", 2560, 32, 32, 51200, intermediate_size=10240), 2_779_683_840),
        (sized("gemma3_text", 1152, 26, 4, 262144, num_key_value_heads=1, intermediate_size=6912), 999_885_952),
        (
            sized("cohere", 12288, 64, 96, 256000, num_key_value_heads=8, intermediate_size=33792, use_qk_norm=True),
            103_810_674_688,
        ),
        (sized("olmo2", 4096, 32, 32, 100352, intermediate_size=11008), 7_298_617_344),
        (sized("olmoe", 2048, 16, 16, 50304, num_experts=64, **EIGHT, intermediate_size=1024), 6_919_161_856),
        (sized("phimoe", 4096, 32, 32, 32064, **PHI_MOE, attention_bias=True, lm_head_bias=True), 41_873_153_344),
        (sized("stablelm", 2048, 24, 32, 100352, intermediate_size=5632, use_qkv_bias=True), 1_644_515_328),
        (GPT_NEO, 2_651_307_520),
        (STARCODER, 15_517_456_384),
        ({"model_type": "gptj", "n_embd": 4096, "n_layer": 28, "n_head": 16, "vocab_size": 50400}, 6_050_882_784),
    ],
    ids=lambda value: value["model_type"] if isinstance(value, dict) else None,
)
def test_configs_of_other_families_have_the_published_counts(config, params):
    assert total_params(from_hf_config(config)) == params


def test_what_a_family_fixes_beside_its_config():
    gpt, neox, bloom = preset("gpt2"), preset("gpt-neox-20b"), preset("bloom-176b")
    assert (gpt.positions, gpt.position_embeddings) == ("learned", 1024)
    assert (gpt.hidden_act, gpt.gated_ffn) == ("gelu_new", False)
    assert (gpt.norm, gpt.norm_bias, gpt.attention_bias, gpt.attention_out_bias, gpt.mlp_bias) == ("layer", *[True] * 4)
    assert (neox.positions, neox.parallel_residual, neox.norms_per_layer) == ("rotary", True, 2)
    assert (bloom.positions, bloom.embedding_norm, bloom.position_embeddings) == ("alibi", True, 0)


def test_nemotron_grok_gemma_and_falcon():
    nemotron, grok, gemma = preset("nemotron-4-340b"), preset("grok-1"), preset("gemma2-9b")
    assert (nemotron.hidden_act, nemotron.gated_ffn) == ("relu2", False)
    assert (nemotron.norm, nemotron.norm_bias, nemotron.mlp_bias) == ("layer", True, False)
    assert (grok.hidden_act, grok.gated_ffn, grok.norm, grok.norms_per_layer) == ("gelu", True, "rms", 4)
    assert [gemma.window(layer) for layer in range(3)] == [4096, None, 4096]
    falcons = [preset(name) for name in ("falcon-7b", "falcon-40b")]
    assert [(falcon.num_key_value_heads, falcon.norms_per_layer) for falcon in falcons] == [(1, 1), (8, 2)]


def test_mpt_positions_and_biases():
    spec = from_hf_config(MPT)
    bare = from_hf_config(MPT | {"no_bias": True, "attn_config": {"alibi": True, "kv_n_heads": 8}})
    rotary = from_hf_config(MPT | {"attn_config": {"rope": True}})
    assert (spec.positions, spec.position_embeddings, spec.norm_bias, spec.mlp_bias) == ("learned", 2048, True, True)
    assert (bare.positions, bare.position_embeddings, bare.norm_bias, bare.mlp_bias) == ("alibi", 0, False, False)
    assert (bare.num_key_value_heads, bare.norm, bare.attention_bias) == (8, "layer", False)
    assert (rotary.positions, rotary.position_embeddings) == ("rotary", 0)


def test_opt_learns_two_positions_more():
    assert from_hf_config(OPT).position_embeddings == 2050


def test_a_key_may_go_by_llamas_name_or_the_familys_own():
    """Llama's counts where a config has both, so that overrides need only one set of names."""
    ours = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "position_embeddings": 1024}
    rest = {key: value for key, value in GPT2.items() if not key.startswith("n_")}
    assert from_hf_config(rest | ours | {"max_position_embeddings": 1024}) == from_hf_config(GPT2)
    assert preset("gpt2", overrides={"num_hidden_layers": 4}) == preset("gpt2", overrides={"n_layer": 4})
    with pytest.raises(UserError, match=r"n_layers = 4: .*did you mean n_layer\?"):
        preset("gpt2", overrides={"n_layers": 4})


KNOWN = r"not modelled: {}; docs/models.md lists what is, and model.unknown = 'approximate' prices it as if .* Llama$"


@pytest.mark.parametrize(
    ("config", "sign", "why"),
    [
        ({"model_type": "xlstm", "num_blocks": 32}, "model_type = 'xlstm'", "state-space or recurrent"),
        ({"model_type": "zamba2", "num_mem_blocks": 2}, "model_type = 'zamba2'", "layers that share weights"),
        (LLAMA | {"model_type": "new", "hybrid_override_pattern": "M-M*"}, "hybrid_override_pattern", "state-space"),
        (LLAMA | {"model_type": "new", "mamba_d_conv": 4}, "mamba_d_conv = 4", "state-space"),
        ({"model_type": "rwkv6"}, "model_type = 'rwkv6'", "state-space or recurrent"),
        ({"model_type": "recurrent_gemma", "lru_width": 2560}, "model_type", "state-space or recurrent"),
        ({"model_type": "t5gemma", "d_model": 512, "num_heads": 8}, "model_type = 't5gemma'", "encoder and decoder"),
        (LLAMA | {"model_type": "new", "is_encoder_decoder": True}, "is_encoder_decoder = True", "encoder and decoder"),
        ({"model_type": "deberta", "type_vocab_size": 2}, "model_type = 'deberta'", "an encoder"),
        (LLAMA | {"model_type": "new", "type_vocab_size": 2}, "type_vocab_size = 2", "an encoder"),
        (LLAMA | {"model_type": "cpmant"}, "model_type = 'cpmant'", "a decoder whose norms, biases or layers differ"),
        (LLAMA | {"text_config": {"hidden_size": 4096}}, "text_config", "towers for other media"),
        (DEEPSEEK | {"index_topk": 2048}, "index_topk = 2048", "another kind of attention"),
        (LLAMA | {"linear_num_value_heads": 48}, "linear_num_value_heads = 48", "another kind of attention"),
    ],
)
def test_what_cannot_be_sized_is_one_line_that_says_what_can(config, sign, why):
    with pytest.raises(UserError, match=f"^m: {sign}.*{KNOWN.format(why + '.*')}") as error:
        from_hf_config(config, where="m")
    assert len(error.value.faults) == 1


ZAMBA = LLAMA | {"model_type": "zamba2", "num_mem_blocks": 2}


def test_what_is_not_modelled_can_count_as_llamas():
    spec = from_hf_config(ZAMBA, where="m", approximate=True)
    assert total_params(spec) == total_params(from_hf_config(LLAMA))
    assert (spec.architecture, spec.assumptions[0]) == (
        "approximate",
        "model_type = 'zamba2': not modelled: layers that share weights, and priced as if built like Llama",
    )


def test_a_model_of_unknown_media_counts_as_its_text():
    spec = from_hf_config({"model_type": "new", "text_config": LLAMA, "vision_config": {}}, approximate=True)
    assert total_params(spec) == total_params(from_hf_config(LLAMA))


def test_what_is_missing_is_missing_all_the_same():
    with pytest.raises(UserError, match=r"^m: vocab_size = None: missing"):
        from_hf_config({key: value for key, value in ZAMBA.items() if key != "vocab_size"}, "m", approximate=True)


def test_signs_that_say_no_are_none():
    assert from_hf_config(LLAMA | {"is_encoder_decoder": False, "type_vocab_size": 0}) == from_hf_config(LLAMA)


@pytest.mark.parametrize(
    ("config", "changes", "message"),
    [
        (LLAMA, {"hidden_size": None}, "hidden_size = None: missing; a whole number from 1"),
        (LLAMA, {"hidden_size": "4096"}, "hidden_size = '4096': a whole number"),
        (LLAMA, {"hidden_size": 4096.5}, r"hidden_size = 4096.5: a whole number"),
        (LLAMA, {"hidden_size": True}, "hidden_size = True: a whole number"),
        (LLAMA, {"hidden_size": float("nan")}, "hidden_size = nan: a whole number"),
        (LLAMA, {"vocab_size": -1}, "vocab_size = -1: a whole number"),
        (LLAMA, {"num_hidden_layers": 10**9}, "num_hidden_layers = 1000000000: a whole number from 1 to 1000"),
        (LLAMA, {"num_attention_heads": 33}, "num_attention_heads = 33: a divisor of hidden_size = 4096"),
        (LLAMA, {"num_key_value_heads": 5}, "num_key_value_heads = 5: a divisor of num_attention_heads = 32"),
        (LLAMA, {"tie_word_embeddings": "no"}, "tie_word_embeddings = 'no': true or false"),
        (LLAMA, {"torch_dtype": "int3"}, "torch_dtype = 'int3': one of bfloat16, float16, float32"),
        (LLAMA, {"model_type": 3}, "model_type = 3: a text"),
        (LLAMA, {"hidden_size": 2**31, "head_dim": 2**31}, "parameters in all; at most"),
        (LLAMA, {"hidden_act": "maxout"}, "hidden_act = 'maxout': one of silu, swish"),
        (LLAMA, {"norm": "batch"}, "norm = 'batch': one of rms, layer"),
        (LLAMA, {"positions": "sinus"}, "positions = 'sinus': one of rotary, learned, alibi, none"),
        (LLAMA, {"shared_norm": True}, "shared_norm = True: false without parallel_residual"),
        (GPT2, {"n_embd": None}, "n_embd = None: missing; a whole number from 1"),
        (GPT2, {"n_embd": 768.0}, "n_embd = 768.0: a whole number"),
        (GPT2, {"n_head": 7}, "n_head = 7: a divisor of hidden_size = 768"),
        (GPT2, {"n_positions": None}, "n_positions = None: missing"),
        (MPT, {"attn_config": {"kv_n_heads": 5}}, r"attn_config\.kv_n_heads = 5: a divisor"),
        (MPT, {"attn_config": {"qk_ln": True}}, r"attn_config\.qk_ln = True: not modelled; False"),
        (MPT, {"attn_config": [1]}, r"attn_config = \[1\]: an object"),
        (MPT, {"ffn_config": {"ffn_type": "mptglu"}}, r"ffn_config\.ffn_type = 'mptglu': not modelled; 'mptmlp'"),
        (OPT, {"word_embed_proj_dim": 512}, "word_embed_proj_dim = 512: hidden_size = 2048"),
        (OPT, {"do_layer_norm_before": False}, "do_layer_norm_before = False: not modelled; True"),
        (LLAMA, {"quantization_config": {"quant_method": "gptq"}}, 'quantization_config = .*"fp8" with a weight_block'),
        (LLAMA, {"quantization_config": {"quant_method": "fp8"}}, "quantization_config"),
        (QWEN_MOE, {"num_experts": None}, "num_experts = None: missing"),
        (QWEN_MOE, {"num_experts_per_tok": 129}, "num_experts_per_tok = 129: at most num_experts = 128"),
        (QWEN_MOE, {"mlp_only_layers": 3}, "mlp_only_layers = 3: a list"),
        (DEEPSEEK, {"kv_lora_rank": None}, "kv_lora_rank = None: missing"),
        (DEEPSEEK, {"q_lora_rank": 0}, "q_lora_rank = 0: a whole number"),
        (GLM_DSA, {"q_lora_rank": None}, "q_lora_rank = None: a whole number: the indexer reads"),
        (GLM_DSA, {"index_n_heads": None}, "index_n_heads = None: missing"),
        (GLM_DSA, {"indexer_types": ["full"]}, "indexer_types = .*full or shared for each of 78 layers"),
        (QWEN_LINEAR, {"linear_key_head_dim": 0}, "linear_key_head_dim = 0: a whole number"),
        (
            QWEN_LINEAR,
            {"layer_types": ["chunked_attention"] * 64},
            "layer_types = .*one of attention, full_attention, sliding_attention, linear_attention",
        ),
    ],
)
def test_a_bad_key_is_one_line_with_place_key_and_value(config, changes, message):
    with pytest.raises(UserError, match=message) as error:
        from_hf_config(config | changes, where="m/config.json")
    assert len(error.value.faults) == len(str(error.value).splitlines()) == 1
    assert str(error.value).startswith("m/config.json: ")


def test_all_faults_are_named_at_once():
    with pytest.raises(UserError) as error:
        from_hf_config({"model_type": "llama"})
    keys = [line.split()[1] for line in error.value.faults]
    assert sorted(keys) == sorted(
        ["hidden_size", "num_attention_heads", "num_hidden_layers", "intermediate_size", "vocab_size"]
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not JSON"),
        (b'{"hidden_size": 40', "is not JSON"),
        (b"hidden_size = 4096", "is not JSON"),
        (b"\x89PNG\r\n\x1a\n\xff\xfe", "is not text"),
        (b"[" * 100_000, "is not JSON"),
        (b'{"hidden_size": ' + b"9" * 5000 + b"}", "holds a number of more than 1,000 digits"),
        (b"[1, 2]", "holds list, not an object"),
        (b"null", "holds NoneType, not an object"),
        (b"{}", "hidden_size = None: missing"),
    ],
)
def test_a_file_that_is_no_config(tmp_path, content, message):
    file = tmp_path / "config.json"
    file.write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        load_hf_config(file)
    assert all(line.startswith(f"{file}: ") for line in error.value.faults)


def test_a_place_without_a_config(tmp_path):
    with pytest.raises(UserError, match=r"config\.json: no such file"):
        load_hf_config(tmp_path)
    with pytest.raises(UserError, match="nowhere: no such file"):
        load_hf_config(tmp_path / "nowhere")
    (tmp_path / "config.json").mkdir()
    with pytest.raises(UserError, match=r"config\.json: is a folder; expected a JSON file"):
        load_hf_config(tmp_path)


@pytest.mark.parametrize(
    ("config", "changes", "message"),
    [
        (LLAMA, {"num_hidden_layers": 10**7}, "num_hidden_layers = 10000000: a whole number from 1 to 1000"),
        (QWEN_MOE, {"num_experts": 10**6}, "num_experts = 1000000: a whole number from 1 to 4096"),
        (QWEN_MOE, {"num_experts": 4096, "num_hidden_layers": 1000}, "4096000 routed experts in all layers; at most"),
        (DEEPSEEK, {"n_routed_experts": 4096, "num_nextn_predict_layers": 1000}, "routed experts in all layers"),
        (DEEPSEEK, {"num_nextn_predict_layers": 10**9}, "num_nextn_predict_layers = 1000000000: a whole number"),
        (LLAMA, {"layer_types": ["x"] * 10**6}, "layer_types = .*: sliding_attention or full_attention for each of"),
        (LLAMA, {"vocab_size": 10**4000}, r"vocab_size = 10+\.\.\.: a whole number"),
    ],
)
def test_an_absurd_size_is_one_short_line(config, changes, message):
    with pytest.raises(UserError, match=message) as error:
        from_hf_config(config | changes, where="m/config.json")
    assert len(str(error.value)) < 200


VALUES = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.lists(st.integers(), max_size=3)
)


@given(st.sampled_from(preset_names()), st.data())
def test_any_change_is_read_or_refused(name, data):
    config = preset_config(name)
    key = data.draw(st.sampled_from(sorted(config)))
    changed = config | {key: data.draw(VALUES)}
    try:
        assert total_params(from_hf_config(changed, where="here")) > 0
    except UserError as error:
        assert {line[:6] for line in error.faults} == {"here: "}  # noqa: PT017
