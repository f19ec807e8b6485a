"""What Hugging Face's Trainer writes at the end: trainer_state.json, train_results.json, or the same in its log.

`{'train_runtime': 123.4, 'train_samples_per_second': 12.9, 'train_steps_per_second': 0.405, …}`; the history of
trainer_state.json has the `step` beside it, and a log says `Total optimization steps = 50` where it starts. With them
the mean of a step has more digits than the rate, which has three decimals. The table of metrics at the end of a log has
`train_runtime = 0:02:04.71`. Source: transformers/trainer_utils.py,
speed_metrics.
"""

import re

from .log import NUMBER, Format, Line

_IS = r"""["']?\s*[:=]\s*["']?"""
_CLOCK = re.compile(r"(?:(\d+) days?, )?(\d+):(\d\d):(\d\d(?:\.\d+)?)")
_RUNTIME = re.compile(rf"train_runtime{_IS}({_CLOCK.pattern}|{NUMBER})")
_RATE = re.compile(rf"train_steps_per_second{_IS}({NUMBER})")
_STEP = re.compile(
    r"""["']step["']:\s*(\d+)[^{}]*["']train_runtime["']|["']max_steps["']:\s*(\d+)"""
    r"""|\bglobal_step["']?\s*[:=]\s*(\d+)|Total optimization steps = ([\d,]+)"""
)
_LEAST_RATE = 0.1  # of which three decimals are three digits
_SIZES = {
    "micro_batch": re.compile(r"Instantaneous batch size per device = ([\d,]+)"),
    "global_batch": re.compile(r"Total train batch size \(.*?\) = ([\d,]+)"),
    "accumulation": re.compile(r"Gradient Accumulation steps = ([\d,]+)"),
}


def _lines(text: str) -> dict[int, Line]:
    """One line, numbered by the steps of the whole run."""
    runtime, rate = _RUNTIME.search(text), _RATE.search(text)
    if runtime is None or rate is None:
        return {}
    if number := _steps(text):
        return {number: Line(_seconds(runtime[1]) / number, {})}
    return {0: Line(1 / float(rate[1]) if float(rate[1]) else 0.0, {})}


def _seconds(text: str) -> float:
    """Seconds of a number of them, or of `1 day, 2:03:04.5`, as the table of metrics has it."""
    if clock := _CLOCK.fullmatch(text):
        days, hours, minutes, seconds = (float(part or 0) for part in clock.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return float(text)


def _steps(text: str) -> int:
    """Steps of the run, 0 where nothing says how many."""
    found = _STEP.search(text)
    return _whole(next(filter(None, found.groups()))) if found else 0


def _whole(text: str) -> int:
    return int(text.replace(",", ""))


def _fault(text: str) -> str:
    rate = _RATE.search(text)
    if _steps(text) or rate is None or not 0 < float(rate[1]) < _LEAST_RATE:
        return ""
    known = "train_runtime beside the number of steps (step, global_step, Total optimization steps = 60)"
    return f"train_steps_per_second = {rate[1]}: has fewer than three digits; expected {known}"


def _facts(text: str) -> dict[str, float]:
    """Sequences of a micro-batch and of a step, as the log says where it starts."""
    return {name: _whole(match[1]) for name, pattern in _SIZES.items() if (match := pattern.search(text))}


TRAINER = Format(
    "trainer_log", "Hugging Face Trainer", _lines, "seconds of a step are the mean of the run, warm-up included",
    _facts, fault=_fault,
)  # fmt: skip
