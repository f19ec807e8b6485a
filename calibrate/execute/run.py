"""One rank of a run, from its scenario to what it measured."""

import time
from contextlib import closing
from typing import Any

import torch
import torch.distributed as dist

from ...simulator.systems.weight_update.resolve import Resolved
from .acts import Actor
from .backend import Backend
from .clock import Clock, common_clock
from .content import content_of
from .lanes import run_lanes
from .measured import Measured, RankReport
from .parts import Parts
from .serving import ServedActor
from .shared import check_one_sided
from .transferring import ACTORS, MAPS_MEMORY
from .world import StoreMessages, StoreSignals, World, joined, run_name


def execute_rank(resolved: Resolved, world: World, backend: Backend) -> Measured | None:
    """Run this rank's parts of the scenario's Program among its peers; rank 0 returns what all of them measured.

    Raises:
        UserError: the Program cannot run here, or not on these ranks.
    """
    content, method = content_of(resolved), resolved.scenario.update.method
    kind: type[Actor[Any]] = ACTORS[method] if resolved.from_trainers else ServedActor
    parts = Parts(resolved.program).check(kind.kinds, resolved.where)
    world.check(resolved.program.ranks, resolved.where)
    if method in ("p2p", *MAPS_MEMORY):
        check_one_sided(world, method, resolved.where)
    with joined():
        run = run_name()
        with closing(kind(parts, world.rank, content, backend, StoreMessages(run))) as actor:
            report = _run(actor, run, common_clock(world.rank, world.size))
            reports: list[Any] = [None] * world.size
            dist.all_gather_object(reports, report)
    return Measured(parts, reports, _about(resolved, world, backend)) if world.rank == 0 else None


def _run(actor: Actor[Any], run: str, clock: Clock) -> RankReport:
    actor.meet()
    dist.barrier()  # every rank has filled what it owns: others may read it
    began = time.perf_counter_ns() + clock.offset_ns
    stamps = run_lanes(
        actor.parts.lanes(actor.rank),
        actor.parts.of(actor.rank),
        actor.act,
        lambda: StoreSignals(run, actor.rank),
        clock.offset_ns,
        actor.backend.lane,
    )
    return RankReport(began, clock.bound_ns, stamps, len(actor.weights), actor.wrong())


def _about(resolved: Resolved, world: World, backend: Backend) -> dict[str, Any]:
    return {
        "name": resolved.scenario.name,
        "scenario_hash": resolved.hash,
        "ranks": world.size,
        "device": _device_name(backend),
        "collectives": backend.collectives,
        "torch": torch.__version__,
        "bytes": resolved.plan.total_bytes,
    }


def _device_name(backend: Backend) -> str:
    return torch.cuda.get_device_name(backend.device) if backend.device.type == "cuda" else backend.device.type
