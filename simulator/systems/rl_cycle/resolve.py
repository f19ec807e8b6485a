"""From a checked scenario of kind rl_cycle to the plan of the cycle: GPUs, their switch, lengths, the hash."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...base.errors import UserError
from ...base.units import format_bytes
from ...collectives import Machines
from ...hardware import Spec, cluster_inputs, some_nodes
from ...models import ModelSpec
from ...models.model import identity
from ...profile import Parameter, Profile, without_profile
from ..lengths import Lengths
from ..machines import ResolvedScenario, content_hash, release, shape_of, without_route
from ..weight_update.report import Report as UpdateReport
from ..weight_update.resolve import Resolved
from ..weight_update.scenario import Scenario as UpdateScenario
from ..weight_update.system import resolve
from ..weight_update.transfers import TransferUpdate
from .pace import Pace, Roofline
from .plan import CyclePlan, Rollouts, Switch
from .scenario import CycleScenario, Length
from .serving import Served, check_shape, serve
from .switch import HOST, move_s
from .training import Plan, Setup, Training, step_table, with_micro
from .training import predict as predict_training

_LATER: Mapping[str, tuple[str, ...]] = {
    "cycle": ("train", "minibatches", "forward_passes", "forward_micro", "pad_to", "rollout_nodes", "prepare"),
    "rollout": ("engine", "samples", "prompt"),
}
"""Keys that hashes leave out where they are not given: so hashes from before they were added stay valid."""


@dataclass(frozen=True)
class ResolvedCycle(ResolvedScenario):
    """A cycle with what its names stand for; parts are made on first use."""

    scenario: CycleScenario

    @cached_property
    def update(self) -> Resolved | None:
        """The weight update, unless its time is given."""
        if self.scenario.cycle.update_time is not None:
            return None
        if (engine := self.scenario.rollout.engine) is not None and self.spec is not None:
            check_shape(engine, self.scenario.tp, self.spec, self.where)  # before the update blames keys of its own
        return resolve(self._update_scenario, self.where, self.memo)

    @property
    def _update_scenario(self) -> UpdateScenario:
        """The update as a scenario; by servers it is on the nodes that roll out alone."""
        given = self.scenario
        if self._rollout_nodes is None:
            return given.weight_update()
        rolling, training = self._split_nodes
        trainers = sum(self.cluster.gpus_per_node[node] for node in training)
        if given.from_trainers:
            return given.weight_update(trainers)
        part = some_nodes(given.cluster, rolling, self.where)
        return given.weight_update(trainers, cluster=part, nodes=len(rolling))

    @cached_property
    def spec(self) -> ModelSpec | None:
        """The shape of the model, if known; an engine needs it."""
        model = self.scenario.model
        if model is None or (model.bytes is not None and self.scenario.rollout.engine is None):
            return None
        return shape_of(model, self.where)

    @cached_property
    def profile(self) -> Profile:
        """Device and software parameters; the switch uses those of copies."""
        return super().profile if self.update is None else self.update.profile

    @property
    def memory_bytes(self) -> int:
        """Device memory of the smallest GPU."""
        return int(min(device.memory_bytes for device in self.devices))

    # Which GPUs do what

    @cached_property
    def _rollout_nodes(self) -> int | None:
        """The nodes that roll out, as given; the others train."""
        nodes = self.scenario.cycle.rollout_nodes
        if nodes is not None and nodes >= self.scenario.nodes:
            allowed = f"expected fewer than the {self.scenario.nodes} nodes, of which the others train"
            raise self._fault("cycle.rollout_nodes", nodes, allowed)
        return nodes

    @property
    def _split_nodes(self) -> tuple[range, range]:
        """(Nodes that roll out, the others): those that send a simulated update are the first ones of the cluster."""
        nodes = self.scenario.nodes
        rolls = self._rollout_nodes or nodes
        first = nodes - rolls if self.scenario.from_trainers else 0
        return range(first, first + rolls), range(first) if first else range(rolls, nodes)

    @property
    def rollout_ranks(self) -> Sequence[int]:
        """The GPUs that roll out."""
        if self.update is not None:
            return self.update.plan.receivers
        return range(sum(self.cluster.gpus_per_node[: len(self._split_nodes[0])]))

    @property
    def pools(self) -> tuple[int, int]:
        """(GPUs that roll out, GPUs that only train)."""
        updated = len(self.rollout_ranks)
        return updated, self.trainer_gpus(updated)

    def switch(self) -> Switch | None:
        """The switch of colocated GPUs, None if disaggregated."""
        cycle = self.scenario.cycle
        if cycle.placement == "disaggregated":
            return None
        offload_s, onload_s = (self._move_s(kind) for kind in ("offload", "onload"))
        host_s = 0.0 if self.switch_host is None else self.switch_host.value
        return Switch(cycle.release, onload_s, offload_s + host_s, cycle.kv_alloc)

    @property
    def switch_host(self) -> Parameter | None:
        """What the stack's software does in a switch beside copies; None where it does nothing, or all is given."""
        given = self.scenario
        is_read = self.update is not None or given.rollout.engine is not None or given.cycle.state is not None
        return self.profile.parameters.get(HOST) if is_read else None

    def _move_s(self, kind: str) -> float:
        if (state := self.scenario.cycle.state) is None:
            return 0.0
        self._check_state(state)
        try:
            return move_s(kind, self.cluster.n_gpus, state, self.cluster, self.profile)
        except UserError as error:  # a route that does not exist
            raise without_route(self.where, error) from None

    def _check_state(self, state: int) -> None:
        """A GPU must hold the state, and a node's memory those of all its GPUs (0 bytes: not stated)."""
        for node in range(self.cluster.n_nodes):
            gpus, host = self.cluster.gpus_of(node), int(self.cluster.nodes[node].host_memory_bytes)
            if state > (device := self.cluster.device(gpus[0]).memory_bytes):
                raise self._fault("cycle.state", format_bytes(state), f"a device has {format_bytes(device)}")
            if 0 < host < state * len(gpus):
                allowed = f"node {node} has {format_bytes(host)} of host memory for {len(gpus)} GPUs"
                raise self._fault("cycle.state", format_bytes(state), allowed)

    @cached_property
    def lengths(self) -> Lengths:
        """The distribution of tokens per answer."""
        return lengths_of(self.scenario.rollout.length, self.scenario.rollout.max_tokens)

    @cached_property
    def prompts(self) -> Lengths | None:
        """The distribution of tokens per prompt; None if prompts are not said."""
        prompt = self.scenario.rollout.prompt
        return None if prompt is None else lengths_of(prompt)

    def engines(self, gpus: int) -> int:
        """How many engines there are on `gpus` GPUs; a UserError if these cannot be shared out."""
        rollout, engine = self.scenario.rollout, self.scenario.rollout.engine
        if engine is not None and rollout.engines is None:
            each = self.scenario.tp * engine.dp
            if gpus % each:
                allowed = f"an engine has {each} GPUs, which must divide the {gpus} that roll out"
                raise self._fault("rollout.engine.tp", self.scenario.tp, allowed)
            return gpus // each
        assert rollout.engines is not None
        if gpus % rollout.engines:
            raise self._fault("rollout.engines", rollout.engines, f"must divide the {gpus} GPUs that roll out")
        each = gpus // rollout.engines
        if engine is not None and each != self.scenario.tp * engine.dp:
            allowed = f"leaves {each} GPUs to an engine of tp x dp = {self.scenario.tp * engine.dp}"
            raise self._fault("rollout.engines", rollout.engines, allowed)
        if self.update is not None and each % (tp := self.scenario.update.inference.tp):
            allowed = f"leaves {each} GPUs to an engine, which update.inference.tp = {tp} does not divide"
            raise self._fault("rollout.engines", rollout.engines, allowed)
        return rollout.engines

    def rollouts(self, gpus: int) -> Rollouts:
        """The pool on `gpus` GPUs, and the requests of a batch."""
        rollout, engines, engine = self.scenario.rollout, self.engines(gpus), self.engine
        if engine is None:
            assert rollout.token_time is not None
            assert rollout.slots is not None
            slots, room = rollout.slots, None
            pace: Pace | Roofline = Pace(rollout.token_time, rollout.request_time, rollout.recompute_time)
        else:
            slots, room, pace = engine.said.max_batch * engine.said.dp, engine.room, engine.pace
        return Rollouts(
            requests=rollout.requests,
            engines=engines,
            slots=slots,
            pace=pace,
            lengths=self.lengths,
            seed=self.scenario.seed,
            interrupt=rollout.interrupt,
            prompts=self.prompts if engine is not None else None,
            samples=rollout.samples,
            room=room,
        )

    @cached_property
    def engine(self) -> Served | None:
        """The engine whose steps are predicted; None where decoding's times are given."""
        said = self.scenario.rollout.engine
        if said is None:
            return None
        assert self.spec is not None
        inference = self.scenario.update.inference
        for axis in ("tp", "ep"):
            ours, theirs = getattr(said, axis), getattr(inference, axis)
            if {axis} <= inference.model_fields_set & said.model_fields_set and ours not in (None, theirs):
                raise self._fault(
                    f"rollout.engine.{axis}", ours, f"update.inference.{axis} = {theirs}: give one of the two"
                )
        usual = self.lengths.moment(1), self.prompts.moment(1) if self.prompts is not None else 0.0
        self._check_devices(said.dtype or self._weight_type)
        machines = Machines(self.cluster, self.profile)
        ranks = tuple(self.rollout_ranks)
        return serve(said, self.scenario.tp, self.spec, self._weight_type, machines, ranks, usual, self.where)

    def _check_devices(self, dtype: str) -> None:
        """The GPUs that roll out have a profile of their kernels, and compute in this type."""
        devices = {device.name: device for device in map(self.cluster.device, self.rollout_ranks)}
        if self.scenario.profile is None and (names := without_profile(devices.values())):
            allowed = "no profile has an engine's kernels on it: say what it is `like`, or give rollout.token_time"
            raise self._fault("cluster.device", " and ".join(names), allowed)
        for name, device in devices.items():
            if dtype not in device.peak_flop_per_s:
                allowed = f"{name} computes in {', '.join(device.peak_flop_per_s)}"
                raise self._fault("rollout.engine.dtype", dtype, allowed)

    @property
    def _weight_type(self) -> str:
        """The type of the weights that engines get: of the update, or of the checkpoint where that is not simulated."""
        if self.update is not None:
            return self.update.dtype
        return "fp8" if self.spec is not None and self.spec.quantization is not None else "bf16"

    # Training

    @cached_property
    def training(self) -> Training | None:
        """The training that is predicted; None where its time is given."""
        cycle = self.scenario.cycle
        if cycle.train is None:
            return None
        _ = self.profile_names  # refuses a profile of other devices
        machines, nodes = self._training_machines()
        setup = Setup(
            cluster=machines,
            nodes=nodes,
            gpus=len(self.training_ranks),
            profile=self.scenario.profile,
            model=None if self.scenario.model is None else self.scenario.model.model_dump(exclude_unset=True),
            requests=self.scenario.rollout.requests,
            minibatches=cycle.minibatches,
            tokens=self.lengths.moment(1) + (self.prompts.moment(1) if self.prompts is not None else 0.0),
            pad_to=cycle.pad_to,
        )
        if setup.requests % cycle.minibatches:
            allowed = f"expected a divisor of rollout.requests = {setup.requests}"
            raise self._fault("cycle.minibatches", cycle.minibatches, allowed)
        said = step_table(cycle.train, setup.model is not None, self.where)
        forward = said if cycle.forward_micro is None else with_micro(said, cycle.forward_micro)
        plan = Plan(cycle.minibatches, cycle.forward_passes, setup.scenario(forward, self.where))
        return predict_training(setup.scenario(said, self.where), plan, self.where, self.memo)

    @property
    def training_ranks(self) -> range:
        """The GPUs that train; those beside the cluster are numbered on."""
        if self.scenario.cycle.placement == "colocated":
            return range(self.cluster.n_gpus)
        rolls, gpus = self.pools
        first = 0 if self.scenario.from_trainers else rolls
        return range(first, first + gpus)

    def _training_machines(self) -> tuple[Spec, int]:
        """The description of the nodes that train, all GPUs of each, and their number."""
        cluster, ranks, described = self.cluster, self.training_ranks, self.scenario.cluster
        each = cluster.gpus_per_node
        if ranks.stop <= cluster.n_gpus:
            nodes = range(cluster.node_of(ranks[0]), cluster.node_of(ranks[-1]) + 1)
            whole = sum(each[node] for node in nodes) == len(ranks)
        elif cluster.is_mixed:
            allowed = "are beside a cluster of several kinds of nodes, so theirs is not known: see cycle.rollout_nodes"
            raise self._fault("cycle.trainer_gpus", len(ranks), allowed)
        else:
            nodes = range(len(ranks) // each[0])
            whole = len(nodes) * each[0] == len(ranks)
        if not whole:
            allowed = f"a predicted step is on whole nodes, of {each[0]} GPUs each"
            raise self._fault("cycle.trainer_gpus", len(ranks), allowed)
        return some_nodes(described, nodes, self.where), len(nodes)

    @property
    def train_s(self) -> float:
        """Seconds of training between a batch and new weights."""
        return self.training.seconds if self.training is not None else self.scenario.cycle.train_time or 0.0

    def trainer_gpus(self, updated: int) -> int:
        """GPUs that only train: as given, or those of the cluster that the update leaves out."""
        cycle, others = self.scenario.cycle, self.cluster.n_gpus - updated
        if cycle.rollout_nodes is not None:
            return self._trainers_of_nodes(updated)
        if cycle.placement == "colocated":
            if others:
                raise self._fault("cycle.placement", cycle.placement, f"the update leaves {others} GPUs out")
            return 0
        if cycle.trainer_gpus is None and not others:
            allowed = "say how many GPUs train: the update reaches all of the cluster's, so all of them roll out"
            raise self._fault("cycle.trainer_gpus", None, allowed)
        train = len(self.update.trainers) if isinstance(self.update, TransferUpdate) else others
        if train and cycle.trainer_gpus not in (None, train):
            raise self._fault("cycle.trainer_gpus", cycle.trainer_gpus, f"{train} GPUs train, as the update has it")
        return cycle.trainer_gpus or train

    def _trainers_of_nodes(self, updated: int) -> int:
        """The GPUs of the nodes that do not roll out; all of those that do are updated."""
        nodes = self._rollout_nodes
        rolls, others = (sum(self.cluster.gpus_per_node[node] for node in part) for part in self._split_nodes)
        if updated != rolls:
            raise self._fault("cycle.rollout_nodes", nodes, f"are {rolls} GPUs, but the update reaches {updated}")
        train = len(self.update.trainers) if isinstance(self.update, TransferUpdate) else others
        if train != others:
            allowed = f"leave {others} GPUs to train, but the update has {train} trainers"
            raise self._fault("cycle.rollout_nodes", nodes, allowed)
        return others

    def plan(self, update: UpdateReport | None) -> CyclePlan:
        """The cycle around a simulated update, or one whose time the scenario gives (None).

        What precedes the update proper, such as a drain, is part of the cycle.
        """
        cycle = self.scenario.cycle
        if update is not None:
            update_s, pause_s, gpus = update.update_time_s, min(update.pause_s, update.update_time_s), update.gpus
        else:
            assert cycle.update_time is not None
            update_s, gpus = cycle.update_time, self.pools[0]
            pause_s = update_s if cycle.pause is None else cycle.pause
        plan = CyclePlan(
            steps=cycle.warmup_steps + cycle.counted_steps,
            warmup=cycle.warmup_steps,
            staleness=cycle.most_stale,
            train_s=self.train_s,
            prepare_s=cycle.prepare,
            update_s=update_s,
            pause_s=pause_s,
            rollouts=self.rollouts(gpus),
            rollout_gpus=gpus,
            trainer_gpus=self.trainer_gpus(gpus),
            switch=self.switch(),
        )
        self._check_longest(plan)
        return plan

    def _check_longest(self, plan: CyclePlan) -> None:
        """The KV cache of a predicted engine holds each request of the run by itself."""
        if self.engine is None:
            return
        room = int(self.engine.capacity / self.engine.said.dp)
        if (longest := plan.rollouts.longest(plan.steps + plan.staleness)) > room:
            allowed = f"a request has {longest:,} tokens, prompt included, and an engine's KV cache room for {room:,}"
            raise self._fault("rollout.max_tokens", self.scenario.rollout.max_tokens, allowed)

    def _hashed_table(self, table: str) -> dict[str, Any]:
        """A table of the scenario for the hash."""
        later, said = _LATER[table], getattr(self.scenario, table)
        dumped: dict[str, Any] = said.model_dump(mode="json")
        default = {name: type(said).model_fields[name].default for name in later}
        return {name: value for name, value in dumped.items() if name not in later or value != default[name]}

    @cached_property
    def hash(self) -> str:
        """The hash of everything that the prediction depends on, runcast's version included."""
        given = self.scenario
        reads_profile = self.update is None and (given.cycle.state is not None or self.engine is not None)
        predicted = {} if self.training is None else {"train": self.training.step.resolved.hash}
        if self.spec is not None and (self.update is None or self.engine is not None):
            predicted["model"] = identity(self.spec)
        content = {
            **predicted,
            "cycle": self._hashed_table("cycle"),
            "rollout": self._hashed_table("rollout"),
            "seed": given.seed,
            "update": self.update.hash if self.update is not None else None,
            "cluster": cluster_inputs(given.cluster, given.nodes, self.where),
            "profile": self.profile.to_json() if reads_profile else None,
            "version": release(),
        }
        return content_hash(content)[:16]


def lengths_of(length: Length, most: int | None = None) -> Lengths:
    """The distribution that a table of a scenario describes, cut off at `most`."""
    if length.kind == "fixed":
        assert length.tokens is not None
        return Lengths.constant(length.tokens)
    if length.kind == "lognormal":
        assert length.mean is not None
        assert length.p99 is not None
        return Lengths.lognormal(length.mean, length.p99, most)
    assert length.values is not None
    assert length.weights is not None
    return Lengths.histogram(length.values, length.weights, most)
