"""DeepSpeed's logs: of its engine, and of its pipeline engine.

Engine: `[2025-03-01 12:00:10,123] [INFO] [timer.py:264:stop] epoch=0/micro_step=40/global_step=10,
RunningAvgSamplesPerSec=61.1, CurrSamplesPerSec=62.0, MemAllocated=20.1GB, MaxMemAllocated=51.3GB`; before 0.8.1
`0/10, SamplesPerSec=61.1, …` (utils/timer.py). Its samples per second count only micro-batches in some releases
(deepspeedai/DeepSpeed#2498), so that a step is the time between two lines. Pipeline engine: `steps: 10 loss: 6.93
iter time (s): 0.563 samples/sec: 454.9` (runtime/pipe/engine.py).
"""

import re

from .log import BY_CLOCK, NUMBER, SIGNED, Format, Line, lines_by_clock, quantities

_ENGINE = re.compile(
    rf"(?:global_step=|\b\d+/)(\d+), (?:RunningAvg)?SamplesPerSec={NUMBER}(?:.*?MaxMemAllocated=(?P<gib>{NUMBER})GB)?"
)
_PIPELINE = re.compile(rf"\bsteps:\s*(\d+)\s+loss:.*?iter time \(s\):\s*({SIGNED})")


def _engine(text: str) -> dict[int, Line]:
    return lines_by_clock(text, _ENGINE, lambda match: quantities([("memory_bytes", match["gib"], 2.0**30)]))


def _pipeline(text: str) -> dict[int, Line]:
    return {int(match[1]): Line(float(match[2]), {}) for match in _PIPELINE.finditer(text)}


DEEPSPEED = Format("deepspeed_log", "DeepSpeed", _engine, BY_CLOCK)
DEEPSPEED_PIPELINE = Format("deepspeed_pipeline_log", "DeepSpeed", _pipeline)
