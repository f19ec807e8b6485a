"""Made-up logs: lines as Megatron-LM, Megatron Bridge and torchtitan print them.

`python tests/traces/log_file.py` writes the fixtures beside this file again.
"""

from pathlib import Path

HERE = Path(__file__).parent
ARGUMENTS = {
    "accumulate_allreduce_grads_in_fp32": True, "add_bias_linear": False, "add_qkv_bias": False, "bf16": True,
    "consumed_train_samples": 0, "context_parallel_size": 1, "cp_comm_type": "['p2p']",
    "data_parallel_sharding_strategy": "no_shard", "data_parallel_size": 8, "ddp_bucket_size": None,
    "decoder_first_pipeline_num_layers": None, "encoder_num_layers": 80, "encoder_seq_length": 4096,
    "exp_avg_dtype": "torch.float32", "exp_avg_sq_dtype": "torch.float32", "expert_model_parallel_size": 1,
    "expert_tensor_parallel_size": 8, "ffn_hidden_size": 28672, "fp16": False, "fp8": None,
    "fp8_amax_compute_algo": "most_recent", "fp8_recipe": "delayed", "global_batch_size": 128,
    "group_query_attention": True, "hidden_size": 8192, "iterations_to_skip": "[]", "kv_channels": 128,
    "kv_lora_rank": 32, "make_vocab_size_divisible_by": 128, "max_position_embeddings": 8192, "micro_batch_size": 1,
    "moe_router_topk": 2, "moe_token_dispatcher_type": "allgather", "multi_latent_attention": False,
    "normalization": "RMSNorm", "num_attention_heads": 64, "num_experts": None, "num_layers": 80,
    "num_layers_per_virtual_pipeline_stage": 5, "num_query_groups": 8, "optimizer": "adam",
    "overlap_grad_reduce": True, "overlap_p2p_comm": True, "overlap_param_gather": True,
    "params_dtype": "torch.bfloat16", "pipeline_model_parallel_size": 4, "position_embedding_type": "rope",
    "q_lora_rank": None, "qk_head_dim": 128, "rank": 0, "recompute_granularity": None, "recompute_modules": None,
    "seq_length": 4096, "sequence_parallel": True, "swiglu": True, "tensor_model_parallel_size": 8,
    "tokenizer_type": "Llama3Tokenizer", "tp_comm_overlap": False, "transformer_impl": "transformer_engine",
    "untie_embeddings_and_output_weights": True, "use_distributed_optimizer": True, "v_head_dim": 128,
    "virtual_pipeline_model_parallel_size": 4, "vocab_size": None, "world_size": 256,
}  # fmt: skip
STEPS_MS = (14211.7, 2720.4, 2575.2, 2550.1, 2561.3, 2557.6, 2554.2, 2572.9)


def arguments_block():
    """What Megatron-LM prints of its arguments."""
    lines = [f"  {name} {'.' * (48 - len(name))} {value}" for name, value in ARGUMENTS.items()]
    return ["------------------------ arguments ------------------------", *lines,
            "-------------------- end of arguments ---------------------"]  # fmt: skip


def iteration(number, milliseconds, batch=128):
    """A line of Megatron-LM's training log."""
    rate = 352.0 * 2557.6 / milliseconds
    return (
        f" [2025-08-01 07:20:{number:02}] iteration {number:8}/     500 | consumed samples: {number * batch:12} | "
        f"elapsed time per iteration (ms): {milliseconds:.1f} | throughput per GPU (TFLOP/s/GPU): {rate:.1f} | "
        f"learning rate: 6.976744E-08 | global batch size: {batch:5} | lm loss: 1.04E+01 | "
        "loss scale: 1.0 | grad norm: 26.203 | number of skipped iterations:   0 | number of nan iterations:   0 |"
    )


def megatron():
    """The log of a run of Llama-3-70B."""
    memory = (
        "[Rank 0] (after 1 iterations) memory (MB) | allocated: 30210.5 | max allocated: 51200.0 | reserved: 60000.0"
        " | max reserved: 61440.0"
    )
    timers = [
        "(min, max) time across ranks (ms):",
        "    forward-backward ...............................: (2440.10, 2480.20)",
        "    optimizer ......................................: (60.00, 65.00)",
    ]
    return "\n".join([
        "using world size: 256, data-parallel size: 8, context-parallel size: 1, tensor-model-parallel size: 8, "
        "pipeline-model-parallel size: 4",
        *arguments_block(),
        " > padded vocab (size: 128256) with 768 dummy tokens (new size: 129024)",
        iteration(1, STEPS_MS[0]),
        memory,
        *timers,
        *(iteration(number, each) for number, each in enumerate(STEPS_MS[1:], 2)),
        "",
    ])  # fmt: skip


def bridge(seconds):
    """Lines of Megatron Bridge, which has no throughput on its line of the iteration."""
    return "".join(f"0: Step Time : {each:.2f}s GPU utilization: {700.5}MODEL_TFLOP/s/GPU\n" for each in seconds)


def titan(clock_and_step):
    """Lines of torchtitan with colours, a clock and a step."""
    return "".join(
        f"[rank0]:[titan] 2025-06-04 08:51:{clock} - root - INFO - \x1b[31mstep: {step:2}  \x1b[32mloss: 10.7069  "
        f"\x1b[33mmemory: 30.50GiB(32.62%)  \x1b[34mtps: 7,034  \x1b[36mtflops: 407.35  \x1b[35mmfu: 41.19%\x1b[39m\n"
        for clock, step in clock_and_step
    )


if __name__ == "__main__":
    (HERE / "fixtures" / "megatron-llama3-70b.log").write_text(megatron())
