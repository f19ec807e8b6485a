"""What Hugging Face's Trainer writes at the end: trainer_state.json, train_results.json, or the same in its log.

`{'train_runtime': 123.4, 'train_samples_per_second': 12.9, 'train_steps_per_second': 0.405, …}`; the history of
trainer_state.json has the `step` beside it, and with both the mean of a step has more digits than the rate. Source:
transformers/trainer_utils.py, speed_metrics.
"""

import re

from .log import NUMBER, Format, Line

_RUNTIME = re.compile(rf"""["']train_runtime["']:\s*["']?({NUMBER})""")
_RATE = re.compile(rf"""["']train_steps_per_second["']:\s*["']?({NUMBER})""")
_STEP = re.compile(r"""["']step["']:\s*(\d+)[^{}]*["']train_runtime["']|["']max_steps["']:\s*(\d+)""")


def _lines(text: str) -> dict[int, Line]:
    """One line, numbered by the steps of the whole run."""
    runtime, rate, step = _RUNTIME.search(text), _RATE.search(text), _STEP.search(text)
    if runtime is None or rate is None:
        return {}
    number = int(step[1] or step[2]) if step else 0
    if number:
        return {number: Line(float(runtime[1]) / number, {})}
    return {0: Line(1 / float(rate[1]) if float(rate[1]) else 0.0, {})}


TRAINER = Format(
    "trainer_log", "Hugging Face Trainer", _lines, "seconds of a step are the mean of the run, warm-up included"
)
