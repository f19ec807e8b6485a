"""FLOP of the forward of small models, as torch counts them where transformers runs them on the CPU.

`python -m tests.workload.counted` writes counted.jsonl where transformers is installed: a line for each model. It is no
dependency of the tests; see test_counted.py. Convolutions over tokens are left out: we price them by their bytes.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

from runcast.simulator.models import read_keys

from .built import as_saved, class_name, transformers

FILE = Path(__file__).with_name("counted.jsonl")
BATCH, SEQ = 2, 128
_PLAIN = {
    "hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 256, "vocab_size": 512,
    "max_position_embeddings": 512, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_LLAMA = {**_PLAIN, "num_key_value_heads": 2, "head_dim": 32}
_GPT = {"n_embd": 128, "n_layer": 2, "n_head": 4, "vocab_size": 512, "n_positions": 512}
_EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
_LOCAL = {"num_local_experts": 4, "num_experts_per_tok": 2}
_MOE, _MIXTRAL, _SELECTIVE = {**_LLAMA, **_EXPERTS}, {**_LLAMA, **_LOCAL}, {**_PLAIN, "state_size": 16}
_ROUTED = {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "n_shared_experts": 1}
_GROUPS = {"n_group": 2, "topk_group": 1, "first_k_dense_replace": 1}
_LATENT = {"kv_lora_rank": 32, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32}
_MLA = {**_LLAMA, **_LATENT, **_ROUTED, **_GROUPS, "q_lora_rank": 48, "num_key_value_heads": 4, "head_dim": 16}
_DELTA = {
    "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 32, "linear_value_head_dim": 32,
    "layer_types": ["linear_attention"] * 3 + ["full_attention"],
}  # fmt: skip
_MAMBA = {
    "mamba_n_heads": 8, "mamba_d_head": 32, "mamba_n_groups": 1, "mamba_d_state": 32, "mamba_chunk_size": 32,
}  # fmt: skip
_LINEAR = {
    "head_dim": 32, "num_heads": 4, "short_conv_kernel_size": 4, "kda_layers": [1, 2, 3], "full_attn_layers": [4],
}  # fmt: skip
_CONVOLVED = ["conv", "conv", "full_attention", "conv"]
_INDEXED = {**_MLA, "kv_lora_rank": 48, "v_head_dim": 24, "index_n_heads": 4, "index_head_dim": 32, "index_topk": 32}
_CLIP = {
    "model_type": "clip_vision_model", "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 2,
    "intermediate_size": 128, "image_size": 56, "patch_size": 14,
}  # fmt: skip
FRAMES, IMAGE_TOKEN = 128, 500
CONFIGS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "granite", "phi", "phi3"), _LLAMA),
    **dict.fromkeys(("olmo", "olmo2", "olmo3", "stablelm", "starcoder2", "cohere", "cohere2", "glm", "glm4"), _LLAMA),
    **dict.fromkeys(("nemotron", "smollm3", "exaone4", "ernie4_5", "helium", "seed_oss", "hunyuan_v1_dense"), _LLAMA),
    **dict.fromkeys(("arcee", "apertus", "bitnet", "ministral", "ministral3", "vaultgemma", "cwm", "jais2"), _LLAMA),
    **dict.fromkeys(("gemma4_text", "nanochat", "doge"), _LLAMA),
    **dict.fromkeys(("persimmon", "gpt_neox", "biogpt", "bert", "roberta", "electra", "ernie", "modernbert"), _PLAIN),
    **dict.fromkeys(("gpt2", "gpt_bigcode"), _GPT),
    "gptj": {**_GPT, "rotary_dim": 16},
    "codegen": {**_GPT, "rotary_dim": 16},
    "gpt_neo": {**_PLAIN, "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]],
                "window_size": 32, "num_hidden_layers": 2},
    "opt": {**_PLAIN, "ffn_dim": 256, "word_embed_proj_dim": 128},
    "bloom": {"hidden_size": 128, "n_layer": 4, "n_head": 4, "vocab_size": 512},
    "mpt": {"d_model": 128, "n_heads": 4, "n_layers": 4, "vocab_size": 512, "max_seq_len": 512},
    "distilbert": {"dim": 128, "n_layers": 2, "n_heads": 4, "hidden_dim": 256, "vocab_size": 512},
    "gemma3_text": {**_LLAMA, "sliding_window": 32, "layer_types": ["sliding_attention"] * 3 + ["full_attention"]},
    "gemma3n_text": {
        **_LLAMA, "vocab_size_per_layer_input": 512, "hidden_size_per_layer_input": 32, "num_kv_shared_layers": 2,
        "laurel_rank": 16, "layer_types": ["sliding_attention", "full_attention"] * 2, "intermediate_size": [256] * 4,
        "activation_sparsity_pattern": [0.0] * 4,
    },
    "gpt_oss": {**_LLAMA, **_LOCAL, "sliding_window": 32},
    **dict.fromkeys(("mixtral", "granitemoe", "phimoe", "minimax_m2"), _MIXTRAL),
    "granitemoeshared": {**_LLAMA, **_LOCAL, "shared_intermediate_size": 64},
    "qwen2_moe": {**_LLAMA, **_EXPERTS, "shared_expert_intermediate_size": 64},
    **dict.fromkeys(("qwen3_moe", "olmoe", "flex_olmo"), _MOE),
    "hunyuan_v1_moe": {**_LLAMA, "num_experts": 4, "moe_topk": 2},
    "ernie4_5_moe": {
        **_LLAMA, "moe_num_experts": 8, "moe_k": 2, "moe_intermediate_size": 64, "moe_num_shared_experts": 1,
    },
    "glm4_moe": {**_LLAMA, **_ROUTED, **_GROUPS},
    "llama4_text": {**_LLAMA, "num_local_experts": 1, "intermediate_size_mlp": 256, "attention_chunk_size": SEQ},
    "deepseek_v2": {**_MLA, "topk_method": "greedy"},
    **dict.fromkeys(("deepseek_v3", "glm4_moe_lite"), _MLA),
    "qwen3_next": {**_LLAMA, **_EXPERTS, **_DELTA, "shared_expert_intermediate_size": 64},
    "qwen3_5_text": {**_LLAMA, **_DELTA},
    "qwen3_5_moe_text": {**_LLAMA, **_EXPERTS, **_DELTA, "shared_expert_intermediate_size": 64},
    "olmo_hybrid": {**_LLAMA, "layer_types": _DELTA["layer_types"]},
    "kimi_linear": {
        **_LLAMA, **_LATENT, "linear_attn_config": _LINEAR, "num_key_value_heads": 4, "num_experts": 8,
        "num_experts_per_token": 2, "moe_intermediate_size": 64,
    },
    "minimax": {**_LLAMA, **_LOCAL, "layer_types": ["linear_attention", "full_attention"] * 2, "block_size": 32},
    **dict.fromkeys(("mamba", "falcon_mamba"), _SELECTIVE),
    "mamba2": {
        **_PLAIN, "state_size": 32, "num_heads": 8, "head_dim": 32, "n_groups": 2, "chunk_size": 32,
    },
    "bamba": {**_LLAMA, **_MAMBA, "attn_layer_indices": [1]},
    "granitemoehybrid": {
        **_LLAMA, **_MAMBA, **_LOCAL, "layer_types": ["mamba", "attention", "mamba", "mamba"],
        "shared_intermediate_size": 64,
    },
    "falcon_h1": {**_LLAMA, **_MAMBA, "mamba_d_ssm": 256},
    "nemotron_h": {
        **_LLAMA, **_ROUTED, "num_hidden_layers": 5, "layers_block_type": ["mamba", "moe", "mamba", "attention", "mlp"],
        "mamba_num_heads": 8, "mamba_head_dim": 32, "ssm_state_size": 32, "n_groups": 2, "chunk_size": 32,
        "moe_shared_expert_intermediate_size": 64,
    },
    "jamba": {
        **_LLAMA, "num_experts": 4, "num_experts_per_tok": 2, "attn_layer_period": 4, "attn_layer_offset": 2,
        "expert_layer_period": 2, "expert_layer_offset": 1, "use_mamba_kernels": False,
    },
    **dict.fromkeys(("deepseek_v32", "glm_moe_dsa"), _INDEXED),
    "deepseek_v4": {
        **_LLAMA, **_ROUTED, "num_key_value_heads": 1, "qk_rope_head_dim": 16, "q_lora_rank": 48, "o_groups": 2,
        "o_lora_rank": 32, "index_n_heads": 4, "index_head_dim": 32, "index_topk": 8, "sliding_window": 32,
    },
    "lfm2": {**_LLAMA, "layer_types": _CONVOLVED},
    "lfm2_moe": {**_MOE, "layer_types": _CONVOLVED, "num_dense_layers": 1},
    "t5": {
        "d_model": 128, "d_kv": 32, "d_ff": 256, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 4,
        "vocab_size": 512,
    },
    "whisper": {
        "d_model": 128, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 256, "decoder_ffn_dim": 256, "vocab_size": 512,
        "max_source_positions": FRAMES // 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
        "decoder_start_token_id": 1,
    },
    "llava": {
        "text_config": {**_LLAMA, "model_type": "llama"}, "vision_config": _CLIP, "image_token_id": IMAGE_TOKEN,
    },
}  # fmt: skip
"""A small model of each architecture: what its config has besides the defaults of its type."""


class Counted(NamedTuple):
    """A model: its config.json, and the FLOP of a forward of BATCH sequences of SEQ tokens."""

    model_type: str
    config: dict[str, Any]
    flop: int


def read_counted() -> list[Counted]:
    """The lines of counted.jsonl; their configs have the keys that runcast reads."""
    return [Counted(**json.loads(line)) for line in FILE.read_text().splitlines()]


def count(model_type: str) -> Counted:
    """Run a model with random weights: attention computes whole squares of scores, experts their own tokens."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    config = transformers().CONFIG_MAPPING[model_type](**CONFIGS[model_type])
    config._experts_implementation = "eager"
    model = getattr(transformers(), class_name(model_type))._from_config(config, attn_implementation="eager").float()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(**_inputs(model_type))
    beside = (
        "vision_config" in CONFIGS[model_type] or model_type == "whisper"
    )  # convolutions that read pixels or sounds
    convolved = 0 if beside else counter.get_flop_counts()["Global"].get(torch.ops.aten.convolution, 0)
    return Counted(model_type, read_keys(as_saved(config)), counter.get_total_flops() - convolved)


def _inputs(model_type: str) -> dict[str, Any]:
    """Random tokens, and what an encoder or a tower reads beside them."""
    import torch

    seed = torch.Generator().manual_seed(0)
    tokens = torch.randint(3, IMAGE_TOKEN, (BATCH, SEQ), generator=seed)
    if model_type == "t5":
        return {"input_ids": tokens, "decoder_input_ids": tokens}
    if model_type == "whisper":
        return {"input_features": torch.zeros(BATCH, 80, FRAMES), "decoder_input_ids": tokens}
    if model_type == "llava":
        side = _CLIP["image_size"]
        tokens[:, : (side // _CLIP["patch_size"]) ** 2] = IMAGE_TOKEN
        return {"input_ids": tokens, "pixel_values": torch.zeros(BATCH, 3, side, side)}
    return {"input_ids": tokens}


if __name__ == "__main__":
    lines = (json.dumps(count(model_type)._asdict(), separators=(",", ":")) for model_type in CONFIGS)
    FILE.write_text("".join(f"{line}\n" for line in lines))
