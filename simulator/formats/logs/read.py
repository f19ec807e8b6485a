"""Logs of training runs as step times, whatever printed them.

The first three lines are warm-up, or the first half of fewer than six; the step is the median of the others. Lines
whose time is not above zero are left out. A new format is a file beside this one and a line in `FORMATS`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from ...base.errors import UserError
from .deepspeed import DEEPSPEED, DEEPSPEED_PIPELINE
from .log import Format, Line
from .megatron import MEGATRON, as_recipe, read_arguments, read_facts
from .nanotron import NANOTRON
from .nemo import BRIDGE, NEMO
from .torchtitan import TORCHTITAN
from .trainer import TRAINER

WARM_UP = 3
FORMATS = (MEGATRON, BRIDGE, NEMO, TORCHTITAN, NANOTRON, DEEPSPEED_PIPELINE, DEEPSPEED, TRAINER)
"""The first that finds steps in a log reads it: more than one may, as software prints the lines of what it rests on."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Log:
    """A run as its log tells it: seconds of its steps by number, of the typical one, and what else is said.

    `facts` and `arguments` are those of `traces.Run`; `warm_up` is how many steps were left out.
    """

    path: Path
    format: Format
    steps_s: Mapping[int, float]
    step_s: float
    warm_up: int
    facts: Mapping[str, Any]
    notes: tuple[str, ...]
    arguments: str | None


def read_log(path: Path, text: str, step: int | None = None, or_else: str = "") -> Log:
    """The run of a log.

    A UserError if no line tells the time of a step, or not that of the step asked for; `or_else` says what else than a
    log was expected then.
    """
    plain = _COLOUR.sub("", text)
    for form in FORMATS:
        if lines := form.lines(plain):
            return _log(path, form, dict(sorted(lines.items())), plain, step)
    known = ", ".join(dict.fromkeys(form.software for form in FORMATS))
    raise UserError(f"{path}: no line tells the time of a step; expected a log of {known}{or_else}")


def _log(path: Path, form: Format, lines: Mapping[int, Line], text: str, step: int | None) -> Log:
    if wrong := form.fault(text):
        raise UserError(f"{path}: {wrong}")
    steps = {number: line for number, line in lines.items() if line.seconds > 0}
    if not steps:
        raise UserError(f"{path}: tells of {len(lines)} steps, but of none a time above zero")
    numbers = list(steps)
    if step is not None and step not in steps:
        raise UserError(f"{path}: holds no step {step}; it has {list_steps(numbers)}")
    warm_up = min(WARM_UP, len(numbers) // 2)
    counted = numbers[warm_up:] if step is None else [step]
    arguments = read_arguments(text)
    return Log(
        path=path,
        format=form,
        steps_s={number: line.seconds for number, line in steps.items()},
        step_s=median(steps[number].seconds for number in counted),
        warm_up=warm_up,
        facts=form.facts(text) | _facts(arguments, text, steps, [steps[number].says for number in counted]),
        notes=(*_notes(form, numbers, warm_up, step, len(lines) - len(steps)), *filter(None, [form.unsure(text)])),
        arguments=as_recipe(arguments) if arguments else None,
    )


def _notes(form: Format, numbers: Sequence[int], warm_up: int, step: int | None, left_out: int) -> Iterator[str]:
    if step is None and warm_up:
        yield f"steps {', '.join(map(str, numbers[:warm_up]))} are warm-up"
    if len(numbers) == 1 and form is not TRAINER:
        yield "one step only: it is likely warm-up"
    if left_out:
        yield f"{left_out} {'lines tell' if left_out > 1 else 'line tells'} no time above zero: left out"
    if form.seconds_are:
        yield form.seconds_are


def _facts(
    arguments: Mapping[str, str], text: str, steps: Mapping[int, Line], counted: Sequence[Mapping[str, float]]
) -> dict[str, Any]:
    """What Megatron-LM says before the first step, and medians over the lines of counted steps.

    Tokens are known where the file says both the batch and the length of sequences.
    """
    found = read_facts(text, arguments)
    names = sorted({name for line in counted for name in line})
    found |= {name: median(line[name] for line in counted if name in line) for name in names}
    batches = [step.says["global_batch"] for step in steps.values() if "global_batch" in step.says]
    if batches and (length := arguments.get("seq_length", "")).isdigit():
        found["tokens"] = int(batches[-1]) * int(length)
    return found


def list_steps(numbers: Sequence[int]) -> str:
    """Step numbers as words, long lists by their ends."""
    few = len(numbers) <= 12
    return ", ".join(map(str, numbers)) if few else f"{len(numbers)} from {numbers[0]} to {numbers[-1]}"
