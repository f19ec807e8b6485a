"""What families of decoders differ in: norms, residual streams, gates, heads, windows, and layers of their own."""

import pytest
from runcast.simulator.base.errors import UserError
from runcast.simulator.models import active_params, from_hf_config, total_params
from runcast.simulator.models.blocks import embedding, head, layer
from runcast.simulator.models.kernels import flop, visible
from runcast.simulator.models.shard import Shard
from runcast.simulator.models.tensors import weights

from .built import read_models, reason

CONFIGS = {model.model_type: model.config for model in read_models()}
SHARD = Shard(1, 4096)


def spec_of(model_type, **changes):
    return from_hf_config(CONFIGS[model_type] | changes)


def kernels(spec, number=0, shard=SHARD):
    return {kernel.name: kernel for kernel in layer(spec, number, shard).all}


def norms(model_type):
    return [kernel.name for kernel in layer(spec_of(model_type), 0, SHARD).all if kernel.kind == "rms_norm"]


@pytest.mark.parametrize(
    ("model_type", "names"),
    [
        ("llama", ["input_norm", "mlp_norm"]),
        ("olmo", ["input_norm", "mlp_norm"]),
        ("olmo2", ["qk_norm", "post_norm", "post_norm"]),
        ("gemma3_text", ["input_norm", "qk_norm", "post_norm", "mlp_norm", "post_norm"]),
        ("cohere", ["input_norm"]),
        ("phi", ["input_norm"]),
        ("openai-gpt", ["post_norm", "post_norm"]),
        ("bitnet", ["input_norm", "attn_sub_norm", "mlp_norm", "ffn_sub_norm"]),
        ("axk1", ["input_norm", "q_norm", "kv_norm", "mlp_norm"]),
    ],
)
def test_each_norm_of_a_layer_is_a_kernel(model_type, names):
    assert norms(model_type) == names


def test_a_norm_of_what_experts_give_is_a_kernel_of_layers_with_experts():
    spec = spec_of("axk1")
    assert ["expert_norm" in kernels(spec, number) for number in (0, 1)] == [False, True]


def test_norms_without_weights_have_no_tensors():
    names = weights(spec_of("olmo")).names
    assert [name for name in names if "norm" in name] == []


def test_norms_of_heads_share_weights_or_have_their_own():
    def sizes(model_type):
        checkpoint = weights(spec_of(model_type))
        return {shape for name, shape in zip(checkpoint.names, checkpoint.shapes, strict=True) if "q_norm" in name}

    assert (sizes("qwen3"), sizes("olmo2"), sizes("llama4_text")) == ({(128,)}, {(4096,)}, set())


def test_a_head_may_lack_its_norm_and_have_a_bias_or_a_matrix_of_its_own():
    names = [
        [kernel.name for kernel in head(spec_of(each), SHARD)] for each in ("openai-gpt", "phi", "modernbert-decoder")
    ]
    assert names == [
        ["logits", "loss"],
        ["final_norm", "logits", "loss"],
        ["final_norm", "head_transform", "head_norm", "logits", "loss"],
    ]
    assert weights(spec_of("phi")).shapes[-1] == (51200,)


def test_attention_within_chunks_is_that_of_shorter_sequences():
    spec = spec_of("llama4_text", attention_chunk_size=1024)
    chunked, full = (kernels(spec, number)["attention"] for number in (0, 3))
    assert flop(full) / flop(chunked) == 4
    assert flop(chunked) == 2 * 40 * 256 * 4 * visible(1024, True, 0)


def test_llama_4_attends_within_chunks_of_8192_tokens_where_its_config_says_nothing():
    """transformers' Llama4TextConfig: attention_chunk_size, in all but every fourth layer."""
    spec = spec_of("llama4_text")
    assert [spec.window(number) for number in range(4)] == [8192, 8192, 8192, None]


def test_windows_by_pattern_where_no_list_says_which():
    def sliding(model_type):
        config = {key: value for key, value in CONFIGS[model_type].items() if key != "layer_types"}
        return [from_hf_config(config).window(number) is not None for number in range(7)]

    assert sliding("gemma3_text") == [True] * 5 + [False, True]
    assert sliding("olmo3") == [True, True, True, False] * 1 + [True, True, True]
    assert sliding("cwm") == [False, True, True, True, False, True, True]


def test_the_words_of_gpt_neo_for_kinds_of_attention():
    assert [spec_of("gpt_neo").window(number) for number in range(3)] == [None, 256, None]


def test_layers_with_a_window_have_heads_and_sinks_of_their_own():
    """MiMo-V2-Flash: keys are 192 wide, values 128; 4 heads of them in full attention, 8 in windows of 129 tokens."""
    spec = spec_of("mimo_v2_flash")
    shapes = [kernels(spec, number)["attention"].shape[2:8] for number in (0, 1)]
    assert shapes == [(64, 4, 192, 128, 1, 0), (64, 8, 192, 128, 1, 129)]
    named = [name for name in weights(spec).names if name.endswith("sinks")]
    assert len(named) == sum(spec.window(number) is not None for number in range(48)) == 39


def test_a_layer_may_have_keys_of_its_own():
    config = CONFIGS["llama"] | {"per_layer_config": {"3": {"head_dim": 256}, "05": {"intermediate_size": 1024}}}
    spec = from_hf_config(config)
    assert [kernels(spec, number)["proj"].shape for number in (0, 3, 5)] == [
        (4096, 4096, 4096),
        (4096, 4096, 8192),
        (4096, 4096, 4096),
    ]
    assert [kernels(spec, number)["down"].shape[2] for number in (0, 3, 5)] == [11008, 11008, 1024]
    assert [spec.first_alike[number] for number in range(7)] == [0, 0, 0, 3, 0, 5, 0]


def test_sizes_may_be_listed_by_layer():
    spec = from_hf_config(CONFIGS["llama"] | {"intermediate_size": [1024] * 16 + [2048] * 16})
    assert [kernels(spec, number)["down"].shape[2] for number in (15, 16)] == [1024, 2048]


def test_layers_that_share_keys_and_values_project_queries_only():
    spec = spec_of("gemma3n_text")
    assert [kernels(spec, number)["qkv"].shape[1] for number in (19, 20)] == [3072, 2048]


def test_a_gate_per_head_is_as_narrow_as_the_number_of_heads():
    per_head, per_value = spec_of("laguna"), spec_of("afmoe")
    widths = [kernels(spec)["qkv"].shape[1] for spec in (per_head, per_value)]
    assert widths == [48 * 129 + 2 * 8 * 128, 16 * 256 + 2 * 16 * 128]
    assert [kernels(spec)["output_gate"].bytes for spec in (per_head, per_value)] == [
        2 * 2 * 4096 * 48 * 128,
        3 * 2 * 4096 * 16 * 128,
    ]


def test_residual_streams_are_read_and_kept_all():
    one, four = spec_of("hy_v4", hc_mult=1), spec_of("hy_v4")
    assert [kernels(spec)["residual"].bytes for spec in (one, four)] == [3 * 2 * 4096 * 2816, 9 * 2 * 4096 * 2816]
    assert [kernels(spec)["residual"].keeps[0].bytes for spec in (one, four)] == [2 * 4096 * 2816, 8 * 4096 * 2816]
    assert ("attn_streams" in kernels(one), "attn_streams" in kernels(four)) == (False, True)


def test_experts_beside_a_dense_network_have_the_published_counts():
    """DBRX to the last digit; Arctic has 479 B, LongCat-Flash 560 B, of which a token passes 27 B on average."""
    dbrx = {"model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40, "vocab_size": 100352}
    dbrx |= {"attn_config": {"kv_n_heads": 8}}
    dbrx |= {"ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4}}
    arctic = {"model_type": "arctic", "hidden_size": 7168, "num_hidden_layers": 35, "num_attention_heads": 56}
    arctic |= {"num_key_value_heads": 8, "intermediate_size": 4864, "num_local_experts": 128, "num_experts_per_tok": 2}
    arctic |= {"vocab_size": 32000}
    longcat = spec_of("longcat_flash")
    assert total_params(from_hf_config(dbrx)) == 131_596_523_520
    assert round(total_params(from_hf_config(arctic)) / 1e9) == 479
    assert [int(count / 1e9) for count in (total_params(longcat), active_params(longcat))] == [560, 27]


def test_short_convolutions_around_attention():
    """Inkling's run over keys, values and outputs; Zaya's over queries and keys, whose heads a second one mixes."""
    inkling, zaya = kernels(spec_of("inkling_text"), 5), kernels(spec_of("zaya"))
    assert inkling["convolution"].bytes == 2 * 2 * 4096 * 2 * 8 * 128
    assert inkling["branch_convolution"].bytes == 2 * 2 * 4096 * 6144
    assert inkling["qkv"].shape[1] == 64 * (128 + 16) + 2 * 8 * 128
    assert zaya["mix_heads"].shape == (4096 * (8 + 2), 128, 2 * 128)
    assert [zaya[name].shape[1:] for name in ("router_down", "router_within", "router")] == [
        (256, 2048),
        (512, 256),
        (17, 256),
    ]


def test_lightning_attention_in_blocks():
    """MiniMax-Text-01 has 456,089,655,296 parameters; of 8 layers 7 are linear, in blocks of 256 tokens."""
    config = {"model_type": "minimax", "hidden_size": 6144, "num_hidden_layers": 80, "num_attention_heads": 64}
    config |= {"head_dim": 128, "num_key_value_heads": 8, "intermediate_size": 9216, "num_local_experts": 32}
    config |= {"num_experts_per_tok": 2, "vocab_size": 200064, "attn_type_list": [0, 0, 0, 0, 0, 0, 0, 1] * 10}
    spec = from_hf_config(config)
    linear = kernels(spec)
    assert total_params(spec) == 456_089_655_296
    assert [flop(linear[name]) for name in ("blocks", "state")] == [
        4096 * 64 * 2 * 256 * 256,
        4096 * 64 * 2 * 128 * 256,
    ]
    assert ("attention" in linear, "attention" in kernels(spec, 7)) == (False, True)


def test_compressed_attention_reads_a_window_and_entries():
    """DeepSeek-V4 at 8,192 tokens: an entry for 128 tokens in layer 0, and in layer 3 512 of those for 4 tokens."""
    shard = Shard(1, 8192)
    all_entries, picked = (kernels(spec_of("deepseek_v4"), number, shard) for number in (0, 3))
    pair = 2 * 64 * (512 + 512)
    assert [flop(layer["attention"]) for layer in (all_entries, picked)] == [pair * 128 * (8192 - 64)] * 2
    assert flop(all_entries["attention_entries"]) == pair * 8192**2 / 2 / 128
    assert flop(picked["attention_entries"]) == pair * 512 * (8192 - 4 * 512 / 2)
    assert "index_scores" not in all_entries
    assert picked["index_scores"].shape[1:] == (8192 * 64, 128)
    assert flop(picked["index_scores"]) == 2 * 64 * 128 * 8192 * 8192 / 2 / 4


def test_embeddings_of_each_layers_own_are_looked_up_once_and_read_by_every_layer():
    spec = spec_of("gemma4_text")
    looked_up = {kernel.name: kernel for kernel in embedding(spec, SHARD)}["embed_per_layer"]
    assert looked_up.bytes == 2 * 2 * 4096 * 30 * 256
    assert kernels(spec)["per_layer_out"].shape == (4096, 2304, 256)


def test_dense_layers_may_be_wider_than_experts():
    spec = spec_of("llama4_text", interleave_moe_layer_step=2, moe_layers=None)
    assert (spec.moe.layers[:2], spec.intermediate_size, spec.moe.moe_intermediate_size) == ((1, 3), 16384, 8192)


def test_experts_by_a_list_of_layers():
    dense = ["dense"] * 2 + ["sparse"] * 38
    assert spec_of("laguna", mlp_layer_types=dense).moe.layers == tuple(range(2, 40))
    assert spec_of("mimo_v2_flash", mlp_layer_types=None, moe_layer_freq=[0, 0, 1] + [1] * 45).moe.layers[0] == 2


NEWCOMER = CONFIGS["llama"] | {"model_type": "newcomer", "memory_dim": 64, "use_cache": True, "num_labels": 2}


def test_an_unknown_type_with_sizes_of_its_own_is_refused():
    refused = "model_type = 'newcomer': not known, nor what memory_dim means; docs/models.md lists what is"
    with pytest.raises(UserError, match=refused):
        from_hf_config(NEWCOMER)


@pytest.mark.parametrize(
    ("switch", "is_read"),
    [("residual_moe", False), ("use_memory", False), ("scale_attn_weights", True), ("use_logn_attn", True)],
)
def test_an_unknown_type_with_a_switch_of_its_structure_is_refused(switch, is_read):
    config = {**CONFIGS["llama"], "model_type": "newcomer", switch: True}

    assert (f"nor what {switch} means" in reason(config), reason(config) == "") == (not is_read, is_read)


def test_a_window_of_minus_one_is_none():
    config = {**CONFIGS["llama"], "model_type": "newcomer", "sliding_window_size": -1}

    assert from_hf_config(config).sliding_window is None


def test_an_unknown_type_with_sizes_of_its_own_is_priced_as_llama_where_a_user_says_so():
    spec = from_hf_config(NEWCOMER, approximate=True)
    assert spec.architecture == "approximate"
    assert spec.assumptions == (
        "model_type = 'newcomer': not known, nor what memory_dim means, and priced as if built like Llama",
        "keys of sizes that are not read: memory_dim",
    )


def test_other_names_of_a_key_that_is_read_are_no_sizes_of_an_unknown_type():
    experts = dict.fromkeys(("num_experts", "num_local_experts"), 8) | {"num_experts_per_tok": 2, "moe_top_k": 2}
    assert from_hf_config({**CONFIGS["llama"], "model_type": "newcomer", **experts}).moe.n_routed_experts == 8


def test_a_wrong_size_of_a_known_layer_is_a_fault_whatever_a_user_says():
    with pytest.raises(UserError, match="linear_num_key_heads = 0: a whole number"):
        from_hf_config({**CONFIGS["qwen3_next"], "linear_num_key_heads": 0}, approximate=True)


def test_an_unknown_type_is_off_as_such_types_are():
    assert from_hf_config({**CONFIGS["llama"], "model_type": "newcomer"}).architecture == "unknown"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"per_layer_config": {"first": {}}},
            "per_layer_config = .*: an object of objects, by the number of the layer",
        ),
        ({"per_layer_config": {"1": {"head_dim": 0}}}, "head_dim = 0: a whole number"),
        ({"intermediate_size": [1024]}, "intermediate_size = .*: one for each of 32 layers"),
        ({"num_kv_shared_layers": 33}, "num_kv_shared_layers = 33: a whole number from 0 to 32"),
        ({"sliding_window": 64, "sliding_window_pattern": "LLG"}, "sliding_window_pattern = 'LLG': a whole number"),
    ],
)
def test_a_bad_key_of_layers_is_one_line(changes, message):
    with pytest.raises(UserError, match=message) as error:
        from_hf_config(CONFIGS["llama"] | changes, where="m")
    assert len(error.value.faults) == 1
