"""Processes that predict rows of a ledger again and again; each keeps the Programs of its rows from pass to pass."""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...simulator.answers.validate.steps import Answer, Case, read_cases

Floats = NDArray[np.float64]
_mine: dict[str, Case] = {}  # by key, of a process of the crew: a worker's only memory between two calls


class Crew:
    """`predict` answers for the rows with these keys of a file, in their order."""

    def __init__(self, path: Path, keys: Sequence[str], processes: int | None = None):
        many = processes or os.cpu_count() or 1
        self.keys = keys
        self._parts = [list(range(first, len(keys), many)) for first in range(many)]
        self._pools = [
            ProcessPoolExecutor(1, initializer=_start, initargs=(path, [keys[row] for row in part]))
            for part in self._parts
        ]

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, *_: object) -> None:
        for pool in self._pools:
            pool.shutdown(cancel_futures=True)

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
