"""A parameter server: the keys that a user writes, and what they become."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, model_validator

from ...tables import Rate, Seconds, Table
from ..outages import Outage
from ..team import Team


class Server(Table):
    """How workers and parameter servers exchange gradients and parameters."""

    update: Literal["asynchronous", "stale", "synchronous"] = Field(
        "asynchronous", description="whether a worker waits for others: never, when it is too far ahead, at each step"
    )
    bound: NonNegativeInt | None = Field(
        None, description="stale: steps that a worker may be ahead of the slowest; 0 is as synchronous"
    )
    on: Literal["servers", "workers"] = Field(
        "servers", description="where the shards of the parameters are: on hosts of their own, or on those of workers"
    )
    servers: Annotated[int, Field(gt=0, le=100_000)] | None = Field(
        None, description="on = 'servers': how many there are, each with an equal shard (default: 1)"
    )
    bandwidth: Rate | None = Field(
        None, description="on = 'servers': rate of a server's link, per direction (default: that of a node)"
    )
    overlap: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0, description="share of a step, at its end, in which gradients already leave: the backward pass"
    )
    prefetch: bool = Field(
        False, description="asynchronous: whether parameters are pulled a step ahead, which makes them staler"
    )
    rpc: Seconds = Field(0.0, description="time of a server's host per push and per pull, one after the other")
    apply: Seconds = Field(0.0, description="time in which a server applies its shard of a push, one after the other")

    @model_validator(mode="after")
    def _goes_together(self) -> "Server":
        if (self.update == "stale") != (self.bound is not None):
            raise ValueError("update = 'stale' and bound must be given together")
        if self.prefetch and self.update != "asynchronous":
            raise ValueError("prefetch goes with update = 'asynchronous': others wait for each other before they pull")
        if self.on == "workers" and (self.servers or self.bandwidth):
            raise ValueError("on = 'workers' has a shard on each worker's host and link: leave out servers, bandwidth")
        return self

    @property
    def most_ahead(self) -> float:
        """How many steps a worker that begins a step may be ahead of the slowest one."""
        return {"synchronous": 0.0, "asynchronous": inf}.get(self.update, self.bound or 0.0)


@dataclass(frozen=True)
class ServerPlan:
    """A run of `steps` updates of the model: rounds of all workers if synchronous, else pushes.

    A push and a pull move `push_bytes` and `pull_bytes` (default: the team's gradients and parameters). A worker takes
    `encode_s` to compress a gradient, each server `decode_s` to restore its shard of one. Each server's link carries
    `server_bytes_per_s` in each direction. `failures` of workers are in order of time, and without end if they get
    steps done between them.
    """

    team: Team
    steps: int
    server: Server
    server_bytes_per_s: float = inf
    push_bytes: float | None = None
    pull_bytes: float | None = None
    encode_s: float = 0.0
    decode_s: float = 0.0
    failures: Iterable[Outage] = ()

    @property
    def synchronous(self) -> bool:
        """Whether an update is a round of all workers."""
        return self.server.update == "synchronous"

    @property
    def pushes(self) -> int:
        """How many pushes these updates are."""
        return self.steps * self.team.workers if self.synchronous else self.steps

    @property
    def wire_bytes(self) -> tuple[float, float]:
        """Bytes of a push and of a pull."""
        push, pull = self.push_bytes, self.pull_bytes
        return (
            self.team.gradient_bytes if push is None else push,
            self.team.parameter_bytes if pull is None else pull,
        )

    @property
    def together_bytes_per_s(self) -> float:
        """What the links of all servers carry, per direction."""
        return self.server_bytes_per_s * (self.server.servers or 1)
