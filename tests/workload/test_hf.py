"""Reading Hugging Face configs: families, and one clear line for each fault."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator.errors import UserError
from runcast.simulator.workload import Fp8, from_hf_config, load_hf_config, preset, preset_config, preset_names

LLAMA = preset_config("llama3-8b")
QWEN_MOE = preset_config("qwen3-30b-a3b")
DEEPSEEK = preset_config("deepseek-v3")
GLM_DSA = preset_config("glm-5")
QWEN_LINEAR = preset_config("qwen3.5-27b")


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
    assert from_hf_config(gpt3).total_params() == 96 * (12 * h * h + 13 * h) + (50257 + 2048 + 2) * h


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
        (LLAMA, {"text_config": {"hidden_size": 4096}}, "text_config = .*not modelled"),
        (LLAMA, {"hybrid_override_pattern": "M-M*"}, "hybrid_override_pattern = 'M-M\\*': not modelled"),
        (LLAMA, {"quantization_config": {"quant_method": "gptq"}}, 'quantization_config = .*"fp8" with a weight_block'),
        (LLAMA, {"quantization_config": {"quant_method": "fp8"}}, "quantization_config"),
        (QWEN_MOE, {"num_experts": None}, "num_experts = None: missing"),
        (QWEN_MOE, {"num_experts_per_tok": 129}, "num_experts_per_tok = 129: at most num_experts = 128"),
        (QWEN_MOE, {"mlp_only_layers": 3}, "mlp_only_layers = 3: a list"),
        (DEEPSEEK, {"kv_lora_rank": None}, "kv_lora_rank = None: missing"),
        (DEEPSEEK, {"q_lora_rank": 0}, "q_lora_rank = 0: a whole number"),
        (DEEPSEEK, {"index_topk": 2048}, "index_topk = 2048: not modelled"),
        (GLM_DSA, {"q_lora_rank": None}, "q_lora_rank = None: a whole number: the indexer reads"),
        (GLM_DSA, {"index_n_heads": None}, "index_n_heads = None: missing"),
        (GLM_DSA, {"indexer_types": ["full"]}, "indexer_types = .*full or shared for each of 78 layers"),
        (LLAMA, {"linear_num_value_heads": 48}, "linear_num_value_heads = 48: not modelled"),
        (QWEN_LINEAR, {"linear_key_head_dim": 0}, "linear_key_head_dim = 0: a whole number"),
        (
            QWEN_LINEAR,
            {"layer_types": ["sliding_attention"] * 64},
            "layer_types = .*linear_attention or full_attention",
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
        (b'{"hidden_size": ' + b"9" * 5000 + b"}", "is not JSON"),
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
        assert from_hf_config(changed, where="here").total_params() > 0
    except UserError as error:
        assert {line[:6] for line in error.faults} == {"here: "}  # noqa: PT017
