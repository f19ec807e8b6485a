"""What Hugging Face's Trainer writes at the end: trainer_state.json, train_results.json, or the same in its log.

`{'train_runtime': 123.4, 'train_samples_per_second': 12.9, 'train_steps_per_second': 0.405, …}`; the history of
trainer_state.json has the `step` beside it, and a log says `Total optimization steps = 50` where it starts. With them
the mean of a step has more digits than the rate, which has three decimals. The table of metrics at the end of a log has
`train_runtime = 0:02:04.71`. Source: transformers/trainer_utils.py, speed_metrics, and trainer.py.

The runtime holds the evaluations during the training, whose own is `eval_runtime`; one before it has epoch 0 and no
loss before it. It is of this process, which may have gone on from a checkpoint (`Continuing training from global step
50`, in 5.x `Resuming training from checkpoint with epoch 0 and global step 50`) and stopped early. The rate counts all
steps that the run was to have, in 5.x those that this process ran.
"""

import re
from collections.abc import Iterator

from ...base.units import format_count
from .log import NUMBER, Format, Line, number_of

_IS = r"""["']?\s*[:=]\s*["']?"""
_CLOCK = re.compile(r"(?:(\d+) days?, )?(\d+):(\d\d):(\d\d(?:\.\d+)?)")
_RUNTIME = re.compile(rf"train_runtime{_IS}({_CLOCK.pattern}|{NUMBER})")
_RATE = re.compile(rf"train_steps_per_second{_IS}({NUMBER})")
_EVALUATION = re.compile(rf"\beval_(?:\w+_)?runtime{_IS}({_CLOCK.pattern}|{NUMBER})")
_START = re.compile(r"\*{5} Running training \*{5}")
_TRAINING = re.compile(
    rf"""^.*?(?:{_START.pattern}|["'](?:loss|log_history)["']\s*:|\bepoch{_IS}(?!0(?:\.0*)?[^.\d])\d)""", re.MULTILINE
)
"""A line that only training prints, or whose epoch is above zero."""
_FIRST = re.compile(r"(?:Continuing|Resuming) training from .*?\bglobal step (\d+)")
_LAST = re.compile(
    r"""["']step["']:\s*(\d+)[^{}]*["']train_runtime["']|["']global_step["']:\s*(\d+)|TrainOutput\(global_step=(\d+)"""
)
_TOTAL = re.compile(r"""["']max_steps["']:\s*(\d+)|Total optimization steps = ([\d,]+)""")
_SAID = re.compile(r"\bglobal_step\s*[:=]\s*(\d+)")  # in any line, such as those of a user's own
_EPOCH = re.compile(rf"\bepoch{_IS}({NUMBER})")
_SAVE = re.compile(r"\bSaving model checkpoint to \S*checkpoint-\d+")
_LEAST_RATE = 0.1  # of which three decimals are three digits
_ROUNDED = 0.0005  # at most, of a rate
_ROUNDED_S = 0.01  # at most, of a runtime
_NEARLY = 0.95  # of the epochs that all steps take: rounding, and batches that are not full
_SIZES = {
    "micro_batch": re.compile(r"Instantaneous batch size per device = ([\d,]+)"),
    "global_batch": re.compile(r"Total train batch size \(.*?\) = ([\d,]+)"),
    "accumulation": re.compile(r"Gradient Accumulation steps = ([\d,]+)"),
}
_EPOCHS = re.compile(r"Num Epochs = ([\d,]+)")
_EXAMPLES = re.compile(r"Num examples = ([\d,]+)")


def _lines(text: str) -> dict[int, Line]:
    """One line, numbered by the last step of the whole run."""
    runtime, rate = _find_last(_RUNTIME, text), _find_last(_RATE, text)
    if runtime is None or rate is None:
        return {}
    seconds, rated = _seconds(runtime[1]), number_of(rate[1])
    steps = _count_steps(text) or seconds * rated
    return {_last(text): Line((seconds - sum(_evaluations(text))) / steps if steps else 0.0, {})}


def _evaluations(text: str) -> list[float]:
    """Seconds of each evaluation during the training, which its runtime counts; the runtime may be told twice."""
    ends = [(match, _seconds(match[1])) for match in _RUNTIME.finditer(text)]
    end = next(match.start() for match, seconds in ends if abs(seconds - ends[-1][1]) < _ROUNDED_S)
    before = max((match.end() for match, _ in ends if match.end() < end), default=0)
    training = _TRAINING.search(text, before, end)
    begin = training.start() if training else end
    return [_seconds(match[1]) for match in _EVALUATION.finditer(text, begin, end)]


def _find_last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    return next(iter([*pattern.finditer(text)][-1:]), None)


def _count_steps(text: str) -> int:
    """Steps that the process ran, 0 where nothing says how many.

    The rate never counts fewer than that, so where it does, it alone is right: the log lacks where the run went on or
    where it stopped.
    """
    steps = _last(text) - _first(text)
    runtime, rate = _find_last(_RUNTIME, text), _find_last(_RATE, text)
    if runtime is None or rate is None:
        return max(0, steps)
    seconds = _seconds(runtime[1])
    return steps if steps > 0 and (number_of(rate[1]) + _ROUNDED) * seconds > steps - 0.5 else 0


def _first(text: str) -> int:
    """The step of the checkpoint from which the run went on."""
    found = _find_last(_FIRST, text)
    return int(found[1]) if found else 0


def _last(text: str) -> int:
    """The last step, or the last one that was to be where nothing tells it; 0 where nothing says either."""
    found = _find_last(_LAST, text) or _find_last(_TOTAL, text) or _find_last(_SAID, text)
    return _whole(next(filter(None, found.groups()), "0")) if found else 0


def _seconds(text: str) -> float:
    """Seconds of a number of them, or of `1 day, 2:03:04.5`, as the table of metrics has it."""
    if clock := _CLOCK.fullmatch(text):
        days, hours, minutes, seconds = (float(part or 0) for part in clock.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return number_of(text)


def _whole(text: str) -> int:
    return int(text.replace(",", ""))


def _fault(text: str) -> str:
    rate = _find_last(_RATE, text)
    if _count_steps(text):
        return _why_too_many(text)
    if rate is None or not 0 < number_of(rate[1]) < _LEAST_RATE:
        return ""
    known = "train_runtime beside the number of steps (step, global_step, Total optimization steps = 60)"
    known = f"trainer_state.json: fewer than {_last(text)} steps ran" if _last(text) else known
    return f"train_steps_per_second = {rate[1]}: has fewer than three digits; expected {known}"


def _why_too_many(text: str) -> str:
    """Why the steps that were to be are not those that ran: the last epoch is too early."""
    sizes = [pattern.search(text) for pattern in (_EPOCHS, _EXAMPLES, _SIZES["global_batch"])]
    reached = _EPOCH.findall(text)
    if _LAST.search(text) or not reached or not all(sizes):
        return ""
    epochs, examples, batch = (_whole(found[1]) for found in sizes if found)
    expected = min(epochs, _last(text) / max(1, -(-examples // batch)))
    if number_of(reached[-1]) >= _NEARLY * expected:
        return ""
    says = f"the run stopped before the end of its {_last(text)} steps (epoch {reached[-1]}, not {expected:.3g})"
    return f"{says}, and nothing tells how many it ran; expected trainer_state.json, or TrainOutput(global_step=…)"


def _notes(text: str) -> Iterator[str]:
    """What was taken out or was not, and what neither trainer_state.json nor train_results.json tells: the steps."""
    if evaluations := _evaluations(text):
        count = format_count(len(evaluations), "evaluation")
        yield f"{sum(evaluations):.4g} s of {count} are taken out"
    if saves := _saves(text):
        yield f"time of {format_count(saves, 'checkpoint')} is in the mean: no line tells how long"
    counted = _last(text) and not _count_steps(text)  # by a rate that counts what ran
    if not (counted or "Total optimization steps" in text or _FIRST.search(text)):
        yield "whether the run went on from a checkpoint is not told; its step would be longer: give its log then"


def _saves(text: str) -> int:
    """Checkpoints that the runtime counts."""
    return len(_SAVE.findall(text.partition("train_runtime")[0]))


def _facts(text: str) -> dict[str, float]:
    """Sequences of a micro-batch and of a step, as the log says where it starts."""
    return {name: _whole(match[1]) for name, pattern in _SIZES.items() if (match := pattern.search(text))}


TRAINER = Format(
    "trainer_log", "Hugging Face Trainer", _lines, _START,
    "seconds of a step are the mean of the run, warm-up included", _facts, fault=_fault, notes=_notes,
)  # fmt: skip
