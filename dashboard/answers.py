"""Predictions for the browser: each question is answered once, by the hash of what it resolves to and its name."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from threading import Lock
from typing import Any

from ..simulator.answers.sweep.plan import named_files
from ..simulator.base.errors import UserError, fault, unknown
from ..simulator.base.files import read_toml
from ..simulator.base.memo import Kept, Memo
from ..simulator.predict import AnyPrediction, CyclePrediction, predicted
from ..simulator.scenario import AnyScenario, changed, check_question, resolve
from .question import Question

# What the dashboard may open: shipped scenarios, and scenarios and sweeps in the folder given by `--data`.
#
# Everything has a name from a listing. A name from a browser is looked up there and never joined to a path.

REPORT = "report.csv"
"""The file by which a folder is known as a sweep's."""


@dataclass(frozen=True)
class Library:
    """Shipped files, and those of one folder (none: shipped ones alone)."""

    folder: Path | None = None

    def scenarios(self) -> Mapping[str, Traversable]:
        """Scenario files by name, the user's own first; of two with one name the user's."""
        own = sorted(self.folder.glob("*.toml")) if self.folder is not None else []
        shipped = sorted((files("runcast.data") / "scenarios").iterdir(), key=lambda file: file.name)
        found: dict[str, Traversable] = {path.stem: path for path in own if "kind" in _peek(path)}
        for file in shipped:
            if file.name.endswith(".toml"):
                found.setdefault(file.name.removesuffix(".toml"), file)
        return found

    def scenario(self, name: str, kinds: Collection[str] = ()) -> tuple[dict[str, Any], str]:
        """The table of a scenario, and how it is called in messages: the place of its file.

        Raises:
            UserError: there is none of this name, or it cannot be read, or it is of another kind than these.
        """
        known = self.scenarios()
        if name not in known:
            raise unknown("address", "base", name, known)
        table = read_toml(known[name])
        if kinds and table.get("kind") not in kinds:
            raise UserError(fault("address", "base", name, f"expected a scenario of kind {' or '.join(kinds)}"))
        return table, str(known[name])

    def of_kind(self, kind: str) -> list[str]:
        """Names of scenarios of a kind."""
        return [name for name, file in self.scenarios().items() if _peek(file).get("kind") == kind]

    def sweeps(self) -> Mapping[str, Path]:
        """Folders of sweeps that are done or under way, by name."""
        if self.folder is None:
            return {}
        return {report.parent.name: report.parent for report in sorted(self.folder.glob(f"*/{REPORT}"))}


def _peek(file: Traversable) -> Mapping[str, Any]:
    """The table of a file, empty where it is not one."""
    try:
        return read_toml(file)
    except ValueError:
        return {}


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
