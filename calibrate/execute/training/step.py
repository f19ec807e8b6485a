"""One rank of a training step: its ops bound and run among its peers, and its gradients held against one process's."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

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
from .exchanges import Exchanges
from .reference import gradients, make_weights
from .scale import check_memory, scale_changes
from .slots import Act, NotThereError
from .states import Where, each_unit
from .view import SEED, RankView, batch_of, check
from .weights import owner

CLOSE = 1e-4
"""Of the largest gradient of a parameter: how far single precision may take two orders of the same sums apart."""


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

    def __init__(self, resolved: ResolvedTrain, rank: int, library: str, *, checks: bool = True):
        self.view, self._checks = RankView(resolved, rank), checks
        self._exchanges = Exchanges(self.view.peers.keys(), rank, library)
        binder = Binder(self.view, self._exchanges)
        self._acts: Mapping[int, Act] = binder.bind()
        self._gradients = binder.gradients

    def meet(self) -> None:
        """Connect all process groups, and let autograd begin: its first gradients take a second."""
        self._exchanges.meet()
        graph, (out,) = kernels.run(kernels.rms_norm, torch.ones(1, 1), torch.ones(1))
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
        """Compare the gradients that this rank holds with those of one process, if that is asked for."""
        if not self._checks:
            return Checked(0, 0, [])
        pieces, wrong = self._gradients.pieces(), list(dict.fromkeys(self._wrong(self._expected())))
        tensors = sum(len(self.view.units[stage][number].layouts[part].parameters)
                      for piece in pieces for stage, number, part in piece.members)  # fmt: skip
        return Checked(tensors, sum(piece.values.nbytes for piece in pieces), wrong)

    def _expected(self) -> dict[Where, Tensor]:
        """What each of this rank's vectors must have learnt: rank 0 computes it for all."""
        plan = self.view.plan
        whole = (
            gradients(plan, SEED, batch_of(self.view.resolved)) if dist.get_rank() == 0 else make_weights(plan, SEED)
        )
        for key in sorted(whole):
            whole[key] = whole[key].detach().contiguous()
            dist.broadcast(whole[key], 0)
        found = {}
        for stage, number, unit in each_unit(self.view):
            own = {each.name: whole[owner(each, unit.number), each.name] for each in unit.table}
            for part, layout in unit.layouts.items():
                found[stage, number, part] = layout.flatten(own, self.view.at)
        return found

    def _wrong(self, expected: Mapping[Where, Tensor]) -> Iterator[str]:
        """The parameters of which this rank holds another gradient, by name; and units that were never reduced."""
        for stage, number, _ in self._gradients.left():
            yield f"unit {self.view.units[stage][number].number} of stage {stage}, reduced too early"
        for piece in self._gradients.pieces():
            begin, stop = 0, piece.start + len(piece.values)
            for stage, number, part in piece.members:
                unit, right = self.view.units[stage][number], expected[stage, number, part]
                for name, place in unit.layouts[part].places.items():
                    first, last = max(begin + place.start, piece.start), min(begin + place.stop, stop)
                    own = piece.values[first - piece.start : last - piece.start]
                    if first < last and not _is_close(own, right[first - begin : last - begin], right[place]):
                        yield f"{name} of stage {stage}, unit {unit.number}"
                begin += len(right)


def _is_close(values: Tensor, right: Tensor, whole: Tensor) -> bool:
    return bool((values - right).abs().max() <= CLOSE * whole.abs().max() + 1e-9)


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

    def scale_changes(self, scale: int) -> list[str]:
        """Changes that make its shapes smaller by this factor, as `key=value`."""
        return scale_changes(self.resolved, scale)

    def check(self, here: Sequence[int], device: str) -> None:
        """Raise a UserError, one line per fault, if the step cannot be executed, or not by these ranks here."""
        if device != "cpu":
            raise UserError(f"--device {device}: training steps are executed on the CPU so far")
        check(self.resolved)
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
            "tokens": batch.global_ * batch.seq_len,
            "predicted_s": engine.simulate(resolved.program, resolved.costs).makespan_s if world.rank == 0 else 0.0,
        }
        return execute_program(
            parts, world, backend, lambda _: StepActor(resolved, world.rank, backend.collectives, checks=self.checks),
            about,
        )  # fmt: skip
