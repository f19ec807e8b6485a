"""Tables and values that scenario files of several kinds share: sizes, rates, durations, model, slow nodes."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveInt,
    ValidationInfo,
    field_validator,
    model_validator,
)

from ..base.units import parse
from ..collectives import MEASURED
from ..collectives.algorithms import algorithms

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


def as_tuple(value: Any) -> Any:
    """A list of numbers as a tuple, which is what a frozen schema holds."""
    if not isinstance(value, list | tuple):
        raise ValueError("expected a list of numbers")
    return tuple(value)


def tuples(value: Any) -> Any:
    """Lists as tuples, which is what a frozen schema holds; what is free, overrides and changes to a cluster, stays."""
    if isinstance(value, Mapping):
        return {key: item if key in ("overrides", "cluster") else tuples(item) for key, item in value.items()}
    return tuple(value) if isinstance(value, list) else value


Size = Annotated[int, BeforeValidator(_size)]
Rate = Annotated[float, BeforeValidator(_rate)]
Seconds = Annotated[float, BeforeValidator(_seconds)]
Time = Annotated[Seconds, Field(gt=0)]


FOR_PEOPLE = ("name", "notes")
"""Keys that no prediction depends on."""


class Table(BaseModel):
    """A table of a scenario file: only these keys, each of exactly its type."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Algorithms(Table):
    """For each op the name of its algorithm. Measured: none, what the library does is priced by numbers of its own."""

    @field_validator("*")
    @classmethod
    def _check_names(cls, name: str, info: ValidationInfo) -> str:
        known = (MEASURED, *algorithms(str(info.field_name)))
        if name not in known:
            raise ValueError(f"expected one of {', '.join(known)}")
        return name


class OnCluster(Table):
    """The first keys of every scenario; its content hash names the results."""

    name: str = Field("unnamed", description="a title for people; not part of the hash")
    notes: tuple[str, ...] = Field((), description="lines that the report repeats; not part of the hash")
    kind: str = Field(description="what is simulated")
    cluster: str | dict[str, Any] = Field(description="a cluster by name, a file, or a table of changes to one")
    nodes: Annotated[int, Field(gt=0, le=100_000)] = Field(1, description="number of nodes")
    profile: str | None = Field(None, description="device profile (default: the device's own, else generic)")
    stack: str = Field(description="software stack")


class Model(Table):
    """The weights: a preset, a Hugging Face config, or totals alone."""

    preset: str | None = Field(None, description="name of a shipped model, such as kimi-k2")
    config: str | dict[str, Any] | None = Field(
        None, description="a Hugging Face config.json, the folder that holds it, or its keys"
    )
    bytes: Size | None = Field(None, description="total bytes, for a model known by totals alone")
    tensors: PositiveInt | None = Field(None, description="number of tensors, with bytes")
    largest: Size | None = Field(None, description="bytes of the largest tensor, with bytes (default: an even split)")
    unknown: Literal["refuse", "approximate"] = Field(
        "refuse", description="with config: what becomes of layers that are not modelled; approximate: as if Llama's"
    )
    mtp: bool = Field(True, description="whether the checkpoint's multi-token-prediction layers are sent too")
    overrides: dict[str, Any] = Field(default_factory=dict, description="Hugging Face keys that replace the preset's")

    @model_validator(mode="after")
    def _one_source(self) -> "Model":
        given = [key for key in ("preset", "config", "bytes") if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of preset, config or bytes (given: {', '.join(given) or 'none'})")
        if self.bytes is not None and self.tensors is None:
            raise ValueError("bytes and tensors must be given together")
        return self


class Slow(Table):
    """A slow node."""

    node: Annotated[int, Field(ge=0)] = Field(description="which node")
    factor: Annotated[float, Field(ge=1, le=1000)] = Field(description="how many times longer its own work takes")


SlowNodes = Annotated[
    tuple[Slow, ...],
    Field(description="nodes that run slower than the others", examples=[[{"node": 0, "factor": 1.5}]]),
]
