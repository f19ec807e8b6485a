"""From a checked scenario of kind rl_cycle to the plan of the cycle: GPUs, their switch, lengths, the hash."""

from dataclasses import dataclass
from functools import cached_property

from ...base.errors import UserError
from ...base.units import format_bytes
from ...collectives import STREAMS
from ...costs import cost
from ...engine import simulate
from ...hardware import Cluster, cluster_inputs
from ...models import ModelSpec
from ...profile import Profile
from ...program import Program, ProgramBuilder
from ..lengths import Lengths
from ..machines import ResolvedScenario, content_hash, release
from ..weight_update.report import Report as UpdateReport
from ..weight_update.resolve import Resolved
from ..weight_update.system import resolve
from ..weight_update.transfers import TransferUpdate
from .plan import CyclePlan, Rollouts, Switch
from .pace import Pace
from .scenario import CycleScenario


@dataclass(frozen=True)
class ResolvedCycle(ResolvedScenario):
    """A cycle with what its names stand for; parts are made on first use."""

    scenario: CycleScenario

    @cached_property
    def update(self) -> Resolved | None:
        """The weight update, unless its time is given."""
        if self.scenario.cycle.update_time is not None:
            return None
        return resolve(self.scenario.weight_update(), self.where, self.memo)

    @property
    def spec(self) -> ModelSpec | None:
        """The shape of the updated model, if known."""
        return None if self.update is None else self.update.spec

    @cached_property
    def profile(self) -> Profile:
        """Device and software parameters; the switch uses those of copies."""
        return super().profile if self.update is None else self.update.profile

    def switch(self) -> Switch | None:
        """The switch of colocated GPUs, None if disaggregated."""
        cycle = self.scenario.cycle
        if cycle.placement == "disaggregated":
            return None
        offload_s, onload_s = (self._move_s(kind) for kind in ("offload", "onload"))
        return Switch(cycle.release, onload_s, offload_s, cycle.kv_alloc)

    def _move_s(self, kind: str) -> float:
        if (state := self.scenario.cycle.state) is None:
            return 0.0
        self._check_state(state)
        try:
            return move_s(kind, self.cluster.n_gpus, state, self.cluster, self.profile)
        except UserError as error:  # a route that does not exist
            raise UserError(*(f"{self.where}: cluster: {line}" for line in error.faults)) from None

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
        length, most = self.scenario.rollout.length, self.scenario.rollout.max_tokens
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

    def rollouts(self, gpus: int) -> Rollouts:
        """The pool on `gpus` GPUs, and the requests of a batch."""
        rollout = self.scenario.rollout
        if gpus % rollout.engines:
            raise self._fault("rollout.engines", rollout.engines, f"must divide the {gpus} GPUs that roll out")
        each = gpus // rollout.engines
        if self.update is not None and each % (tp := self.scenario.update.inference.tp):
            allowed = f"leaves {each} GPUs to an engine, which update.inference.tp = {tp} does not divide"
            raise self._fault("rollout.engines", rollout.engines, allowed)
        return Rollouts(
            requests=rollout.requests,
            engines=rollout.engines,
            slots=rollout.slots,
            pace=Pace(rollout.token_time, rollout.request_time, rollout.recompute_time),
            lengths=self.lengths,
            seed=self.scenario.seed,
            interrupt=rollout.interrupt,
        )

    def trainer_gpus(self, updated: int) -> int:
        """GPUs that only train: as given, or those of the cluster that the update leaves out."""
        cycle, others = self.scenario.cycle, self.cluster.n_gpus - updated
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

    def plan(self, update: UpdateReport | None) -> CyclePlan:
        """The cycle around a simulated update, or one whose time the scenario gives (None).

        What precedes the update proper, such as a drain, is part of the cycle.
        """
        cycle = self.scenario.cycle
        if update is not None:
            update_s, pause_s, gpus = update.update_time_s, min(update.pause_s, update.update_time_s), update.gpus
        else:
            assert cycle.update_time is not None
            update_s, gpus = cycle.update_time, self.cluster.n_gpus
            pause_s = update_s if cycle.pause is None else cycle.pause
        return CyclePlan(
            steps=cycle.warmup_steps + cycle.steps,
            warmup=cycle.warmup_steps,
            staleness=cycle.most_stale,
            train_s=cycle.train_time,
            update_s=update_s,
            pause_s=pause_s,
            rollouts=self.rollouts(gpus),
            rollout_gpus=gpus,
            trainer_gpus=self.trainer_gpus(gpus),
            switch=self.switch(),
        )

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Assumptions, for the report."""
        notes = [*self.scenario.notes, *(self.update.notes if self.update is not None else ())]
        if self.scenario.cycle.placement == "colocated" and self.scenario.cycle.state is None:
            notes.append("no trainer state is offloaded or onloaded; see cycle.state")
        if self.scenario.rollout.interrupt == "keep" and not self.scenario.rollout.recompute_time:
            notes.append("running requests keep their KV cache across an update; see rollout.recompute_time")
        if self.scenario.slow:
            notes.append("slow nodes make the update longer, not rollouts or training")
        return tuple(notes)

    @cached_property
    def hash(self) -> str:
        """The hash of everything that the prediction depends on, runcast's version included."""
        given = self.scenario
        reads_profile = self.update is None and given.cycle.state is not None
        content = {
            "cycle": given.cycle.model_dump(mode="json"),
            "rollout": given.rollout.model_dump(mode="json"),
            "seed": given.seed,
            "update": self.update.hash if self.update is not None else None,
            "cluster": cluster_inputs(given.cluster, given.nodes, self.where),
            "profile": self.profile.to_json() if reads_profile else None,
            "version": release(),
        }
        return content_hash(content)[:16]


# The switch of a colocated cycle moves the trainer state of every GPU to host memory, or back. All GPUs of a node copy
# at once, and the engine shares their uplinks and the host's memory fairly.


def move_s(kind: str, gpus: int, state_bytes: int, cluster: Cluster, profile: Profile) -> float:
    """Seconds until the first `gpus` GPUs have moved `state_bytes` each to the host ("offload") or back ("onload").

    Raises:
        UserError: a GPU has no host memory.
    """
    if state_bytes == 0:
        return 0.0
    program = state_move(kind, gpus, state_bytes)
    return simulate(program, cost(program, cluster, profile, STREAMS)).makespan_s


def state_move(kind: str, gpus: int, state_bytes: int) -> Program:
    """A copy per GPU, all at once."""
    builder = ProgramBuilder()
    for gpu in range(gpus):
        copy = "d2h" if kind == "offload" else "h2d"
        lane = builder.lane(builder.place(f"rank {gpu}", [gpu]), copy)
        builder.op(copy, [lane], name=f"{kind} of rank {gpu}", size_bytes=state_bytes, root=gpu)
    return builder.build()
