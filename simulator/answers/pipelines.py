"""Pipeline schedules side by side: alone, by their order, and as the schedule of a training step.

Alone, a micro-batch takes each p-th of the model as long: its forward 1, the gradients of its input and of its weights
1 each; sends take no time. So the bubble is of the order alone. In a step it is of everything.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ..base.errors import UserError, fault
from ..base.memo import Memo
from ..base.units import digits_apart, format_bytes, format_long
from ..predict import predict
from ..scenario import change, check_question, resolve
from ..schedules import SCHEDULES, Dry, Grid, build, chart, dry_run, load_grid
from ..systems.train_step.report import TrainReport
from ..systems.train_step.resolve import ResolvedTrain

_MOST_CELLS = 500_000

PASSES = {"F": 1.0, "B": 2.0, "I": 1.0, "W": 1.0}
"""Time units of a micro-batch's passes through one p-th of the model, p being the number of pipeline ranks."""


@dataclass(frozen=True)
class Pipeline:
    """A schedule: `dry` is its run without a machine, `report` that of the step with it, if there is a step."""

    name: str
    dry: Dry
    report: TrainReport | None = None

    @property
    def grid(self) -> Grid:
        """The actions of each rank, in order."""
        return self.dry.grid

    @property
    def chunks(self) -> int:
        """Stages that a rank holds, the most of any rank."""
        return max(len(self.grid.stages_of(rank)) for rank in range(self.grid.ranks))

    @property
    def bubble(self) -> float:
        """Share of its time in which the mean rank runs nothing."""
        return sum(self.dry.bubbles) / (self.grid.ranks * self.dry.makespan)

    @property
    def peak(self) -> float:
        """The most activations on a rank; 1 is what a micro-batch leaves in one p-th of the model."""
        return max(self.dry.peaks) * stage_size(self.grid)

    @property
    def sends(self) -> int:
        """Messages between ranks, of activations and of their gradients."""
        homes = self.grid.homes
        return 2 * int((homes[1:] != homes[:-1]).sum())

    def to_json(self) -> dict[str, Any]:
        """As plain values: seconds, bytes, shares."""
        alone = {"name": self.name, "ranks": self.grid.ranks, "microbatches": self.grid.microbatches,
                 "chunks": self.chunks, "bubble_fraction": self.bubble, "peak_microbatches": self.peak,
                 "sends": self.sends}  # fmt: skip
        if (report := self.report) is None:
            return alone
        memory = {"memory_bytes": report.peak.peak_bytes, "fits": report.fits}
        return alone | {"step_time_s": report.step_time_s, "step_bubble_fraction": report.bubble_fraction, **memory}


@dataclass(frozen=True)
class Left:
    """A schedule that does not exist for these sizes, or not for this step, and why, in one line."""

    name: str
    reason: str


def pipelines(
    names: Sequence[str], pipeline_ranks: int | None, microbatches: int | None
) -> tuple[list[Pipeline], list[Left]]:
    """Schedules by name (`interleaved:4` for four chunks) or file; no names: all. Files have sizes of their own.

    A UserError for a file that is no schedule or has other sizes than are said, or a name that has no sizes: of what,
    by which the first file goes.
    """
    files = {name: load_grid(Path(name)) for name in names if _is_file(name)}
    for name in names:
        if name not in files:
            _name_and_chunks(name)  # raises for an unknown one, before sizes are asked for
    for name, grid in files.items():
        _check_size(name, grid, pipeline_ranks, microbatches)
    first = next(iter(files.values()), None)
    ranks = pipeline_ranks or (first.ranks if first else 0)
    many = microbatches or (first.microbatches if first else 0)
    if not (ranks and many) and len(files) < len(names or "*"):
        raise UserError("--ranks, --microbatches: a schedule by name needs both, or a file beside it, or --scenario")
    return _make_all(names or [*SCHEDULES], lambda name: Pipeline(*_alone(name, files.get(name), ranks, many)))


def _check_size(name: str, grid: Grid, pipeline_ranks: int | None, microbatches: int | None) -> None:
    """Raise a UserError if a file has other sizes than the options say."""
    for flag, given, own in (("ranks", pipeline_ranks, grid.ranks), ("microbatches", microbatches, grid.microbatches)):
        if given not in (None, own):
            raise UserError(fault(f"--{flag}", "", given, f"{name} has {own}: leave the option out"))


def pipelines_of_step(names: Sequence[str], table: Mapping[str, Any], where: str) -> tuple[list[Pipeline], list[Left]]:
    """Schedules of a step, the fastest first, and those that do not go with it; no names: its own and all others.

    A UserError if the scenario says what is not allowed, or is none of a training step, or a file is no schedule.
    """
    memo, said = Memo(), table.get("schedule")
    if table.get("kind") != "train_step":
        raise UserError(fault(where, "kind", table.get("kind"), "expected train_step, which has pipeline schedules"))
    own = dict(said) if isinstance(said, Mapping) else {}

    def step(name: str) -> Pipeline:
        changes = {} if name == _OWN else {"schedule": _table(name, own)}
        resolved = cast(ResolvedTrain, resolve(check_question(change(table, changes, where), where), where, memo))
        report = cast(Any, predict(resolved)).report
        shown = f"{resolved.grid.name}, the scenario's" if name == _OWN else name
        return Pipeline(shown, _dry(resolved.grid), report)

    first = [] if names else [step(_OWN)]  # what is wrong with the scenario itself is an error
    others = [name for name in SCHEDULES if own.get("file") or name != own.get("name", "1f1b")]
    found, left = _make_all(names or others, step, where)
    return sorted([*first, *found], key=lambda one: cast(TrainReport, one.report).step_time_s), left


_OWN = ""  # the scenario's own schedule


def _make_all(
    names: Sequence[str], make: Callable[[str], Pipeline], where: str = ""
) -> tuple[list[Pipeline], list[Left]]:
    """(those that can be made, those that cannot); files that are wrong, and unknown names, are errors."""
    found, left = list[Pipeline](), list[Left]()
    for name in names:
        try:
            found.append(make(name))
        except (UserError, ValueError) as error:
            if _is_file(name) or len(names) == 1 or name.partition(":")[0] not in SCHEDULES:
                raise UserError(*str(error).splitlines()) from None
            left.append(Left(name, str(error).splitlines()[0].removeprefix(f"{where}: ")))
    return found, left


def _is_file(name: str) -> bool:
    """Whether it is no schedule by name, and so a file: it has a suffix or a folder."""
    return name.partition(":")[0] not in SCHEDULES and ("." in name or "/" in name)


def _table(name: str, own: Mapping[str, Any]) -> dict[str, Any]:
    """The table `schedule` of a scenario; the scenario's own passes, and its chunks where a schedule takes any."""
    if _is_file(name):
        return {"file": str(Path(name).resolve())}
    bare, chunks = _name_and_chunks(name)
    found = {"name": bare} | ({"passes": own["passes"]} if "passes" in own else {})
    if SCHEDULES[bare].chunks is None:
        return found | {"vpp": chunks or own.get("vpp", 2)}
    return found | ({"vpp": chunks} if chunks else {})


def _name_and_chunks(name: str) -> tuple[str, int | None]:
    bare, colon, chunks = name.partition(":")
    if bare not in SCHEDULES:
        raise UserError(f"schedule {name!r}; known: {', '.join(SCHEDULES)}, or a file such as my.txt")
    if colon and not (chunks.isdecimal() and 0 < int(chunks) < 10_000):
        raise UserError(f"schedule {name!r}: expected chunks per rank behind the colon, such as {bare}:2")
    return bare, int(chunks) if colon else None


def _alone(name: str, own: Grid | None, ranks: int, microbatches: int) -> tuple[str, Dry]:
    if own is not None:
        return name, _dry(own)
    bare, given = _name_and_chunks(name)
    chunks = given or (2 if SCHEDULES[bare].chunks is None else 1)
    if (cells := 2 * ranks * microbatches * chunks) > _MOST_CELLS:
        raise UserError(f"{name} on {ranks:,} ranks with {microbatches:,} micro-batches has {cells:,} actions or more; "
                        f"at most {_MOST_CELLS:,} are looked at without a step")  # fmt: skip
    return name, _dry(build(bare, ranks, microbatches, chunks))


def _dry(grid: Grid) -> Dry:
    return dry_run(grid, {kind: length * stage_size(grid) for kind, length in PASSES.items()})


def stage_size(grid: Grid) -> float:
    """A stage's part of the model over a p-th of it: 1/2 with two chunks per rank."""
    return grid.ranks / grid.stages


def columns(found: Sequence[Pipeline]) -> Iterator[tuple[str, ...]]:
    """The table of `lines`, a head among the rows."""
    in_step = any(one.report for one in found)
    alone = ("schedule", "chunks", "bubble of the order", "peak, micro-batches", "sends")
    yield (*alone, "step", "bubble of the step", "memory of a device") if in_step else alone
    times = [one.report.step_time_s for one in found if one.report]
    digits = digits_apart(times[0], times[1:]) if times else 3
    for one in found:
        row = (one.name, str(one.chunks), f"{one.bubble:.1%}", f"{one.peak:.4g}", f"{one.sends:,}")
        if (report := one.report) is None:
            yield row
        else:
            memory = format_bytes(report.peak.peak_bytes) + ("" if report.fits else ": does not fit")
            yield (*row, format_long(report.step_time_s, digits), f"{report.bubble_fraction:.1%}", memory)


_WIDEST = 240  # columns of time that a picture has at most


def picture(of: Pipeline) -> Iterator[str]:
    """The schedule as text, a column for each unit of time; of a long one a line that says where to look."""
    unit = stage_size(of.grid)
    if (wide := round(of.dry.makespan / unit)) > _WIDEST:
        yield f"{wide:,} columns are too many to draw here: runcast simulate --html draws a step"
        return
    yield f"F, I, W take {unit:.3g}, B {2 * unit:.3g}; ' marks a rank's later stages, - goes on, . is idle"
    yield from chart(of.dry, unit).splitlines()
