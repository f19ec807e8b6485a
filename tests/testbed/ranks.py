"""A rank of the testbed: runs all cases of a topology in turn, in one set of processes.

Arguments: a file with the paths of the scenarios, the runs of each, and the file for what they took.
"""

import gc
import json
import sys
from dataclasses import replace
from pathlib import Path

import torch.distributed as dist
from runcast.calibrate.execute.backend import Backend
from runcast.calibrate.execute.collectives import execute_rows
from runcast.calibrate.execute.kinds import execution_of
from runcast.calibrate.execute.world import World, process_group
from runcast.simulator.scenario import load_question, resolve

from .cases import TINY

Took = tuple[list[float], int, dict[str, float]]
"""Seconds of each run, what was wrong in all of them, and of an update seconds of an op by its kind, at the least."""


def execute(path: Path, world: World, runs: int) -> Took:
    """What a scenario takes on these ranks."""
    question = load_question(path, [])
    if question.kind == "collective":
        (row,) = execute_rows(resolve(question, str(path)), world, runs)
        return list(row.seconds), row.wrong, {}
    if question.kind == "train_step":
        return execute_step(path, world, runs)
    found = [execution_of(path, []).run(world, Backend()) for _ in range(runs)]
    measured = [one for one in found if one is not None]
    lines = [one.timeline for one in measured]
    kinds = lines[0].program.kinds if lines else ()
    of_op = {kind: min(line.busy_s(kind) / line.program.is_kind(kind).sum() for line in lines) for kind in kinds}
    return [line.makespan_s for line in lines], sum(len(one.wrong) for one in measured), of_op


def execute_step(path: Path, world: World, runs: int) -> Took:
    """What a step takes; the spans of its fastest run are in a folder beside its scenario.

    Its gradients are checked at small shapes: one process would take as long for the others as all ranks together.
    """
    tiny, step = execution_of(path, TINY), replace(execution_of(path, []), checks=False)
    checked = tiny.run(world, Backend())
    found = [step.run(world, Backend()) for _ in range(runs)]
    took = {one.timeline.makespan_s: one for one in found if one is not None}
    if checked is None:
        return [], 0, {}
    took[min(took)].write(path.with_suffix(""))
    return list(took), len(checked.wrong), {}


def keep_garbage() -> None:
    """Let collections of garbage pass over all that Python holds now, most of which is torch.

    Hosts of a testbed share the cores of one machine: what all of them compute at once takes longer than on hosts that
    have cores of their own.
    """
    gc.collect()
    gc.freeze()


def main(cases: Path, runs: str, out: Path) -> None:
    world = World.find()
    assert world is not None
    keep_garbage()
    with process_group():
        found = [execute(Path(path), world, int(runs)) for path in json.loads(cases.read_text())]
        dist.barrier()
    if world.rank == 0:
        out.write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
