"""One rank of a training step: its ops bound and run among its peers, and its gradients held against one process's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import torch

from ....simulator import engine
from ....simulator.base.errors import UserError
from ....simulator.systems.train_step.resolve import ResolvedTrain
from ...measure.device import keep_freed_memory
from ..backend import Backend
from ..measured import Checked, Measured
from ..parts import Part, Parts
from ..run import execute_program
from ..world import World
from . import kernels
from .binding import Binder
from .checking import check_step
from .exchanges import Exchanges
from .memory import check_memory
from .slots import Act, NotThereError
from .view import RankView, check


@dataclass(frozen=True)
class StepParts(Parts):
    """The parts of ranks in a Program in which a place stands for all ranks of a pipeline rank."""

    def rank_parts(self, rank: int) -> dict[int, Part]:
        """The parts of one rank, by op."""
        lanes = self.lanes(rank)
        ours = {op for order in lanes.values() for op in order}
        return {
            op: Part(
                op,
                tuple(lane for lane in self.program.lanes_of[op].tolist() if lane in lanes),
                tuple(dep for dep in self.predecessors[op] if dep in ours),
                signals=(),
                signalled=False,
            )
            for op in sorted(ours)
        }  # fmt: skip

    def check_waits(self, where: str) -> None:
        """Raise a UserError if an op waits for one of another place with which it shares no exchange."""
        places = [set(self.program.places_of(op)) for op in range(len(self.program))]
        for op, own in enumerate(places):
            for dep in self.predecessors[op]:
                if not places[dep] & own:
                    names = self.program.names
                    raise UserError(f"{where}: cannot execute {names[op]!r}: it waits for {names[dep]!r} elsewhere")


class StepActor:
    """One rank: what it does of each op, and what came of it."""

    def __init__(
        self, resolved: ResolvedTrain, rank: int, backend: Backend, timeout: timedelta, *, checks: bool = True
    ):
        self.view, self._checks = RankView(resolved, rank, backend.device), checks
        self._exchanges = Exchanges(self.view.peers.keys(), rank, backend.collectives, timeout)
        self._binder = Binder(self.view, self._exchanges)
        self._acts: Mapping[int, Act] = self._binder.bind()

    def meet(self) -> None:
        """Connect all process groups, and let autograd begin: its first gradients take a second."""
        self._exchanges.meet()
        one = torch.ones(1, 1, device=self.view.device)
        graph, (out,) = kernels.run(kernels.rms_norm, one, one[0])
        graph.gradients(out)

    def close(self) -> None:
        """Leave the groups."""
        self._exchanges.close()

    def act(self, op: int) -> None:
        """Do this rank's part of an op.

        Raises:
            RuntimeError: it runs before what it reads is there, because the Program lacks a dependency.
        """
        try:
            self._acts[op]()
        except NotThereError as error:
            raise RuntimeError(f"{self.view.program.names[op]} on rank {self.view.rank}: {error}") from None

    def check(self) -> Checked:
        """Compare the gradients and the new weights of this rank with those of one process; all ranks call it.

        Nothing is compared where that is not asked for.
        """
        return check_step(self.view, self._binder) if self._checks else Checked(0, 0, [])


@dataclass(frozen=True)
class StepExecution:
    """A resolved training step.

    Without `checks` its gradients are not compared with those of one process, which takes as long as all ranks
    together.
    """

    resolved: ResolvedTrain
    checks: bool = True

    @property
    def processes(self) -> int:
        """How many processes run it."""
        return int(self.resolved.plan.dims.world_size)

    def check(self, here: Sequence[int], device: str) -> None:
        """Raise a UserError, one line per fault, if the step cannot be executed, or not by these ranks here."""
        check(self.resolved)
        if device == "cpu":
            check_memory(self.resolved, here)
        StepParts(self.resolved.program).check_waits(self.resolved.where)

    def run(self, world: World, backend: Backend) -> Measured | None:
        """Run this rank's parts among its peers; rank 0 returns what all of them measured.

        Raises:
            UserError: there is another number of ranks.
        """
        keep_freed_memory()
        resolved = self.resolved
        world.check(self.processes, resolved.where)
        batch, parts = resolved.scenario.batch, StepParts(resolved.program)
        about = {
            "name": resolved.scenario.name,
            "scenario_hash": resolved.hash,
            "scale": resolved.scenario.execute.scale,
            "tokens": batch.global_ * batch.seq_len,
            "predicted_s": engine.simulate(resolved.program, resolved.costs).makespan_s if world.rank == 0 else 0.0,
        }
        return execute_program(
            parts,
            world,
            backend,
            lambda _: StepActor(resolved, world.rank, backend, world.timeout, checks=self.checks),
            about,
        )
