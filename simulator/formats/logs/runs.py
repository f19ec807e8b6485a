"""The runs that one log holds, as jobs that crash and go on append to it, and which of them are read.

A run begins where the setup is printed again, or where the numbers of steps go back. The last run that has steps after
its warm-up is read. Those that print the same arguments are read with it: they are one configuration.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ..recipes.arguments import names_of
from .log import Format, Line
from .megatron import read_arguments

WARM_UP = 3


@dataclass(frozen=True)
class Run:
    """A run of a log: its text, its lines by the number of their step, and the arguments of Megatron-LM in it."""

    text: str
    lines: Mapping[int, Line]
    arguments: Mapping[str, str]

    @cached_property
    def steps(self) -> dict[int, Line]:
        """Steps that took time, in the order of their numbers."""
        return {number: line for number, line in sorted(self.lines.items()) if line.seconds > 0}

    @cached_property
    def batch(self) -> float | None:
        """Sequences of a full step: as the arguments say, else as the last line does; None where neither does."""
        given = self.arguments.get("global_batch_size", "")
        last = [line.says["global_batch"] for line in self.steps.values() if "global_batch" in line.says][-1:]
        return float(given) if given.isdigit() else next(iter(last), None)

    @cached_property
    def full_steps(self) -> dict[int, Line]:
        """Steps of a full batch: while it is ramped up they are shorter."""
        return {number: line for number, line in self.steps.items()
                if line.says.get("global_batch", self.batch) == self.batch}  # fmt: skip

    def setup(self) -> dict[str, str]:
        """The arguments that have a part in a step's time."""
        names = names_of("megatron")
        return {name: value for name, value in self.arguments.items() if name in names and not names.is_untimed(name)}


def split_runs(text: str, form: Format) -> list[Run]:
    """The runs of a text that tell steps, in the order of the text.

    One that prints nothing of its setup has the arguments of the run before: it goes on from an earlier step.
    """
    starts = [(0, True), *(_starts(text, form.marks) if form.marks else ())]
    runs = list[Run]()
    arguments: Mapping[str, str] = {}
    for (start, anew), (end, _) in zip(starts, [*starts[1:], (len(text), True)], strict=True):
        arguments = read_arguments(text[start:end]) if anew else arguments
        if lines := form.lines(text[start:end]):
            runs.append(Run(text[start:end], lines, arguments))
    return runs


def _starts(text: str, marks: re.Pattern[str]) -> Iterator[tuple[int, bool]]:
    """Where runs begin behind the first, at a line of a setup or of a step before the last two; True for a setup.

    Where several ranks print, the line of one may stand behind the next step of another.
    """
    before = last = -1.0
    for mark in marks.finditer(text):
        number = float(mark[1]) if marks.groups and mark[1] else None
        if number is None or number < before:
            yield text.rfind("\n", 0, mark.start()) + 1, number is None
            before = last = -1.0
        if number is not None and number > last:
            before, last = last, number


def choose_runs(runs: Sequence[Run]) -> list[int]:
    """The places of the runs that are read together."""
    last = next((at for at in reversed(range(len(runs))) if len(runs[at].full_steps) > WARM_UP), len(runs) - 1)
    setup = runs[last].setup()
    return [at for at, run in enumerate(runs) if at == last or (setup and run.setup() == setup)]


def count_warm_up(sizes: Sequence[int]) -> int:
    """Steps that each run leaves out where it starts: three, or as many as are left of all runs if these are fewer."""
    return max(each for each in range(WARM_UP + 1) if sum(max(0, size - each) for size in sizes) >= each)


def describe_choice(count: int, chosen: Sequence[int]) -> str:
    """Which of several runs are read, in words; places count from 1 there."""
    if len(chosen) == count:
        return f"{count} runs found: all have the same arguments and are read"
    if len(chosen) > 1:
        places = ", ".join(str(at + 1) for at in chosen)
        return f"{count} runs found: runs {places} are read, which have the same arguments"
    why = "the last one" if chosen[0] == count - 1 else f"the last one with more than {WARM_UP} steps"
    return f"{count} runs found: run {chosen[0] + 1} is read, {why}"
