"""The names that NeMo 1.0 has in its configs for what Megatron-LM's arguments say."""

from .settings import Settings

_ACTIVATIONS = {
    "gelu": "", "openai-gelu": "", "quick-gelu": "", "swiglu": "swiglu", "fast-swiglu": "swiglu", "geglu": "geglu",
    "fast-geglu": "geglu", "squared-relu": "squared_relu", "fast-squared-relu": "squared_relu",
}  # fmt: skip
_NORMS = {
    "rmsnorm": "RMSNorm",
    "layernorm": "LayerNorm",
    "layernorm1p": "LayerNorm",
    "low_precision_layernorm": "LayerNorm",
}
_PRECISIONS = {"bf16": "bf16", "bf16-mixed": "bf16", "16": "fp16", "16-mixed": "fp16"}
_FSDP = dict.fromkeys(("full", "hybrid", "grad"), "optim_grads_params")


def read_nemo_1(found: Settings) -> None:
    """Set Megatron-LM's arguments by what NeMo 1.0 calls otherwise, or has another default for."""
    _read_model(found)
    _read_precision(found)
    _read_optimizer(found)
    found.put("overlap_p2p_comm", found.is_on("overlap_p2p_comm"))
    if found.is_on("tp_comm_overlap") and not found.is_on("sequence_parallel"):
        found.drop("tp_comm_overlap")


def _read_model(found: Settings) -> None:
    activation = found.text("activation").lower() or "gelu"
    if activation not in _ACTIVATIONS:
        found.not_modelled.append(f"activation = {activation}: GELU is assumed, without a gate")
    elif switch := _ACTIVATIONS[activation]:
        found.put(switch, True)
    if found.has("normalization"):
        found.put("normalization", _NORMS.get(found.text("normalization").lower(), found.text("normalization")))
    if not found.has("add_bias_linear"):
        found.put("add_bias_linear", True)
    library = found.text("tokenizer_library").lower()
    if library == "huggingface" and found.has("tokenizer_type"):
        found.rename("tokenizer_type", "tokenizer_model")


def _read_precision(found: Settings) -> None:
    kind = _PRECISIONS.get(found.text("precision").lower())
    if kind:
        found.put(kind, True)
    if found.is_on("fp8_format"):
        found.put("fp8_format", "e4m3" if found.is_on("fp8_e4m3") and not found.is_on("fp8_hybrid") else "hybrid")


def _read_optimizer(found: Settings) -> None:
    """The distributed optimizer of Apex or Megatron-Core, or PyTorch's FSDP."""
    name = found.text("optim.name").lower()
    sharded = name in ("distributed_fused_adam", "mcore_distributed_optim")
    found.put("use_distributed_optimizer", sharded)
    if found.is_on("fsdp"):
        strategy = found.text("fsdp_sharding_strategy").lower() or "full"
        found.put("use_megatron_fsdp", True)
        found.put("data_parallel_sharding_strategy", _FSDP.get(strategy, "x"))
        if strategy == "hybrid":
            found.not_modelled.append("fsdp_sharding_strategy = hybrid: weights are sharded over all replicas")
        found.put("grad_reduce_in_bf16", found.text("fsdp_grad_reduce_dtype").lower() in ("bf16", "16"))
        found.put("overlap_grad_reduce", True)
        return
    found.put(
        "overlap_grad_reduce", sharded and (not found.has("overlap_grad_reduce") or found.is_on("overlap_grad_reduce"))
    )
    found.put("overlap_param_gather", found.is_on("overlap_param_gather") and found.is_on("overlap_grad_reduce"))
    if found.text("grad_sync_dtype").lower() in ("bf16", "fp16", "16"):
        found.put("grad_reduce_in_bf16", True)
