"""What `import runcast` gives: each command as a function that takes scenarios and returns its answer as data.

Nothing is printed or written. Every answer is an `Answer`: `print` shows what the command prints, a notebook shows
tables, `frame()` is a DataFrame, and `to_json()` is what the command writes as JSON.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from .base.errors import UserError, fault
from .base.memo import Memo
from .base.named_files import rename_files
from .base.units import parse_share
from .report.answer import Answer
from .scenario import Changes, Given, check_question, open_table, read_axes, read_changes
from .systems.machines import inputs_of, stamp
from .systems.system import SystemPrediction as Prediction

if TYPE_CHECKING:
    import pandas as pd

    from .answers.compare import Comparison, Side
    from .answers.explain import CycleExplanation, Explanation, RunExplanation
    from .answers.search import SearchResult
    from .answers.sweep import Sweep, Swept
    from .runner import Runner

__all__ = [
    "Answer", "Comparison", "CycleExplanation", "Explanation", "Prediction", "RunExplanation", "SearchResult",
    "SweepResult", "UserError",
    "compare", "explain", "load", "schema", "search", "shipped", "simulate", "sweep",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """The class of an answer, imported on first use."""
    from .answers import compare, explain, search

    for module in (compare, explain, search):
        if name in __all__ and name in module.__all__:
            return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def load(scenario: Given, changes: Sequence[str] | Changes = ()) -> dict[str, Any]:
    """The table of a scenario, checked and with changes: to read, to change, and to give to the other functions.

    `scenario` is the name of a shipped one, the path of a file (TOML, or the JSON of a report, which has its inputs),
    a table, or an answer that has its inputs: a prediction, or what `to_json()` gives. `changes` are values by key
    (`{"nodes": 16, "parallel.tp": 8}`) or `key=value` lines. Values may be numpy's. Paths of files that the scenario
    names beside itself, in lists too, become absolute.

    Raises:
        UserError: the file cannot be read, or says something that is not allowed; one line per fault.
    """
    table, where = open_table(scenario, changes)
    check_question(table, where)
    return rename_files(table, where, str)


def simulate(scenario: Given, changes: Sequence[str] | Changes = ()) -> Prediction:
    """Predict a scenario of any kind, given as to `load`.

    The prediction has a `report` with the headline numbers, the `timeline`, and `fits`: whether devices have enough
    memory.

    Raises:
        UserError: the scenario cannot be read, or says something that is not allowed; one line per fault.
    """
    from .predict import simulate as predict

    prediction = predict(scenario, changes)
    _ = prediction.resolved.inputs  # found now: the working folder may be another one later
    return prediction


def explain(
    scenario: Given, changes: Sequence[str] | Changes = (), *, quick: bool = False
) -> "Explanation | RunExplanation | CycleExplanation":
    """Say what bounds a prediction, what each number in it is worth, and which changes help most.

    `scenario` and `changes` are as for `load`. `quick` simulates nothing again: numbers are known to first order and
    no changes are tried.

    Raises:
        UserError: as `simulate`, or a kind of scenario that is not explained.
    """
    from .answers.explain import explain

    return explain(scenario, changes, quick=quick)


def compare(a: Given, b: Given | None = None, changes: Sequence[str] | Changes = ()) -> "Comparison":
    """Hold two results against each other: inputs that differ, and what they do to each term of the time.

    A side is a scenario as for `load`, or the path of a report, or of the trace or log of a real run. Without `b`, it
    is `a` with `changes`.

    Raises:
        UserError: a side cannot be read, the two are of different kinds, or there are changes beside `b`.
    """
    from .answers.compare import compare as compare_sides

    if b is None:
        if not changes:
            raise UserError("b: nothing to compare with: give b, or changes")
        b = load(a, changes)
    elif changes:
        raise UserError("changes: go with a alone; give b without them, or leave b out")
    memo = Memo()
    return compare_sides(_side(a, memo), _side(b, memo))


def _side(given: object, memo: Memo) -> "Side":
    from .answers.compare import Operand, open_side, side_of
    from .predict import simulate as predict

    if isinstance(given, Mapping):
        given = predict(given, memo=memo)
    if isinstance(given, Prediction):
        return side_of(given, given.resolved.where)
    if not isinstance(given, str | os.PathLike):
        said = type(given).__name__
        raise UserError(f"compare: a side is of type {said}; expected a name, a path, a table or a prediction")
    return open_side(Operand(Path(given)), memo)


def search(
    scenario: Given,
    changes: Sequence[str] | Changes = (),
    *,
    gpus: int | None = None,
    objective: str | None = None,
    vary: Mapping[str, Sequence[Any]] | None = None,
    fix: Mapping[str, Any] | None = None,
    schedules: Sequence[str] = (),
    headroom: float | str = 0.0,
    budget: int = 2000,
    workers: int = 1,
    **options: Any,
) -> "SearchResult":
    """Find the best parallel plan of a training step, or the best way of a weight update.

    `scenario` and `changes` are as for `load`. `gpus` is how many GPUs there are (default: the scenario's).
    `objective` is tokens_per_s, cost or memory; of a weight update update_time, pause, cost or memory. `vary` adds
    axes with their values by key, `fix` gives axes one value, `schedules` names pipeline schedules. `headroom` is the
    share of device memory that stays free (0.05 or "5%"), `budget` the most simulations, and `workers` as for `sweep`.
    `options` are those of `runcast.simulator.answers.search.search`, such as `check` and `seed`.

    Raises:
        UserError: as `simulate`, or an option with a value that is not allowed. An option that there is not is a
            TypeError, as for any function.
    """
    from .answers.search import Wanted, search_file

    if isinstance(schedules, str) or not isinstance(schedules, Iterable):
        example = schedules if isinstance(schedules, str) else "1f1b"
        raise UserError(fault("search", "schedules", schedules, f"expected a list of names, such as [{example!r}]"))
    _check_counts(options | {"gpus": gpus, "budget": budget, "workers": workers})
    fixed = None if fix is None else read_changes(fix)
    wanted = Wanted(tuple(schedules), vary and read_axes(vary, "vary"), fixed, options.pop("uneven", False))
    return search_file(
        scenario, changes, gpus=gpus, objective=objective, budget=budget, wanted=wanted, headroom=_share(headroom),
        workers=workers, **options,
    )  # fmt: skip


_COUNTS = ("budget", "check", "seed", "most", "gpus", "workers")


def _check_counts(options: Mapping[str, object]) -> None:
    """Raise a UserError for an option that is no whole number; GPUs and workers may be left open."""
    for name in _COUNTS:
        value = options.get(name, 0)
        is_open = value is None and name in ("gpus", "workers")
        if not is_open and (isinstance(value, bool) or not isinstance(value, Integral)):
            raise UserError(fault("search", name, value, "expected a whole number"))


def _share(headroom: object) -> float:
    try:
        return parse_share(str(headroom))
    except ValueError:
        raise UserError(fault("search", "headroom", headroom, "expected a share, such as 0.05 or 5%")) from None


@dataclass(frozen=True)
class SweepResult(Answer):
    """The answer of a sweep. `points` has a row per point: its number, its place on the axes, `status` and `reason`,
    and the columns of its report.
    """

    sweep: "Sweep"
    swept: "Swept"
    points: "pd.DataFrame"

    def frame(self) -> "pd.DataFrame":
        """A row per point, as in report.csv."""
        return self.points

    def to_json(self) -> dict[str, Any]:
        """The points as plain values; what a point does not have is left out."""
        rows = self.points.astype(object).where(self.points.notna(), None).to_dict("records")
        content = {
            "kind": "sweep",
            "of": self.sweep.kind,
            "name": self.sweep.name,
            "axes": list(self.sweep.grid.columns),
            "counts": self.swept.counts,
            "complete": self.swept.complete,
            "points": [{key: value for key, value in row.items() if value is not None} for row in rows],
            "inputs": inputs_of(self.sweep.base, self.sweep.base_where),
        }
        return stamp("sweep", content)

    def lines(self) -> Iterator[str]:
        """What `runcast sweep` prints, without the file that it writes."""
        from .answers.sweep.results import lines

        every = list(lines(self.sweep, self.swept.counts, self.swept.results))
        yield from every[:-1]


def sweep(
    sweep: Given,
    axes: Mapping[str, Sequence[Any]] | None = None,
    changes: Sequence[str] | Changes = (),
    *,
    out: Path | str | None = None,
    workers: int = 1,
) -> SweepResult:
    """Predict every point of a grid around a scenario.

    With `axes`, lists of values by key, `sweep` is the scenario in the middle, as for `load`; without, it is a sweep:
    the name of a shipped one, a file, or a table (docs/sweeps.md). `changes` are made to the scenario. In the folder
    `out` finished points are kept, and a second call goes on there; without it nothing is kept. More than one of
    `workers` are processes of their own.

    Raises:
        UserError: the sweep cannot be read or says something that is not allowed, or the folder cannot be written. A
            point that is refused is a row that says why.
        KeyboardInterrupt: on ^C; what was finished by then is in `out`.
    """
    from .answers.sweep import load_sweep, run_sweep

    if not isinstance(out, str | os.PathLike | None):
        raise UserError(fault("sweep", "out", out, "expected a folder"))
    runner = _runner(workers)
    asked = load_sweep(sweep, changes) if axes is None else load_sweep(_around(sweep, read_axes(axes, "axes"), changes))
    with TemporaryDirectory() if out is None else nullcontext(out) as folder:
        swept = run_sweep(asked, Path(folder) / "sweep" if out is None else Path(folder), runner)
        if not swept.complete:
            raise KeyboardInterrupt
        return SweepResult(asked, swept, _read(swept.results.report))


def _around(scenario: Given, axes: Mapping[str, Sequence[Any]], changes: Sequence[str] | Changes) -> dict[str, Any]:
    """The table of a sweep around a scenario; files of both are looked up beside the scenario."""
    base, where = open_table(scenario, changes)
    grid = [{"key": key, "values": values} for key, values in rename_files(dict(axes), where, str).items()]
    name = f"{base.get('name', 'scenario')} by {', '.join(axes)}"
    return {"name": name, "base": rename_files(base, where, str), "axes": grid}


def _runner(workers: int) -> "Runner":
    from .runner import InProcess, Processes

    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise UserError(fault("sweep", "workers", workers, "expected a whole number of processes, at least 1"))
    return InProcess() if workers == 1 else Processes(workers)


def _read(report: Path) -> "pd.DataFrame":
    import pandas as pd

    return pd.read_csv(report, low_memory=False)


def shipped(what: str = "scenarios") -> list[str]:
    """The names of what ships with runcast, as `runcast list` prints them: `scenarios`, `clusters`, `models`, …

    Raises:
        UserError: nothing of this name ships.
    """
    from .answers.listing import names_of

    return names_of(what)


def schema(form: str) -> dict[str, Any]:
    """The JSON Schema of what `to_json()` gives: of a kind of scenario (`train_step`), or of `explanation`, `search`, …

    Raises:
        UserError: there is no such form.
    """
    from .answers.schema import schema_of

    return schema_of(form)
