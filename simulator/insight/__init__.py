"""Why a prediction is what it is: the critical path, what it rests on, how sure it is."""

from .critical_path import Z90, CriticalPath, by_group, critical_path, provenance, standard_error_s

__all__ = ["Z90", "CriticalPath", "by_group", "critical_path", "provenance", "standard_error_s"]
