# After NVIDIA-NeMo/Megatron-Bridge: scripts/performance/configs/{llama,deepseek}/*_workload_base_configs.py (0.4).

from dataclasses import replace

from utils.utils import WorkloadBaseConfig

BASE_LLAMA3_8B_CONFIG = WorkloadBaseConfig(
    num_gpus=8,
    global_batch_size=128,
)


BASE_LLAMA3_70B_CONFIG = WorkloadBaseConfig(
    num_gpus=64,
    global_batch_size=128,
)

LLAMA3_70B_PRETRAIN_CONFIG_GB200_BF16_V1 = replace(
    BASE_LLAMA3_70B_CONFIG,
    use_megatron_fsdp=True,
    cpu_offloading_num_layers=20,
)

LLAMA3_70B_PRETRAIN_CONFIG_GB200_FP8_MX_V1 = replace(
    BASE_LLAMA3_70B_CONFIG,
    tensor_model_parallel_size=2,
    pipeline_model_parallel_size=4,
    virtual_pipeline_model_parallel_size=5,
)

LLAMA3_70B_PRETRAIN_CONFIG_H100_BF16_V1 = replace(
    BASE_LLAMA3_70B_CONFIG,
    tensor_model_parallel_size=4,
    pipeline_model_parallel_size=4,
    context_parallel_size=2,
    virtual_pipeline_model_parallel_size=5,
)

LLAMA3_70B_PRETRAIN_CONFIG_H100_FP8_CS_V1 = replace(
    BASE_LLAMA3_70B_CONFIG,
    tensor_model_parallel_size=4,
    pipeline_model_parallel_size=8,
    virtual_pipeline_model_parallel_size=5,
)

LLAMA3_8B_PRETRAIN_CONFIG_GB200_FP8_CS_V1 = replace(
    BASE_LLAMA3_8B_CONFIG,
    micro_batch_size=2,
    cuda_graph_impl="local",
    cuda_graph_scope="full_iteration",
)

LLAMA3_8B_PRETRAIN_CONFIG_GB200_FP8_MX_V1 = LLAMA3_8B_PRETRAIN_CONFIG_GB200_FP8_CS_V1

LLAMA3_8B_PRETRAIN_CONFIG_H100_BF16_V1 = replace(
    BASE_LLAMA3_8B_CONFIG,
    context_parallel_size=2,
)

LLAMA3_8B_PRETRAIN_CONFIG_H100_FP8_CS_V1 = replace(
    BASE_LLAMA3_8B_CONFIG,
    context_parallel_size=1,
    recompute_num_layers=5,
)

_LLAMA3_70B_LORA_CONFIG_GB300 = replace(
    BASE_LLAMA3_70B_CONFIG,
    num_gpus=8,
    peft="lora",
    tensor_model_parallel_size=1,
    pipeline_model_parallel_size=1,
    context_parallel_size=1,
    micro_batch_size=1,
    global_batch_size=32,
    cuda_graph_impl="transformer_engine",
    cuda_graph_scope="mlp",
)

LLAMA3_70B_LORA_CONFIG_GB300_BF16_V1 = _LLAMA3_70B_LORA_CONFIG_GB300

_LLAMA3_70B_SFT_CONFIG_H100 = replace(
    BASE_LLAMA3_70B_CONFIG,
    num_gpus=32,
    peft="none",
    tensor_model_parallel_size=4,
    pipeline_model_parallel_size=4,
    virtual_pipeline_model_parallel_size=5,
    micro_batch_size=1,
    global_batch_size=32,
)

LLAMA3_70B_SFT_CONFIG_H100_BF16_V1 = _LLAMA3_70B_SFT_CONFIG_H100

BASE_DEEPSEEK_V3_CONFIG = WorkloadBaseConfig(
    expert_tensor_parallel_size=1,
)

DEEPSEEK_V3_PRETRAIN_CONFIG_GB200_V1 = replace(
    BASE_DEEPSEEK_V3_CONFIG,
    num_gpus=256,
    global_batch_size=2048,
    pipeline_model_parallel_size=4,
    virtual_pipeline_model_parallel_size=4,
    expert_model_parallel_size=64,
    moe_flex_dispatcher_backend="hybridep",
    moe_a2a_overlap=False,
    recompute_modules=["mlp"],
    pp_layout="Et*4|(t*4|)*14tmL",
    cuda_graph_impl="transformer_engine",
    cuda_graph_scope=["attn", "moe_router", "moe_preprocess"],
)
DEEPSEEK_V3_PRETRAIN_CONFIG_GB200_BF16_V1 = replace(
    DEEPSEEK_V3_PRETRAIN_CONFIG_GB200_V1,
    recompute_modules=["mla_up_proj"],
)

DEEPSEEK_V3_PRETRAIN_CONFIG_H100_V1 = replace(
    BASE_DEEPSEEK_V3_CONFIG,
    num_gpus=1024,
    tensor_model_parallel_size=2,
    pipeline_model_parallel_size=8,
    virtual_pipeline_model_parallel_size=4,
    expert_model_parallel_size=64,
    global_batch_size=8192,
    recompute_modules=["mla_up_proj", "mlp"],
    moe_flex_dispatcher_backend="hybridep",
    moe_a2a_overlap=False,
    pp_layout="Et|(tt|)*30mL",
)
DEEPSEEK_V3_PRETRAIN_CONFIG_H100_BF16_V1 = DEEPSEEK_V3_PRETRAIN_CONFIG_H100_V1
DEEPSEEK_V3_PRETRAIN_CONFIG_H100_FP8_SC_V1 = DEEPSEEK_V3_PRETRAIN_CONFIG_H100_V1
