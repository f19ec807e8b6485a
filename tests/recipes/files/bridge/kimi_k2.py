# After NVIDIA-NeMo/Megatron-Bridge: src/megatron/bridge/recipes/kimi/kimi_k2.py (0.3), less some that takes no time.

from functools import partial

import torch
import torch.nn.functional as F
from megatron.bridge.models.mla_provider import MLAModelProvider
from megatron.bridge.recipes.common import _pretrain_common
from megatron.bridge.recipes.utils.optimizer_utils import distributed_muon_with_cosine_annealing
from megatron.bridge.training.comm_overlap import CommOverlapConfig
from megatron.bridge.training.config import ConfigContainer
from megatron.bridge.training.mixed_precision import MixedPrecisionConfig
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec


def _get_kimi_k2_pipeline_layout(pp_size: int, vp_size: int):
    map_pp_vp_to_layout = {
        (1, 1): None,
        (8, 1): [["embedding"] + ["decoder"] * 8] + [["decoder"] * 8] * 6 + [["decoder"] * 5 + ["loss"]],
        (16, 1): [["embedding"] + ["decoder"] * 4] + [["decoder"] * 4] * 14 + [["decoder", "loss"]],
    }

    vp_size = 1 if vp_size is None else vp_size
    if (pp_size, vp_size) not in map_pp_vp_to_layout:
        raise ValueError(f"Invalid PP and VP size: {pp_size} and {vp_size} to infer PP layout")
    layout = map_pp_vp_to_layout[(pp_size, vp_size)]
    if layout is not None:
        layout = list([list(x) for x in layout])
    return layout


def kimi_k2_pretrain_config() -> ConfigContainer:
    """TP=2, PP=16, EP=32."""
    cfg = _pretrain_common()

    cfg.model = MLAModelProvider(
        transformer_layer_spec=partial(get_gpt_decoder_block_spec, use_transformer_engine=True),
        num_layers=61,
        hidden_size=7168,
        ffn_hidden_size=18432,
        num_moe_experts=384,
        moe_ffn_hidden_size=2048,
        moe_shared_expert_intermediate_size=2048,
        moe_layer_freq=[0] + [1] * 60,
        normalization="RMSNorm",
        activation_func=F.silu,
        gated_linear_unit=True,
        position_embedding_type="rope",
        add_bias_linear=False,
        share_embeddings_and_output_weights=False,
        num_attention_heads=64,
        kv_channels=64,
        max_position_embeddings=4096,
        seq_length=4096,
        rotary_base=50000.0,
        make_vocab_size_divisible_by=1280,
        qk_layernorm=True,
        moe_router_topk=8,
        moe_router_num_groups=1,
        moe_router_group_topk=1,
        moe_router_enable_expert_bias=True,
        moe_grouped_gemm=True,
        moe_token_dispatcher_type="alltoall",
        moe_shared_expert_overlap=True,
        multi_latent_attention=True,
        q_lora_rank=1536,
        kv_lora_rank=512,
        qk_head_dim=128,
        qk_pos_emb_head_dim=64,
        v_head_dim=128,
        bf16=True,
        params_dtype=torch.bfloat16,
        vocab_size=163840,
        tensor_model_parallel_size=2,
        pipeline_model_parallel_size=16,
        pipeline_dtype=torch.bfloat16,
        virtual_pipeline_model_parallel_size=None,
        expert_model_parallel_size=32,
        sequence_parallel=True,
        expert_tensor_parallel_size=1,
        recompute_granularity="selective",
    )
    cfg.model.account_for_embedding_in_pipeline_split = False
    cfg.model.account_for_loss_in_pipeline_split = False
    cfg.model.pipeline_model_parallel_layout = _get_kimi_k2_pipeline_layout(16, 1)
    cfg.tokenizer.vocab_size = cfg.model.vocab_size
    cfg.train.global_batch_size = 4096
    cfg.train.micro_batch_size = 1

    opt_cfg, scheduler_cfg = distributed_muon_with_cosine_annealing(
        lr_warmup_iters=2000,
        lr_decay_iters=cfg.train.train_iters,
    )
    cfg.optimizer = opt_cfg
    cfg.scheduler = scheduler_cfg

    cfg.mixed_precision = MixedPrecisionConfig(bf16=True, autocast_enabled=False, grad_reduce_in_fp32=True)
    cfg.optimizer.use_precision_aware_optimizer = False
    cfg.comm_overlap = CommOverlapConfig(tp_comm_overlap=False)
    cfg.comm_overlap.overlap_moe_expert_parallel_comm = False
    cfg.ddp.overlap_grad_reduce = True
    cfg.ddp.overlap_param_gather = False  # Muon
    cfg.ddp.use_distributed_optimizer = False  # Muon
    cfg.ddp.use_megatron_fsdp = False
    if cfg.model.apply_rope_fusion:
        cfg.dist.enable_megatron_core_experimental = True
    return cfg
