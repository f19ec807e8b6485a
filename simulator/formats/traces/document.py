"""A trace file as plain events: parsed, and rid of the many events that say nothing about the GPU."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...base.errors import UserError

Event = dict[str, Any]
GPU = {
    "kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "copy", "Kernel": "kernel", "Memcpy": "copy",
    "Memset": "copy",
}  # fmt: skip
"""Categories of what runs on a GPU, of today's and of older files."""
_OF_HOST = frozenset({
    "cpu_op", "python_function", "ac2g", "fwdbwd", "async_cpu_to_gpu", "async_gpu", "cpu_instant_event", "overhead",
    "Trace", "cuda_sync", "Operator", "cpu_op_flow", "forward_backward", "fwd_bwd", "python", "cuda_profiler_range",
})  # fmt: skip
COMMS = "record_param_comms"
_STARTS_LIKE_A_LOG = re.compile(r"\s*\[\s*[^\s{\]]")  # [rank0], [2025-08-01


@dataclass(frozen=True)
class Document:
    """The events of a trace that are kept, what stands beside them, and how many events of the host were dropped."""

    path: Path
    events: Sequence[Event]
    beside: Mapping[str, Any]
    dropped: Mapping[str, int]


def parse(path: Path, text: str) -> Document | None:
    """The trace that a text holds; None if the text is no JSON and may be a log.

    A UserError for JSON that is broken or holds no events.
    """
    start = text.lstrip()[:1]
    if start not in ("{", "["):
        return None
    dropped: Counter[str] = Counter()
    try:
        found = json.loads(text, object_hook=lambda table: _kept(table, dropped), strict=False)
    except (ValueError, RecursionError) as error:
        if _STARTS_LIKE_A_LOG.match(text):
            return None
        raise UserError(f"{path}: is not JSON: {' '.join(str(error).split())[:100]}") from None
    events = found.get("traceEvents") if isinstance(found, dict) else found
    if not isinstance(events, list):
        raise UserError(f"{path}: is no trace: it has no list `traceEvents`")
    beside = {key: value for key, value in found.items() if key != "traceEvents"} if isinstance(found, dict) else {}
    return Document(path, [event for event in events if isinstance(event, dict)], beside, dropped)


def _kept(table: dict[str, Any], dropped: Counter[str]) -> dict[str, Any] | None:
    """The table itself, or nothing if it is an event of the host that no question here asks for."""
    if "ph" not in table or str(table.get("cat")) not in _OF_HOST or table.get("name") == COMMS:
        return table
    dropped[table["cat"]] += 1
    return None
