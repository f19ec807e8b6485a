"""Predictions for the browser: each question is answered once, by the hash of what it resolves to and its name."""

from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from ..simulator.answers.sweep.named import named_files
from ..simulator.base.memo import Kept, Memo
from ..simulator.predict import AnyPrediction, CyclePrediction, predicted
from ..simulator.scenario import AnyScenario, changed, check_question, resolve
from .library import Library
from .question import Question


@dataclass
class Answers:
    """What was asked and answered last, for all sessions of a process.

    At most `most` predictions are kept, with at most `most_ops` ops in all, some 250 bytes each. Threads share them: a
    Memo is used by one at a time.
    """

    library: Library
    most: int = 64
    most_ops: int = 3_000_000
    _memo: Memo = field(default_factory=Memo)
    _predicting: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self._kept = Kept[AnyPrediction](self.most, self.most_ops)

    def scenario(self, question: Question) -> tuple[AnyScenario, str]:
        """The checked scenario of a question, and where it comes from.

        Raises:
            UserError: it says something that is not allowed; one line per fault.
        """
        table, where = self._table(question)
        return check_question(table, where), where

    def _table(self, question: Question) -> tuple[dict[str, Any], str]:
        table, where = self.library.scenario(question.base)
        return changed(table, question.changes, where), where

    def values(self, question: Question) -> dict[str, Any]:
        """Everything that a scenario says or means where it is silent, its stack's defaults among it, as plain values.

        Raises:
            UserError: as `scenario`.
        """
        return self.scenario(question)[0].model_dump(mode="json", by_alias=True)

    def predict(self, question: Question) -> AnyPrediction:
        """The prediction of a question, kept from the last time if that was not long ago.

        Raises:
            UserError: as `scenario`, and whatever the simulator refuses.
        """
        table, where = self._table(question)
        given = check_question(table, where)
        with self._predicting:
            memo = Memo() if named_files(table, where) else self._memo  # which knows files by name, and files change
            resolved = resolve(given, where, memo)
            key = given.name, given.notes, resolved.hash  # what equal predictions may be told with
            return self._kept.get(key, lambda: predicted(resolved), _ops)


def _ops(prediction: AnyPrediction) -> int:
    """How large a prediction is."""
    update = prediction.update if isinstance(prediction, CyclePrediction) else None
    return len(prediction.timeline.end_s) + (len(update.timeline.end_s) if update is not None else 0)
