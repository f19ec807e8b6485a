"""A checked scenario of kind run in numbers: checkpoints, failures, how long it goes, the hash. `modes` simulate it."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from math import ceil, inf
from typing import Any

import numpy as np

from ...base.errors import UserError
from ...base.units import format_long
from ...collectives.machines import effective_capacity
from ...hardware import cluster_inputs
from ...models.model import identity
from ...models.states import Count, state_bytes
from ...uncertainty import size_notes
from ..machines import content_hash, release
from ..tables import FOR_PEOPLE
from ..train_step.run import best_interval_s
from .batches import note_on, stages_of
from .history import DISTURBANCES, History
from .modes.progress import LONGEST_S
from .speed import Speed
from .steps import ResolvedSteps
from .sync.compression import origin_notes
from .target import BatchSteps, Stage, batch_schedule, steps_factor
from .training.failures import Failure, Failures, PartCounts, failures, stops_per_s
from .training.plan import Restart
from .training.rates import draw_rates, spread_between_clusters, varies
from .training.storage import Machine, Saving, saving

_REPEATS = 8
_LEAST_WRITES, _LEAST_STEPS = 10, 10  # between two checkpoints, if the interval is not given
_MOST_DRAWN = 2.0  # failures until work is safe where rates are drawn: e^-2 of the time is of use, and people act
_LEAST_DONE = 1e-9  # of what is asked for: a run may end before its first step
_CAUSES = 2  # the stream of random numbers that says when parts fail


@dataclass(frozen=True)
class SavedEvery:
    """The work between two checkpoints, in seconds and in steps, and what asks for it."""

    seconds: float
    steps: int
    by: str


@dataclass(frozen=True)
class ResolvedRun(ResolvedSteps):
    """A run with what its names stand for; parts are made on first use.

    `rate_spread` is the standard deviation of ln(rate) of failures that nobody counted; None: rates are as stated.
    """

    rate_spread: float | None = field(default_factory=spread_between_clusters, compare=False)

    # Checkpoints and failures

    @cached_property
    def checkpoint_bytes(self) -> float:
        """Weights of the whole model, with master weights and moments of what is trained; of adapters nothing else."""
        said, types = self.scenario.checkpoint, self.scenario.precision
        if said is None or said.bytes is not None:
            return float(said.bytes or 0) if said is not None else 0.0
        if self.step is None:
            stated = said.stall is not None and (said.mode == "blocking" or said.write is not None)
            if not stated or said.read is not None:
                raise self._fault("checkpoint.bytes", None, "say what is saved: no whole model is trained here")
            return 0.0
        saved = self.trained if self.scenario.lora is not None else self.parameters
        held = state_bytes(
            Count(saved, 0, 0), zero=0, shard_dense=1, shard_expert=1, compute=types.compute,
            moments=types.moments, master=types.master, trained=Count(self.trained, 0, 0),
        )  # fmt: skip
        return float(held.weights + held.master + held.moments)

    @cached_property
    def saving(self) -> Saving | None:
        """A checkpoint in seconds."""
        said = self.scenario.checkpoint
        if said is None:
            return None
        if said.mode == "memory" and said.copies > self.nodes:
            allowed = f"expected at most {self.nodes}, the nodes that train: each copy lies on one of its own"
            raise self._fault("checkpoint.copies", said.copies, allowed)
        machine = Machine(
            nodes=self.nodes,
            nodes_per_worker=self.worker_nodes,
            gpus=self.training_gpus,
            gpus_per_worker=self.worker_gpus,
            copy_bytes_per_s=self._copy_bytes_per_s if said.mode != "blocking" and said.stall is None else inf,
            nic_bytes_per_s=self.nics_bytes_per_s or inf,
        )
        return saving(said, self.checkpoint_bytes, machine)

    @property
    def _copy_bytes_per_s(self) -> float:
        """The rate of a copy from a GPU to its host while all GPUs of the node copy: they share uplinks and memory.

        Of several kinds of nodes, the slowest one's.
        """
        found = inf
        for node in self.one_of_each.values():
            copies = Counter(link for gpu in range(node.n_gpus) for link in node.d2h_route(gpu))
            capacity = effective_capacity(node, self.profile)
            found = min(found, *(float(capacity[link]) / many for link, many in copies.items()))
        return found

    @cached_property
    def restart(self) -> Restart:
        """What a restart takes when nodes are there."""
        said = self.scenario.failures
        if said is None:
            return Restart()
        read_s = said.read if said.read is not None else self.saving.read_s if self.saving is not None else 0.0
        init_s = said.init + said.init_per_node * self.nodes
        return Restart(said.place, init_s, read_s, said.warmup, said.restart_spread)

    @cached_property
    def parts(self) -> PartCounts:
        """How many parts there are whose failure stops the run; a GPU on which nothing trains may fail."""
        nics = len(self.nics)
        of_node = {"node": self.nodes, "nic": nics, "link": nics}
        return {"gpu": self.training_gpus, **of_node, "leaf": len(self.below_leaves), "job": 1}

    @cached_property
    def below_leaves(self) -> tuple[tuple[int, ...], ...]:
        """The nodes below each leaf: those with a NIC whose cable ends in it."""
        of, found = self.cluster, defaultdict[str, dict[int, None]](dict)
        for node in range(self.nodes):
            for nic in of.nics_of(node):
                found[of.leaf_of(nic)][node] = None
        return tuple(map(tuple, found.values()))

    def _nodes_of(self, part: str, number: int) -> tuple[int, ...]:
        """The nodes that a part takes away when it fails."""
        if part == "leaf":
            return self.below_leaves[number]
        ends = self._parts_of_nodes[part]
        return (bisect_right(ends, number * ends[-1] // self.parts[part]),)

    @cached_property
    def _parts_of_nodes(self) -> dict[str, list[int]]:
        """How many parts there are up to the end of each node; nodes of several kinds have unequal ones."""
        of = self.cluster
        gpus = list(accumulate(len(of.nodes[node].gpus) for node in range(self.nodes)))
        nics = list(accumulate(len(of.nics_of(node)) for node in range(self.nodes)))
        ends = list(range(1, self.nodes + 1))
        return {"gpu": gpus, "nic": nics, "link": nics, "node": ends, "job": ends}

    @cached_property
    def mtbf_s(self) -> float:
        """The mean time between failures that stop the run without warning while it works, those of a trace, too."""
        said = self.scenario.failures
        return inf if said is None else self._mtbf_s(said)

    def _mtbf_s(self, said: Failures) -> float:
        traced = self._traced_stops(said) / self.length_s if self.mode.has_workers else 0.0
        length_s = self.length_s if self.mode.has_workers else inf
        rate = stops_per_s(said, self.parts, self.save_s, length_s) + traced
        return 1 / rate if rate else inf

    def _traced_stops(self, said: Failures) -> int:
        """Lines of a trace that stop the run without warning before it ends, each of which puts that off."""
        end_s, stops = self.length_s, 0
        for one in sorted(said.trace, key=lambda one: one.at):
            if one.at < end_s:
                stops += one.effect == "stop"
                stands_s = self.restart.seconds + (said.detect if one.detect is None else one.detect)
                end_s += stands_s if self.scenario.run.wall is None else 0.0
        return stops

    @property
    def save_s(self) -> float:
        """How much warning it takes to save all work; no warning is enough without checkpoints."""
        return inf if self.saving is None else self.saving.stall_s + self.saving.write_s

    def failures(self, seed: int) -> Iterator[Failure]:
        """All failures in the order of time."""
        said = self.rates(seed)
        if said is None:
            return iter(())
        return failures(
            said,
            self.parts,
            self.save_s,
            self._nodes_of,
            lambda *of: np.random.default_rng((seed, _CAUSES, *of)),
        )

    def rates(self, seed: int) -> Failures | None:
        """What fails in the repeat of this seed: with rates as stated in the first one, else drawn (`draw_rates`)."""
        said = self.scenario.failures
        if said is None or self.rate_spread is None:
            return said
        return draw_rates(said, abs(seed - self.scenario.seed), self.rate_spread, self._most_drawn)

    @property
    def has_drawn_rates(self) -> bool:
        """Whether rates of failures differ between repeats."""
        said = self.scenario.failures
        return self.rate_spread is not None and said is not None and varies(said)

    @property
    def _most_drawn(self) -> float:
        """How many times as often parts may fail in a repeat: without a last day it could go on forever."""
        if self.scenario.run.wall is not None or not self.mode.in_step:
            return inf
        work_s, save_s = (self.length_s, 0.0) if self.work_s is None else (self.work_s, self.save_s)
        held_s = self.restart.seconds + max(work_s, self.rounds(self.workers).round_s) + save_s
        return max(_MOST_DRAWN * self.mtbf_s / held_s, 1.0)

    def drawn_mtbf_s(self, seed: int) -> float:
        """`mtbf_s` with the rates of the repeat of this seed."""
        said = self.rates(seed)
        return self.mtbf_s if said is None else self._mtbf_s(said)

    def with_rate_spread(self, spread: float | None) -> "ResolvedRun":
        """The same run where rates that nobody counted are so far apart; None: where all are as stated."""
        return replace(self, rate_spread=spread, shared_step=self.step)

    @cached_property
    def work_s(self) -> float | None:
        """The work between two checkpoints: as given, or what makes the run shortest (Daly 2006, equation 37).

        Where training hardly stands for one, that would be after every step. Nobody saves so often: the store has
        others to serve.
        """
        return max(self._due_after_s.values(), default=None)

    @property
    def _due_after_s(self) -> Mapping[str, float]:
        """What asks for so much work between two checkpoints, in words; empty where none are made."""
        if self.saving is None or self.scenario.checkpoint is None:
            return {}
        if (stated := self.scenario.checkpoint.interval) is not None:
            return {"given": stated}
        if self.mtbf_s == inf:
            return {}
        best_s = best_interval_s(max(self.saving.stall_s, 1e-3), self.mtbf_s)
        return {
            "Daly's optimum": best_s,
            "ten times its writing": _LEAST_WRITES * self.saving.write_s,
            "the fewest steps": _LEAST_STEPS * self.step_s,
        }

    @property
    def saved_every(self) -> "SavedEvery | None":
        """After which work a checkpoint is made: behind the first round that ends when one is due."""
        if self.work_s is None:
            return None
        each = self.rounds(self.workers)
        rounds = max(ceil(self.work_s / each.round_s * (1 - 1e-9)), 1)
        by = max(self._due_after_s, key=self._due_after_s.__getitem__)
        return SavedEvery(rounds * each.round_s, rounds * each.steps, by)

    # The run

    @cached_property
    def steps(self) -> float:
        """Steps of each worker, or updates of servers; without end if only the time is given."""
        if (samples := self.scenario.run.samples) is None:
            return self.counted_steps
        return min(self.counted_steps, max(float(ceil(samples / self.update_samples - 1e-9)), 1.0))

    @property
    def counted_steps(self) -> float:
        """The same without run.samples, which takes more steps where workers leave or batches are small at first."""
        counts = self.scenario.run.steps, sum(one.steps for one in self.batch_schedule)
        return max(float(ceil(min(count for count in counts if count) - 1e-9)), 1.0) if any(counts) else inf

    def share_done(self, history: History) -> float:
        """How much of the steps or samples that are asked for a run has done: all, unless its time was over first."""
        if self.scenario.run.wall is None:
            return 1.0
        of_samples = history.samples / (self.scenario.run.samples or inf)
        return min(max(history.steps / self.counted_steps, of_samples, _LEAST_DONE), 1.0)

    def all_steps(self, history: History) -> float:
        """The steps that a run would have had to do all that is asked for."""
        return history.steps / self.share_done(history)

    @property
    def update_samples(self) -> float:
        """What an update of the model trains on."""
        alone = self.mode.updates_alone(self.scenario)
        trained = self.workers // self.sites if alone else self.workers - self.scenario.sync.backup
        return self.samples * trained

    @cached_property
    def batch_schedule(self) -> tuple[BatchSteps, ...]:
        """Batch sizes until the target and their steps; none without a target."""
        target, sync = self.scenario.target, self.scenario.sync
        if target is None:
            return ()
        stale = self.mode.staleness(self) if target.stale_curve else 0.0
        ratio = self.gradient_bytes / self.message.wire_bytes if self.scenario.compress is not None else 1.0
        return batch_schedule(target, self.update_samples, steps_factor(target, stale, ratio, sync.inner or 1))

    @cached_property
    def batch_stages(self) -> tuple[Stage, ...]:
        """The batch sizes that a target states, with the step of each; a UserError if a step cannot have one."""
        return stages_of(self)

    @property
    def length_s(self) -> float:
        """About how long the run works."""
        wall_s = self.scenario.run.wall
        return min(self.steps * self.step_s, inf if wall_s is None else wall_s)

    @property
    def repeats(self) -> int:
        """How often it is simulated."""
        return self.scenario.run.repeats or (_REPEATS if self.mode.in_step else 1)

    def simulate(self, seed: int) -> History:
        """What happens in the run with the random numbers of this seed; a UserError for one of many years."""
        if self.mode.has_workers and self.length_s > LONGEST_S:
            allowed = "at most ten years are simulated: give fewer run.steps or run.samples"
            raise UserError(f"{self.where}: run: would work for {format_long(self.length_s)}; {allowed}")
        return self.mode.simulate(self, seed)

    def undisturbed(self, history: History) -> History | None:
        """The run of this History if nothing failed or turned slow; None if its causes tell all that this changes.

        They do not where steps themselves take longer, or train on less: of slow ranks, where workers leave or shrink,
        and where servers have others that wait.
        """
        play, said = self.mode.undisturbed, self.scenario
        slow = said.speed.turn or (said.failures and any(one.effect == "slow" for one in said.failures.cause))
        if play is None or not (slow or said.elastic or not self.mode.in_step):
            return None
        return play(self, said.seed) if history.counts.keys() & DISTURBANCES else None

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Assumptions, for the report."""
        notes = [*self.scenario.notes, *self.mode.notes(self)]
        if self.scenario.failures is None and self.mode.takes("failures"):
            notes.append("nothing fails; see [failures]")
        if self.mode.has_workers and (idle := self.gpus - self.training_gpus):
            notes.append(f"{idle:,} of {self.gpus:,} GPUs train nothing: their nodes are paid for whole")
        if self.mode.has_workers and self.scenario.compress is not None:
            notes += origin_notes(self.message)
        notes += [note for note in (self.exchange_note, note_on(self)) if note is not None]
        if self.step is not None:
            notes += [f"the step: {note}" for note in self.step.report.notes if note not in self._simulated_here]
        return tuple(notes)

    @property
    def _simulated_here(self) -> set[str]:
        """What notes of the step say of stragglers and failures, if the run has either."""
        if self.step is None or (self.scenario.failures is None and self.scenario.speed == Speed()):
            return set()
        return set(size_notes(self.step.resolved.profile, self.step.resolved.dims.world_size))

    @cached_property
    def hash(self) -> str:
        """The hash of everything that the prediction depends on, runcast's release included."""
        said = self.scenario
        without: dict[str, Any] = dict.fromkeys({*FOR_PEOPLE, "cluster", "model", "profile", "stack"}, True)
        if said.run.deadline is None:  # so that hashes from before there was the key stay valid
            without["run"] = {"deadline"}
        content = {
            "scenario": said.model_dump(mode="json", exclude=without),
            "step": None if self.step is None else self.step.resolved.hash,
            "model": None if self.spec is None else identity(self.spec),
            "profile": self.profile.to_json() if self.step is None else None,
            "cluster": cluster_inputs(said.cluster, said.nodes, self.where),
            "trace": None if said.jobs is None else said.jobs.trace_text(self.where),
            "version": release(),
        }
        return content_hash(content)[:16]
