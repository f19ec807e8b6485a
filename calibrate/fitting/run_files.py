"""Measured training steps of one's own, as runs on a base stack: rows of tables, and logs, checked together.

Whatever is wrong is said before anything is simulated, in the order of the files and of their lines.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TypeVar

from ...simulator.answers.validate.ledger import Case, CellError, check_slips
from ...simulator.answers.validate.steps import (
    TIME,
    TOKENS,
    Answer,
    StepCase,
    peak_of,
    predict_step,
    read_cases,
    row_columns,
    training_stacks,
)
from ...simulator.answers.validate.steps.ledger import is_memory_scored
from ...simulator.answers.validate.updates import update_stacks
from ...simulator.base.errors import UserError, fault
from ...simulator.base.files import check_once
from ...simulator.base.units import format_seconds
from ...simulator.formats.samples import read_table
from ...simulator.profile import load_stack
from ...simulator.systems.machines import ResolvedScenario
from ...simulator.systems.train_step.resolve import ResolvedTrain
from ...simulator.systems.train_step.terms import chain_of
from .run_logs import is_log, read_logged_step

MOST_TIMES = 1.5
"""Runs of one configuration that are farther apart contradict each other; repeated ones differ by some percent."""

_Item = TypeVar("_Item")
_Read = TypeVar("_Read")
_Case = TypeVar("_Case", bound=Case)
_NAMED = ("model", "n_gpus", "tp", "pp", "cp", "dp", "ep", "mbs", "gbs", "seq_len", "precision")
"""Columns by which a plan is named."""


@dataclass(frozen=True, eq=False)
class Measured:
    """A measured run of any system on a base stack.

    `where` is its file and line, `software` and `gpu` what the file says of what ran it, `said` the key and value that
    its `seconds` are from; `log` says what a log was read as, and is empty for a row of a table.
    """

    where: str
    resolved: ResolvedScenario
    seconds: float
    said: str
    software: str
    gpu: str
    log: str = ""

    @property
    def stack(self) -> str:
        """The base stack, by name or by its full path."""
        return str(self.resolved.scenario.stack)

    @property
    def configuration(self) -> str:
        """What runs have in common that should take equally long."""
        return self.resolved.hash


@dataclass(frozen=True, eq=False)
class Run(Measured):
    """A measured training step.

    `memory_bytes` is the peak of the rank that `convention` says, as `peak_of` has it; None where nothing is said, or
    what an allocator took.
    """

    resolved: ResolvedTrain
    memory_bytes: float | None = None
    convention: tuple[str, str] = ("fullest", "allocated")

    def answer(self, values: Mapping[str, float] | None = None, memory: bool = False) -> Answer:
        """The prediction, with parameters of the profile and stack changed."""
        return predict_step(self.resolved.restate(values) if values else self.resolved, memory)

    def memory_error(self, answer: Answer) -> float:
        """Predicted over measured peak memory, less one."""
        assert self.memory_bytes is not None
        return peak_of(self.resolved, answer.memory, *self.convention).bytes / self.memory_bytes - 1


def read_runs(paths: Sequence[Path], base: str, cluster: str | None = None) -> list[Run]:
    """The runs of all files, tables and logs, on one base stack by name or file; `cluster` is where recipes ran.

    Raises:
        UserError: a file cannot be read, lacks a column, or holds what is no run; runs contradict each other, or are of
            several kinds of GPU or software; the base is no stack of training steps. One line each.
    """
    check_base(base)
    check_once(paths)
    runs = read_each(paths, lambda path: [_read_log(path, base, cluster)] if is_log(path) else _read_rows(path, base))
    check_together(runs)
    return runs


def read_each(items: Iterable[_Item], read: Callable[[_Item], Sequence[_Read]]) -> list[_Read]:
    """What is read of all items; a UserError with the faults of each that is faulty."""
    found: list[_Read] = []
    faults: list[str] = []
    for item in items:
        try:
            found += read(item)
        except UserError as error:
            faults += error.faults
    if faults:
        raise UserError(*faults)
    return found


def read_rows(cases: Iterable[_Case], make: Callable[[_Case], _Read]) -> list[_Read]:
    """What each row of a table states; a UserError with a line for each that states none."""

    def read(case: _Case) -> list[_Read]:
        try:
            return [make(case)]
        except CellError as error:
            raise UserError(f"{case.where}: {error}") from None

    return read_each(cases, read)


@dataclass(frozen=True, eq=False)
class Plan:
    """A training step that could be measured: a row of a table, at `where`, with its plan in words."""

    where: str
    said: str
    resolved: ResolvedTrain


def read_plans(path: Path, base: str) -> list[Plan]:
    """The rows of a table as steps on a base stack that could be measured; what they took is not read.

    Raises:
        UserError: the file cannot be read, or holds what is no step; one line each.
    """
    check_base(base)
    plans = read_rows(read_cases(path, base), _plan_of)
    if not plans:
        raise UserError(f"{path}: no row; expected steps that could be measured")
    return plans


def _plan_of(case: StepCase) -> Plan:
    _check_plan(case)
    _ = case.resolved.plan  # a UserError if it does not exist
    words = [f"{name} {case.cells.text(name)}" for name in _NAMED if case.cells.text(name) not in ("", "1")]
    return Plan(case.where, ", ".join(words), case.resolved)


def check_base(base: str) -> None:
    """Raise UserError unless the base is software of training steps: no device's profile, no stack of updates."""
    known = ", ".join(training_stacks())
    check_software(base, update_stacks(), f"weight updates; expected one of training steps: {known}")


def check_software(base: str, foreign: Collection[str], said: str) -> None:
    """Raise UserError if a base is a device's profile, or rests on a `foreign` stack: one of what is `said`."""
    if load_stack(base, "--base").models:
        raise UserError(fault("--base", "", base, "expected a software stack, not a device's profile"))
    if any(link.of in foreign for link in chain_of(load_stack, base, "--base")):
        raise UserError(fault("--base", "", base, f"is a stack of {said}"))


def _read_log(path: Path, base: str, cluster: str | None) -> Run:
    step = read_logged_step(path, base, cluster)
    gpu, software = step.resolved.devices[0].name, step.log.format.software
    memory_bytes = step.log.facts.get("memory_bytes") if step.log.format.allocated else None
    return Run(str(path), step.resolved, step.log.step_s, step.said, software, gpu, step.read, memory_bytes)


def _read_rows(path: Path, base: str) -> list[Run]:
    """The rows of a table; a UserError with a line for each that is no run."""
    _check_times(path)
    return read_rows(read_cases(path, base), _run_of)


def check_columns(path: Path, known: Collection[str]) -> None:
    """Raise UserError for a table that has none of the known columns, or one that is nearly a known one."""
    if not set(read_table(path).columns) & set(known):
        raise UserError(f"{path}:1: no column of a table of runs; expected comma-separated CSV with a header")
    check_slips(path, known)


def _check_times(path: Path) -> None:
    """Raise UserError unless a table has the ledger's columns, or a user's own, and times."""
    check_columns(path, row_columns())
    if not {TIME, TOKENS} & set(read_table(path).columns):
        raise UserError(f"{path}:1: no column {TIME}; expected seconds of one step, or {TOKENS}")


def _run_of(case: StepCase) -> Run:
    """The run that a row states; a UserError or CellError if it states none."""
    _check_plan(case)
    seconds, key = case.measured_s, TIME if case.seconds else TOKENS
    if seconds is None:
        raise CellError(f"{TIME} is not stated")
    if unlikely := case.fault():
        raise CellError(unlikely)
    software, gpu = (case.cells.text(column) for column in ("framework", "gpu"))
    gib = case.cells.time("peak_mem_gib") if is_memory_scored(case.cells.text("mem_convention")) else None
    return Run(
        case.where,
        case.resolved,
        seconds,
        f"{key} = {case.cells.text(key)}",
        software,
        gpu,
        memory_bytes=None if gib is None else gib * 2**30,
        convention=case.memory_convention,
    )


def _check_plan(case: StepCase) -> None:
    if case.scenario is None:
        raise CellError(case.reason)
    if wrong := list(case.contradictions()):
        raise UserError(*(f"{case.where}: {said}" for said in wrong))


def check_together(runs: Sequence[Measured], column: str = "framework") -> None:
    """Raise UserError if runs contradict each other, or are of several GPUs or softwares, which `column` names."""
    if faults := list(_discords(runs, column)):
        raise UserError(*faults)


def _discords(runs: Sequence[Measured], column: str) -> Iterator[str]:
    """A line for each pair of runs of one configuration that contradict each other, and for mixed GPUs or software."""
    first, of_form = runs[0], {bool(run.log): run for run in reversed(runs)}
    for run in runs:
        if run.resolved.devices != first.resolved.devices:
            yield _other(run, "gpu", run.gpu, first, first.gpu)
            return
        like = of_form[bool(run.log)]  # rows and logs name one software by other words
        if run.software != like.software:
            yield _other(run, column, run.software, like, like.software)
            return
    alike: dict[str, list[Measured]] = {}
    for run in runs:
        alike.setdefault(run.configuration, []).append(run)
    for one, other in (pair for group in alike.values() for pair in combinations(group, 2)):
        if not 1 / MOST_TIMES < one.seconds / other.seconds < MOST_TIMES:
            took = f"took {format_seconds(one.seconds)} and {format_seconds(other.seconds)}"
            said = f"the same configuration {took}; expected times within {MOST_TIMES:g} x of each other"
            yield f"{one.where} and {other.where}: {said}"


def _other(run: Measured, key: str, value: str, first: Measured, expected: str) -> str:
    """What runs say is of one software on one kind of machine; mixed ones cost half of the gain (accuracy study)."""
    return fault(run.where, key, value, f"expected one {key} in all runs, as in {first.where}: {expected!r}")
