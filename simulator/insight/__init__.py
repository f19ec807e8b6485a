"""Why a prediction is what it is: the critical path, what it rests on, how sure it is."""

from .contention import SLOWED, slowed_lines, slowed_s
from .critical_path import CriticalPath, critical_path, provenance, sum_by_group
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
