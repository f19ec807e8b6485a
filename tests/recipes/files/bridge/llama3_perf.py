# After NVIDIA-NeMo/Megatron-Bridge: src/megatron/bridge/recipes/llama/llama3_perf.py (0.3), less some that takes no time.

from megatron.bridge.recipes.common import _benchmark_common
from megatron.bridge.recipes.llama.llama3 import llama3_70b_pretrain_config
from megatron.bridge.training.comm_overlap import userbuffers_bf16_b200_h8192_tp2_mbs1_seqlen8192
from megatron.bridge.training.config import ConfigContainer
from megatron.bridge.training.mixed_precision import (
    bf16_mixed,
    bf16_with_fp8_current_scaling_mixed,
    bf16_with_mxfp8_mixed,
)


def _perf_precision(compute_dtype: str):
    if compute_dtype == "bf16":
        return bf16_mixed()
    if compute_dtype == "fp8_cs":
        cfg = bf16_with_fp8_current_scaling_mixed()
        cfg.first_last_layers_bf16 = False
        return cfg
    if compute_dtype == "fp8_mx":
        return bf16_with_mxfp8_mixed()
    raise ValueError(f"Unknown compute_dtype: {compute_dtype}")


def llama3_70b_pretrain_64gpu_gb300_bf16_config() -> ConfigContainer:
    """BF16, FSDP."""
    cfg = llama3_70b_pretrain_config()
    cfg.mixed_precision = _perf_precision("bf16")
    cfg.tokenizer.vocab_size = 128256
    cfg.model.should_pad_vocab = True

    cfg.model.tensor_model_parallel_size = 1
    cfg.model.pipeline_model_parallel_size = 1
    cfg.model.context_parallel_size = 1
    cfg.model.virtual_pipeline_model_parallel_size = None
    cfg.model.sequence_parallel = False
    cfg.train.global_batch_size = 128
    cfg.train.micro_batch_size = 2

    cfg.ddp.use_megatron_fsdp = True
    cfg.ddp.data_parallel_sharding_strategy = "optim_grads_params"
    cfg.ddp.average_in_collective = False
    cfg.ddp.fsdp_double_buffer = True

    cfg.model.cpu_offloading = True
    cfg.model.cpu_offloading_weights = False
    cfg.model.cpu_offloading_num_layers = 30

    cfg.comm_overlap.tp_comm_overlap_cfg = userbuffers_bf16_b200_h8192_tp2_mbs1_seqlen8192

    _benchmark_common(cfg)
    return cfg


def llama3_70b_pretrain_64gpu_gb200_fp8mx_config() -> ConfigContainer:
    """MXFP8, TP=2 PP=4."""
    cfg = llama3_70b_pretrain_config()
    cfg.mixed_precision = _perf_precision("fp8_mx")
    cfg.tokenizer.vocab_size = 128256
    cfg.model.should_pad_vocab = True

    cfg.model.tensor_model_parallel_size = 2
    cfg.model.pipeline_model_parallel_size = 4
    cfg.model.context_parallel_size = 1
    cfg.model.virtual_pipeline_model_parallel_size = 5
    cfg.model.sequence_parallel = True
    cfg.train.global_batch_size = 128
    cfg.train.micro_batch_size = 1

    _benchmark_common(cfg)
    return cfg
