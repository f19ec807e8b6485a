"""Microbenchmarks of the machine at hand: what costs are, measured, as records that `runcast calibrate fit` reads.

This folder must run in a bare PyTorch container: it imports torch, the standard library, `runcast.kernels` and itself.

| file | what |
|---|---|
| `case` | one thing to measure: its name, its numbers, how |
| `cases/` | which there are, one file per family |
| `plan` | which of them this run measures, in which order, and how long that takes |
| `timing`, `device`, `statistics` | budgets and clocks, on CUDA and on CPUs |
| `facts`, `place` | what the machine is, and where this process stands in it |
| `worker` | runs cases, in step with the other ranks |
| `supervisor` | starts and watches a worker, ends and replaces it when a case hangs; the file; the progress |
| `records`, `drift` | the file of records; what moved between two of them |
"""
