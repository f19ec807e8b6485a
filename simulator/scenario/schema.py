"""What a scenario file may say: one pydantic model per table, a description per field. No defaults live elsewhere."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PositiveInt, model_validator

from ..units import parse

_LARGEST = 2**60


def _size(value: Any) -> int:
    size = round(min(parse(value, "bytes"), 2.0 * _LARGEST))
    if not 0 < size <= _LARGEST:
        raise ValueError("expected a size above zero, and at most 1 EiB")
    return size


def _rate(value: Any) -> float:
    rate = parse(value, "bytes_per_s")
    if not 0 < rate < 1e18:
        raise ValueError("expected a rate above zero, such as '20 GB/s'")
    return rate


def _seconds(value: Any) -> float:
    seconds = parse(value, "seconds")
    if not 0 <= seconds < 1e9:
        raise ValueError("expected a duration, such as '2 s'")
    return seconds


Size = Annotated[int, BeforeValidator(_size)]
Rate = Annotated[float, BeforeValidator(_rate)]
Seconds = Annotated[float, BeforeValidator(_seconds)]


class Table(BaseModel):
    """A table of a scenario file: no key but those named here, each of exactly its type."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Model(Table):
    """The weights: a preset, a Hugging Face config, or totals alone."""

    preset: str | None = Field(None, description="name of a shipped model, such as kimi-k2")
    config: str | dict[str, Any] | None = Field(
        None, description="a Hugging Face config.json, the folder that holds it, or its keys"
    )
    bytes: Size | None = Field(None, description="total bytes, for a model known by totals alone")
    tensors: PositiveInt | None = Field(None, description="number of tensors, with bytes")
    largest: Size | None = Field(None, description="bytes of the largest tensor, with bytes (default: an even split)")
    mtp: bool = Field(True, description="whether the checkpoint's multi-token-prediction layers are sent too")
    overrides: dict[str, Any] = Field(default_factory=dict, description="Hugging Face keys that replace the preset's")

    @model_validator(mode="after")
    def _one_source(self) -> "Model":
        given = [key for key in ("preset", "config", "bytes") if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of preset, config or bytes (given: {', '.join(given) or 'none'})")
        if (self.bytes is None) != (self.tensors is None):
            raise ValueError("bytes and tensors go together")
        if self.largest is not None and self.bytes is None:
            raise ValueError("largest goes with bytes and tensors")
        if self.overrides and self.preset is None:
            raise ValueError("overrides go with a preset")
        return self


class Inference(Table):
    """The engines that receive the weights."""

    gpus: PositiveInt | None = Field(None, description="from trainers: receiving GPUs (default: all others)")
    tp: PositiveInt = Field(1, description="tensor-parallel size: a rank keeps 1/tp of the weights")
    ep: PositiveInt = Field(1, description="from trainers: expert-parallel size; an engine has max(tp, ep) GPUs")
    memory_utilization: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        None, description="share of device memory that the engine holds (vLLM's gpu_memory_utilization)"
    )


class Trainer(Table):
    """The GPUs that hold the new weights: the first ones of the cluster."""

    gpus: PositiveInt = Field(description="training GPUs; where methods are colocated, all")
    tp: PositiveInt = Field(1, description="tensor-parallel size in training")
    pp: PositiveInt = Field(1, description="pipeline-parallel size in training")
    cp: PositiveInt = Field(1, description="context-parallel size in training; weights do not depend on it")
    ep: PositiveInt = Field(1, description="expert-parallel size in training")
    sharded: bool | None = Field(
        None, description="whether tensors are sharded: FSDP (default: with a key below, or where tp, pp, ep are 1)"
    )
    shard: PositiveInt | None = Field(
        None, description="ranks over which a tensor is sharded beside tp; others hold replicas, HSDP (default: all)"
    )
    expert_shard: PositiveInt | None = Field(
        None, description="the same for tensors of experts, beside ep (default: what ep leaves of tp x shard)"
    )

    @model_validator(mode="after")
    def _nothing_ignored(self) -> "Trainer":
        if self.sharded is False and (self.shard or self.expert_shard):
            raise ValueError("shard and expert_shard go with sharded = true")
        return self

    @property
    def is_sharded(self) -> bool:
        """Whether tensors are sharded."""
        if self.sharded is not None:
            return self.sharded
        return bool(self.shard or self.expert_shard) or self.tp * self.pp * self.ep == 1


class Delta(Table):
    """Only what changed is sent."""

    density: Annotated[float, Field(gt=0, le=1)] = Field(description="share of the values that changed")
    index_bytes: Annotated[float, Field(ge=0)] = Field(4.0, description="bytes of the index of a changed value")


class Storage(Table):
    """A file system that all share."""

    write: Rate = Field(description="what it takes in all, such as '20 GB/s'")
    read: Rate = Field(description="what it gives in all")


FROM_TRAINERS = (
    "single_sender", "relays", "all_senders", "stage_heads", "replica_writes", "static_writes", "reshard", "chain",
    "colocated", "file_system",
)  # fmt: skip
_REGISTERED = ("replica_writes", "static_writes", "chain")
TENSOR_BY_TENSOR = ("stage_heads", "reshard", "colocated")


class Update(Table):
    """How the weights travel."""

    method: Literal[
        "broadcast", "p2p",
        "single_sender", "relays", "all_senders", "stage_heads", "replica_writes", "static_writes", "reshard", "chain",
        "colocated", "file_system",
    ] = Field("broadcast", description="how the bytes reach the ranks")  # fmt: skip
    pipeline: Literal["two_stage", "three_stage", "serial"] = Field("two_stage", description="what overlaps with what")
    bucket: Size | None = Field(None, description="bytes of a bucket (default: what fits, at most max_bucket)")
    max_bucket: Size = Field(8 * 2**30, description="largest bucket by default (from trainers: 512 MiB)")
    mem_fraction: Annotated[float, Field(gt=0, le=1)] = Field(0.9, description="usable share of free memory")
    free_memory: Size | None = Field(None, description="free device memory before the update (default: derived)")
    h2d_buffer: bool = Field(True, description="whether each rank has a buffer for host-to-device copies")
    h2d_freed: Literal["start", "end"] = Field("start", description="three_stage: what of a broadcast frees it")
    ranks: PositiveInt | None = Field(None, description="p2p: how many ranks are updated (default: all)")
    readers: Literal["assigned", "one"] | None = Field(
        None, description="p2p: a receiver per NIC (default), or one rank that reads all"
    )
    process_group: Literal["new", "kept"] = Field("new", description="whether the update creates its process group")
    inference: Inference = Field(default=Inference(), description="the engines that receive the weights")
    trainer: Trainer | None = Field(None, description="from trainers: the GPUs that hold the new weights")
    messages: Literal["tensor", "bucket"] | None = Field(
        None, description="stage_heads, reshard, colocated: a message or handle per tensor (default) or per bucket"
    )
    quantize: Literal["none", "before", "after"] = Field(
        "none", description="from trainers: BF16 weights become FP8 before or after the wire"
    )
    delta: Delta | None = Field(None, description="from trainers: send only what changed")
    storage: Storage | None = Field(None, description="file_system: what it takes and gives")
    registration: Literal["kept", "new"] = Field(
        "kept", description="writes and chain: whether engines first make their tensors known to the NICs"
    )
    in_flight: PositiveInt = Field(2, description="from trainers: buckets in flight at once")
    load: bool = Field(True, description="from trainers: whether engines load what they receive")
    drain: Seconds | None = Field(None, description="from trainers: time until running requests have stopped")

    @model_validator(mode="after")
    def _nothing_ignored(self) -> "Update":
        given = self.model_fields_set
        if "h2d_freed" in given and self.pipeline != "three_stage":
            raise ValueError("h2d_freed goes with pipeline = 'three_stage'")
        self._check_method()
        for key in sorted({"ranks", "readers"} & given):
            if self.method != "p2p":
                raise ValueError(f"{key} goes with method = 'p2p'")
        if "max_bucket" in given and self.bucket is not None:
            raise ValueError("max_bucket is for where bucket is not given")
        if self.pipeline == "three_stage" and not self.h2d_buffer:
            raise ValueError("pipeline = 'three_stage' needs h2d_buffer = true")
        return self

    def _check_method(self) -> None:
        """Each key goes with some methods, and is refused elsewhere."""
        given, from_trainers = self.model_fields_set, self.method in FROM_TRAINERS
        for key in sorted((_OF_PARAMETER_SERVERS if from_trainers else _OF_TRAINERS) & given):
            raise ValueError(f"{key} does not go with method = {self.method!r}")
        if from_trainers and self.trainer is None:
            raise ValueError(f"method = {self.method!r} needs trainer = {{ gpus = ... }}")
        if self.messages is not None and self.method not in TENSOR_BY_TENSOR:
            raise ValueError(f"messages goes with method = {' or '.join(TENSOR_BY_TENSOR)}")
        if "registration" in given and self.method not in _REGISTERED:
            raise ValueError(f"registration goes with method = {' or '.join(_REGISTERED)}")
        if (self.storage is not None) != (self.method == "file_system"):
            raise ValueError("storage and method = 'file_system' go together")
        if not from_trainers and self.inference.model_fields_set & {"gpus", "ep"}:
            raise ValueError("inference.gpus and inference.ep go with methods that start at trainers")
        if self.inference.gpus is not None and self.method == "colocated":
            raise ValueError("inference.gpus does not go with method = 'colocated': engines are on the trainer's GPUs")


_OF_TRAINERS = {
    "trainer", "messages", "quantize", "delta", "storage", "registration", "in_flight", "load", "drain"
}  # fmt: skip
_OF_PARAMETER_SERVERS = {"pipeline", "mem_fraction", "h2d_buffer", "h2d_freed", "ranks", "readers"}


class Slow(Table):
    """A node that runs slower than its like."""

    node: Annotated[int, Field(ge=0)] = Field(description="which node")
    factor: Annotated[float, Field(ge=1, le=1000)] = Field(description="how many times longer its own work takes")


class Scenario(Table):
    """One question to the simulator. The content hash names its results."""

    name: str = Field("unnamed", description="a title for people; not part of the hash")
    kind: Literal["weight_update"] = Field(description="what is simulated")
    cluster: str | dict[str, Any] = Field(description="a cluster by name, a file, or a table of changes to one")
    nodes: Annotated[int, Field(gt=0, le=100_000)] = Field(1, description="number of nodes")
    profile: str | None = Field(None, description="device profile (default: the device's own, else generic)")
    stack: str = Field("checkpoint-engine", description="software stack")
    model: Model = Field(description="the weights")
    update: Update = Field(default=Update(), description="how they travel")
    slow: tuple[Slow, ...] = Field((), description="nodes that run slower than the others")
    fold: bool = Field(True, description="whether ranks that act alike are simulated once")
    seed: Annotated[int, Field(ge=0)] = Field(0, description="seed of what is random: the bytes that execute sends")
