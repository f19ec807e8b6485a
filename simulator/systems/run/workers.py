"""The workers of a run, from a checked scenario: their step, what they send, their links, how fast they are."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf

import numpy as np

from ...collectives import effective_capacity
from ...hardware import Cluster, cluster, limits, some_nodes
from ...models import ModelSpec, total_params, trained_params
from ...models.states import adapter_params
from ...profile import Estimate
from ..machines import ResolvedScenario, shape_of
from ..train_step.resolve import ResolvedTrain
from ..train_step.system import TrainPrediction
from ..train_step.system import predict as predict_step
from .modes import MODES, Mode
from .scenario import RunScenario
from .speed import Crew
from .sync.compression import Gpus, Gradient, Measured, Message, compress, dense

_RANKS = 11  # the stream of random numbers that says how ranks differ; no other module has this number


@dataclass(frozen=True)
class ResolvedWorkers(ResolvedScenario):
    """Who trains on what; parts are made on first use.

    `shared_step` is the prediction of a worker's step, if that of another run is the same.
    """

    scenario: RunScenario
    shared_step: TrainPrediction | None = field(default=None, compare=False, repr=False)

    # Who trains on what

    @property
    def mode(self) -> Mode:
        """How the run is simulated."""
        return MODES[self.scenario.mode]

    @cached_property
    def nodes(self) -> int:
        """Nodes that train: those of the cluster without spare ones."""
        spares = self.spares
        if spares >= self.scenario.nodes:
            raise self._fault("failures.spares", spares, f"expected fewer than the {self.scenario.nodes} nodes")
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

    @property
    def training_gpus(self) -> int:
        """GPUs of all workers; others of their nodes may be idle."""
        return self.workers * self.worker_gpus

    @cached_property
    def workers(self) -> int:
        """How many workers there are."""
        workers, sync = self.scenario.sync.workers or self.gpus // self.worker_gpus, self.scenario.sync
        if sync.backup >= workers:
            raise self._fault("sync.backup", sync.backup, f"expected fewer than the {workers} workers")
        if sync.backup and sync.inside is not None:
            raise self._fault("sync.backup", sync.backup, "is not for groups of workers: leave out [sync.inside]")
        if workers == 1 and self.scenario.compress is not None and self.mode.in_step:
            raise self._fault("sync.workers", sync.workers, "one worker exchanges nothing: leave out [compress]")
        if sync.inside is not None and workers % sync.inside.workers:
            raise self._fault("sync.inside.workers", sync.inside.workers, f"expected a divisor of {workers} workers")
        return workers

    @property
    def sites(self) -> int:
        """Groups of workers that wait for each other inside; workers where there are no groups."""
        return self.sites_of(self.workers)

    def sites_of(self, workers: int) -> int:
        """The groups of so many workers."""
        return max(workers // self.site_workers, 1)

    @property
    def site_workers(self) -> int:
        """Workers of a group; 1 where there are none. Each sends an equal part of what the group sends to others."""
        inside = self.scenario.sync.inside
        return inside.workers if inside is not None else 1

    @cached_property
    def worker_nodes(self) -> int:
        """Nodes of a worker; 1 where several share one."""
        return max(self.nodes // self.workers, 1)

    @cached_property
    def step(self) -> TrainPrediction | None:
        """Our prediction of a worker's step, with what compression keeps beside it; None where its time is given."""
        if self.shared_step is not None:
            return self.shared_step
        if self.resolved_step is None:
            return None
        found = predict_step(self.resolved_step)
        kept_bytes = self.residual_bytes
        return replace(found, report=found.report.hold_residuals(kept_bytes)) if kept_bytes else found

    @cached_property
    def resolved_step(self) -> ResolvedTrain | None:
        """A worker's step before it is predicted; None where its time is given."""
        if self.scenario.step.time is not None or self.scenario.batch is None:
            return None
        if self.nodes % self.workers:
            allowed = f"expected a divisor of the {self.nodes} nodes that train, each worker on nodes of its own"
            raise self._fault("sync.workers", self.workers, allowed)
        self._check_alike()
        said = self.scenario.train_step(self.worker_nodes)
        own = some_nodes(said.cluster, range(self.worker_nodes), self.where)
        return ResolvedTrain(said.model_copy(update={"cluster": own}), self.where, self.memo)

    def _check_alike(self) -> None:
        """Of workers on nodes of several kinds one step is predicted, so each has the same nodes in the same order."""
        nodes, each = self.cluster.nodes, self.worker_nodes
        kinds = {tuple(map(id, nodes[first : first + each])) for first in range(0, self.workers * each, each)}
        if len(kinds) > 1:
            why = "workers on different kinds of nodes take unequal steps"
            allowed = f"{why}: say step.time, or let each have the same nodes in the same order"
            raise self._fault("sync.workers", self.workers, allowed)

    @cached_property
    def spec(self) -> ModelSpec | None:
        """The shape of the model, if one is named."""
        model = self.scenario.model
        return None if model is None or self.scenario.step.time is not None else shape_of(model, self.where)

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
        return float(self.scenario.step.gradient or self._value_bytes * self.trained)

    @property
    def _value_bytes(self) -> int:
        """Bytes of each value of the model's gradients."""
        precision = self.scenario.precision
        return 2 if (precision.reduce or precision.gradients) == "bf16" else 4

    @property
    def parameters(self) -> int:
        """Parameters of the model, 0 if only the step's time is known."""
        return 0 if self.spec is None else total_params(self.spec, self._has_mtp)

    @property
    def trained(self) -> int:
        """Parameters that are trained, of the model or its adapters; 0 if only the step's time is known."""
        step = self.resolved_step
        spec = self.spec if step is None else step.spec
        if step is not None and step.plan.lora:
            return adapter_params(step.spec, step.plan.shard.lora_rank, step.plan.shard.adapted)
        return 0 if spec is None else trained_params(spec, self._has_mtp)

    @property
    def _has_mtp(self) -> bool:
        """Whether the step trains layers for multi-token prediction, which its checkpoints then have, too."""
        step = self.resolved_step
        return step is not None and any(stage.mtp for stage in step.plan.stages)

    @cached_property
    def parameter_bytes(self) -> float:
        """Bytes of what workers read from servers, in 16 bits: what changes."""
        return float(self.scenario.step.parameters or 2 * self.trained or self.gradient_bytes)

    # Links

    @property
    def node_bytes_per_s(self) -> float:
        """What the NICs of a node sustain to any other node.

        Raises:
            UserError: the cluster has several sites, between which the rate is another one.
        """
        for nic in self.nics[:1]:
            self.cluster.uplink_bytes_per_s(self.cluster.leaf_of(nic))
        return self.nics_bytes_per_s

    @cached_property
    def nics_bytes_per_s(self) -> float:
        """What the NICs of a node sustain inside its site, and not more than its share of the leaves' uplinks.

        Of several kinds of nodes, the slowest one's.
        """
        return min(self._nics_of(first, node) for first, node in self.one_of_each.items())

    def _nics_of(self, first: int, node: Cluster) -> float:
        capacity, nics = effective_capacity(node, self.profile), node.nics_of(0)
        lines = (float(capacity[node.nic_tx(nic)]) for nic in nics)
        return sum(map(min, lines, map(self._uplink, self.cluster.nics_of(first))))

    @cached_property
    def one_of_each(self) -> Mapping[int, Cluster]:
        """The first node of each kind that trains, by its number, with a network of its own."""
        first: dict[int, int] = {}
        for number, node in enumerate(self.cluster.nodes[: self.nodes]):
            first.setdefault(id(node), number)
        said = self.scenario.cluster
        return {at: cluster(some_nodes(said, range(at, at + 1), self.where), 1, self.where) for at in first.values()}

    @property
    def nics(self) -> list[str]:
        """The NICs of the nodes that train."""
        return [nic for node in range(self.nodes) for nic in self.cluster.nics_of(node)]

    def _uplink(self, nic: str) -> float:
        leaf = self.cluster.leaf_of(nic)
        return self.cluster.network.beyond.get(leaf, inf) / self.below[leaf]

    @cached_property
    def below(self) -> Counter[str]:
        """How many NICs there are below each leaf."""
        of = self.cluster
        return Counter(of.leaf_of(nic) for nic in self.nics)

    @cached_property
    def link_bytes_per_s(self) -> float:
        """The rate of a worker's link in each direction."""
        if (stated := self.scenario.sync.bandwidth) is not None:
            return stated
        most = max(node.n_gpus for node in self.one_of_each.values())
        share = min(self.worker_gpus / most, 1.0) if self.workers > self.nodes else self.worker_nodes
        return self.node_bytes_per_s * share or inf

    @cached_property
    def latency_s(self) -> float:
        """Of a message between workers; by default that of NICs, and of the slowest link between sites."""
        if (stated := self.scenario.sync.latency) is not None:
            return stated
        return self.profile.value_or("broadcast.node_hop_s", 0.0) + float(self.cluster.site_latency_s.max())

    @cached_property
    def message(self) -> Message:
        """What a worker, or a group of them, sends of a gradient to the others."""
        return self._message(self.sites)

    @property
    def residual_bytes(self) -> float:
        """What a GPU keeps of gradients between steps, where they are compressed with error feedback."""
        return 0.0 if self.scenario.compress is None else self.message.memory_bytes

    def _message(self, sites: int) -> Message:
        if (said := self.scenario.compress) is None:
            return dense(self.gradient_bytes)
        if not self.gradient_bytes:
            raise self._fault("compress.method", said.method, "there are no gradients to compress: give step.gradient")
        device = self.devices[0]
        gradient = Gradient(self.gradient_bytes, self._value_bytes, self._shapes)
        flop_per_s = max(device.peak_flop_per_s.values())
        each = self.worker_gpus * self.site_workers
        gpus = Gpus(each, device.memory_bytes_per_s, flop_per_s, self._measured_parts)
        try:
            return compress(said, gradient, sites, gpus)
        except ValueError as error:
            raise self._fault("compress.method", said.method, str(error)) from None

    @property
    def _measured_parts(self) -> Measured:
        """What the profile has measured of compression on the device."""
        profile, here = self.profile, limits(self.cluster)

        def estimate(part: str, size_bytes: float) -> Estimate | None:
            kind = f"compress.{part}"
            return profile.estimate(kind, {"bytes": size_bytes}, limits=here) if profile.is_measured(kind) else None

        return estimate

    @property
    def _shapes(self) -> tuple[tuple[int, int, float], ...]:
        spec = self.spec
        if spec is None:
            return ()
        count = self.trained / spec.hidden_size**2
        return ((spec.hidden_size, spec.hidden_size, count),)

    # Speeds

    @cached_property
    def ranks(self) -> int:
        """What varies by itself, of all workers; at least one for each worker."""
        per = {"worker": self.workers, "node": self.nodes, "gpu": self.training_gpus}[self.scenario.speed.per]
        return max(per // self.workers, 1) * self.workers

    def crew(self, seed: int) -> Crew:
        """All ranks in the order of workers; a unit is what `sites` counts."""
        said = self.scenario.speed
        drawn = said.ranks.draw(np.random.default_rng((seed, _RANKS)), self.ranks)
        in_step = self.step is not None and self.workers == 1
        for i, one in enumerate(() if in_step else self.scenario.slow):
            if one.node >= self.nodes:
                raise self._fault(f"slow.{i}.node", one.node, f"there are {self.nodes} nodes, numbered from 0")
            first, after = (node * self.ranks // self.nodes for node in (one.node, one.node + 1))
            drawn[first : max(after, first + 1)] *= one.factor
        return Crew(drawn, said.jitter, None, said.throttle, self.ranks // self.sites)

    def check_places(self) -> None:
        """Refuse ranks and nodes that the run does not have."""
        said = self.scenario
        trace = () if said.failures is None else said.failures.trace
        places = [(f"speed.turn.{i}.rank", one.rank, self.ranks, "ranks") for i, one in enumerate(said.speed.turn)]
        places += [(f"failures.trace.{i}.node", one.node, self.nodes, "nodes") for i, one in enumerate(trace)]
        for key, number, many, what in places:
            if number >= many:
                raise self._fault(key, number, f"there are {many:,} {what}, numbered from 0")
