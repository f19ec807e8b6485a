"""The scenario file of kind run: the tables of a training step, or the step's time, and those of the run around it."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from ..tables import Rate, Seconds, Size, Table, Time
from ..train_step.scenario import Trained, TrainScenario
from .federated.tables import Federated
from .jobs.tables import Jobs
from .speed import Speed
from .sync.compression import Compress
from .sync.gossip import Gossip
from .sync.overlap import GradientOverlap
from .sync.server_plan import Server
from .target import Target
from .training.elastic import Elastic
from .training.failures import Failures
from .training.input import Input
from .training.storage import Checkpoint

INSTEAD = ("federated", "jobs")
"""Tables that stand instead of workers of the cluster: modes of their own."""


class Step(Table):
    """One worker's step; what is left out follows from [model], [parallel], [batch] and the other tables of a step."""

    time: Time | None = Field(None, description="how long it takes when nothing disturbs it (default: our prediction)")
    samples: PositiveFloat | None = Field(None, description="what a worker trains on in a step (default: its tokens)")
    unit: str | None = Field(
        None, description="what samples are, for people, such as images (default: tokens; updates; GPU-seconds of jobs)"
    )
    gpus: PositiveInt | None = Field(None, description="with time: GPUs of a worker (default: all divided by workers)")
    gradient: Size | None = Field(
        None, description="bytes of a worker's gradients (default: the model's; with time: none travel)"
    )
    parameters: Size | None = Field(None, description="bytes of the model that workers read (default: as gradient)")


class Length(Table):
    """How long the run goes: until the first of these is reached."""

    steps: Annotated[float, Field(gt=0, le=1e12)] | None = Field(None, description="steps of each worker, or updates")
    samples: Annotated[float, Field(gt=0, le=1e24)] | None = Field(None, description="tokens or samples of all workers")
    wall: Time | None = Field(None, description="time, such as '54 d'")
    deadline: Time | None = Field(
        None, description="time by which it should have ended: the report says how likely that is", examples=["60 d"]
    )
    repeats: Annotated[int, Field(ge=1, le=1000)] | None = Field(
        None, description="how often it is simulated with other random numbers, for intervals (default: 8; 1 if slow)"
    )
    start: bool = Field(False, description="whether the start of the job is part of it, as a restart takes")

    @model_validator(mode="after")
    def _ends_by_itself(self) -> "Length":
        if self.deadline is not None and self.wall is not None:
            raise ValueError("give deadline or wall, not both: a run that goes until wall ends there")
        return self


class Pause(Table):
    """Something for which training stands now and then, such as an evaluation."""

    every: PositiveInt = Field(description="steps between two of them")
    time: Time = Field(description="how long one takes")


class Inside(Table):
    """Groups of workers that exchange gradients after every step among themselves, such as those of one site."""

    workers: PositiveInt = Field(description="workers of a group")
    bandwidth: Rate | None = Field(
        None,
        description="rate of a worker's link inside its group (default: its NICs; without latency, collectives as "
        "training steps do)",
    )
    latency: Seconds | None = Field(
        None, description="of a message inside a group (default: 0 on links of a stated rate)"
    )


class Sync(Table):
    """How workers keep in step."""

    mode: Literal["all_reduce", "local", "parameter_server", "gossip"] = Field(
        "all_reduce",
        description="all wait for all after each step; or after `inner` steps (local SGD, DiLoCo); servers keep the "
        "parameters; or each worker exchanges with its neighbours",
    )
    workers: PositiveInt | None = Field(
        None, description="workers, each with an equal part of the GPUs (default: 1, whose step is that of all GPUs)"
    )
    backup: NonNegativeInt = Field(0, description="all_reduce: workers beyond those that a step waits for")
    inner: Annotated[PositiveInt, Field(le=10**9)] | None = Field(
        None, description="local: steps between two exchanges"
    )
    fragments: PositiveInt = Field(1, description="local: parts of the model that are exchanged in turn")
    delay: NonNegativeInt = Field(0, description="local: steps that an exchange may take before its result is used")
    bandwidth: Rate | None = Field(
        None,
        description="rate of a worker's link; a group has those of its workers (default: NICs of its nodes; without "
        "latency, all_reduce and local take collectives as training steps do)",
    )
    latency: Seconds | None = Field(
        None, description="of a message between workers (default: that of NICs, and of the slowest link between sites)"
    )
    inside: Inside | None = Field(None, description="groups of workers in which all wait for all after each step")
    overlap: GradientOverlap = Field(default=GradientOverlap(), description="all_reduce: exchange beside the backward")
    server: Server = Field(default=Server(), description="parameter_server: how it works")
    gossip: Gossip = Field(default=Gossip(), description="gossip: who is whose neighbour")

    @model_validator(mode="after")
    def _goes_together(self) -> "Sync":
        if self.mode == "local" and self.inner is None:
            raise ValueError("mode = 'local' needs inner, the steps between two exchanges")
        if self.inner is not None and max(self.delay, self.fragments) > self.inner:
            raise ValueError(f"fragments and delay are at most inner = {self.inner}, the steps of a round")
        return self


class RunScenario(Trained):
    """A whole run."""

    kind: Literal["run"] = Field(description="what is simulated")
    seed: NonNegativeInt = Field(0, description="seed of what is random")
    step: Step = Field(default=Step(), description="one worker's step")
    run: Length = Field(default=Length(), description="how long it goes")
    sync: Sync = Field(default=Sync(), description="how workers keep in step")
    compress: Compress | None = Field(None, description="what becomes of gradients before they travel")
    speed: Speed = Field(default=Speed(), description="who is slow")
    input: Input | None = Field(None, description="how samples come (default: always in time)")
    checkpoint: Checkpoint | None = Field(None, description="how training is saved (default: never)")
    pause: tuple[Pause, ...] = Field((), description="what training stands for now and then, such as evaluations")
    failures: Failures | None = Field(None, description="what fails (default: nothing)")
    elastic: Elastic | None = Field(None, description="going on with fewer nodes (default: the run waits)")
    target: Target | None = Field(None, description="steps to a target, from the gradient noise scale")
    federated: Federated | None = Field(None, description="rounds of clients, instead of workers of a cluster")
    jobs: Jobs | None = Field(None, description="many jobs in a queue on the cluster, instead of one run")

    @model_validator(mode="after")
    def _goes_together(self) -> "RunScenario":
        if self.federated is not None and self.jobs is not None:
            raise ValueError("give [federated] or [jobs], not both")
        if self.step.time is not None and self.model is not None:
            raise ValueError("give step.time or [model], not both")
        if self.mode not in INSTEAD:
            self._need_step()
        return self

    def _need_step(self) -> None:
        if self.step.time is None and (self.model is None or self.batch is None):
            raise ValueError("give step.time, or [model] and [batch] of the step that is predicted")
        if (self.run.steps, self.run.samples, self.run.wall, self.target) == (None,) * 4:
            raise ValueError("give run.steps, run.samples, run.wall or [target]: how long the run goes")

    @property
    def mode(self) -> str:
        """The name of its mode: how workers keep in step, or the table that stands instead of them."""
        return next((table for table in INSTEAD if getattr(self, table) is not None), self.sync.mode)

    def train_step(self, nodes: int) -> TrainScenario:
        """The step of a worker on so many nodes as a scenario of kind train_step.

        Slow nodes are part of it where there is one worker; else others wait for them.
        """
        own = {"notes", "kind", "nodes"} | ({"slow"} if (self.sync.workers or 1) > 1 else set())
        same = {key: getattr(self, key) for key in Trained.model_fields if key not in own}
        return TrainScenario(kind="train_step", nodes=nodes, **same)
