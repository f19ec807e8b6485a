"""Why a prediction is what it is: the critical path, what it rests on, how sure it is."""

from .contention import SLOWED, slowed_lines, slowed_s
from .critical_path import CriticalPath, by_group, critical_path, provenance
from .split import path_by_phase, split_by_place

__all__ = [
    "SLOWED", "CriticalPath", "by_group", "critical_path", "path_by_phase", "provenance", "slowed_lines", "slowed_s",
    "split_by_place",
]  # fmt: skip
