"""What can be executed: for each kind of scenario a class that checks it, knows how many processes, and runs it."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from ...simulator.answers.compare.spans import unfold
from ...simulator.base.errors import UserError
from .backend import Backend
from .collectives import CollectiveExecution
from .training.step import StepExecution
from .updates import UpdateExecution
from .world import World


class Outcome(Protocol):
    """What an execution measured."""

    def lines(self) -> Iterator[str]:
        """How it went, in words."""

    def write(self, folder: Path) -> None:
        """Save it in a folder."""

    @property
    def fault(self) -> str | None:
        """What is wrong with the values in the end, in words."""


class Execution(Protocol):
    """A resolved scenario that can be executed."""

    @property
    def processes(self) -> int:
        """How many processes run it."""

    def check(self, here: Sequence[int], device: str) -> None:
        """Raise a UserError if it cannot be executed, with these of its processes on this machine."""

    def run(self, world: World, backend: Backend) -> Outcome | None:
        """Run this process among its peers; the first returns what all of them measured."""


_KINDS: dict[str, Any] = {
    "weight_update": UpdateExecution, "collective": CollectiveExecution, "train_step": StepExecution,
}  # fmt: skip


def execution_of(scenario: Path, changes: Sequence[str]) -> Execution:
    """The execution of a scenario file.

    Raises:
        UserError: the scenario cannot be read or resolved, or its kind is not executed.
    """
    resolved = unfold(scenario, changes)
    kind = resolved.scenario.kind
    if kind not in _KINDS:
        raise UserError(f"{scenario}: kind = {kind!r}: executed are {', '.join(_KINDS)}")
    execution: Execution = _KINDS[kind](resolved)
    return execution
