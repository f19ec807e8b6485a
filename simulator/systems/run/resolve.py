"""From a checked scenario of kind run to its plan: workers, their step and links, checkpoints, failures, the hash."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from math import ceil, inf

import numpy as np

from ...base.units import format_seconds
from ...collectives.machines import effective_capacity
from ...hardware import Cluster, cluster, cluster_inputs
from ...models import ModelSpec
from ...models.states import Count, state_bytes
from ..machines import ResolvedScenario, content_hash, release
from ..tables import FOR_PEOPLE
from ..train_step.resolve import ResolvedTrain
from ..train_step.run import best_interval_s
from ..train_step.system import TrainPrediction
from ..train_step.system import predict as predict_step
from .compression import Message, compress, dense, exchange_s
from .failures import Failure, Parts, failures, mtbf_s
from .overlap import exposed_s
from .rounds import EachStep, Local, Rounds
from .scenario import RunScenario
from .speed import Crew
from .storage import Machine, Saving, saving
from .target import Stage, stages, steps_factor
from .team import Team
from .training import Restart, TrainingPlan

_REPEATS = 8
_MOST_FAILURES = 12.0  # between two checkpoints: beyond that a run never ends
_LEAST_WRITES, _LEAST_STEPS = 10, 10  # between two checkpoints, if the interval is not given
_RANKS, _CAUSES = 1, 2  # streams of random numbers


@dataclass(frozen=True)
class ResolvedRun(ResolvedScenario):
    """A run with what its names stand for; parts are made on first use."""

    scenario: RunScenario

    # Who trains on what

    @property
    def mode(self) -> str:
        """What is simulated."""
        return self.scenario.mode

    @property
    def has_steps(self) -> bool:
        """Whether workers of the cluster make steps; not in a queue of jobs, or where clients train."""
        return self.scenario.federated is None and self.scenario.jobs is None

    @cached_property
    def nodes(self) -> int:
        """Nodes that train: those of the cluster without spare ones."""
        spares = self.spares
        if spares >= self.scenario.nodes:
            raise self._fault("failures.spares", spares, f"fewer than the {self.scenario.nodes} nodes of the cluster")
        return self.scenario.nodes - spares

    @property
    def spares(self) -> int:
        """Nodes that wait to replace others."""
        return 0 if self.scenario.failures is None else self.scenario.failures.spares

    @cached_property
    def gpus(self) -> int:
        """GPUs of the nodes that train."""
        return sum(self.cluster.gpus_per_node[: self.nodes])

    @cached_property
    def worker_gpus(self) -> int:
        """GPUs of one worker."""
        said, workers = self.scenario.step.gpus, self.scenario.sync.workers
        each = said or self.gpus // (workers or 1)
        if not each or each * (workers or 1) > self.gpus:
            key, value = ("step.gpus", said) if said and not workers else ("sync.workers", workers)
            allowed = f"{self.nodes:,} nodes have {self.gpus:,} GPUs, and each worker has {each or 'at least 1'}"
            raise self._fault(key, value, allowed)
        return each

    @cached_property
    def workers(self) -> int:
        """How many workers there are."""
        workers, sync = self.scenario.sync.workers or self.gpus // self.worker_gpus, self.scenario.sync
        if sync.backup >= workers:
            raise self._fault("sync.backup", sync.backup, f"fewer than the {workers} workers, which a step waits for")
        if sync.inside is not None and workers % sync.inside.workers:
            raise self._fault("sync.inside.workers", sync.inside.workers, f"expected a divisor of {workers} workers")
        return workers

    @cached_property
    def worker_nodes(self) -> int:
        """Nodes of a worker; 1 where several share one."""
        return max(self.nodes // self.workers, 1)

    @cached_property
    def step(self) -> TrainPrediction | None:
        """Our prediction of a worker's step; None where its time is given."""
        if self.scenario.step.time is not None or self.scenario.model is None:
            return None
        if self.nodes % self.workers:
            allowed = f"expected a divisor of the {self.nodes} nodes that train, each worker on nodes of its own"
            raise self._fault("sync.workers", self.workers, allowed)
        scenario = self.scenario.train_step(self.worker_nodes)
        return predict_step(ResolvedTrain(scenario, self.where, self.memo))

    @property
    def spec(self) -> ModelSpec | None:
        """The shape of the model, if a step is predicted."""
        return None if self.step is None else self.step.resolved.spec

    @cached_property
    def step_s(self) -> float:
        """A worker's step when nothing disturbs it."""
        return self.step.report.step_time_s if self.step is not None else self.scenario.step.time or 0.0

    @cached_property
    def samples(self) -> float:
        """What a worker trains on in a step: tokens, unless the scenario says otherwise."""
        stated = self.scenario.step.samples
        return stated or (float(self.step.report.tokens) if self.step is not None else 1.0)

    @cached_property
    def gradient_bytes(self) -> float:
        """Bytes of a worker's gradients, in the type in which they travel."""
        said, precision = self.scenario.step, self.scenario.precision
        each = 2 if (precision.reduce or precision.gradients) == "bf16" else 4
        return float(said.gradient or each * self._parameters)

    @property
    def _parameters(self) -> int:
        return 0 if self.step is None else self.step.report.parameters

    @cached_property
    def parameter_bytes(self) -> float:
        """Bytes of the model that workers read from servers, in 16 bits."""
        return float(self.scenario.step.parameters or 2 * self._parameters or self.gradient_bytes)

    # Links

    @cached_property
    def node_bytes_per_s(self) -> float:
        """What the NICs of a node sustain, and not more than its share of the leaves' uplinks."""
        capacity = effective_capacity(self.one_node, self.profile)
        return sum(min(float(capacity[self.one_node.nic_tx(nic)]), self._uplink(nic)) for nic in self._nics)

    @cached_property
    def one_node(self) -> Cluster:
        """The first node with its network, which stands for all."""
        return cluster(self.scenario.cluster, 1, self.where)

    @property
    def _nics(self) -> list[str]:
        return self.one_node.nics_of(0)

    def _uplink(self, nic: str) -> float:
        leaf = self.cluster.leaf_of(nic)
        return self.cluster.uplink_bytes_per_s(leaf) / self._below[leaf]

    @cached_property
    def link_bytes_per_s(self) -> float:
        """The rate of a worker's link in each direction."""
        if (stated := self.scenario.sync.bandwidth) is not None:
            return stated
        share = min(self.worker_gpus / self.one_node.n_gpus, 1.0) if self.workers > self.nodes else self.worker_nodes
        return self.node_bytes_per_s * share or inf

    @cached_property
    def latency_s(self) -> float:
        """Of a message between workers."""
        stated = self.scenario.sync.latency
        return self.profile.value_or("broadcast.node_hop_s", 0.0) if stated is None else stated

    @cached_property
    def message(self) -> Message:
        """What a worker sends of a gradient."""
        return self._message(self.workers)

    def _message(self, workers: int) -> Message:
        if (said := self.scenario.compress) is None:
            return dense(self.gradient_bytes)
        device = self.devices[0]
        flop_per_s = max(device.peak_flop_per_s.values())
        return compress(said, self.gradient_bytes, 4, workers, device.memory_bytes_per_s, flop_per_s, self._shapes)

    @property
    def _shapes(self) -> tuple[tuple[int, int, float], ...]:
        spec = self.spec
        if spec is None:
            return ()
        count = self._parameters / spec.hidden_size**2
        return ((spec.hidden_size, spec.hidden_size, count),)

    # Speeds

    @cached_property
    def ranks(self) -> int:
        """What varies by itself, of all workers; at least one for each worker."""
        per = {"worker": self.workers, "node": self.nodes, "gpu": self.gpus}[self.scenario.speed.per]
        return max(per // self.workers, 1) * self.workers

    def crew(self, seed: int) -> Crew:
        """All ranks in the order of workers."""
        said = self.scenario.speed
        drawn = said.ranks.draw(np.random.default_rng((seed, _RANKS)), self.ranks)
        for i, one in enumerate(self.scenario.slow):
            if one.node >= self.nodes:
                raise self._fault(f"slow.{i}.node", one.node, f"there are {self.nodes} nodes, numbered from 0")
            first, after = (node * self.ranks // self.nodes for node in (one.node, one.node + 1))
            drawn[first : max(after, first + 1)] *= one.factor
        return Crew(drawn, said.jitter, None, said.throttle)

    def team(self, seed: int) -> Team:
        """The workers as those who do not all wait for each other; groups of them, if they wait inside."""
        each, crew = self.ranks // self.workers, self.crew(seed)
        alone = Team(
            workers=self.workers,
            step_s=self.step_s,
            samples=self.samples,
            gradient_bytes=self.gradient_bytes,
            parameter_bytes=self.parameter_bytes,
            link_bytes_per_s=self.link_bytes_per_s,
            latency_s=self.latency_s,
            speeds=tuple(crew.speeds.reshape(-1, each).max(axis=1).tolist()),
            jitter=crew.jitter.of_slowest(each),
            seed=seed,
        )
        return self._grouped(alone)

    def _grouped(self, team: Team) -> Team:
        """Groups of workers as workers: their steps end with an exchange inside the group."""
        inside = self.scenario.sync.inside
        if inside is None:
            return team
        each = inside.workers
        speeds = np.array(team.speeds).reshape(-1, each).max(axis=1)
        return replace(
            team,
            workers=team.workers // each,
            step_s=team.step_s + self._inside_s,
            samples=team.samples * each,
            speeds=tuple(speeds.tolist()),
            jitter=team.jitter.of_slowest(each),
        )

    @property
    def _inside_s(self) -> float:
        """The exchange inside a group."""
        inside = self.scenario.sync.inside
        if inside is None:
            return 0.0
        rate = inside.bandwidth or self.node_bytes_per_s * self.worker_nodes
        return exchange_s(dense(self.gradient_bytes), inside.workers, rate, inside.latency)

    # How workers keep in step

    def rounds(self, workers: int) -> Rounds:
        """Rounds of so many workers that all wait for each other."""
        sync, inside = self.scenario.sync, self.scenario.sync.inside
        sites = max(workers // (inside.workers if inside else 1), 1)
        message = self._message(sites)
        alone_s = exchange_s(message, sites, self.link_bytes_per_s, self.latency_s) if sites > 1 else 0.0
        encode_s = (message.encode_s + message.decode_s) if sites > 1 else 0.0
        if sync.mode == "local":
            assert sync.inner is not None
            step_s = self.step_s + self._inside_s
            return Local(step_s, sync.inner, alone_s, encode_s, sync.fragments, sync.delay)
        return EachStep(self.step_s, self._exposed_s(alone_s) + self._inside_s, encode_s, sync.backup)

    def _exposed_s(self, alone_s: float) -> float:
        """What an exchange that takes so long alone adds to a step."""
        keys, gradient_bytes = self.scenario.sync.overlap, self.gradient_bytes
        return exposed_s(keys, self.step_s, alone_s, gradient_bytes, 0.0, self._layers) if alone_s else 0.0

    @property
    def _layers(self) -> int:
        return self.spec.n_layers if self.spec is not None else 32

    # Checkpoints and failures

    @cached_property
    def checkpoint_bytes(self) -> float:
        """Weights, master weights and moments of the whole model."""
        said, types = self.scenario.checkpoint, self.scenario.precision
        if said is None or said.bytes is not None:
            return float(said.bytes or 0) if said is not None else 0.0
        if self.step is None or self.scenario.lora is not None:
            if None in (said.stall, said.write) and not (said.mode == "blocking" and said.stall is not None):
                raise self._fault("checkpoint.bytes", None, "say what is saved: no whole model is trained here")
            return 0.0
        held = state_bytes(
            Count(self._parameters, 0, 0), zero=0, shard_dense=1, shard_expert=1, compute=types.compute,
            moments=types.moments, master=types.master,
        )  # fmt: skip
        return float(held.weights + held.master + held.moments)

    @cached_property
    def saving(self) -> Saving | None:
        """A checkpoint in seconds."""
        said = self.scenario.checkpoint
        if said is None:
            return None
        machine = Machine(
            nodes=self.nodes,
            nodes_per_worker=self.worker_nodes,
            gpus_per_node=self.one_node.n_gpus,
            copy_bytes_per_s=self._copy_bytes_per_s if said.mode != "blocking" and said.stall is None else inf,
            nic_bytes_per_s=self.node_bytes_per_s or inf,
        )
        return saving(said, self.checkpoint_bytes, machine)

    @property
    def _copy_bytes_per_s(self) -> float:
        """The rate of a copy from a GPU to its host while its neighbours copy, too."""
        route = self.one_node.d2h_route(0)
        capacity = effective_capacity(self.one_node, self.profile)
        return min(float(capacity[link]) for link in route)

    @cached_property
    def restart(self) -> Restart:
        """What a restart takes when nodes are there."""
        said = self.scenario.failures
        if said is None:
            return Restart()
        read_s = said.read if said.read is not None else self.saving.read_s if self.saving is not None else 0.0
        return Restart(said.place, said.init + said.init_per_node * self.nodes, read_s, said.warmup)

    @property
    def parts(self) -> Parts:
        """How many parts there are that can fail."""
        nics = len(self._nics) * self.nodes
        return {"gpu": self.gpus, "node": self.nodes, "nic": nics, "leaf": len(self._below), "job": 1}

    @cached_property
    def _below(self) -> Counter[str]:
        """How many NICs there are below each leaf."""
        of = self.cluster
        return Counter(of.leaf_of(nic) for node in range(self.nodes) for nic in of.nics_of(node))

    @cached_property
    def mtbf_s(self) -> float:
        """The mean time between failures that stop the run without warning."""
        return inf if self.scenario.failures is None else mtbf_s(self.scenario.failures, self.parts)

    def failures(self, seed: int) -> Iterator[Failure]:
        """All failures in the order of time."""
        said = self.scenario.failures
        if said is None:
            return iter(())
        parts = self.parts
        return failures(
            said,
            parts,
            lambda part, number: number * self.nodes // parts[part],
            lambda cause: np.random.default_rng((seed, _CAUSES, cause)),
        )

    @cached_property
    def work_s(self) -> float | None:
        """The work between two checkpoints: as given, or what makes the run shortest (Daly 2006, equation 37).

        Where training hardly stands for one, that would be after every step. Nobody saves so often: the store has
        others to serve.
        """
        if self.saving is None or self.scenario.checkpoint is None:
            return None
        if (stated := self.scenario.checkpoint.interval) is not None:
            return stated
        if self.mtbf_s == inf:
            return None
        best_s = best_interval_s(max(self.saving.stall_s, 1e-3), self.mtbf_s)
        return max(best_s, _LEAST_WRITES * self.saving.write_s, _LEAST_STEPS * self.step_s)

    def _check_progress(self) -> None:
        """A run that fails before it can save anything never ends."""
        back_s = self.restart.seconds + (self.scenario.failures.detect if self.scenario.failures else 0.0)
        away = f"a failure every {format_seconds(self.mtbf_s)} on {self.nodes:,} nodes"
        if back_s > self.mtbf_s:
            allowed = f"no work is ever done: {away}, and it takes {format_seconds(back_s)} to come back from one"
            raise self._fault("failures", format_seconds(self.mtbf_s), allowed)
        until_s = self.work_s or self.length_s
        if until_s > _MOST_FAILURES * self.mtbf_s and self.scenario.run.wall is None:
            key = "checkpoint" if self.work_s is None else "checkpoint.interval"
            allowed = f"nothing is ever saved: {away}"
            raise self._fault(key, format_seconds(until_s), allowed)

    # The run

    @cached_property
    def steps(self) -> float:
        """Steps of each worker, or updates of servers; without end if only the time is given."""
        said, each = self.scenario.run, self._update_samples
        counts = [said.steps, said.samples and said.samples / each, self._to_target and sum(self._to_target)]
        return float(ceil(min([count for count in counts if count] or [inf]) - 1e-9)) if any(counts) else inf

    @property
    def _update_samples(self) -> float:
        """What an update of the model trains on."""
        sync = self.scenario.sync
        alone = sync.mode == "parameter_server" and sync.server.update != "synchronous"
        sites = self.workers // (sync.inside.workers if sync.inside is not None else 1)
        return self.samples * (self.workers // sites if alone else self.workers - sync.backup)

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """Batch sizes until the target and their steps; none without a target."""
        target, sync = self.scenario.target, self.scenario.sync
        if target is None:
            return ()
        alone = sync.mode == "parameter_server" and sync.server.update != "synchronous"
        stale = self.workers - 1 if alone else 0  # each worker's gradient misses one of every other (Dean et al. 2012)
        ratio = self.gradient_bytes / self.message.wire_bytes if self.scenario.compress is not None else 1.0
        return stages(target, self._update_samples, steps_factor(target, stale, ratio, sync.inner or 1))

    @property
    def _batches(self) -> tuple[tuple[float, float], ...]:
        """Until which step each batch size lasts, and how large it is."""
        if self.scenario.target is None or not self.scenario.target.batch:
            return ()
        if self.mode != "all_reduce":
            raise self._fault("target.batch", len(self.stages), "sizes that change go with sync.mode = 'all_reduce'")
        until = accumulate(stage.steps for stage in self.stages)
        base = self._update_samples
        return tuple((step, stage.batch / base) for step, stage in zip(until, self.stages, strict=True))

    @property
    def _to_target(self) -> list[float]:
        return [stage.steps for stage in self.stages]

    @property
    def length_s(self) -> float:
        """About how long the run works."""
        wall_s = self.scenario.run.wall
        return min(self.steps * self.step_s, inf if wall_s is None else wall_s)

    @property
    def repeats(self) -> int:
        """How often it is simulated."""
        return self.scenario.run.repeats or (_REPEATS if self.mode in ("all_reduce", "local") else 1)

    def training(self, seed: int) -> TrainingPlan:
        """The plan of workers that all wait for each other."""
        said = self.scenario
        self._check_progress()
        team = self.team(seed) if said.sync.mode == "local" else None
        crew = self.crew(seed) if team is None else Crew(np.array(team.speeds), team.jitter, None, said.speed.throttle)
        return TrainingPlan(
            rounds_of=self._rounds_of(),
            crew=crew,
            workers=self.workers,
            nodes=self.nodes,
            samples=self.samples,
            steps=self.steps,
            wall_s=inf if said.run.wall is None else said.run.wall,
            saving=self.saving,
            work_s=self.work_s,
            failures=lambda: self.failures(seed),
            restart=self.restart,
            spares=self.spares,
            speed=said.speed,
            input=said.input,
            elastic=said.elastic,
            batches=self._batches,
            starts=said.run.start,
            drawn=seed == said.seed,
            seed=seed,
        )

    def _rounds_of(self):  # type: ignore[no-untyped-def]
        known: dict[int, Rounds] = {}

        def rounds_of(workers: int) -> Rounds:
            if workers not in known:
                known[workers] = self.rounds(workers)
            return known[workers]

        return rounds_of

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Assumptions, for the report."""
        notes = list(self.scenario.notes)
        if self.scenario.failures is None:
            notes.append("nothing fails; see [failures]")
        elif self.scenario.checkpoint is None:
            notes.append("nothing is saved, so every failure loses all work; see [checkpoint]")
        return tuple(notes)

    @cached_property
    def hash(self) -> str:
        """The hash of everything that the prediction depends on, runcast's release included."""
        said = self.scenario
        content = {
            "scenario": said.model_dump(mode="json", exclude={*FOR_PEOPLE, "cluster", "model", "profile", "stack"}),
            "step": None if self.step is None else self.step.resolved.hash,
            "profile": self.profile.to_json() if self.step is None else None,
            "cluster": cluster_inputs(said.cluster, said.nodes, self.where),
            "version": release(),
        }
        return content_hash(content)[:16]
