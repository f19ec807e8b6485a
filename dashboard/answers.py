"""Predictions for the browser: each question is answered once, by the hash of what it resolves to and its name."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import BoundedSemaphore, Lock
from typing import Any

from ..simulator.answers.compare import Operand, Side, open_side
from ..simulator.answers.explain import (
    AnyCase,
    AnyExplanation,
    ByLevers,
    Case,
    Explanation,
    Knob,
    Turned,
    explain_case,
    first_look,
    knobs,
    open_case,
)
from ..simulator.answers.explain import turn as turn_knobs
from ..simulator.base.errors import unknown
from ..simulator.base.memo import Kept, Memo
from ..simulator.base.named_files import find_files
from ..simulator.predict import AnyPrediction, CyclePrediction, predict
from ..simulator.scenario import AnyScenario, change, check_question, resolve
from ..simulator.systems.system import System
from .library import Library
from .question import Question
from .stopping import Work

MOST_OPS = 150_000
"""Of a Program that is simulated while one waits for a slider: about 0.2 s. Larger ones are told to first order."""
PATIENCE_S = 4.0
"""That a question waits for the one before it; then it is answered beside it, a little slower."""
_BESIDE = 3
"""Questions that are answered beside the first one: each takes memory, and all share the cores."""
_LOOKS, _LOOKED_OPS = 8, 2_000_000  # cases, and ops of all of them: a million holds some 200 MB


@dataclass(frozen=True)
class Look:
    """A case that was simulated, what it is made of, and its numbers by name. One thread turns them at a time."""

    case: Case
    explanation: Explanation
    knobs: Mapping[str, Knob]
    _turning: Lock = field(default_factory=Lock)

    @property
    def system(self) -> System:
        """The system of the scenario."""
        return self.case.system

    @property
    def ops(self) -> int:
        """The number of ops in the case's Program."""
        return len(self.case.resolved.program)

    def turn(self, factors: Mapping[str, float]) -> Turned:
        """The total with numbers times factors; names that this case does not have are passed over.

        Raises:
            UserError: a number would be more than a file may say.
        """
        by_knob = {self.knobs[name]: factor for name, factor in factors.items() if name in self.knobs and factor != 1}
        with self._turning:
            return turn_knobs(self.case, by_knob, simulate=self.ops <= MOST_OPS)


class Answers:
    """What was asked and answered last, for all sessions of a process.

    At most `most` predictions are kept, with at most `most_ops` ops in all, some 250 bytes each, and a few cases that
    were explained. Threads share them: a Memo is used by one at a time, and who waits for long gets one of their own.
    """

    def __init__(self, library: Library, most: int = 64, most_ops: int = 3_000_000):
        self.library = library
        self._memo, self._predicting, self._looking = Memo(), Lock(), Lock()
        self._beside = BoundedSemaphore(_BESIDE)
        self._kept, self._looks = Kept[AnyPrediction](most, most_ops), Kept[Any](_LOOKS, _LOOKED_OPS)
        self._runs = Kept[Side](_LOOKS, _LOOKED_OPS)
        self._work: dict[str, Work] = {}

    def scenario(self, question: Question) -> tuple[AnyScenario, str]:
        """The checked scenario of a question, and where it comes from.

        Raises:
            UserError: it says something that is not allowed; one line per fault.
        """
        table, where = table_of(self.library, question)
        return check_question(table, where), where

    def values(self, question: Question) -> dict[str, Any]:
        """All values of a scenario, with defaults (also its stack's), as plain values.

        Raises:
            UserError: as `scenario`.
        """
        return self.scenario(question)[0].model_dump(mode="json", by_alias=True)

    def predict(self, question: Question, job: str = "") -> AnyPrediction:
        """The prediction of a question, kept from the last time if that was not long ago.

        With the name of a `job` it is what somebody waits for, until `stop`, or until they ask for something else.

        Raises:
            UserError: as `scenario`, and whatever the simulator refuses.
            StoppedError: nobody waits for it any more.
        """
        table, where = table_of(self.library, question)
        given = check_question(name_changed(table, question), where)
        with self._begin(job) as work, self._turn(self._predicting) as first:
            memo = self._memo if first and not find_files(table, where) else Memo()  # files change, their names do not
            resolved = resolve(given, where, memo)
            key = given.name, given.notes, resolved.hash  # what equal predictions may be told with
            return self._kept.get(key, lambda: work.run(lambda: predict(resolved)), _size)

    def stop(self, job: str) -> None:
        """End what a job is at, if anything."""
        if (work := self._work.get(job)) is not None:
            work.stop()

    @contextmanager
    def _begin(self, job: str) -> Iterator[Work]:
        """Work of a job in place of what it was at; of no job it is work that nobody stops."""
        work = Work()
        if job:
            self.stop(job)
            self._work[job] = work
        try:
            yield work
        finally:
            if self._work.get(job) is work:
                del self._work[job]

    @contextmanager
    def _turn(self, one_by_one: Lock) -> Iterator[bool]:
        """Wait for the question before; False where that is a heavy one, beside which this one is answered."""
        if one_by_one.acquire(timeout=PATIENCE_S):
            try:
                yield True
            finally:
                one_by_one.release()
        else:
            with self._beside:
                yield False

    def run(self, name: str) -> Side:
        """A real run of the library, read once as long as its file stays as it is.

        Raises:
            UserError: there is none of this name, or it cannot be read.
        """
        path = self.library.run(name)
        if path is None:
            raise unknown("address", "base", name, self.library.runs())
        return self._runs.get((name, path.stat().st_mtime_ns), lambda: open_side(Operand(path)), _ops_of_run)

    def look(self, question: Question, job: str = "") -> Look | ByLevers[Any]:
        """A question simulated to be explained, kept and stopped likewise; numbers of a Look can be turned again and
        again.

        Raises:
            UserError: as `case_of`, and whatever the simulator refuses.
            StoppedError: as `predict`.
        """
        case = case_of(self.library, question)
        key = case.resolved.scenario.name, case.resolved.scenario.notes, case.resolved.hash
        with self._begin(job) as work, self._turn(self._looking):
            found: Look | ByLevers[Any] = self._looks.get(key, lambda: work.run(lambda: _look(case)), _looked_ops)
            return found


def case_of(library: Library, question: Question) -> AnyCase:
    """The case of a question, not simulated yet.

    Raises:
        UserError: it says something that is not allowed, or is of a kind that is not explained.
    """
    return open_case(*table_of(library, question))


def explain(library: Library, question: Question, quick: bool, progress: Callable[[str], None]) -> AnyExplanation:
    """A whole explanation; it takes a while and tells how far it is.

    Raises:
        UserError: as `case_of`, and whatever the simulator refuses.
    """

    def tell(phase: str, done: int, total: int, name: str) -> None:
        progress(f"{done + 1} of at most {total} {phase}{name}")

    return explain_case(case_of(library, question), quick, tell)


def table_of(library: Library, question: Question) -> tuple[dict[str, Any], str]:
    """The scenario of a question as a table, and its place.

    Raises:
        UserError: there is no such scenario, or it cannot be changed so.
    """
    table, where = library.scenario(question.base)
    return change(table, question.changes, where), where


def name_changed(table: dict[str, Any], question: Question) -> dict[str, Any]:
    """The table of a question, which has the name of its file's only where nothing is changed."""
    name = table.get("name")
    renamed = question.changes and "name" not in question.changes and isinstance(name, str)
    return {**table, "name": f"{name}, changed"} if renamed else table


def _look(case: Any) -> Look | ByLevers[Any]:
    if not case.system.has_levers:
        return _look_at_path(case)
    found: ByLevers[Any] = explain_case(case, quick=True)  # type: ignore[assignment]
    return found


def _look_at_path(case: Case) -> Look:
    return Look(case, first_look(case), {knob.name: knob for knob in knobs(case)})


def _looked_ops(found: Look | ByLevers[Any]) -> int:
    return found.ops if isinstance(found, Look) else found.size


def _ops_of_run(side: Side) -> int:
    return len(side.drawn.timeline.program) if side.drawn is not None else 0


def _size(prediction: AnyPrediction) -> int:
    """How large a prediction is."""
    update = prediction.update if isinstance(prediction, CyclePrediction) else None
    return len(prediction.timeline.end_s) + (len(update.timeline.end_s) if update is not None else 0)
