"""Why a prediction is what it is: the critical path, what it rests on, how sure it is."""

from .critical_path import CriticalPath, by_group, critical_path, provenance, share, standard_error_s

__all__ = ["CriticalPath", "by_group", "critical_path", "provenance", "share", "standard_error_s"]
