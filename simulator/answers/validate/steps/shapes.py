"""The shape columns of a row as the keys of a Hugging Face config."""

from typing import Any

from .cells import CellError, Cells

GATED = ("swiglu", "geglu")
MOST_LAYERS = 10_000
_ACTIVATIONS = {"swiglu": "silu", "geglu": "gelu", "gelu": "gelu_new", "squared_relu": "relu2"}
ARCHITECTURES = ("dense", "moe", "moe_mla", "moe_swa")


def config_of(cells: Cells) -> dict[str, Any]:
    """Llama's keys; those of GPT where its activation says so, and of the mixture of experts that the row names.

    Raises:
        CellError: a size is missing, or the architecture is none that runcast knows.
    """
    arch = cells.text("arch") or "dense"
    if arch not in ARCHITECTURES:
        raise CellError(f"arch = {arch!r}: expected one of {', '.join(ARCHITECTURES)}")
    found = _attention(cells) | _feed_forward(cells)
    if arch == "moe":
        return found | _experts(cells)
    if arch == "moe_mla":
        return {key: value for key, value in found.items() if key not in _NOT_LATENT} | _latent(cells)
    return found | _sliding(cells) if arch == "moe_swa" else found


_NOT_LATENT = ("head_dim", "num_key_value_heads")


def _attention(cells: Cells) -> dict[str, Any]:
    hidden, heads = cells.positive("hidden"), cells.positive("heads")
    return {
        "model_type": "llama", "hidden_size": hidden, "num_hidden_layers": cells.positive("layers", most=MOST_LAYERS),
        "num_attention_heads": heads, "num_key_value_heads": cells.whole("kv_heads", heads),
        "head_dim": cells.whole("head_dim", hidden // heads), "vocab_size": cells.whole("vocab"),
        "tie_word_embeddings": cells.flag("tied_emb", False),
    }  # fmt: skip


def _feed_forward(cells: Cells) -> dict[str, Any]:
    """Without a gate the layers are GPT's: LayerNorm, biases, learned positions (squared ReLU: Nemotron's)."""
    kind = cells.text("act_fn") or "swiglu"
    if kind not in _ACTIVATIONS:
        raise CellError(f"act_fn = {kind!r}: expected one of {', '.join(_ACTIVATIONS)}")
    found: dict[str, Any] = {"intermediate_size": cells.whole("ffn_hidden"), "hidden_act": _ACTIVATIONS[kind]}
    if kind in GATED:
        return found
    found |= {"gated_ffn": False, "norm": "layer", "norm_bias": True}
    if kind == "gelu":
        found |= {"attention_bias": True, "mlp_bias": True, "positions": "learned",
                  "position_embeddings": cells.whole("seq_len")}  # fmt: skip
    return found


def _experts(cells: Cells) -> dict[str, Any]:
    return {
        "model_type": "qwen3_moe", "num_experts": cells.whole("n_experts"), "num_experts_per_tok": cells.whole("topk"),
        "moe_intermediate_size": cells.whole("moe_ffn"),
        "mlp_only_layers": list(range(cells.whole("n_dense_layers", 0))),
        "shared_expert_intermediate_size": cells.whole("shared_expert_ffn", 0),
    }  # fmt: skip


def _latent(cells: Cells) -> dict[str, Any]:
    found = {
        "model_type": "deepseek_v3", "n_routed_experts": cells.whole("n_experts"),
        "num_experts_per_tok": cells.whole("topk"), "moe_intermediate_size": cells.whole("moe_ffn"),
        "first_k_dense_replace": cells.whole("n_dense_layers", 0),
        "shared_expert_intermediate_size": cells.whole("shared_expert_ffn", 0),
        "kv_lora_rank": cells.whole("mla_kv_lora"), "qk_nope_head_dim": cells.whole("mla_qk_nope"),
        "qk_rope_head_dim": cells.whole("mla_qk_rope"), "v_head_dim": cells.whole("mla_v"),
    }  # fmt: skip
    queries = cells.whole("mla_q_lora", 0)
    return found | ({"q_lora_rank": queries} if queries else {})


def _sliding(cells: Cells) -> dict[str, Any]:
    """GPT-OSS: every second layer sees a window of 128 tokens (its config.json)."""
    return {"model_type": "gpt_oss", "num_local_experts": cells.whole("n_experts"),
            "num_experts_per_tok": cells.whole("topk"), "intermediate_size": cells.whole("moe_ffn"),
            "sliding_window": 128}  # fmt: skip
