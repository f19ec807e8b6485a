"""The plan of an update that starts at trainers, from a checked scenario; what does not divide or fit is found here."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError, fault
from ..units import format_bytes
from ..updates import Layout, Payload, TransferPlan, make_transfer, receive_buffers
from ..workload import ModelSpec, Weights, weights
from .schema import TENSOR_BY_TENSOR, Scenario, Trainer, Update

DEFAULT_BUCKET_BYTES = 512 * 2**20
"""Default of slime's and miles' update_weight_buffer_size."""

_PUT_IN_PLACE = ("replica_writes", "static_writes")
"""Methods whose writes end where the engine reads its weights: nobody at the receiver does anything with them."""

_EXPERT = re.compile(r"experts\.(\d+)\.(.+)")
_BY_LOCAL_TENSORS = ("stage_heads", "replica_writes")


@dataclass(frozen=True)
class Question:
    """A scenario whose update starts at trainers, on `gpus` GPUs; engines leave `free_bytes` of each for buckets."""

    scenario: Scenario
    spec: ModelSpec | None
    stored: Weights
    gpus: int
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
        """The GPUs that hold the new weights."""
        assert self.update.trainer is not None  # checked by the schema
        return self.update.trainer

    @property
    def trainers(self) -> range:
        """The ranks that train."""
        return range(self.trainer.gpus)

    @property
    def _stage_ranks(self) -> int:
        return self.trainer.gpus // self.trainer.pp

    @property
    def receivers(self) -> range:
        """The ranks that are updated."""
        if self.update.method == "colocated":
            return self.trainers
        first, wanted = self.trainer.gpus, self.update.inference.gpus
        return range(first, self.gpus if wanted is None else first + wanted)

    def plan(self) -> TransferPlan:
        """The plan.

        Raises:
            UserError: sizes that do not divide, a bucket that does not fit.
        """
        self._check_ranks()
        self._check_receiving()
        update = self.update
        if update.quantize != "none" and self.spec is None:
            allowed = "none: which tensors become FP8 needs model.preset or model.config"
            raise self._fault("quantize", update.quantize, allowed)
        if self.free_bytes <= 0:
            text = "engines need more memory than a device has: raise inference.tp or lower what the engine holds"
            raise UserError(f"{self.where}: update.inference: {text}")
        sent = self._sent()
        by_default = update.max_bucket if "max_bucket" in update.model_fields_set else DEFAULT_BUCKET_BYTES
        payload = self._payload(sent)
        plan = make_transfer(
            sent.aligned(),
            sent.expert,
            sent.layer,
            trainers=self.trainers,
            receivers=self.receivers,
            train=self._layout(),
            inference=Layout(tp=update.inference.tp, ep=update.inference.ep),
            bucket_bytes=round((update.bucket or by_default) / payload.gathered),
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

    def _sent(self) -> Weights:
        """What crosses the wire: FP8 if it is quantised before, else as the checkpoint has it."""
        if self.update.quantize == "none" or self.spec is None:
            return self.stored
        return weights(self.spec, mtp=self.scenario.model.mtp, fp8=self.update.quantize == "before")

    def _payload(self, sent: Weights) -> Payload:
        update = self.update
        gathered = 1.0
        if update.quantize == "before":
            gathered = self._full_bytes(sent) / sent.total_bytes
        share = 1.0
        if update.delta is not None:
            value_bytes = 1 if self.dtype == "fp8" else 2
            share = min(update.delta.density * (1 + update.delta.index_bytes / value_bytes), 1.0)
        messages = update.messages or ("tensor" if update.method in TENSOR_BY_TENSOR else "bucket")
        return Payload(share, gathered, update.quantize, update.delta is not None, messages, update.load)

    def _full_bytes(self, sent: Weights) -> int:
        """Bytes before quantisation."""
        assert self.spec is not None  # checked
        return weights(self.spec, mtp=self.scenario.model.mtp, fp8=False).total_bytes

    def _check_ranks(self) -> None:
        trainer, inference, receivers = self.trainer, self.update.inference, self.receivers
        engine = max(inference.tp, inference.ep)
        if trainer.gpus > self.gpus:
            raise self._fault("trainer.gpus", trainer.gpus, f"there are {self.gpus} GPUs")
        if self.update.method == "colocated" and trainer.gpus != self.gpus:
            raise self._fault("trainer.gpus", trainer.gpus, f"all {self.gpus} GPUs, where engines are on the same ones")
        if not receivers:
            raise self._fault("trainer.gpus", trainer.gpus, f"leaves none of {self.gpus} GPUs to receive")
        if receivers.stop > self.gpus:
            left = self.gpus - trainer.gpus
            raise self._fault("inference.gpus", self.update.inference.gpus, f"{left} GPUs are left beside the trainers")
        if len(receivers) % engine:
            key = "inference.ep" if inference.ep > inference.tp else "inference.tp"
            raise self._fault(key, engine, f"must divide the {len(receivers)} receiving GPUs")
        if engine % inference.tp or engine % inference.ep:
            raise self._fault("inference.ep", inference.ep, f"must divide tp = {inference.tp}, or be a multiple of it")
        ranks, needed = self._stage_ranks, trainer.tp * trainer.cp
        if trainer.gpus % (trainer.pp * needed):
            product = trainer.pp * needed
            raise self._fault("trainer.gpus", trainer.gpus, f"must be a multiple of tp x pp x cp = {product}")
        if ranks % trainer.ep:
            raise self._fault("trainer.ep", trainer.ep, f"must divide the {ranks} GPUs of a pipeline stage")
        layout = self._layout()
        for key, size, beside in (("shard", layout.shard, "tp"), ("expert_shard", layout.expert_shard, "ep")):
            split = getattr(layout, beside)
            if ranks // split % size:
                allowed = f"must divide {ranks // split}: the {ranks} GPUs of a pipeline stage / {beside} {split}"
                raise self._fault(f"trainer.{key}", size, allowed)

    def _check_receiving(self) -> None:
        """Nothing is asked of receivers that they would not do."""
        update = self.update
        if update.method in _PUT_IN_PLACE:
            why = f"does not go with method = {update.method!r}: its writes end where they are used"
            if update.quantize == "after":
                raise self._fault("quantize", update.quantize, why)
            if update.delta is not None:
                raise self._fault("delta.density", update.delta.density, why)
            if "load" in update.model_fields_set:
                raise self._fault("load", update.load, why)
        if update.quantize == "after" and not update.load:
            raise self._fault("load", update.load, "quantize = 'after' is part of loading")

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
