"""Megatron-LM's arguments by what they mean to a training step: read, other spellings, no time in them, not modelled.

Names are those of `megatron/training/arguments.py` and of the dataclasses behind it, in snake_case.
"""


def _words(text: str) -> list[str]:
    return text.split()


# Read by `megatron` and `shapes`; switches are true where they stand alone.
SWITCHES = frozenset(
    _words("""
    group_query_attention swiglu squared_relu multi_latent_attention untie_embeddings_and_output_weights
    add_bias_linear add_qkv_bias qk_layernorm moe_router_enable_expert_bias moe_shared_expert_gate rotary
    sequence_parallel use_tp_pp_dp_mapping use_distributed_optimizer use_megatron_fsdp use_torch_fsdp2
    overlap_grad_reduce overlap_param_gather tp_comm_overlap overlap_p2p_comm overlap_moe_expert_parallel_comm
    delay_wgrad_compute account_for_embedding_in_pipeline_split account_for_loss_in_pipeline_split bf16 fp16
    grad_reduce_in_bf16 grad_reduce_in_fp32 use_precision_aware_optimizer recompute_activations
    optimizer_cpu_offload cpu_offloading geglu moe_enable_deepep fp8_param_gather
""")
)

VALUED = frozenset(
    _words("""
    num_layers hidden_size ffn_hidden_size num_attention_heads num_query_groups kv_channels vocab_size
    padded_vocab_size make_vocab_size_divisible_by max_position_embeddings position_embedding_type normalization
    tokenizer_type tokenizer_model num_experts moe_router_topk moe_ffn_hidden_size
    moe_shared_expert_intermediate_size moe_layer_freq q_lora_rank kv_lora_rank qk_head_dim qk_pos_emb_head_dim
    v_head_dim mtp_num_layers tensor_model_parallel_size pipeline_model_parallel_size context_parallel_size
    expert_model_parallel_size expert_tensor_parallel_size data_parallel_sharding_strategy
    num_distributed_optimizer_instances num_layers_per_virtual_pipeline_stage num_virtual_stages_per_pipeline_rank
    pipeline_model_parallel_layout decoder_first_pipeline_num_layers decoder_last_pipeline_num_layers
    microbatch_group_size_per_virtual_pipeline_stage cp_comm_type global_batch_size micro_batch_size seq_length
    fp8_format fp8_recipe fp4_format exp_avg_dtype exp_avg_sq_dtype recompute_granularity recompute_method
    recompute_num_layers recompute_modules cpu_offloading_num_layers ddp_bucket_size moe_expert_capacity_factor
    moe_router_num_groups moe_router_group_topk moe_token_dispatcher_type moe_flex_dispatcher_backend
    nnodes nproc_per_node world_size
""")
)

# Other spellings: dataclass fields, older flags, flags of the same meaning.
ALIASES = {
    "num_moe_experts": "num_experts",
    "moe_router_num_group": "moe_router_num_groups",
    "n_layers": "num_layers",
    "kv_channel": "kv_channels",
    "seq_len": "seq_length",
    "sequence_length": "seq_length",
    "encoder_seq_length": "seq_length",
    "encoder_num_layers": "num_layers",
    "virtual_pipeline_model_parallel_size": "num_virtual_stages_per_pipeline_rank",
    "num_layers_in_first_pipeline_stage": "decoder_first_pipeline_num_layers",
    "num_layers_in_last_pipeline_stage": "decoder_last_pipeline_num_layers",
    "microbatch_group_size_per_vp_stage": "microbatch_group_size_per_virtual_pipeline_stage",
    "accumulate_allreduce_grads_in_fp32": "grad_reduce_in_fp32",
    "use_custom_fsdp": "use_megatron_fsdp",
    "use_mcore_fsdp": "use_megatron_fsdp",
    "fp8": "fp8_format",
    "fp8_param": "fp8_param_gather",
    "fp4": "fp4_format",
    "bucket_size": "ddp_bucket_size",
    "optimizer_offload": "optimizer_cpu_offload",
    "model_parallel_size": "tensor_model_parallel_size",
    "overlap_p2p_communication": "overlap_p2p_comm",
    "use_rotary_position_embeddings": "rotary",
    "quick_geglu": "geglu",
    "gated_linear_unit": "swiglu",
    "devices": "nproc_per_node",
    "nproc": "nproc_per_node",
    "num_nodes": "nnodes",
}

# Switches that turn the other one off.
NEGATED = {
    "no_overlap_p2p_communication": "overlap_p2p_comm",
    "disable_bias_linear": "add_bias_linear",
    "share_embeddings_and_output_weights": "untie_embeddings_and_output_weights",
}

# Nothing of a step's time is in these: optimizer's numbers, data, logging, checkpoints, how processes find each other.
UNTIMED = frozenset(
    _words("""
    use_mcore_models use_legacy_models
    lr lr_decay_style lr_decay_iters lr_decay_samples lr_warmup_iters lr_warmup_fraction lr_warmup_samples
    lr_warmup_init lr_wsd_decay_iters lr_wsd_decay_style min_lr decoupled_lr decoupled_min_lr weight_decay
    start_weight_decay end_weight_decay weight_decay_incr_style clip_grad adam_beta1 adam_beta2 adam_eps
    sgd_momentum optimizer loss_scale initial_loss_scale min_loss_scale loss_scale_window hysteresis seed
    data_parallel_random_init init_method_std init_method_xavier_uniform layernorm_epsilon norm_epsilon
    apply_layernorm_1p attention_dropout hidden_dropout train_iters train_samples exit_interval
    exit_duration_in_mins exit_signal_handler override_opt_param_scheduler use_checkpoint_opt_param_scheduler
    attention_softmax_in_fp32 apply_query_key_layer_scaling rotary_base rotary_percent rotary_scaling_factor
    rotary_seq_len_interpolation_factor use_rope_scaling rope_scaling_factor rope_type rotary_interleaved mscale
    mscale_all_dim beta_fast beta_slow mtp_loss_scaling_factor original_max_position_embeddings moe_aux_loss_coeff
    moe_z_loss_coeff moe_router_bias_update_rate moe_router_topk_scaling_factor moe_router_score_function
    moe_router_load_balancing_type moe_router_pre_softmax moe_router_dtype moe_input_jitter_eps
    moe_token_drop_policy moe_per_layer_logging calculate_per_token_loss data_path train_data_path valid_data_path
    test_data_path data_cache_path data_args_path per_split_data_args_path split vocab_file merge_file
    vocab_extra_ids tokenizer_hf_use_fast tokenizer_hf_include_special_tokens tiktoken_pattern
    tiktoken_num_special_tokens tiktoken_special_tokens num_workers dataloader_type mock_data no_mmap_bin_files
    mmap_bin_files no_create_attention_mask_in_dataloader create_attention_mask_in_dataloader reset_position_ids
    reset_attention_mask eod_mask_loss data_sharding save load save_interval ckpt_format dist_ckpt_format async_save
    use_dist_ckpt auto_detect_ckpt_format no_load_optim no_load_rng no_save_optim no_save_rng finetune
    pretrained_checkpoint exit_on_missing_checkpoint ckpt_assume_constant_structure ckpt_fully_parallel_load
    ckpt_fully_parallel_save no_ckpt_fully_parallel_save ckpt_step non_persistent_save_interval
    use_persistent_ckpt_worker dist_ckpt_strictness use_checkpoint_args no_use_tokenizer_model_from_checkpoint_args
    eval_iters eval_interval log_interval log_throughput log_params_norm log_num_zeros_in_grad log_progress
    log_timers_to_tensorboard log_memory_to_tensorboard log_validation_ppl_to_tensorboard
    log_world_size_to_tensorboard log_batch_size_to_tensorboard log_loss_scale_to_tensorboard timing_log_level
    timing_log_option tensorboard_dir tensorboard_log_interval tensorboard_queue_size wandb_project wandb_exp_name
    wandb_save_dir wandb_entity one_logger_project enable_one_logger logging_level profile profile_step_start
    profile_step_end profile_ranks use_pytorch_profiler record_memory_history memory_snapshot_path
    check_for_nan_in_loss_and_grad no_check_for_nan_in_loss_and_grad check_for_nan_in_grad distributed_backend
    distributed_timeout_minutes local_rank lazy_mpu_init use_cpu_initialization perform_initialization
    no_initialization enable_ft_package manual_gc_eval no_one_logger trust_remote_code node_rank master_addr
    master_port rdzv_backend rdzv_endpoint rdzv_id max_restarts tee log_dir redirects standalone local_addr
    network_timeout job_name workdir nodes ntasks ntasks_per_node gpus_per_node partition account time exclusive
    output error container_image container_mounts no_container_mount_home mpi container_workdir name experiment_dir
    wandb_name fp8_amax_compute_algo fp8_amax_history_len fp8_margin
    keep_fp8_transpose_cache_when_using_custom_fsdp inference_max_seq_length
    create_attention_mask
""")
)

_FUSED = "which kernels are fused is the software stack's"
_ROUTE = "how tokens reach experts is the software stack's"

# Time is in these, but no key of a scenario says it: the line beside each goes to the user.
NOT_MODELLED = {
    **dict.fromkeys(
        _words("""
            use_flash_attn attention_backend transformer_impl masked_softmax_fusion no_masked_softmax_fusion
            bias_gelu_fusion no_bias_gelu_fusion bias_swiglu_fusion no_bias_swiglu_fusion
            bias_dropout_fusion no_bias_dropout_fusion rope_fusion no_rope_fusion persist_layer_norm
            no_persist_layer_norm gradient_accumulation_fusion no_gradient_accumulation_fusion
            cross_entropy_loss_fusion cross_entropy_fusion_impl moe_permute_fusion moe_router_fusion
            apply_rope_fusion mla_down_proj_fusion openai_gelu use_fused_weighted_squared_relu
            moe_grouped_gemm moe_use_legacy_grouped_gemm
            use_transformer_engine_op_fuser async_tensor_model_parallel_allreduce
            no_async_tensor_model_parallel_allreduce memory_efficient_layer_norm
        """),
        _FUSED,
    ),
    **dict.fromkeys(
        _words("""
            moe_deepep_num_sms
            moe_hybridep_num_sms moe_shared_expert_overlap
        """),
        _ROUTE,
    ),
    **dict.fromkeys(
        _words("""
            enable_cuda_graph external_cuda_graph cuda_graph_impl cuda_graph_scope te_rng_tracker
            use_te_rng_tracker cuda_graph_warmup_steps
        """),
        "CUDA graphs are the software stack's",
    ),
    **dict.fromkeys(
        _words("""
            manual_gc manual_gc_interval
        """),
        "pauses of Python are not modelled",
    ),
    "moe_router_force_load_balancing": "tokens are balanced in any case, unless experts.routing says otherwise",
    "moe_pad_expert_input_to_capacity": "experts take what reaches them, unpadded",
    "moe_router_padding_for_fp8": "experts take what reaches them, unpadded",
    "moe_router_padding_for_quantization": "experts take what reaches them, unpadded",
    "rampup_batch_size": "one step of the full batch is predicted",
    "ddp_num_buckets": "give --ddp-bucket-size instead",
    "ddp_average_in_collective": "as fast as scaling apart, to our knowledge",
    "average_in_collective": "as fast as scaling apart, to our knowledge",
    "align_param_gather": "when gathers start is the software stack's",
    "no_align_param_gather": "when gathers start is the software stack's",
    "no_align_grad_reduce": "when reductions start is the software stack's",
    "overlap_param_gather_with_optimizer_step": "gathers run beside the first forward, not beside the optimizer",
    "reuse_grad_buf_for_mxfp8_param_ag": "buffers are as the software stack has them",
    "main_grads_dtype": "gradients are kept as --grad-reduce-in-bf16 says",
    "main_params_dtype": "the optimizer's own weights are fp32",
    "optimizer_offload_fraction": "the optimizer is offloaded whole or not at all",
    "overlap_cpu_optimizer_d2h_h2d": "the order of copies is the software stack's",
    "use_torch_optimizer_for_cpu_offload": "the optimizer on the host is the software stack's",
    "distribute_saved_activations": "kept activations are as sequence parallelism leaves them",
    "fine_grained_activation_offloading": "give --cpu-offloading-num-layers instead",
    "offload_modules": "give --cpu-offloading-num-layers instead",
    "cpu_offloading_activations": "activations are what is offloaded",
    "cpu_offloading_weights": "weights are not offloaded",
    "cpu_offloading_double_buffering": "buffers of offloading are the software stack's",
    "tp_comm_overlap_cfg": "how products are split for overlap is the software stack's",
    "tp_comm_bootstrap_backend": "set once, at the start",
    "tp_comm_overlap_ag": "all of --tp-comm-overlap or nothing",
    "tp_comm_overlap_rs": "all of --tp-comm-overlap or nothing",
    "tp_comm_overlap_rs_dgrad": "all of --tp-comm-overlap or nothing",
    "disable_tp_comm_overlap_ag": "all of --tp-comm-overlap or nothing",
    "disable_tp_comm_overlap_rs": "all of --tp-comm-overlap or nothing",
    "tp_comm_split_ag": "all of --tp-comm-overlap or nothing",
    "tp_comm_split_rs": "all of --tp-comm-overlap or nothing",
    "use_ring_exchange_p2p": "sends are those of NCCL",
    "batch_p2p_comm": "sends are not batched",
    "defer_embedding_wgrad_compute": "the embedding's gradient is computed at once",
    "wgrad_deferral_limit": "the embedding's gradient is computed at once",
    "empty_unused_memory_level": "memory is not given back during a step",
    "use_sharp": "in-network reduction is the cluster's and the profile's",
    "nccl_communicator_config_path": "NCCL's settings are the profile's",
    "nccl_ub": "NCCL's settings are the profile's",
    "use_nccl_ub": "NCCL's settings are the profile's",
    "fsdp_double_buffer": "buffers of gathers are the software stack's",
    "moe_apply_probs_on_input": "part of the experts' kernels, which are the software stack's",
    "hierarchical_context_parallel_sizes": "context parallelism has one level",
    "first_last_layers_bf16": "all layers compute in one type",
    "num_layers_at_start_in_bf16": "all layers compute in one type",
    "num_layers_at_end_in_bf16": "all layers compute in one type",
    "fp8_wgrad": "all products of a layer compute in one type",
    "fp4_recipe": "--fp4-format says it",
    "deterministic_mode": "the fastest kernels are assumed",
    "cross_entropy_in_fp32": "part of the loss, which is the software stack's",
    "attention_output_gate": "attention without a gate is assumed",
    "log_straggler": "not free, but not modelled",
    "barrier_with_L1_time": "not free, but not modelled",
}

# Values of those that are what is assumed anyway.
AS_ASSUMED = {
    "main_grads_dtype": ("fp32",),
    "main_params_dtype": ("fp32",),
    "optimizer_offload_fraction": ("1", "1.0"),
    "empty_unused_memory_level": ("0",),
    "fp4_recipe": ("nvfp4",),
}

# Models that we cannot size: their arguments are refused.
OTHER_MODELS = frozenset(
    _words("""
    hybrid_override_pattern hybrid_attention_ratio hybrid_mlp_ratio is_hybrid_model mamba_state_dim mamba_num_heads
    mamba_head_dim mamba_num_groups window_size window_attn_skip_freq experimental_attention_variant
    linear_attention_freq decoder_num_layers decoder_seq_length bert_load img_h img_w patch_dim
    heterogeneous_layers_config_path retro_project_dir moe_latent_size
""")
)

KNOWN = SWITCHES | VALUED | set(ALIASES) | set(NEGATED) | UNTIMED | set(NOT_MODELLED) | OTHER_MODELS
