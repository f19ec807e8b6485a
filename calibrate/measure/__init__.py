"""Microbenchmarks of the machine at hand: what costs are, measured, as records that `runcast calibrate fit` reads.

This folder must run in a bare PyTorch container: it imports torch, the standard library, `runcast.kernels` and itself.

| file | what |
|---|---|
| `case`, `cases/` | one thing to measure: its name, its numbers, how; which there are where, one file per family |
| `plan` | which of them this run measures, in which order, and how long that takes |
| `device`, `timing`, `overlap` | clocks of CUDA and CPUs; budgets, hot and cold; two things at once |
| `environment`, `telemetry` | what the machine is; what NVML tells of it |
| `job` | what a worker is started with, and where this process stands among all |
| `worker` | runs cases, in step with the other ranks |
| `supervisor`, `meeting` | watches a worker, replaces it when a case hangs; who is alive |
| `leader`, `messages` | rank 0's file and plan; what the user sees |
| `records` | the file |
| `command`, `show`, `drift` | the verbs |
"""
