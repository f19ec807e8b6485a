"""The plan of an update that starts at trainers, from a checked scenario; what does not divide or fit is found here."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...base.errors import UserError, fault
from ...base.units import format_bytes, format_rate
from ...models import ModelSpec, Weights, weights
from .lower import Layout, Payload, TransferPlan, make_transfer, receive_buffers
from .methods import METHODS
from .scenario import Scenario, Storage, Trainer, Update

DEFAULT_BUCKET_BYTES = 512 * 2**20
"""Default of slime's and miles' update_weight_buffer_size."""

_EXPERT = re.compile(r"experts\.(\d+)\.(.+)")
_BY_LOCAL_TENSORS = ("stage_heads", "replica_writes")


@dataclass(frozen=True)
class Question:
    """A scenario whose update starts at trainers, on `gpus` GPUs; engines leave `free_bytes` of each for buckets."""

    scenario: Scenario
    spec: ModelSpec | None
    stored: Weights
    gpus: int
    gpus_per_node: int
    free_bytes: int
    classes: tuple[tuple[int, ...], ...]
    dtype: str
    where: str

    @property
    def update(self) -> Update:
        """How the weights travel."""
        return self.scenario.update

    @property
    def trainer(self) -> Trainer:
        """How the GPUs that hold the new weights are laid out."""
        return self.update.trainer or Trainer()

    @cached_property
    def trainers(self) -> range:
        """The ranks that train: as many as are given, or as many as receive, in whole nodes if they can be.

        Where engines are on the trainers' GPUs, all train.

        Raises:
            UserError: the number is not given, and no number leaves room for an engine.
        """
        if self.trainer.gpus is not None:
            return range(self.trainer.gpus)
        if self.update.method == "colocated":
            return range(self.gpus)
        if self.update.inference.gpus is not None:
            return range(self.gpus - self.update.inference.gpus)
        possible = [count for count in range(1, self.gpus) if self._divides(count)]
        if not possible:
            raise self._no_split()
        fitting = [count for count in possible if self._has_buffers(count)] or possible[:1]
        return range(min(fitting, key=lambda count: (count % self.gpus_per_node > 0, abs(2 * count - self.gpus))))

    def _divides(self, trainers: int) -> bool:
        """Whether so many trainers have whole groups of every axis, and leave whole engines."""
        trainer, engine = self.trainer, max(self.update.inference.tp, self.update.inference.ep)
        whole = trainers % (trainer.tp * trainer.pp * trainer.cp) == 0
        return whole and trainers // trainer.pp % trainer.ep == 0 and (self.gpus - trainers) % engine == 0

    def _has_buffers(self, trainers: int) -> bool:
        """Whether receivers have a bucket for each trainer, where each sends on a group of its own."""
        if self.update.method != "all_senders":
            return True
        return trainers * max(self._bucket_bytes, int(self.sent.aligned().max())) <= self.free_bytes

    def _no_split(self) -> UserError:
        inference, trainer = self.update.inference, self.trainer
        key, engine = max(("inference.tp", inference.tp), ("inference.ep", inference.ep), key=lambda one: one[1])
        group = trainer.pp * max(trainer.tp * trainer.cp, trainer.ep)
        trainers = f"trainers in groups of {group}" if group > 1 else "trainers"
        why = f"{self.gpus} GPUs do not split into engines of {engine} and {trainers}: more nodes, or smaller ones"
        return self._fault(key, engine, why)

    @property
    def notes(self) -> list[str]:
        """What was assumed where the scenario is silent."""
        found, storage = [], self.update.storage or Storage()
        if self.trainer.gpus is None:
            found.append(f"{len(self.trainers)} of the {self.gpus} GPUs train; see update.trainer.gpus")
        if self.update.method == "file_system" and not {"write", "read"} <= storage.model_fields_set:
            rates = f"takes {format_rate(storage.write)} and gives {format_rate(storage.read)}"
            found.append(f"the file system {rates}, which is assumed; see update.storage")
        return found

    @property
    def _stage_ranks(self) -> int:
        return len(self.trainers) // self.trainer.pp

    @property
    def receivers(self) -> range:
        """The ranks that are updated."""
        if self.update.method == "colocated":
            return self.trainers
        first, wanted = len(self.trainers), self.update.inference.gpus
        return range(first, self.gpus if wanted is None else first + wanted)

    def plan(self) -> TransferPlan:
        """The plan.

        Raises:
            UserError: sizes that do not divide, a bucket that does not fit.
        """
        update = self.update
        if update.quantize != "none" and self.spec is None:
            allowed = "none: which tensors become FP8 needs model.preset or model.config"
            raise self._fault("quantize", update.quantize, allowed)
        if self.free_bytes <= 0:
            text = "engines need more memory than a device has: raise inference.tp or lower what the engine holds"
            raise UserError(f"{self.where}: update.inference: {text}")
        self._check_ranks()
        sent, payload = self.sent, self._payload
        plan = make_transfer(
            sent.aligned(),
            sent.expert,
            sent.layer,
            trainers=self.trainers,
            receivers=self.receivers,
            train=self._layout(),
            inference=Layout(tp=update.inference.tp, ep=update.inference.ep),
            bucket_bytes=self._bucket_bytes,
            classes=_used(self.classes, {*self.trainers, *self.receivers}),
            payload=payload,
            dtype=self.dtype,
            slots=update.in_flight,
            registers=update.registration == "new",
            new_group="process_group" in update.model_fields_set and update.process_group == "new",
            unit=self._units(sent) if update.method in _BY_LOCAL_TENSORS else None,
            apart=update.method == "static_writes",
        )
        buffers = receive_buffers(update.method, plan)
        if buffers * plan.bucket_bytes > self.free_bytes:
            free = format_bytes(max(self.free_bytes, 0))
            allowed = f"{buffers} in flight do not fit beside what engines hold, which leaves {free}"
            raise UserError(fault(self.where, "update.bucket", format_bytes(plan.bucket_bytes), allowed))
        return plan

    def _layout(self) -> Layout:
        trainer = self.trainer
        if not trainer.is_sharded:
            return Layout(trainer.tp, trainer.pp, trainer.ep)
        shard = trainer.shard or self._stage_ranks // trainer.tp
        beside_ep = max(trainer.tp * shard // trainer.ep, 1)
        return Layout(trainer.tp, trainer.pp, trainer.ep, shard, trainer.expert_shard or beside_ep)

    def _units(self, sent: Weights) -> NDArray[np.int64]:
        """What one gather of a trainer's own tensor brings: the same matrices of one expert of each of its peers.

        A trainer holds the input matrices of an expert as one tensor, and every `experts / ep`-th expert is at the same
        place on its trainer.
        """
        ep, count = self.trainer.ep, self.spec.moe.n_routed_experts if self.spec and self.spec.moe else 0
        per_trainer, placed = max(count // ep, 1), zip(sent.names, sent.layer.tolist(), strict=True)
        keys = [_unit(name, layer, per_trainer) for name, layer in placed]
        number = {key: i for i, key in enumerate(dict.fromkeys(key for key in keys if key))}
        return np.array([number[key] if key else -1 - i for i, key in enumerate(keys)], np.int64)

    @property
    def _bucket_bytes(self) -> int:
        """Of what crosses the wire."""
        update = self.update
        by_default = update.max_bucket if "max_bucket" in update.model_fields_set else DEFAULT_BUCKET_BYTES
        return round((update.bucket or by_default) / self._payload.gathered)

    @cached_property
    def sent(self) -> Weights:
        """What crosses the wire: FP8 if it is quantised before, else as the checkpoint has it."""
        if self.update.quantize == "none" or self.spec is None:
            return self.stored
        return weights(self.spec, mtp=self.scenario.model.mtp, fp8=self.update.quantize == "before")

    @cached_property
    def _payload(self) -> Payload:
        update = self.update
        gathered = 1.0
        if update.quantize == "before":
            gathered = self._full_bytes / self.sent.total_bytes
        share = 1.0
        if update.delta is not None:
            value_bytes = 1 if self.dtype == "fp8" else 2
            share = min(update.delta.density * (1 + update.delta.index_bytes / value_bytes), 1.0)
        messages = update.messages or ("tensor" if METHODS[update.method].by_tensor else "bucket")
        return Payload(share, gathered, update.quantize, update.delta is not None, messages, update.load)

    @property
    def _full_bytes(self) -> int:
        """Bytes before quantisation."""
        assert self.spec is not None  # checked
        return weights(self.spec, mtp=self.scenario.model.mtp, fp8=False).total_bytes

    def _check_ranks(self) -> None:
        trainer, inference = self.trainer, self.update.inference
        trainers, receivers = len(self.trainers), self.receivers
        engine = max(inference.tp, inference.ep)
        if trainers > self.gpus:
            raise self._fault("trainer.gpus", trainers, f"there are {self.gpus} GPUs")
        if self.update.method == "colocated" and trainers != self.gpus:
            raise self._fault("trainer.gpus", trainers, f"all {self.gpus} GPUs, where engines are on the same ones")
        if not trainers:
            raise self._fault("inference.gpus", inference.gpus, f"leaves none of {self.gpus} GPUs to train")
        if not receivers:
            raise self._fault("trainer.gpus", trainers, f"leaves none of {self.gpus} GPUs to receive")
        if receivers.stop > self.gpus:
            left = self.gpus - trainers
            raise self._fault("inference.gpus", inference.gpus, f"{left} GPUs are left beside the trainers")
        if len(receivers) % engine:
            key = "inference.ep" if inference.ep > inference.tp else "inference.tp"
            raise self._fault(key, engine, f"must divide the {len(receivers)} receiving GPUs")
        if engine % inference.tp or engine % inference.ep:
            raise self._fault("inference.ep", inference.ep, f"must divide tp = {inference.tp}, or be a multiple of it")
        ranks, needed = self._stage_ranks, trainer.tp * trainer.cp
        if trainers % (trainer.pp * needed):
            product = trainer.pp * needed
            raise self._fault("trainer.gpus", trainers, f"must be a multiple of tp x pp x cp = {product}")
        if ranks % trainer.ep:
            raise self._fault("trainer.ep", trainer.ep, f"must divide the {ranks} GPUs of a pipeline stage")
        layout = self._layout()
        for key, size, beside in (("shard", layout.shard, "tp"), ("expert_shard", layout.expert_shard, "ep")):
            split = getattr(layout, beside)
            if ranks // split % size:
                allowed = f"must divide {ranks // split}: the {ranks} GPUs of a pipeline stage / {beside} {split}"
                raise self._fault(f"trainer.{key}", size, allowed)

    def _fault(self, key: str, value: object, allowed: str) -> UserError:
        return UserError(fault(self.where, f"update.{key}", value, allowed))


def _unit(name: str, layer: int, per_trainer: int) -> tuple[int, int, bool] | None:
    """Layer, place among a trainer's experts, whether an output matrix; None for what is no expert's own tensor."""
    found = _EXPERT.search(name)
    if found is None:
        return None
    return layer, int(found[1]) % per_trainer, "down" in found[2] or "w2" in found[2]


def _used(classes: Sequence[Sequence[int]], ranks: set[int]) -> list[list[int]]:
    """The classes, of these ranks only."""
    kept = [[rank for rank in ranks_ if rank in ranks] for ranks_ in classes]
    return [ranks_ for ranks_ in kept if ranks_]
