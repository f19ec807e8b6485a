"""The scenario file of kind rl_cycle: the tables of a weight update and of the cycle around it."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from ..lengths import LARGEST_TAIL
from ..tables import Model, OnCluster, Seconds, Size, SlowNodes, Table, Time, as_tuple
from ..weight_update.methods import FROM_TRAINERS
from ..weight_update.scenario import Scenario, Trainer, Update

_MOST_TOKENS = 10**9
Tokens = Annotated[int, Field(gt=0, le=_MOST_TOKENS)]


class Cycle(Table):
    """The loop around the update: who trains where, what waits for what, and how long the given parts take."""

    mode: Literal["synchronous", "asynchronous"] = Field(
        "synchronous", description="whether rollouts wait for training, or go on beside it"
    )
    placement: Literal["colocated", "disaggregated"] = Field(
        "colocated", description="whether the same GPUs train and roll out in turn"
    )
    staleness: NonNegativeInt | None = Field(
        None, description="asynchronous: versions that a rollout may be behind when it is trained on (default: 1)"
    )
    steps: Annotated[int, Field(gt=0, le=10_000)] = Field(20, description="number of steps that count")
    warmup: Annotated[int, Field(ge=0, le=10_000)] | None = Field(
        None, description="steps before them that do not count (default: staleness + 1, or 0 if that is 0)"
    )
    train_time: Time = Field(description="time of one training step, from a batch to new weights")
    update_time: Time | None = Field(None, description="time of the weight update (default: simulated)")
    pause: Seconds | None = Field(None, description="part of update_time in which rollouts stand (default: all of it)")
    trainer_gpus: PositiveInt | None = Field(
        None, description="disaggregated: GPUs that train (default: those of the cluster that are not updated)"
    )
    state: Size | None = Field(
        None, description="colocated: bytes per GPU that move to the host after training, and back (default: none)"
    )
    kv_alloc: Seconds = Field(0.0, description="colocated: time to allocate the KV cache before a rollout")
    release: Seconds = Field(0.0, description="colocated: time to free the KV cache and put engines to sleep after it")

    @model_validator(mode="after")
    def _goes_together(self) -> "Cycle":
        if self.mode == "asynchronous" and self.placement == "colocated":
            raise ValueError("mode = 'asynchronous' needs placement = 'disaggregated': one set of GPUs takes turns")
        if self.pause is not None and self.update_time is not None and self.pause > self.update_time:
            raise ValueError("pause is at most update_time")
        return self

    @property
    def most_stale(self) -> int:
        """Versions that a rollout may be behind."""
        if self.mode == "synchronous":
            return 0
        return 1 if self.staleness is None else self.staleness

    @property
    def warmup_steps(self) -> int:
        """Steps of warm-up."""
        if self.warmup is not None:
            return self.warmup
        return self.most_stale + 1 if self.most_stale else 0


_KEYS_OF_LENGTH = {"fixed": ["tokens"], "lognormal": ["mean", "p99"], "histogram": ["values", "weights"]}


class Length(Table):
    """How many tokens an answer has."""

    kind: Literal["fixed", "lognormal", "histogram"] = Field(description="which distribution")
    tokens: Tokens | None = Field(None, description="fixed: tokens of every answer")
    mean: Annotated[float, Field(ge=1, le=_MOST_TOKENS)] | None = Field(None, description="lognormal: mean")
    p99: Annotated[float, Field(ge=1, le=_MOST_TOKENS)] | None = Field(None, description="lognormal: 99th percentile")
    values: Annotated[tuple[Tokens, ...], BeforeValidator(as_tuple)] | None = Field(
        None, description="histogram: the lengths that occur, in tokens"
    )
    weights: Annotated[tuple[PositiveFloat, ...], BeforeValidator(as_tuple)] | None = Field(
        None, description="histogram: how often each of them occurs"
    )

    @model_validator(mode="after")
    def _of_its_kind(self) -> "Length":
        wanted = _KEYS_OF_LENGTH[self.kind]
        given = [key for keys in _KEYS_OF_LENGTH.values() for key in keys if getattr(self, key) is not None]
        if given != wanted:
            raise ValueError(f"kind = '{self.kind}' takes {' and '.join(wanted)} (given: {', '.join(given) or 'none'})")
        if self.mean is not None and self.p99 is not None and not self.mean < self.p99 <= self.mean * LARGEST_TAIL:
            raise ValueError(f"a lognormal's p99 is above its mean, and at most {LARGEST_TAIL:.2f} times that")
        if self.values is not None and self.weights is not None and not 0 < len(self.values) == len(self.weights):
            raise ValueError("values and weights are lists of one length, which is not 0")
        return self


class Rollout(Table):
    """What the inference engines generate in a step."""

    requests: Annotated[int, Field(gt=0, le=1_000_000)] = Field(
        description="answers per step: prompts times samples of each"
    )
    engines: PositiveInt = Field(description="inference engines, each on an equal share of the GPUs that roll out")
    slots: Annotated[int, Field(gt=0, le=1_000_000)] = Field(description="requests that an engine decodes at once")
    token_time: Time = Field(description="time per token of each running request")
    request_time: Seconds = Field(0.0, description="what each running request of the engine adds to it")
    length: Length = Field(description="how many tokens an answer has")
    max_tokens: Tokens | None = Field(None, description="longest answer: longer ones are cut (default: no limit)")
    interrupt: Literal["drain", "abort", "keep"] = Field(
        "drain", description="asynchronous: what an update does to running requests"
    )
    recompute_time: Seconds = Field(
        0.0, description="keep: time per token that a request has, to rebuild its KV cache under the new weights"
    )


class CycleScenario(OnCluster):
    """One RL cycle."""

    kind: Literal["rl_cycle"] = Field(description="what is simulated")
    stack: str = Field("checkpoint-engine", description="software stack")
    model: Model | None = Field(None, description="the weights")
    update: Update = Field(default=Update(), description="how they travel")
    slow: SlowNodes = ()
    fold: bool = Field(True, description="whether ranks that act alike are simulated once")
    seed: NonNegativeInt = Field(0, description="seed of what is random: the lengths of answers")
    cycle: Cycle = Field(description="the loop around the update")
    rollout: Rollout = Field(description="what is generated in a step")

    @model_validator(mode="after")
    def _goes_together(self) -> "CycleScenario":
        if self.cycle.update_time is None and self.model is None:
            raise ValueError("give the model whose update is simulated, or cycle.update_time")
        if self.update.drain is not None:
            raise ValueError("update.drain is not for a cycle, whose requests are simulated; see rollout.interrupt")
        if self.update.method == "colocated" and self.cycle.placement != "colocated":
            raise ValueError("update.method = 'colocated' goes with cycle.placement = 'colocated'")
        return self

    @property
    def _update(self) -> Update:
        """The update, with the cycle's number of trainers if it gives none."""
        trainer, gpus = self.update.trainer or Trainer(), self.cycle.trainer_gpus
        if self.update.method not in FROM_TRAINERS or gpus is None or trainer.gpus is not None:
            return self.update
        return self.update.model_copy(update={"trainer": trainer.model_copy(update={"gpus": gpus})})

    def weight_update(self) -> Scenario:
        """The update of the cycle as a scenario of kind weight_update."""
        same = {key: getattr(self, key) for key in Scenario.model_fields if key not in ("notes", "kind", "seed")}
        return Scenario(kind="weight_update", **same | {"update": self._update})
