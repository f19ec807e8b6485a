"""`read_run`: a trace, a folder of traces of several ranks, or a log, told apart by what they hold."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from ...base.errors import UserError
from ...base.files import read_text
from .kineto import Document, RankTrace, parse, read_ranks
from .lanes import RankStep, step_of_rank
from .logs import read_log
from .own import is_own, read_own
from .run import Run, exposed_waits, list_steps, split_by_phase, timeline_of, typical_step

SUFFIXES = (".json", ".json.gz", ".trace", ".trace.gz")
"""How the names of traces in a folder end."""
_EXPECTED = "a trace or a log of a run"


def read_run(path: Path | str, step: int | None = None) -> Run:
    """What a file, or a folder with a trace per rank, tells of a real run; of one step, the typical one by default.

    A UserError for no such file or step, no trace or log that is known, or nothing to be learnt from it; one line.
    """
    path = Path(path)
    if path.is_dir():
        run = _of_traces(path, _documents(path), step)
    else:
        text = read_text(path, _EXPECTED)
        document = parse(path, text)
        run = read_log(path, text, step) if document is None else _of_traces(path, [document], step)
    if not run.step_s > 0:
        raise UserError(f"{path}: says that a step takes no time")
    return run


def _documents(folder: Path) -> list[Document]:
    """A trace per rank."""
    found = []
    for file in sorted(folder.iterdir()):
        if file.name.endswith(SUFFIXES) and not file.name.startswith("."):
            found.append(parse(file, read_text(file, _EXPECTED)))
            if found[-1] is None:
                raise UserError(f"{file}: is not JSON; a folder is read as a trace per rank")
    if not found:
        raise UserError(f"{folder}: holds no traces: expected a .json or .json.gz file per rank")
    return [document for document in found if document is not None]


def _of_traces(path: Path, documents: Sequence[Document], step: int | None) -> Run:
    if is_own(documents[0]):
        return read_own(path, documents[0], step)
    traces: dict[int, RankTrace] = {}
    for document in documents:
        for trace in read_ranks(document):
            other = traces.setdefault(trace.rank, trace)
            if other is not trace:
                raise UserError(f"{trace.path}: is of rank {trace.rank}, as {other.path} is")
    kineto = {"schemaVersion", "deviceProperties", "distributedInfo", "traceName", "trace_id"}
    form = "kineto" if kineto & set(documents[0].beside) else "chrome"
    return _of_ranks(path, dict(sorted(traces.items())), form, step)


def _of_ranks(path: Path, traces: Mapping[int, RankTrace], form: str, step: int | None) -> Run:
    seconds = _steps_s(path, traces)
    chosen = typical_step(seconds) if step is None else step
    if chosen not in seconds:
        raise UserError(f"{path}: holds no step {chosen}; it has {list_steps(list(seconds))}")
    steps = {rank: step_of_rank(trace, trace.steps[chosen]) for rank, trace in traces.items()}
    timeline = timeline_of({rank: found.items for rank, found in steps.items()})
    split = split_by_phase(timeline, [found.length_ns / 1e9 for found in steps.values()])
    return Run(
        path=path,
        form=form,
        steps=tuple(seconds),
        steps_s=tuple(seconds.values()),
        step_s=seconds[chosen],
        timeline=timeline,
        split_s=split,
        exposed_s=exposed_waits(split),
        facts=_facts(traces, steps, chosen),
        notes=tuple(_notes(traces, list(steps.values()), chosen)),
    )


def _steps_s(path: Path, traces: Mapping[int, RankTrace]) -> dict[int, float]:
    """Seconds of each step that all ranks have, mean over them."""
    common = set.intersection(*(set(trace.steps) for trace in traces.values()))
    if not common:
        raise UserError(f"{path}: no step is marked in the traces of all {len(traces)} ranks")
    windows = {number: [trace.steps[number] for trace in traces.values()] for number in sorted(common)}
    return {number: fmean((end - begin) / 1e9 for begin, end in spans) for number, spans in windows.items()}


def _facts(traces: Mapping[int, RankTrace], steps: Mapping[int, RankStep], chosen: int) -> dict[str, object]:
    axes = sorted({axis for step in steps.values() for axis in step.exchange_ns})
    of_file = {key: value for key, value in next(iter(traces.values())).facts.items() if key != "rank"}
    spent = {axis: fmean(step.exchange_ns.get(axis, 0) / 1e9 for step in steps.values()) for axis in axes}
    return of_file | {"step": chosen, "ranks": tuple(traces), "communication_s": spent}


def _notes(traces: Mapping[int, RankTrace], steps: Sequence[RankStep], chosen: int) -> list[str]:
    notes = []
    kernels, unknown = sum(step.kernel_ns for step in steps), _summed(step.unknown_ns for step in steps)
    if unknown:
        names = ", ".join(list(unknown)[:3])
        share = sum(unknown.values()) / kernels if kernels else 0.0
        notes.append(f"{share:.1%} of kernel time is of unknown kernels and counts as memory-bound: {names}")
    for axis, spent in _summed(step.assumed_ns for step in steps).items():
        notes.append(f"{spent / 1e9 / len(steps):.3g} s of exchanges do not say their axis and are taken as {axis}")
    if all(max(trace.steps) == chosen for trace in traces.values()):
        notes.append(f"step {chosen} is the last of the file: it ends with its last GPU op")
    world = next(iter(traces.values())).facts.get("world_size")
    if isinstance(world, int) and world > len(traces):
        notes.append(f"{len(traces)} of {world} ranks; exchanges hold the time that this rank waits for others"
                     if len(traces) == 1 else f"{len(traces)} of {world} ranks")  # fmt: skip
    if len(traces) > 1:
        notes.append("each rank's clock starts with its own step")
    return notes


def _summed(tables: Iterable[Mapping[str, int]]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for table in tables:
        found.update(table)
    return dict(found.most_common())
