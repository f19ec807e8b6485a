"""Why a prediction is what it is: the critical path, what it rests on, how sure it is."""

from .critical_path import SLOWED, CriticalPath, critical_path, provenance, slowed_lines, slowed_s, sum_by_group
from .split import path_by_phase, split_by_place

__all__ = [
    "SLOWED",
    "CriticalPath",
    "critical_path",
    "path_by_phase",
    "provenance",
    "slowed_lines",
    "slowed_s",
    "split_by_place",
    "sum_by_group",
]  # fmt: skip
