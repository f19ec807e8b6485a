"""DeepSpeed's logs: of its engine, and of its pipeline engine.

Engine: `[2025-03-01 12:00:10,123] [INFO] [timer.py:264:stop] epoch=0/micro_step=40/global_step=10,
RunningAvgSamplesPerSec=61.1, CurrSamplesPerSec=62.0, MemAllocated=20.1GB, MaxMemAllocated=51.3GB`; before 0.8.1
`0/40, SamplesPerSec=61.1, …` (utils/timer.py), which counts micro-batches (deepspeedai/DeepSpeed#2498), as its samples
per second do. Steps are in `[Rank 0] step=10, skipped=0, lr=[…]` then (runtime/engine.py). A step is the time between
two lines, without the evaluations that Hugging Face's Trainer tells there (`'eval_runtime': 30.1`), and without
checkpoints: from `[Torch] Checkpoint global_step10 is about to be saved!` to the last rank's `… is ready now!`
(runtime/checkpoint_engine/torch_checkpoint_engine.py), which releases since 2025 do not tell. Pipeline engine:
`steps: 10 loss: 6.93 iter time (s): 0.563 samples/sec: 454.9` (runtime/pipe/engine.py).
"""

import re
from collections.abc import Iterator

from ...base.units import format_count
from .log import BY_CLOCK, NUMBER, SIGNED, Format, Line, lines_by_clock, number_of, quantities

_MEMORY = rf"(?:.*?MaxMemAllocated=(?P<gib>{NUMBER})GB)?"
_TIMER = re.compile(rf"global_step=(\d+), (?:RunningAvg)?SamplesPerSec={NUMBER}{_MEMORY}")
_PROGRESS = re.compile(r"\[Rank 0\] step=(\d+), skipped=")
_OLD_TIMER = re.compile(rf"\b\d+/(\d+), (?:RunningAvg)?SamplesPerSec={NUMBER}{_MEMORY}")
_EVALUATION = re.compile(rf"""["']eval_(?:\w+_)?runtime["']:\s*["']?({NUMBER})""")
_SAVING = re.compile(r"\[Torch\] Checkpoint \S+ is about to be saved!")
_SAVED = re.compile(r"\[Torch\] Checkpoint \S+ is ready now!")
_PAUSE = re.compile(rf"{_EVALUATION.pattern}|{_SAVED.pattern}")
_MARKS = re.compile(r"\bDeepSpeed info: version=|(?:\bglobal_step=|\[Rank 0\] step=)(\d+),")
_PIPELINE = re.compile(rf"\bsteps:\s*(\d+)\s+loss:.*?iter time \(s\):\s*({SIGNED})")


def _engine(text: str) -> dict[int, Line]:
    """Steps by the first lines that tell them; those of the old timer only tell that it is such a log."""
    return _steps(text, _TIMER) or _steps(text, _PROGRESS) or _steps(text, _OLD_TIMER)


def _steps(text: str, line: re.Pattern[str]) -> dict[int, Line]:
    return lines_by_clock(
        text, line, lambda match: quantities([("memory_bytes", match.groupdict().get("gib"), 2.0**30)]),
        pause=_PAUSE, halt=_SAVING,
    )  # fmt: skip


def _fault(text: str) -> str:
    if _steps(text, _TIMER) or _steps(text, _PROGRESS):
        return ""
    number = next(_OLD_TIMER.finditer(text))[1]
    return f"0/{number}, SamplesPerSec counts micro-batches; expected lines `[Rank 0] step=10, skipped=0` beside"


def _facts(text: str) -> dict[str, float]:
    """The most memory by lines of the old timer."""
    peaks = [number_of(match["gib"]) for match in _OLD_TIMER.finditer(text) if match["gib"]]
    return {"memory_bytes": max(peaks) * 2.0**30} if peaks else {}


def _notes(text: str) -> Iterator[str]:
    if evaluations := len(_EVALUATION.findall(text)):
        yield f"{format_count(evaluations, 'evaluation')} taken out by eval_runtime"
    if (saves := len(_SAVING.findall(text))) and not _SAVED.search(text):
        yield f"time of {format_count(saves, 'checkpoint')} is in the steps around: no line tells when they end"


def _pipeline(text: str) -> dict[int, Line]:
    return {int(match[1]): Line(number_of(match[2]), {}) for match in _PIPELINE.finditer(text)}


DEEPSPEED = Format("deepspeed_log", "DeepSpeed", _engine, _MARKS, BY_CLOCK, _facts, fault=_fault, notes=_notes)
DEEPSPEED_PIPELINE = Format(
    "deepspeed_pipeline_log", "DeepSpeed", _pipeline, re.compile(rf"\bDeepSpeed info: version=|{_PIPELINE.pattern}")
)
