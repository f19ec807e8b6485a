"""Collectives as a system: one exchange by size and algorithm, as nccl-tests measures it."""
