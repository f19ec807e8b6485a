"""The training of a cycle as our own training step: its batch, its seconds, and passes without gradients."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...base.errors import UserError, fault
from ...base.files import find_beside, path_beside, read_toml
from ...base.memo import Memo
from ...base.named_files import rename_files
from ...base.schema import validate
from ...base.shipped import shipped
from ..keys import Values, faults, value_at
from ..tables import tuples
from ..train_step import keys
from ..train_step.lower.assembly import ACTIONS
from ..train_step.resolve import ResolvedTrain
from ..train_step.scenario import TrainScenario
from ..train_step.system import TrainPrediction
from ..train_step.system import predict as predict_step

_OF_CYCLE = ("kind", "name", "notes", "cluster", "nodes", "run", "batch.global")
"""Keys of a training step that follow from the cycle, or that say nothing of a step."""


@dataclass(frozen=True)
class Plan:
    """So many steps, and passes over what they train on, whose micro-batches are those of the step `forward`."""

    minibatches: int
    forward_passes: int
    forward: TrainScenario


@dataclass(frozen=True)
class Training:
    """A cycle's training: `minibatches` steps like `step`, and `forward_passes` like the forward of `pass_step`."""

    step: TrainPrediction
    pass_step: TrainPrediction
    minibatches: int
    forward_passes: int

    @property
    def seconds(self) -> float:
        """Seconds from a batch to new weights."""
        return self.learn_s + self.forward_s

    @property
    def learn_s(self) -> float:
        """Seconds of its optimizer steps."""
        return self.minibatches * self.step.report.step_time_s

    @property
    def forward_s(self) -> float:
        """Seconds of its passes without gradients, which have no optimizer."""
        timeline = self.pass_step.timeline
        without_optimizer_s = float(timeline.end_s[self._of_actions(ACTIONS)].max())
        return self.minibatches * self.forward_passes * without_optimizer_s * self.forward_share

    @property
    def forward_share(self) -> float:
        """The share of a step's work that its forward is, and so a pass without gradients."""
        timeline = self.pass_step.timeline
        seconds = timeline.end_s - timeline.start_s
        return float(seconds[self._of_actions("F")].sum() / seconds[self._of_actions(ACTIONS)].sum())

    def _of_actions(self, kinds: Sequence[str]) -> NDArray[np.bool_]:
        """The ops of a pass's step that are of actions of these kinds."""
        return np.isin(self.pass_step.timeline.program.tags["action"], list(map(ACTIONS.index, kinds)))


def step_table(said: str | Mapping[str, Any], has_model: bool, where: str) -> dict[str, Any]:
    """The keys of a training step, from a table, or from a file by its name: beside the scenario, or a shipped one.

    A cycle that `has_model` trains that one.

    Raises:
        UserError: the file cannot be read, or is of another kind; the table has a key that follows from the cycle.
    """
    if not isinstance(said, str):
        if own := [key for key in (*_OF_CYCLE, *(["model"] if has_model else [])) if value_at(said, key) is not None]:
            raise UserError(fault(where, f"cycle.train.{own[0]}", value_at(said, own[0]), "follows from the cycle"))
        return dict(said)
    path = path_beside(said, where)
    file = path if path.is_file() else shipped().get(said) or find_beside(said, where, "cycle.train")
    table = rename_files(read_toml(file), str(file), str)
    if table.get("kind") != "train_step":
        raise UserError(fault(where, "cycle.train", said, "expected a scenario of kind train_step"))
    return table


def with_micro(said: Mapping[str, Any], micro: int) -> dict[str, Any]:
    """The keys of a step with so many sequences to a micro-batch."""
    batch = said.get("batch", {})
    return {**said, "batch": {**batch, "micro": micro}} if isinstance(batch, Mapping) else dict(said)


@dataclass(frozen=True)
class Setup:
    """What a cycle says of its training: the machines, the model, and a batch of `requests` of `tokens` on average.

    Its `profile` is that of a step which has none of its own. Samples may be padded to `pad_to` tokens.
    """

    cluster: Any
    nodes: int
    gpus: int
    profile: str | None
    model: Any
    requests: int
    minibatches: int
    tokens: float
    pad_to: int | None = None

    def scenario(self, said: Mapping[str, Any], where: str) -> TrainScenario:
        """The step of a mini-batch: the keys that a scenario says, the cycle's model, and a batch of its requests.

        With `batch.seq_len`, requests are packed into sequences of so many tokens.
        """
        table = {key: value for key, value in said.items() if key not in _OF_CYCLE}
        model = {} if self.model is None else {"model": self.model}
        profile = {} if self.profile is None else {"profile": self.profile}
        made = {"kind": "train_step", "cluster": self.cluster, "nodes": self.nodes, **profile, **table, **model}
        if isinstance(batch := table.get("batch", {}), Mapping):
            made["batch"] = self._batch(table, batch, where)
        return check(made, where)

    def _batch(self, table: Mapping[str, Any], given: Mapping[str, Any], where: str) -> dict[str, Any]:
        batch = {key: value for key, value in given.items() if key != "global"}
        if "seq_len" not in given:
            seq_len = self._sample_tokens(table, where)
            return {"global": self.requests // self.minibatches, "seq_len": seq_len, **batch}
        each = _count(given, "seq_len")
        if given["seq_len"] == each < self.tokens:
            allowed = f"samples have {self.tokens:,.0f} tokens on average, which are not cut"
            raise UserError(fault(where, "cycle.train.batch.seq_len", each, allowed))
        ranks = prod(_count(table, f"parallel.{axis}") for axis in ("tp", "cp", "pp"))
        unit = _count(given, "micro") * max(self.gpus // ranks, 1)
        needed = self.requests * self.tokens / self.minibatches / each
        return {"global": ceil(needed / unit) * unit, "documents": {"mean": self.tokens}, **batch}

    def _sample_tokens(self, table: Mapping[str, Any], where: str) -> int:
        """The tokens of a sample that is a sequence by itself: of the mean length, or padded; ranks share it evenly."""
        if self.pad_to is not None and self.pad_to < self.tokens:
            allowed = f"samples have {self.tokens:,.0f} tokens on average, which are not cut"
            raise UserError(fault(where, "cycle.pad_to", self.pad_to, allowed))
        unit = _count(table, "parallel.tp") * (2 * cp if (cp := _count(table, "parallel.cp")) > 1 else 1)
        return ceil((self.pad_to or self.tokens) / unit) * unit


def _count(table: Mapping[str, Any], key: str) -> int:
    """A whole number above zero; 1 where it is not given, or is something else, which is refused later."""
    value = value_at(table, key)
    return value if type(value) is int and value > 0 else 1


def check(table: Mapping[str, Any], where: str) -> TrainScenario:
    """The scenario of a training step; a UserError with a line per fault, whose keys are those of `cycle.train`."""
    filled = keys.add_defaults(table, where)
    try:
        found = validate(TrainScenario, tuples(filled), where)
        if lines := faults(Values(filled, TrainScenario), keys.NEEDS, keys.RIVALS, where):
            raise UserError(*lines)
    except UserError as error:
        raise UserError(*(_of_train(line, where) for line in error.faults)) from None
    return found


def _of_train(line: str, where: str) -> str:
    """A fault of the step with the keys of the cycle; the batch is what follows from two of them."""
    start, said = f"{where}: ", str(line)
    if not said.startswith(start):
        return said
    key = said[len(start) :]
    rest = key.removeprefix("batch.global ")
    return f"{start}cycle.train.{key}" if rest == key else f"{start}rollout.requests / cycle.minibatches {rest}"


def predict(trained: TrainScenario, plan: Plan, where: str, memo: Memo) -> Training:
    """Predict the training of a cycle; a UserError where its plan is not allowed."""
    try:
        step, pass_step = (_step(scenario, where, memo) for scenario in (trained, plan.forward))
    except UserError as error:
        raise UserError(*(_of_train(line, where) for line in error.faults)) from None
    return Training(step, pass_step, plan.minibatches, plan.forward_passes)


def _step(scenario: TrainScenario, where: str, memo: Memo) -> TrainPrediction:
    resolved = ResolvedTrain(scenario, where, memo)
    return memo.get("training of a cycle", resolved.hash, lambda: predict_step(resolved))
