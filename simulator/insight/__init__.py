"""Why a prediction is what it is: the critical path, what it rests on, how sure it is."""

from .link_load import link_load
from .where_time_goes import (
    SLOWED,
    CriticalPath,
    busiest_lanes,
    critical_path,
    path_by_phase,
    provenance,
    slowed_lines,
    slowed_s,
    split_by_place,
    sum_by_group,
)

__all__ = [
    "SLOWED",
    "CriticalPath",
    "busiest_lanes",
    "critical_path",
    "link_load",
    "path_by_phase",
    "provenance",
    "slowed_lines",
    "slowed_s",
    "split_by_place",
    "sum_by_group",
]  # fmt: skip
