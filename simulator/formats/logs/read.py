"""Logs of training runs as step times, whatever printed them.

The first three lines of a run are warm-up, or the first half of fewer than six; the step is the median of the others.
Lines whose time is not above zero are left out, and those whose global batch is not yet full. A new format is a file
beside this one and a line in `FORMATS`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from ...base.errors import UserError
from ..lines import strip_colours
from .deepspeed import DEEPSPEED, DEEPSPEED_PIPELINE
from .log import Format, Line
from .megatron import MEGATRON, as_recipe, read_facts
from .nanotron import NANOTRON
from .nemo import BRIDGE, NEMO
from .runs import Run, choose_runs, count_warm_up, describe_choice, split_runs
from .torchtitan import TORCHTITAN
from .trainer import TRAINER

FORMATS = (MEGATRON, BRIDGE, NEMO, TORCHTITAN, NANOTRON, DEEPSPEED_PIPELINE, DEEPSPEED, TRAINER)
"""The first that finds steps in a log reads it: more than one may, as software prints the lines of what it rests on."""


@dataclass(frozen=True)
class Log:
    """Runs of one setup as their log tells them: seconds of steps by number, of the typical one, and what else is said.

    `facts` and `arguments` are those of `traces.Run`; `warm_up` is how many steps each of `runs` left out, and
    `choice` says what else of the log was left out: both are in `notes`, too.
    """

    path: Path
    format: Format
    steps_s: Mapping[int, float]
    step_s: float
    runs: int
    warm_up: int
    facts: Mapping[str, Any]
    choice: tuple[str, ...]
    notes: tuple[str, ...]
    arguments: str | None


def read_log(path: Path, text: str, step: int | None = None, or_else: str = "") -> Log:
    """The run of a log, or those with the arguments of its last run.

    A UserError if no line tells the time of a step, or not that of the step asked for; `or_else` says what else than a
    log was expected then.
    """
    plain = "\n".join(strip_colours(text).splitlines())  # whose lines end as on Windows, or where a progress bar ends
    for form in FORMATS:
        if runs := split_runs(plain, form):
            return _log(path, form, runs, step)
    known = ", ".join(dict.fromkeys(form.software for form in FORMATS))
    raise UserError(f"{path}: no line tells the time of a step; expected a log of {known}{or_else}")


def _log(path: Path, form: Format, runs: Sequence[Run], step: int | None) -> Log:
    chosen = choose_runs(runs)
    read = [runs[at] for at in chosen]
    text, arguments = "\n".join(run.text for run in read), read[-1].arguments
    if wrong := form.fault(text):
        raise UserError(f"{path}: {wrong}")
    steps = {number: line for run in read for number, line in (run.full_steps if step is None else run.steps).items()}
    _check_steps(path, read, steps, step)
    warm_up = count_warm_up([len(run.full_steps) for run in read])
    counted = [line for run in read for line in [*run.full_steps.values()][warm_up:]] if step is None else [steps[step]]
    choice, more = tuple(_choice(runs, chosen, step)), tuple(form.notes(text))
    return Log(
        path=path,
        format=form,
        steps_s={number: line.seconds for number, line in sorted(steps.items())},
        step_s=median(line.seconds for line in counted),
        runs=len(read),
        warm_up=warm_up,
        facts=form.facts(text) | _facts(arguments, text, [line.says for line in counted]),
        choice=choice + more,
        notes=(*_warm_up_notes(form, read, warm_up, step), *choice, *filter(None, [form.seconds_are]), *more),
        arguments=as_recipe(arguments) if arguments else None,
    )


def _check_steps(path: Path, runs: Sequence[Run], steps: Mapping[int, Line], step: int | None) -> None:
    """A UserError where no step can be read, or not the one that is asked for."""
    if not any(run.steps for run in runs):
        raise UserError(f"{path}: tells of {sum(len(run.lines) for run in runs)} steps, but of none a time above zero")
    if not steps:
        last = [line.says["global_batch"] for run in runs for line in run.steps.values()][-1]
        given = f"the global batch of its arguments, {runs[-1].batch:g}"
        raise UserError(f"{path}: no step has {given}; the last one has {last:g}")
    if step is not None and step not in steps:
        raise UserError(f"{path}: holds no step {step}; it has {list_steps(sorted(steps))}")


def _choice(runs: Sequence[Run], chosen: Sequence[int], step: int | None) -> Iterator[str]:
    """What was left out beside warm-up, in words."""
    read = [runs[at] for at in chosen]
    if len(runs) > 1:
        yield describe_choice(len(runs), chosen)
    ramped = sum(len(run.steps) - len(run.full_steps) for run in read)
    if ramped and step is None:
        yield f"{_count(ramped)} another global batch than {read[-1].batch:g}: left out"
    if timeless := sum(len(run.lines) - len(run.steps) for run in read):
        yield f"{_count(timeless)} no time above zero: left out"


def _count(lines: int) -> str:
    return f"{lines} {'lines tell' if lines > 1 else 'line tells'}"


def _warm_up_notes(form: Format, runs: Sequence[Run], warm_up: int, step: int | None) -> Iterator[str]:
    """Which steps are warm-up, in words."""
    numbers = list(runs[0].full_steps)
    if step is None and warm_up:
        first = ", ".join(map(str, numbers[:warm_up]))
        yield f"steps {first} are warm-up" if len(runs) == 1 else f"the first {warm_up} steps of each run are warm-up"
    if len(runs) == len(numbers) == 1 and form is not TRAINER:
        yield "one step only: it is likely warm-up"


def _facts(arguments: Mapping[str, str], text: str, counted: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """What Megatron-LM says before the first step, and medians over the lines of counted steps.

    Tokens are known where the file says both the batch and the length of sequences.
    """
    found = read_facts(text, arguments)
    names = sorted({name for line in counted for name in line})
    said = {name: median(line[name] for line in counted if name in line) for name in names}
    if "global_batch" in said and (length := arguments.get("seq_length", "")).isdigit():
        found["tokens"] = int(said["global_batch"]) * int(length)
    return found | said


def list_steps(numbers: Sequence[int]) -> str:
    """Step numbers as words, long lists by their ends."""
    few = len(numbers) <= 12
    return ", ".join(map(str, numbers)) if few else f"{len(numbers)} from {numbers[0]} to {numbers[-1]}"
