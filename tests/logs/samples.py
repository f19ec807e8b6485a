"""Made-up logs in the form of real ones; each says the release whose form it has."""

NEMO_2 = """\
[NeMo I 2025-06-11 10:00:00 nemo_logger:148] Experiments will be logged at /results
Training epoch 0, iteration 0/99 | lr: 1.499e-07 | global_batch_size: 128 | global_step: 0 | \
reduced_train_loss: 11.03 | train_step_timing in s: 21.41
Training epoch 0, iteration 1/99 | lr: 2.999e-07 | global_batch_size: 128 | global_step: 1 | \
reduced_train_loss: 11.03 | train_step_timing in s: 2.61 | consumed_samples: 256
Training epoch 0, iteration 2/99 | lr: 4.498e-07 | global_batch_size: 128 | global_step: 2 | \
reduced_train_loss: 11.02 | train_step_timing in s: 2.31 | consumed_samples: 384
Training epoch 0, iteration 3/99 | lr: 5.997e-07 | global_batch_size: 128 | global_step: 3 | \
reduced_train_loss: 11.00 | train_step_timing in s: 2.35 | consumed_samples: 512
"""
"""NeMo 2.3 (MegatronProgressPrinter)."""

NEMO_1 = (
    "Epoch 0: :   0%|          | 1/100 [00:21<35:00, v_num=x, reduced_train_loss=10.9, global_step=0.000, "
    "consumed_samples=128.0, train_step_timing in s=20.90]\r"
    "Epoch 0: :   2%|▏         | 2/100 [00:24<19:00, v_num=x, reduced_train_loss=10.8, global_step=1.000, "
    "consumed_samples=256.0, train_step_timing in s=2.420]\r"
    "Epoch 0: :   3%|▎         | 3/100 [00:26<14:00, v_num=x, reduced_train_loss=10.7, global_step=2.000, "
    "consumed_samples=384.0, train_step_timing in s=2.440]\n"
)
"""NeMo 1.21: a progress bar that is drawn again."""

BRIDGE = """\
0: Step Time : 14.26s GPU utilization: 58.2TFLOP/s/GPU
0: Step Time : 2.26s GPU utilization: 412.5TFLOP/s/GPU
0: Step Time : 2.28s GPU utilization: 410.1MODEL_TFLOP/s/GPU
"""
"""Megatron Bridge 0.1, and 0.2 (MODEL_)."""

NANOTRON = """\
01/17/2025 13:47:20 [INFO|DP=0|PP=0|TP=0|ip-26-0-160-225]: iteration: 1 / 20 | consumed_tokens: 1.05M | \
elapsed_time_per_iteration_ms: 9.21K | tokens_per_sec: 114K | tokens_per_sec_per_gpu: 14.2K | \
global_batch_size: 256 | lm_loss: 11.2 | lr: 1e-05 | model_tflops_per_gpu: 120 | hardware_tflops_per_gpu: 120 | \
grad_norm: 15.2 | cuda_memory_allocated: 6.32G | cuda_max_memory_reserved: 20.1G | hd_total_memory_tb: 312G
01/17/2025 13:47:22 [INFO|DP=0|PP=0|TP=0|ip-26-0-160-225]: iteration: 2 / 20 | consumed_tokens: 2.1M | \
time_per_iteration_ms: 1.23K | tokens_per_sec: 852K | tokens_per_sec_per_gpu: 107K | global_batch_size: 256 | \
lm_loss: 11.1 | lr: 1e-05 | model_tflops_per_gpu: 380 | hardware_tflops_per_gpu: 383 | grad_norm: 13
01/17/2025 13:47:23 [INFO|DP=0|PP=0|TP=0|ip-26-0-160-225]: iteration: 3 / 20 | consumed_tokens: 3.15M | \
time_per_iteration_ms: 985 | tokens_per_sec: 1.06M | tokens_per_sec_per_gpu: 133K | global_batch_size: 256 | \
lm_loss: 11 | lr: 1e-05 | model_tflops_per_gpu: 474 | hardware_tflops_per_gpu: 478 | grad_norm: 12
"""
"""nanotron 0.4, and 0.5 (time_per_iteration_ms)."""

DEEPSPEED = """\
[2024-07-17 19:53:10,100] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, lr=[5e-05], mom=[[0.9, 0.999]]
[2024-07-17 19:53:10,100] [INFO] [timer.py:258:stop] epoch=0/micro_step=40/global_step=10, \
RunningAvgSamplesPerSec=16.1, CurrSamplesPerSec=16.8, MemAllocated=12.02GB, MaxMemAllocated=40.5GB
[2024-07-17 19:53:30,600] [INFO] [timer.py:258:stop] epoch=0/micro_step=80/global_step=20, \
RunningAvgSamplesPerSec=16.2, CurrSamplesPerSec=16.7, MemAllocated=12.02GB, MaxMemAllocated=40.5GB
[2024-07-17 19:53:51,200] [INFO] [timer.py:258:stop] epoch=0/micro_step=120/global_step=30, \
RunningAvgSamplesPerSec=16.2, CurrSamplesPerSec=16.7, MemAllocated=12.02GB, MaxMemAllocated=40.5GB
"""
"""DeepSpeed 0.14."""

DEEPSPEED_OLD_TIMER = """\
[2022-03-11 02:06:58,985] [INFO] [timer.py:189:stop] 0/40, SamplesPerSec=83.48, MemAllocated=0.26GB, MaxMemAllocated=9.02GB
[2022-03-11 02:07:14,130] [INFO] [timer.py:189:stop] 0/60, SamplesPerSec=83.73, MemAllocated=0.26GB, MaxMemAllocated=9.02GB
"""  # noqa: E501
"""DeepSpeed 0.6, of whose lines only these were kept."""

DEEPSPEED_OLD = f"""\
[2022-03-11 02:06:58,985] [INFO] [logging.py:69:log_dist] [Rank 0] step=20, skipped=0, lr=[5e-05], mom=[[0.9, 0.999]]
{DEEPSPEED_OLD_TIMER}\
[2022-03-11 02:07:14,130] [INFO] [logging.py:69:log_dist] [Rank 0] step=30, skipped=0, lr=[5e-05], mom=[[0.9, 0.999]]
"""
"""DeepSpeed 0.6, with two micro-batches to a step."""

DEEPSPEED_PIPELINE = """\
steps: 10 loss: 6.9312 iter time (s): 3.120 samples/sec: 82.051
steps: 20 loss: 6.5120 iter time (s): 0.563 samples/sec: 454.707
steps: 30 loss: 6.1180 iter time (s): 0.561 samples/sec: 456.328
"""
"""DeepSpeed 0.14, PipelineEngine."""

TRAINER_STATE = """\
{
  "best_metric": null,
  "global_step": 500,
  "log_history": [
    {"epoch": 0.5, "grad_norm": 1.2, "learning_rate": 1e-05, "loss": 1.93, "step": 250},
    {"epoch": 1.0, "step": 500, "total_flos": 4.1e+17, "train_loss": 1.81, "train_runtime": 1234.5,
     "train_samples_per_second": 25.921, "train_steps_per_second": 0.405}
  ],
  "max_steps": 500,
  "num_train_epochs": 1
}
"""
"""transformers 4.46."""

TRAINER_LOG = """\
{'loss': 1.93, 'grad_norm': 1.2, 'learning_rate': 1e-05, 'epoch': 0.5}
{'train_runtime': 1234.5, 'train_samples_per_second': 25.921, 'train_steps_per_second': 0.405, \
'train_loss': 1.81, 'epoch': 1.0}
"""
"""transformers 4.46."""

TRAINER_START = """\
***** Running training *****
  Num examples = 30,720
  Instantaneous batch size per device = 1
  Total train batch size (w. parallel, distributed & accumulation) = 512
  Gradient Accumulation steps = 32
  Total optimization steps = 60
{'train_runtime': 13320.0, 'train_samples_per_second': 2.306, 'train_steps_per_second': 0.005, 'epoch': 1.0}
"""
"""transformers 4.46, with the lines of its start."""

TRAINER_TABLE = """\
  Total optimization steps = 60
***** train metrics *****
  epoch                    =        1.0
  train_runtime            = 1 day, 3:42:00.50
  train_samples_per_second =      2.306
  train_steps_per_second   =      0.001
"""
"""What `trainer.log_metrics` of example scripts prints."""

TORCHTITAN_ALL_RANKS = "".join(
    f"[rank{rank}]:[titan] 2026-02-24 19:46:{second:02},508 - root - INFO - step:  {step}  loss:  7.62585  "
    f"grad_norm: 26.6250  memory: 66.91GiB(37.51%)  tps: 10,050  tflops: 314.71  mfu: 13.99%\n"
    for step, second in ((1, 10), (2, 14), (3, 16), (4, 18))
    for rank in range(2)
)
"""torchtitan of 2026-02, where every rank prints."""

TORCHTITAN_VALIDATED = "".join(
    f"[rank0]:[titan] 2026-02-24 19:46:{second:02},508 - root - INFO - {step}  loss:  7.62585  "
    f"memory: 66.91GiB(37.51%)  tps: {tokens:,}\n"
    for step, second, tokens in (
        ("step:  2", 10, 10_050), ("validate step:  2", 19, 2_050), ("step:  4", 23, 10_050),
        ("validate step:  5", 34, 1_050), ("step:  6", 36, 10_050), ("step:  8", 40, 10_050),
    )
)  # fmt: skip
"""torchtitan of 2026-02 with its validator: after steps whose line is printed, and between two of them."""


def bridge(seconds):
    """A run of Megatron Bridge, with a line of its setup."""
    lines = (f"Step Time : {each:.2f}s GPU utilization: 410.1MODEL_TFLOP/s/GPU\n" for each in seconds)
    return "time to initialize megatron (seconds): 12.345\n" + "".join(lines)


def megatron(numbers, milliseconds, batch=128):
    """Lines of Megatron-LM (core 0.13); each step of `numbers` takes as many milliseconds, or the same."""
    times = milliseconds if isinstance(milliseconds, list) else [milliseconds] * len(numbers)
    return "".join(
        f" [2025-08-01 07:20:01] iteration {number:8}/     500 | consumed samples: {number * batch:12} | "
        f"elapsed time per iteration (ms): {each:.1f} | global batch size: {batch:5} | lm loss: 1.04E+01 |\n"
        for number, each in zip(numbers, times, strict=True)
    )


def arguments(**values):
    """The line and the block with which Megatron-LM starts."""
    given = {"world_size": 256, "micro_batch_size": 1, "global_batch_size": 128, "consumed_train_samples": 0} | values
    lines = "".join(f"  {name} {'.' * (48 - len(name))} {value}\n" for name, value in given.items())
    block = f"------------------------ arguments ------------------------\n{lines}"
    return f"using world size: {given['world_size']}\n{block}-------------------- end of arguments ------------------\n"


def nemo(numbers, seconds):
    """Lines of NeMo 2."""
    return "".join(f"Training epoch 0, iteration {n}/299 | global_step: {n} | train_step_timing in s: {seconds}\n"
                   for n in numbers)  # fmt: skip


def titan(day, steps_s, mesh="", saved_s=0.0):
    """Lines of torchtitan, each ten steps; two ranks tell of a checkpoint behind each, which takes some seconds."""
    second, lines = 0.0, [f"Building device mesh with parallelism: {mesh}"] if mesh else []
    told = [(second, line) for line in lines]
    for number, each in enumerate(steps_s):
        second += 10 * each + (saved_s if number else 0.0)
        told.append((second, f"step: {10 * number + 10}  loss: 7.1  memory: 47.85GiB(60.37%)  tps: 4,551"))
        ends = f"Finished saving the checkpoint (or staging if async is enabled)in {saved_s:.2f} seconds."
        told += [(second + saved_s, ends)] * (2 if saved_s else 0)
    return "".join(
        f"[rank0]:[titan] 2025-03-{day:02} 12:{int(at) // 60:02}:{at % 60:06.3f} - root - INFO - {line}\n"
        for at, line in told
    )


def deepspeed(day, steps_s):
    """Lines of DeepSpeed 0.14, each ten steps."""
    clock = [sum(steps_s[: place + 1]) * 10 for place in range(len(steps_s))]
    return "".join(
        f"[2025-03-{day:02} 12:{int(at) // 60:02}:{at % 60:06.3f}] [INFO] [timer.py:260:stop] epoch=0/micro_step={n}0/"
        f"global_step={n}0, RunningAvgSamplesPerSec=8.88, CurrSamplesPerSec=8.89\n"
        for n, at in enumerate(clock, 1)
    )
