"""The arguments that Megatron-LM prints, as a recipe: only those that were given or mean something.

The printed block holds every argument with its default, under names of its parser, also those that do not apply: a
model without experts has its `moe_router_topk`. What does not apply is left out, as it means nothing.
"""

from collections.abc import Iterator, Mapping

_TYPES = {"torch.float32": "fp32", "torch.bfloat16": "bf16", "torch.float16": "fp16", "torch.uint8": "fp8"}
_NOTHING = ("None", "", "[]", "{}")
_REPEATED = (
    "encoder_num_layers", "encoder_seq_length", "virtual_pipeline_model_parallel_size", "data_parallel_size",
    "transformer_pipeline_model_parallel_size", "params_dtype", "main_grads_dtype", "main_params_dtype", "rank",
    "consumed_train_samples", "consumed_valid_samples",
)  # fmt: skip
_ON_BY_DEFAULT = ("add_bias_linear", "overlap_p2p_comm")
_OF_EXPERTS = ("moe_", "expert_model_", "expert_tensor_")
_OF_LATENTS = ("q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim")


def as_recipe(arguments: Mapping[str, str]) -> str:
    """Printed arguments as lines of `key: value`, which `recipes.read_recipe` reads."""
    given = {name: _TYPES.get(value, value) for name, value in arguments.items() if value not in _NOTHING}
    unused = set(_unused(given))
    return "".join(f"{name}: {value}\n" for name, value in given.items() if name not in unused)


def _unused(given: Mapping[str, str]) -> Iterator[str]:
    """Names of arguments that another one makes meaningless."""
    yield from _REPEATED
    yield from (name for name, value in given.items() if value == "False" and name not in _ON_BY_DEFAULT)
    if "num_experts" not in given:
        yield from (name for name in given if name.startswith(_OF_EXPERTS))
    if given.get("multi_latent_attention") != "True":
        yield from _OF_LATENTS
    if given.get("group_query_attention") != "True":
        yield "num_query_groups"
    if "fp8" not in given and "fp8_format" not in given:
        yield from (name for name in given if name.startswith("fp8_"))
    if given.get("optimizer_cpu_offload") != "True":
        yield "optimizer_offload_fraction"
