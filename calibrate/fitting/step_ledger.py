"""The fit of training steps as a whole: passes over the ledger, groups left out, and the file of what came out."""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np

from ...simulator.answers.validate.steps import Answer, StepCase, read_cases
from ...simulator.base.arrays import Floats
from ...simulator.base.errors import UserError
from .ledger import fit_content
from .owners import OWNERS, Entry, entry, owner_of
from .steps import SIGMA, SMALL, Design, Rows

_mine: dict[str, StepCase] = {}  # by key, of a process of the crew: a worker's only memory between two calls


class Crew(ExitStack):
    """`predict` answers for the rows with these keys of a file, in their order."""

    def __init__(self, path: Path, keys: Sequence[str]):
        super().__init__()
        many = os.cpu_count() or 1
        self.keys = keys
        self._parts = [list(range(first, len(keys), many)) for first in range(many)]
        self._pools = [
            self.enter_context(ProcessPoolExecutor(1, initializer=_start, initargs=(path, [keys[row] for row in part])))
            for part in self._parts
        ]

    def predict(self, values: Mapping[int, Mapping[str, float]]) -> dict[int, Answer]:
        """Predictions of the rows that have values, by row."""
        wanted = [[row for row in part if row in values] for part in self._parts]
        tasks = [
            (rows, pool.submit(_predict, [(self.keys[row], values[row]) for row in rows]))
            for rows, pool in zip(wanted, self._pools, strict=True)
        ]
        return {row: answer for rows, task in tasks for row, answer in zip(rows, task.result(), strict=True)}


def _start(path: Path, keys: Sequence[str]) -> None:
    wanted = set(keys)
    _mine.update((case.key, case) for case in read_cases(path) if case.key in wanted)


def _predict(rows: Sequence[tuple[str, Mapping[str, float]]]) -> list[Answer]:
    return [_mine[key].answer(values, memory=False) for key, values in rows]


_PASSES = 5
_FOLDS = 8
_MOST_CHANGE = 1.0
"""Of ln(parameter) between two passes."""

_FOLLOWS = "no training step of the ledger moves it by itself: what is stated, times what those moved that it rests on"


def usable(path: Path) -> list[StepCase]:
    """The rows with a time and a scenario that fits.

    Raises:
        UserError: the table cannot be read, or there is no such row.
    """
    found = []
    for case in read_cases(path):
        if case.scenario is not None and case.seconds:
            with suppress(UserError):  # a scenario that does not fit
                found += [case] if case.resolved.plan else []
    if not found:
        raise UserError(f"{path}: no row can be predicted")
    return found


def fit_steps(path: Path, tell: Callable[[str], None] = print) -> dict[str, Any]:
    """The content of data/validation/training_fit.json for a table of training steps.

    After the fit, whole (model, GPU, stack) groups, whole frameworks and whole sources are left out. A UserError if the
    table cannot be read, or none of its rows can be predicted.
    """
    cases = usable(path)
    design = Design(cases)
    with Crew(path, [case.key for case in cases]) as crew:
        rows = simulate_all(design, crew, np.zeros(len(design.free)))
        watch(design, crew, rows)
        for turn in range(_PASSES):
            tell(f"pass {turn}: {_summary(rows.seconds / design.measured - 1)}")
            change = design.solve(rows, np.ones(len(cases), bool), rows.u) - rows.u
            rows = simulate_all(design, crew, rows.u + np.clip(change, -_MOST_CHANGE, _MOST_CHANGE))
            if turn == _PASSES // 2:
                watch(design, crew, rows)
        tell(f"fitted: {_summary(rows.seconds / design.measured - 1)}")
        left_out = {}
        for name, groups in groups_of(cases).items():
            left_out[name] = _without(design, crew, rows, groups)
            tell(f"{name} left out: {_summary(left_out[name])}")
    keys, moved = [case.key for case in cases], design.effects(rows)
    parameters, command = sum(count > 0 for count, _, _ in moved), " --kind train_step"
    return fit_content(command, path, parameters, SIGMA, _entries(design, rows.u, moved), keys, left_out)


def simulate_all(design: Design, crew: Crew, u: Floats) -> Rows:
    """All rows with these parameters."""
    answers = crew.predict({row: design.values(row, u) for row in range(len(design.cases))})
    found = [answers[row] for row in range(len(design.cases))]
    return Rows(u, np.array([a.seconds for a in found]), np.array([a.phase_s for a in found]))


def watch(design: Design, crew: Crew, rows: Rows) -> None:
    """Learn which rows each parameter moves, and how far those that move parts of phases do."""
    for name, moved in design.partial(rows).items():
        values = {row: design.values(row, rows.u) for row in moved}
        answers = crew.predict({row: {**of, name: of[name] * float(np.exp(SMALL))} for row, of in values.items()})
        design.weigh(name, rows, {row: answer.seconds for row, answer in answers.items()})
    design.watch(rows)


def _without(design: Design, crew: Crew, rows: Rows, groups: Sequence[object]) -> Floats:
    """Signed errors: of each row with its group out of the fit, simulated with what the others gave."""
    values: dict[int, Mapping[str, float]] = {}
    for group in dict.fromkeys(groups):
        out = np.array([of == group for of in groups])
        u = design.solve(rows, ~out, rows.u)
        values |= {row: design.values(row, u) for row in np.flatnonzero(out).tolist()}
    answers = crew.predict(values)
    return np.array([answers[row].seconds for row in range(len(groups))]) / design.measured - 1


def groups_of(cases: Sequence[StepCase]) -> dict[str, list[object]]:
    """What is held out together, by name: folds of (model, GPU, stack) groups, frameworks, sources."""
    keys = [(case.cells.text("model"), case.cells.text("gpu"), case.stack) for case in cases]
    distinct = list(dict.fromkeys(keys))
    np.random.default_rng(0).shuffle(distinct)  # folds that do not go by the order of the table
    fold = {key: place % _FOLDS for place, key in enumerate(distinct)}
    return {
        "group": [fold[key] for key in keys],
        "stack": [case.cells.text("framework") for case in cases],
        "source": [case.cells.text("source") for case in cases],
    }


def _summary(error: Floats) -> str:
    size = np.abs(error)
    return f"median {np.median(size):.1%}, p90 {np.quantile(size, 0.9):.1%}, bias {np.median(error):+.1%}"


def _entries(
    design: Design, u: Floats, moved: Sequence[tuple[int, float, float]]
) -> dict[str, dict[str, dict[str, Entry]]]:
    """Parameters as files of stacks, profiles and networks have them: each with all that it rests on."""
    tables: dict[str, dict[str, dict[str, Entry]]] = {owner.table: {} for owner in OWNERS}
    for at, (free, (rows, deviation, error)) in enumerate(zip(design.free, moved, strict=True)):
        if not design.adds(at, u):
            continue
        value = design.value(free.of, free.name, u)
        moved_by = f"{rows} training steps of the ledger, whose median error is {error:.1%}"
        table = tables[owner_of(free.name).table]
        table.setdefault(free.of, {})[free.name] = entry(value, deviation, "fitted", moved_by if rows else _FOLLOWS)
    return tables
