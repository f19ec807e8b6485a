"""nanotron's log: `iteration: 12 / 100 | consumed_tokens: 25.2M | time_per_iteration_ms: 1.23K | …`, three digits each.

Source: nanotron/trainer.py, train_step_logs, and logging/base.py, human_format; `elapsed_time_per_iteration_ms` before
2025.
"""

import re
from collections.abc import Mapping

from .log import Format, Line

_ITERATION = re.compile(r"\biteration:\s*(\d+)\s*/")
_TIME = re.compile(r"\b(?:elapsed_)?time_per_iteration_ms:\s*(-?[\d.]+)([KMGT]?)")
_ITEM = re.compile(r"\b(tokens_per_sec_per_gpu|hardware_tflops_per_gpu|cuda_max_memory_reserved):\s*([\d.]+)([KMGT]?)")
_TIMES: Mapping[str, float] = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_FACTS = {
    "tokens_per_sec_per_gpu": ("tokens_per_s_per_gpu", 1.0), "hardware_tflops_per_gpu": ("flop_per_s_per_gpu", 1e12),
    "cuda_max_memory_reserved": ("reserved_bytes", 1.0),
}  # fmt: skip


def _lines(text: str) -> dict[int, Line]:
    found = {}
    for line in text.splitlines():
        number, time = _ITERATION.search(line), _TIME.search(line)
        if number and time:
            items = {name: float(value) * _TIMES[unit] for name, value, unit in _ITEM.findall(line)}
            says = {_FACTS[name][0]: value * _FACTS[name][1] for name, value in items.items()}
            found[int(number[1])] = Line(float(time[1]) * _TIMES[time[2]] / 1e3, says)
    return found


NANOTRON = Format("nanotron_log", "nanotron", _lines, _ITERATION)
