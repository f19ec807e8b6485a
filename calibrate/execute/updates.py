"""A weight update run for real: one process per GPU of its scenario, and every byte checked."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...simulator import engine
from ...simulator.systems.weight_update.resolve import Resolved
from .acts import Actor, check_one_sided
from .backend import Backend
from .content import check_memory, content_of
from .measured import Measured
from .parts import Parts
from .run import execute_program
from .serving import ServedActor
from .transferring import ACTORS, MAPS_MEMORY
from .world import World


@dataclass(frozen=True)
class UpdateExecution:
    """A resolved update, whose ranks each stand for themselves."""

    resolved: Resolved

    @property
    def processes(self) -> int:
        """How many processes run it."""
        return self.resolved.executed.ranks

    def check(self, here: Sequence[int], device: str) -> None:
        """Raise a UserError if the ranks of this machine lack memory, or the update cannot be executed at all."""
        check_memory(self.resolved, here, device)

    def run(self, world: World, backend: Backend) -> Measured | None:
        """Run this rank's parts among its peers; rank 0 returns what all of them measured.

        Raises:
            UserError: the Program cannot run here, or not on these ranks.
        """
        resolved, method = self.resolved, self.resolved.scenario.update.method
        content = content_of(resolved)
        kind: type[Actor[Any]] = ACTORS[method] if resolved.from_trainers else ServedActor
        parts = Parts(resolved.executed).check(kind.kinds(), resolved.where)
        world.check(resolved.executed.ranks, resolved.where)
        if method in ("p2p", *MAPS_MEMORY):
            check_one_sided(method, resolved.where)
        about = {
            "name": resolved.scenario.name,
            "scenario_hash": resolved.hash,
            "bytes": resolved.plan.total_bytes,
            "predicted_s": engine.simulate(resolved.program, resolved.costs).makespan_s if world.rank == 0 else 0.0,
        }
        return execute_program(
            parts, world, backend, lambda store: kind(parts, world.rank, content, backend, store), about
        )
