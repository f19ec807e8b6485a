"""Logs of training runs as step times: a file per format, and the table of formats in `read`."""

from .read import FORMATS, Log, list_steps, read_log

__all__ = ["FORMATS", "Log", "list_steps", "read_log"]
