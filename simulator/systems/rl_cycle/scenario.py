"""The scenario file of kind rl_cycle: the tables of a weight update and of the cycle around it."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from ..lengths import check_lognormal
from ..tables import Model, OnCluster, Seconds, Size, SlowNodes, Table, Time, as_tuple
from ..weight_update.methods import FROM_TRAINERS
from ..weight_update.scenario import Scenario, Trainer, Update

_MOST_TOKENS = 10**9
_MOST_REQUESTS = 4_000_000  # of all steps: some four minutes and 5 GB where an engine is predicted
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
    steps: Annotated[int, Field(gt=0, le=10_000)] = Field(
        20, description="number of steps that count, rounded up to a multiple of staleness + 1"
    )
    warmup: Annotated[int, Field(ge=0, le=10_000)] | None = Field(
        None, description="steps before them that do not count (default: staleness + 1, or 0 if that is 0)"
    )
    train_time: Time | None = Field(None, description="time of one training step, from a batch to new weights")
    train: str | dict[str, Any] | None = Field(
        None, description="instead of train_time: the step that is predicted, as keys of kind train_step or their file"
    )
    minibatches: PositiveInt = Field(1, description="train: optimizer steps, each on an equal part of the batch")
    forward_passes: NonNegativeInt = Field(
        0, description="train: passes over the batch without gradients, such as log-probabilities of a reference"
    )
    forward_micro: PositiveInt | None = Field(
        None, description="train: sequences per micro-batch of these passes (default: batch.micro)"
    )
    pad_to: Tokens | None = Field(
        None, description="train: tokens that each sample is padded to (default: samples are not padded)"
    )
    prepare: Seconds = Field(
        0.0, description="time between a rollout and its training: rewards, advantages, data (default: none)"
    )
    update_time: Time | None = Field(None, description="time of the weight update (default: simulated)")
    pause: Seconds | None = Field(None, description="part of update_time in which rollouts stand (default: all of it)")
    rollout_nodes: PositiveInt | None = Field(
        None, description="disaggregated: nodes of the cluster that roll out; the others train"
    )
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
        if self.train_time is None and self.train is None:
            raise ValueError("give train_time, or train, the step that is predicted")
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
    def counted_steps(self) -> int:
        """Steps that count: whole bunches of as many as are under way at once."""
        bunch = self.most_stale + 1
        return -(-self.steps // bunch) * bunch

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
        if self.mean is not None and self.p99 is not None:
            check_lognormal(self.mean, self.p99)
        if self.values is not None and self.weights is not None and not 0 < len(self.values) == len(self.weights):
            raise ValueError("values and weights are lists of one length, which is not 0")
        return self


Slots = Annotated[int, Field(gt=0, le=1_000_000)]


class Engine(Table):
    """An inference engine, whose steps are predicted from its model and device."""

    tp: PositiveInt | None = Field(None, description="tensor-parallel size (default: update.inference.tp)")
    dp: PositiveInt = Field(1, description="groups of tp ranks, each with requests of its own, that share experts")
    ep: PositiveInt = Field(1, description="ranks over which experts are spread: 1 (each is cut over tp), or tp x dp")
    dtype: Literal["bf16", "fp16", "fp8"] | None = Field(
        None, description="type of matrix products and their weights (default: that of the updated weights)"
    )
    kv_dtype: Literal["bf16", "fp8"] = Field("bf16", description="type of keys and values in the cache")
    max_batch: Slots = Field(
        256, description="requests of each group of tp ranks that run at once at most (vLLM's max_num_seqs)"
    )
    max_tokens: Slots = Field(
        8192, description="tokens of a step at most, with those of prompts (vLLM's max_num_batched_tokens)"
    )
    memory_fraction: Annotated[float, Field(gt=0, le=1)] = Field(
        0.9, description="share of device memory for weights, activations and KV cache (vLLM's gpu_memory_utilization)"
    )
    prefix_caching: bool = Field(True, description="whether an engine prefills a prompt once for all its answers")
    graph_batch: NonNegativeInt | None = Field(
        None,
        description="most requests whose step is a CUDA graph; 0: none, as with enforce_eager of vLLM (default: all)",
    )
    step_time: Seconds = Field(0.0, description="host time of a step that no kernel hides")
    request_time: Seconds | None = Field(
        None, description="the same for each running request of a dp group (default: the stack's engine.request_s)"
    )
    recompute: bool = Field(False, description="keep: whether KV caches are computed again under new weights")


class Rollout(Table):
    """What the inference engines generate in a step."""

    requests: Annotated[int, Field(gt=0, le=1_000_000)] = Field(
        description="answers per step: prompts times samples of each"
    )
    samples: PositiveInt = Field(1, description="engine: answers to each prompt")
    engine: Engine | None = Field(None, description="instead of token_time: an engine whose steps are predicted")
    engines: PositiveInt | None = Field(
        None, description="inference engines, each on an equal share of the GPUs that roll out (engine: tp x dp GPUs)"
    )
    slots: Slots | None = Field(None, description="requests that an engine decodes at once")
    token_time: Time | None = Field(None, description="time per token of each running request")
    request_time: Seconds = Field(0.0, description="what each running request of the engine adds to it")
    length: Length = Field(description="how many tokens an answer has")
    prompt: Length | None = Field(None, description="engine: how many tokens a prompt has (default: none)")
    max_tokens: Tokens | None = Field(None, description="longest answer: longer ones are cut (default: no limit)")
    interrupt: Literal["drain", "abort", "keep"] = Field(
        "drain", description="asynchronous: what an update does to running requests"
    )
    recompute_time: Seconds = Field(
        0.0, description="keep: time per token that a request has, to rebuild its KV cache under the new weights"
    )

    @model_validator(mode="after")
    def _goes_together(self) -> "Rollout":
        given = {name: getattr(self, name) for name in ("engines", "slots", "token_time")}
        if self.engine is None and (missing := [name for name, value in given.items() if value is None]):
            raise ValueError(f"give {', '.join(missing)}, or engine, whose steps are predicted")
        if self.requests % self.samples:
            raise ValueError(f"samples = {self.samples} must divide requests = {self.requests}")
        return self


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
        if self.model is None and self.cycle.update_time is None:
            raise ValueError("give the model whose update is simulated, or cycle.update_time")
        if self.model is None and self.rollout.engine is not None:
            raise ValueError("give the model that rollout.engine serves")
        if self.update.drain is not None:
            raise ValueError("update.drain is not for a cycle, whose requests are simulated; see rollout.interrupt")
        if self.update.method == "colocated" and self.cycle.placement != "colocated":
            raise ValueError("update.method = 'colocated' goes with cycle.placement = 'colocated'")
        requests = self.rollout.requests * (self.cycle.counted_steps + self.cycle.warmup_steps)
        if requests > _MOST_REQUESTS:
            raise ValueError(f"{requests:,} requests in all steps; at most {_MOST_REQUESTS:,}: give fewer cycle.steps")
        return self

    @property
    def tp(self) -> int:
        """The tensor-parallel size of an engine."""
        engine = self.rollout.engine
        return self.update.inference.tp if engine is None or engine.tp is None else engine.tp

    def _update(self, trainers: int | None) -> Update:
        """The update, with the cycle's number of trainers and its engine's tp and ep if it gives none itself."""
        trainer, inference, engine = self.update.trainer or Trainer(), self.update.inference, self.rollout.engine
        changes: dict[str, Any] = {}
        if self.update.method in FROM_TRAINERS and trainers is not None and trainer.gpus is None:
            changes["trainer"] = trainer.model_copy(update={"gpus": trainers})
        of_engine = {"tp": self.tp, "ep": inference.ep if engine is None else engine.ep}
        said = inference.model_fields_set
        if own := {
            axis: size for axis, size in of_engine.items() if axis not in said and size != getattr(inference, axis)
        }:
            changes["inference"] = inference.model_copy(update=own)
        return self.update.model_copy(update=changes) if changes else self.update

    @property
    def from_trainers(self) -> bool:
        """Whether trainers and engines are all GPUs of the cluster."""
        return self.update.method in FROM_TRAINERS

    def weight_update(self, trainers: int | None = None, **changes: Any) -> Scenario:
        """The update of the cycle as a scenario of kind weight_update, with some of its keys changed.

        `trainers` is the number of GPUs that train, where the scenario does not say it.
        """
        own = {"notes", "kind", "seed", "collectives"}
        same = {key: getattr(self, key) for key in Scenario.model_fields if key not in own}
        update = self._update(self.cycle.trainer_gpus if trainers is None else trainers)
        return Scenario(kind="weight_update", **same | changes | {"update": update})
