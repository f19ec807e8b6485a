"""Microbenchmarks of the machine at hand: what costs are, measured, as records that `runcast calibrate fit` reads.

This folder must run in a bare PyTorch container: it imports torch, the standard library, `runcast.kernels` and itself.

| file | what |
|---|---|
| `case`, `cases/` | one thing to measure: its name, its numbers, how; which there are where, one file per family |
| `plan` | which of them this run measures, in which order, and how long that takes |
| `timing`, `device`, `beside`, `telemetry` | budgets and clocks of CUDA and CPUs; two things at once; NVML |
| `environment`, `place` | what the machine is, and where this process stands in it |
| `worker` | runs cases, in step with the other ranks |
| `supervisor`, `child`, `meeting` | watches a worker, replaces it when a case hangs; who is alive |
| `leader`, `telling` | rank 0's file and plan; what the user sees; how a run ends |
| `records`, `statistics` | the file; what times say |
| `command`, `show`, `drift` | the verbs |
"""
