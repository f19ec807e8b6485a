"""The scenario file of kind collective: which exchange, of which sizes, by which algorithms, priced how."""

import re
from math import inf
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveInt, model_validator

from ...base.units import parse
from ...collectives import MEASURED
from ...collectives.algorithms import OPS, algorithms
from ..tables import OnCluster, Seconds, Table, as_tuple

_LARGEST = 1 << 50


def _sizes(value: Any) -> tuple[int, ...]:
    """Sizes from `'1 KiB:16 GiB'`, each twice the one before; from one size, or a list of them, also as `'1M,1G'`."""
    if isinstance(value, str) and ":" in value:
        first, last = (_size(text) for text in value.split(":", 1))
        if first > last:
            raise ValueError("expected the smaller size first, such as '1 KiB:16 GiB'")
        return tuple(first << k for k in range((last // first).bit_length()))
    if isinstance(value, str) and "," in value:
        value = value.split(",")
    if isinstance(value, list | tuple):
        if not value:
            raise ValueError("expected one size or more")
        return tuple(map(_size, as_tuple(value)))
    return (_size(value),)


def _size(value: Any) -> int:
    """Bytes of a quantity, or of nccl-tests' `8M`, which has powers of 1024."""
    if isinstance(value, str) and re.fullmatch(r" *\d+ *[KMG] *", value):
        value = f"{value.strip()}iB"
    size = round(parse(value, "bytes"))
    if not 0 < size <= _LARGEST:
        raise ValueError("expected sizes above zero and at most 1024 TiB, such as '1 GiB' or '1 KiB:16 GiB'")
    return size


def _loads(value: Any) -> tuple[float, ...]:
    loads = as_tuple(value) if isinstance(value, list | tuple) else (value,)
    number = all(isinstance(load, int | float) and not isinstance(load, bool) for load in loads)
    if not loads or not number or not all(0 < load < inf for load in loads):
        raise ValueError("expected a number above zero, or a list of numbers above zero, one for each rank")
    return tuple(map(float, loads))


def _ranks(value: Any) -> tuple[int, ...]:
    """GPUs of `'0:8'` (0 to 7), of `'0:8, 16:24'`, or of a list of numbers, in their order."""
    if not isinstance(value, str):
        found = as_tuple(value)
        if not found or not all(type(rank) is int and rank >= 0 for rank in found):
            raise ValueError("expected GPUs by their numbers from 0 on, such as '0:8', '0:8, 16:24' or [0, 8]")
    elif not re.fullmatch(r" *\d{1,7} *(: *\d{1,7} *)?(, *\d{1,7} *(: *\d{1,7} *)?)*", value):
        raise ValueError("expected GPUs by their numbers from 0 on, such as '0:8', '0:8, 16:24' or [0, 8]")
    else:
        parts = [[*map(int, part.split(":"))] for part in value.split(",")]
        found = tuple(rank for first, *end in parts for rank in range(first, (end or [first + 1])[0]))
    if len(set(found)) != len(found):
        raise ValueError("expected every GPU once")
    return found


class Job(Table):
    """One of several jobs on a fabric: an exchange of its own ranks."""

    name: str | None = Field(None, description="its name in the report (default: job 0, job 1, …)")
    op: str | None = Field(None, description="what its ranks do together (default: that of the table)")
    bytes: Annotated[int, BeforeValidator(_size)] = Field(description="its size, as nccl-tests has it")
    algorithm: str | None = Field(None, description="its algorithm (default: ring, chain or direct)")
    ranks: Annotated[tuple[int, ...], BeforeValidator(_ranks)] | None = Field(
        None, description="its GPUs: '0:8' (0 to 7), '0:8, 16:24', or a list (default: as placement has them)"
    )
    gpus: PositiveInt | None = Field(
        None, description="without ranks: how many GPUs (default: an even share of those that are left)"
    )
    groups: PositiveInt = Field(1, description="equal parts into which its ranks are cut, each of which exchanges")
    root: NonNegativeInt = Field(0, description="broadcast, reduce, gather, scatter: the rank that has or gets all")
    pieces: PositiveInt | None = Field(None, description="pieces into which the data is cut (default: what is fastest)")
    start: Seconds = Field(0.0, description="seconds after the beginning at which its ranks call it")


class CollectiveKeys(Table):
    """One exchange between ranks."""

    op: str = Field(description=f"what ranks do together: {', '.join(OPS)}")
    sizes: Annotated[tuple[int, ...], BeforeValidator(_sizes)] = Field(
        ("1 KiB:16 GiB"),
        validate_default=True,
        description="sizes as nccl-tests has them: '1 KiB:16 GiB' or '1K:16G' (each twice the one before), one size, "
        "or a list",
    )
    algorithm: str = Field(
        "all", description="an algorithm; all of the op's, and measured; or measured, the profile's fitted curve"
    )
    level: Literal["measured", "formula", "chunks"] = Field(
        "formula",
        description="measured: fitted curves; formula: the closed form; chunks: every message of the algorithm",
    )
    backend: Literal["nccl", "gloo", "mpi"] | None = Field(
        None,
        description="a library, whose algorithms are priced, and what it chooses of them: nccl, gloo or mpi (MPICH)",
    )
    protocol: Literal["LL", "LL128", "Simple"] | None = Field(
        None, description="nccl: the protocol of its messages (default: each, and what it chooses)"
    )
    channels: PositiveInt | None = Field(
        None, description="nccl: channels, each of which holds an SM (default: as many as fill the slowest hop)"
    )
    gpus: PositiveInt | None = Field(None, description="GPUs of all groups: the first so many (default: all)")
    groups: PositiveInt = Field(
        1, description="groups of equal size that do the same at the same time; level chunks shares links among them"
    )
    placement: Literal["packed", "scattered", "rails", "interleaved"] = Field(
        "packed",
        description="packed: GPUs of a group follow each other; scattered: nodes are dealt out to groups in turn; "
        "rails: the GPUs of each node are; interleaved: as packed, but the next node is under the next leaf",
    )
    root: NonNegativeInt = Field(0, description="broadcast, reduce, gather, scatter: the rank that has or gets all")
    loads: Annotated[tuple[float, ...], BeforeValidator(_loads)] = Field(
        (1.0,),
        description="all_to_all_v: how many times as much the first rank receives as each other one; or a list of what "
        "each rank receives, up to a factor",
    )
    pieces: PositiveInt | None = Field(
        None,
        description="pieces into which trees, chains, switches and two_level cut the data (default: what is fastest)",
    )
    seeds: Annotated[int, Field(ge=1, le=1000)] = Field(
        1,
        description="draws of hashes, from the cluster's `hash_seed` on: times are their medians, and intervals hold "
        "nine of ten of them",
    )
    jobs: tuple[Job, ...] = Field(
        (), description="jobs on one fabric at the same time, each with its own op, size, algorithm, ranks and start"
    )
    every_rank: bool = Field(
        False, description="chunks: whether ranks that do the same are simulated one by one; the time is the same"
    )

    @model_validator(mode="before")
    @classmethod
    def _say_of_jobs(cls, keys: Any) -> Any:
        """Jobs share links at level chunks; the op of a table without one is the first job's."""
        jobs = keys.get("jobs") if isinstance(keys, dict) else None
        if not isinstance(jobs, list | tuple) or not jobs or not isinstance(jobs[0], dict):
            return keys
        op = {"op": jobs[0]["op"]} if "op" in jobs[0] else {}
        return {"level": "chunks", **op, **keys}

    @model_validator(mode="after")
    def _check_jobs(self) -> "CollectiveKeys":
        if self.jobs and self.level != "chunks":
            raise ValueError(f"level = {self.level!r}: jobs share links at level chunks only")
        for number, job in enumerate(self.jobs):
            op, where = job.op or self.op, f"jobs.{number}"
            if op not in OPS or op == "all_to_all_v":
                known = ", ".join(one for one in OPS if one != "all_to_all_v")
                raise ValueError(f"{where}.op = {op!r}: expected one of {known}")
            if job.algorithm is not None and job.algorithm not in algorithms(op):
                known = ", ".join(algorithms(op))
                raise ValueError(f"{where}.algorithm = {job.algorithm!r}: expected one of {known} for {op}")
            if job.ranks is not None and job.gpus is not None:
                raise ValueError(f"{where}.gpus = {job.gpus}: ranks are given: leave one of the two out")
            if job.name in [other.name for other in self.jobs[:number] if other.name is not None]:
                raise ValueError(f"{where}.name = {job.name!r}: expected another name for each job")
        return self

    @model_validator(mode="after")
    def _check_names(self) -> "CollectiveKeys":
        if self.op not in OPS:
            raise ValueError(f"op = {self.op!r}: expected one of {', '.join(OPS)}")
        known = (*algorithms(self.op), MEASURED, "all")
        if self.algorithm not in known:
            raise ValueError(f"algorithm = {self.algorithm!r}: expected one of {', '.join(known)} for {self.op}")
        return self


class CollectiveScenario(OnCluster):
    """A scenario file of kind collective."""

    kind: Literal["collective"] = Field("collective", description="what is simulated")
    stack: str = Field("generic", description="software stack")
    collective: CollectiveKeys = Field(description="what ranks exchange")
