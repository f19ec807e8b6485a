"""From a checked scenario of kind train_step to its plan, Program, costs and hash.

Errors that depend on the cluster, the model or the schedule are found here and raised as UserError.
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from math import isqrt
from typing import Any, ClassVar

import numpy as np

from ...base.arrays import Floats
from ...base.errors import UserError, fault, unknown
from ...base.files import path_beside
from ...collectives import Choice, Networks, choice_of, networks_of
from ...costs import HEAD_MULTIPLE, PRODUCT_TYPE, UNALIGNED, Costs
from ...hardware import cluster_inputs
from ...models import ModelSpec
from ...models.awkward import Awkward, awkward_shapes
from ...models.model import identity
from ...models.shard import Shard
from ...profile import ATTENTION, ATTENTION_OF, FACTORS, Profile, check_stack, load_numbers, shipped_base
from ...program import Program, join
from ...program.parallel import ParallelDims
from ...schedules import SCHEDULES, Grid, build, load_grid
from ..machines import OnMachines, content_hash, release, shape_of
from ..tables import FOR_PEOPLE
from .checks import as_trained, machine_misfits, misfits, unfit, unfit_batch, unfit_run
from .lower import Coarse, Fragments, Stage, TrainPlan, coarse, join_coarse, lower
from .packing import Packing, packing_of
from .pieces import CoarseCosts
from .plans import plan_of
from .prices import price, price_coarse
from .replicas import MOST, Replicas, alike, differ, seconds_of_microbatch, share, split_layers
from .routing import load_of
from .scenario import TrainScenario
from .smaller import smaller_shapes


@dataclass(frozen=True)
class ResolvedTrain(OnMachines):
    """A training step with its model, cluster, profile and plan. Each part is computed on first use."""

    scenario: TrainScenario
    _of_profile: ClassVar[tuple[str, ...]] = "_priced", "hash", "neat_costs", "networks", "own_spread"

    @cached_property
    def spec(self) -> ModelSpec:
        """The model's shape."""
        model, towers, freeze = self.scenario.model, self.scenario.towers, self.scenario.freeze
        key = repr(model), repr(towers), repr(freeze), self.where
        return self.memo.get("model", key, lambda: as_trained(shape_of(model, self.where), towers, freeze, self.where))

    @property
    def factors(self) -> tuple[str, ...]:
        """Names of the profile's factors of phases: `time_factor.<phase>`, of attention that of its kernels."""
        of = {ATTENTION: ATTENTION_OF.get(self.scenario.attention, ATTENTION)}
        return tuple(of.get(name, name) for name in (f"time_factor.{phase}" for phase in FACTORS))

    @property
    def derived(self) -> dict[str, object]:
        """Derived values of keys: the data-parallel size, and the pipeline chunks per rank."""
        return {"parallel.dp": self.dims.dp, "schedule.vpp": self.plan.grid.stages // self.dims.pp}

    @property
    def gemm_type(self) -> str:
        """The data type under which the profile has models of this step's GEMMs."""
        computed = self.scenario.precision.compute
        return PRODUCT_TYPE.get(computed, computed)

    @cached_property
    def peak_type(self) -> str:
        """The type whose dense peak MFU refers to: that of the GEMMs.

        Raises:
            UserError: a device has no peak for this type.
        """
        compute, peak = self.scenario.precision.compute, self.gemm_type
        needed = {peak, "fp4"} if compute == "mxfp8" else {peak}  # tensor cores took both up together (Blackwell)
        for device in self.devices:
            if not needed <= {*device.peak_flop_per_s}:
                allowed = f"{device.name} computes in {', '.join(device.peak_flop_per_s)}"
                allowed += ", without scales of 32 elements" * (peak in device.peak_flop_per_s)
                raise UserError(fault(self.where, "precision.compute", compute, allowed))
        return peak

    @cached_property
    def profile(self) -> Profile:
        """The numbers of devices, network, architecture and software stack, merged into one Profile."""
        profile = self.memo.get("profile", self._numbers, lambda: load_numbers(self.profile_names, *self._joined))
        check_stack(profile, self.scenario.stack, self.where)
        return profile

    @property
    def profile_name(self) -> str:
        """The profile of the slowest device."""
        return next(iter(self.profile_names.values()))

    @property
    def _numbers(self) -> tuple[object, ...]:
        """The cache key of `profile`: the names of everything that is merged into it."""
        return *self.profile_names.items(), *self._joined

    @property
    def _joined(self) -> tuple[str, str, str, str]:
        """What is merged with the devices' profiles: network, architecture, stack, and where errors are."""
        return self.cluster.fabric.network, self.spec.architecture, self.scenario.stack, self.where

    @cached_property
    def networks(self) -> Networks:
        """Corrections of exchanges between nodes, from the profile's network to the cluster's."""
        return networks_of(self.cluster, self.profile)

    def regrid(self, grid: Grid) -> "ResolvedTrain":
        """The same scenario with another grid of the same stages, for results that need fewer micro-batches."""
        other = ResolvedTrain(self.scenario, self.where, self.memo)
        own = ("cluster", "spec", "devices", "profile", "dims", "shares", "shard")
        vars(other).update({name: value for name, value in vars(self).items() if name in own} | {"grid": grid})
        return other

    @cached_property
    def dims(self) -> ParallelDims:
        """Sizes of the parallel axes; by default dp uses the GPUs that the other axes leave.

        Raises:
            UserError: sizes do not fit the GPUs, the model, the batch or each other; one line per error.
        """
        given, gpus = self.scenario.parallel, self.cluster.n_gpus
        others, grid = given.tp * given.cp * given.pp, given.etp or given.tp
        if self.spec.moe is None:  # the grid of experts is then of no use, and stands in the way of no order
            grid = given.tp * given.cp
        dims = ParallelDims(
            tp=given.tp, cp=given.cp, pp=given.pp, dp=given.dp or max(gpus // others, 1), ep=given.ep,
            etp=grid, order=given.order, shard=given.shard,
        )  # fmt: skip
        axes = dims.faults(gpus, self.where)
        faults = [*axes, *unfit(self.scenario, self.spec, dims, self.where)]
        faults += misfits(self.scenario, self.spec, self.where)
        if not axes:
            faults += machine_misfits(self.cluster, self.scenario, self.spec, dims, self.where)
        if dims.world_size == gpus:  # else dp is no more than a guess
            batch = unfit_batch(self.scenario, self.spec.n_layers, dims.dp)
            faults += [fault(self.where, *misfit) for misfit in batch]
        if self.scenario.run is not None:
            faults += [fault(self.where, *misfit) for misfit in unfit_run(self.scenario.run, gpus)]
        if faults:
            raise UserError(*faults)
        return dims

    @cached_property
    def replicas(self) -> tuple[Replicas, ...]:
        """Classes of data-parallel replicas on equal machines, the slowest class first."""
        return alike(self.dims, self.cluster, self.slowness)

    @cached_property
    def padded_spec(self) -> ModelSpec:
        """The model's shape with its padded vocabulary."""
        if (multiple := self.scenario.parallel.pad_vocab) == 1:
            return self.spec
        vocab = -(-self.spec.vocab_size // (multiple * self.dims.tp)) * multiple * self.dims.tp
        return self.memo.get("padded spec", (self.spec, vocab), lambda: replace(self.spec, vocab_size=vocab))

    @property
    def microbatches(self) -> int:
        """Micro-batches per step of a rank in the slowest class of replicas."""
        return self.shares[0]

    @cached_property
    def shares(self) -> tuple[int, ...]:
        """Micro-batches per step of each class of `replicas`, in the same order."""
        batch, replicas = self.scenario.batch, self.replicas
        even = batch.global_ // (batch.micro * self.dims.dp)
        if batch.split != "even" and len(replicas) == 1 and differ(self.cluster, self.slowness):
            allowed = f"expected even: all replicas are on equally fast machines, or on more than {MOST} kinds of them"
            raise UserError(fault(self.where, "batch.split", batch.split, allowed))
        if batch.split == "even" or len(replicas) == 1:
            return (even,) * len(replicas)
        unit = self._unit(even)
        seconds = [self._seconds_of_microbatch(of, unit) for of in replicas]
        return share([len(of) for of in replicas], seconds, even * self.dims.dp, unit)

    def _unit(self, microbatches: int) -> int:
        """The number of which `microbatches` must be a multiple in this schedule.

        For each pass it is 1 (or 2) if the schedule accepts 1 (or 2) micro-batches more, else the group size.
        """
        given = self.scenario.schedule
        for unit in (given.passes, 2 * given.passes):
            with suppress(UserError):
                self.shorter_grid(microbatches + unit)
                return unit
        return (given.group or self.dims.pp) * given.passes

    def _seconds_of_microbatch(self, replicas: Replicas, unit: int) -> float:
        many = unit * -(-2 * self.dims.pp // unit)
        program = self._lowered(plan_of(self, self.shorter_grid(many), replicas))
        return seconds_of_microbatch(program, price(self, program), many)

    @cached_property
    def grid(self) -> Grid:
        """The pipeline schedule of a replica in the slowest class."""
        return self.shorter_grid(self.microbatches)

    def shorter_grid(self, microbatches: int) -> Grid:
        """The pipeline schedule with this number of micro-batches, in all passes together.

        Raises:
            UserError: the schedule is unknown, or not defined for these sizes.
        """
        passes = self.scenario.schedule.passes
        return self.grid_of_pass(microbatches // passes).repeat(passes)

    def grid_of_pass(self, microbatches: int) -> Grid:
        """The pipeline schedule of one pass, with this number of micro-batches; a UserError as `shorter_grid`."""
        given = self.scenario.schedule
        if given.file is not None:
            return self._own_grid(given.file, microbatches)
        if given.name not in SCHEDULES:
            raise unknown(self.where, "schedule.name", given.name, sorted(SCHEDULES))
        options: dict[str, Any] = {"group": given.group} if given.group is not None else {}
        chunks = given.vpp if given.vpp is not None else SCHEDULES[given.name].chunks or 1
        stages = SCHEDULES[given.name].stages(self.dims.pp, chunks)
        split_layers(self.scenario, self.spec, stages, self.where)  # before a schedule of too many stages is built
        key = given.name, self.dims.pp, microbatches, chunks, given.group
        try:
            return self.memo.get("grid", key, lambda: build(*key[:4], **options), lambda grid: grid.cells)
        except (ValueError, TypeError) as error:
            raise UserError(f"{self.where}: schedule: {error}") from None

    def _own_grid(self, file: str, microbatches: int) -> Grid:
        """The schedule of a file; a UserError if it cannot be read or run, or is of other sizes than the step."""
        path = path_beside(file, self.where)
        try:
            grid = self.memo.get("own grid", str(path), lambda: load_grid(path), lambda grid: grid.cells)
        except UserError as error:
            raise UserError(*(f"{self.where}: schedule.file: {line}" for line in error.faults)) from None
        sizes = {"parallel.pp": (self.dims.pp, grid.ranks, "lines, one for each pipeline rank"),
                 "batch": (microbatches, grid.microbatches, "micro-batches")}  # fmt: skip
        faults = [
            f"{self.where}: schedule.file = {file!r}: has {has} {what}; {key} makes {wanted}"
            for key, (wanted, has, what) in sizes.items()
            if has != wanted
        ]
        batch, dims = self.scenario.batch, self.dims
        if faults and grid.ranks == dims.pp and batch.global_ == microbatches * batch.micro * dims.dp:
            faults[-1] += f"; batch.global = {grid.microbatches * batch.micro * dims.dp} makes {grid.microbatches}"
        if faults:
            raise UserError(*faults)
        return grid

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """The layers of each stage, in model order: as the scenario says, else split evenly, first stages fuller."""
        return split_layers(self.scenario, self.spec, self.grid.stages, self.where)

    @cached_property
    def shard(self) -> Shard:
        """The part of a micro-batch that one rank computes."""
        given, batch, lora = self.scenario.parallel, self.scenario.batch, self.scenario.lora
        compute, dims = self.scenario.precision.compute, self.dims
        unfused, packed = self.scenario.attention == "unfused", self.packing or Packing()
        return Shard(
            batch=batch.micro, seq=batch.seq_len, tp=dims.tp, cp=dims.cp, ep=dims.ep, etp=dims.etp,
            sequence_parallel=given.sequence_parallel and not given.tp_2d, cp_type=given.cp_type, linear=compute,
            dtype=compute if compute in ("fp32", "tf32", "fp16") else "bf16",
            load=load_of(self.scenario.experts, self.spec.moe, dims.ep, self.where),
            lora_rank=lora.rank if lora else 0, adapted=lora.targets if lora else (),
            base=(lora and lora.base) or "",
            side=isqrt(dims.tp) if given.tp_2d else 1,
            unfused=unfused, dropout=unfused and self.scenario.attention_dropout,
            loss_passes=self.scenario.loss == "passes",
            keeps_gathered=self.scenario.memory.gathered, keeps_repeated=self.scenario.memory.repeated,
            eager=self.scenario.memory.gate,
            norm_bytes=0.0 if self.spec.norm_bias else self.scenario.memory.norms,  # LayerNorm is one kernel
            softmax_bytes=self.scenario.memory.softmax_bytes,
            stored=tuple(self.scenario.precision.activations.model_dump(exclude_none=True).items()),
            dispatch=self.scenario.precision.dispatch if self.scenario.precision.dispatch != "bf16" else "",
            document=packed.length, slowest=packed.slowest,
        )  # fmt: skip

    @cached_property
    def packing(self) -> Packing | None:
        """What packing does to attention; ranks meet in each micro-batch if they gather weights or reduce in each."""
        given, batch = self.scenario.parallel, self.scenario.batch
        often = given.zero == 3 or (given.zero == 2 and given.sync_each_microbatch)
        return packing_of(batch, self.dims.dp, 1 if often else batch.global_ // (batch.micro * self.dims.dp))

    @cached_property
    def awkward(self) -> tuple[Awkward, ...]:
        """Sizes on one rank that kernels are not made for (docs/training.md, "Awkward shapes")."""
        return awkward_shapes(self.padded_spec, self.shard, round(self.profile.value_or(HEAD_MULTIPLE, 1.0)))

    @cached_property
    def neat_costs(self) -> Costs:
        """The costs of the same Program without the extra time of awkward shapes."""
        return self.restate(dict.fromkeys(UNALIGNED, 1.0)).costs if self.awkward else self.costs

    @cached_property
    def own_spread(self) -> Floats:
        """The relative standard deviation of each op by what a user's own profile says otherwise than its shipped base.

        What it measured itself is in no fit; what it takes over is no less sure for it.
        """
        below = {device: shipped_base(name, self.where) for device, name in self.profile_names.items()}
        if below == self.profile_names:
            return np.zeros(len(self.program))
        base = load_numbers({device: name or "generic" for device, name in below.items()}, *self._joined)
        return self._with(self.profile.sure_as(base)).costs.spread

    def check(self) -> None:
        """Raise a UserError if machines, profile, type of products or plan allow no prediction, in this order."""
        _ = self.cluster, self.profile, self.peak_type, self.plan

    @cached_property
    def plan(self) -> TrainPlan:
        """Everything that the Program depends on, for the slowest class of replicas."""
        return plan_of(self, self.grid, self.replicas[0] if len(self.replicas) > 1 else None)

    @cached_property
    def plans(self) -> tuple[TrainPlan, ...]:
        """The plan of each class of `replicas`, in the same order."""
        further = zip(self.replicas[1:], self.shares[1:], strict=True)
        return self.plan, *(replace(self.plan, grid=self.shorter_grid(count), replicas=of) for of, count in further)

    @cached_property
    def coarse(self) -> Coarse | None:
        """The step with one op per action, and with hosts where they are slow (`pieces`); None unless the scenario says
        `level = "coarse"`.

        Raises:
            UserError: with zero = 3, whose gathers run across actions.
        """
        if self.scenario.level != "coarse":
            return None
        if self.scenario.parallel.zero == 3:
            raise UserError(fault(self.where, "level", "coarse", "zero = 3 gathers across actions: expected kernels"))
        plain = self._coarse(hosts=False)
        return self._coarse(hosts=True) if self._price_coarse(plain).has_slow_hosts else plain

    def _coarse(self, hosts: bool) -> Coarse:
        def make() -> Coarse:
            return join_coarse([coarse(plan, self._fragments(plan), hosts) for plan in self.plans])

        return self.memo.get("coarse", (self.plans, hosts), make, lambda made: len(made.program))

    def _lowered(self, plan: TrainPlan) -> Program:
        return lower(plan, self._fragments(plan))

    def _fragments(self, plan: TrainPlan) -> Fragments:
        return self.memo.get("fragments", plan.layer_key, dict)

    @cached_property
    def program(self) -> Program:
        """The Program of the step, at the scenario's level."""
        return self.coarse.program if self.coarse is not None else join([self._lowered(plan) for plan in self.plans])[0]

    @property
    def choice(self) -> Choice:
        """The algorithms of exchanges that are named."""
        return choice_of(self.scenario.collectives.model_dump())

    @property
    def costs(self) -> Costs:
        """The time of each op without contention; a stage is as slow as its slowest node."""
        return self._priced[0]

    @property
    def mix(self) -> Floats | None:
        """At the coarser level, the share of each phase in an action's time, shape [parts, phases]; else None.

        The row of an op is the number in its `shape`.
        """
        return self._priced[1]

    @cached_property
    def _priced(self) -> tuple[Costs, Floats | None]:
        self.check()
        if self.coarse is None:
            return price(self, self.program), None
        found = self._price_coarse(self.coarse)
        return found.costs, found.mix

    def _price_coarse(self, step: Coarse) -> CoarseCosts:
        said = self.scenario
        key = (*self.machines, *self._numbers, said.slow, said.attention, self.choice, self.plans, step.hosts)
        return self.memo.get("costs", key, lambda: price_coarse(self, step), lambda made: len(made.costs.work_s))

    @property
    def tp_in_far_pipeline(self) -> bool:
        """Whether a pipeline with tensor parallelism spans several nodes."""
        return self.dims.tp > 1 and self.dims.pp > 1 and len(self.cluster.nodes) > 1

    @property
    def tp_between_nodes(self) -> bool:
        """Whether a tensor-parallel group spans several nodes (or NVLink domains)."""
        return len({self.cluster.island(rank) for rank in self.dims.group("tp", 0)}) > 1

    @property
    def smaller_shapes(self) -> list[str]:
        """Changes that make its shapes `execute.scale` times smaller, as `key=value`; none where that is 1."""
        scale = self.scenario.execute.scale
        return smaller_shapes(self.plan, self.scenario.batch.seq_len, scale) if scale > 1 else []

    @cached_property
    def hash(self) -> str:
        """A hash of every input of the prediction and of the version of runcast; equal hashes mean equal results."""
        names = {*FOR_PEOPLE, "execute", "cluster", "model", "profile", "stack"}  # contents are hashed, not names
        if self.scenario.run is None:
            names.add("run")  # so that hashes from before the `run` table was added stay valid
        if not self.choice:
            names.add("collectives")  # likewise
        scenario = self.scenario.model_dump(mode="json", exclude=names)
        if "file" in scenario["schedule"]:  # as for the others: its content, not its name
            scenario["schedule"] = {"text": str(self.grid)}
        content = {
            "scenario": scenario,
            "model": identity(self.spec),
            "given": self.memo.get("digest", (*self.machines, *self._numbers), self._digest),
        }
        return content_hash(content)[:16]

    def _digest(self) -> str:
        """A hash of cluster, profile and version of runcast."""
        content = {
            "cluster": cluster_inputs(self.scenario.cluster, self.scenario.nodes, self.where),
            "profile": self.profile.to_json(),
            "version": release(),
        }
        return content_hash(content)
