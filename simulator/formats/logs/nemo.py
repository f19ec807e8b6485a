"""Logs of Megatron Bridge and of NeMo.

Bridge: `Step Time : 2.31s GPU utilization: 512.3MODEL_TFLOP/s/GPU` (training/utils/train_utils.py), beside lines as
Megatron-LM prints them, which tell more digits; a run begins with `time to initialize megatron (seconds): 12.3`
(training/setup.py), as its lines have no number. NeMo 2: `Training epoch 0, iteration 7/99 | … | global_step: 7 | …
train_step_timing in s: 2.345`; NeMo 1 has it in its progress bar: `global_step=7.000, train_step_timing in s=2.34`.
"""

import re
from collections.abc import Iterator

from .log import NUMBER, SIGNED, Format, Line, number_of, quantities

_BRIDGE = re.compile(
    rf"Step Time\s*:\s*({SIGNED})\s*s\b.*?GPU utilization:\s*(?P<tflops>{NUMBER})\s*(?:MODEL_)?TFLOP/s/GPU"
)
_BEGIN = re.compile(r"\btime to initialize megatron \(seconds\):")
_NEMO = re.compile(rf"train_step_timing in s\s*[:=]\s*(?P<seconds>{SIGNED})")
_STEP = re.compile(r"global_step\s*[:=]\s*(\d+(?:\.\d+)?(?:e\+?\d+)?)")
_BATCH = re.compile(r"global_batch_size\s*[:=]\s*(\d+)")


def _bridge(text: str) -> dict[int, Line]:
    steps = enumerate(_BRIDGE.finditer(text), 1)
    return {
        at: Line(number_of(step[1]), quantities([("flop_per_s_per_gpu", step["tflops"], 1e12)])) for at, step in steps
    }


def _bridge_notes(text: str) -> Iterator[str]:
    if not _BEGIN.search(text):
        yield "lines `Step Time` have no number: whether the log holds several runs is not told"


def _nemo(text: str) -> dict[int, Line]:
    """Steps by their own number, or by their place where a progress bar rounds it."""
    found: dict[int, Line] = {}
    for line in text.splitlines():  # which splits at what redraws a progress bar, too
        if timing := _NEMO.search(line):
            step, batch = _STEP.search(line), _BATCH.search(line)
            number = int(float(step[1])) if step else len(found)
            found[number] = Line(number_of(timing["seconds"]), {"global_batch": int(batch[1])} if batch else {})
    return found


BRIDGE = Format("megatron_bridge_log", "Megatron Bridge", _bridge, _BEGIN, notes=_bridge_notes)
NEMO = Format("nemo_log", "NeMo", _nemo, re.compile(rf"{_STEP.pattern}(?=.*?{_NEMO.pattern})"))
