"""Scenarios that are explained: each is simulated once, and its numbers can be turned again and again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock

from ..simulator.answers.explain import Case, Explanation, Knob, Turned, explained, first_look, knobs, make_case, turn
from ..simulator.base.memo import Kept, Memo
from ..simulator.scenario import changed
from .answers import Library
from .question import Question

MOST_OPS = 150_000
"""Of a Program that is simulated while one waits for a slider: about 0.2 s. Larger ones are told to first order."""
_KEPT, _KEPT_OPS = 8, 2_000_000  # cases, and ops of all of them: a million holds some 200 MB


@dataclass(frozen=True)
class Look:
    """A case that was simulated, what it is made of, and its numbers by name. One thread turns them at a time."""

    case: Case
    explanation: Explanation
    knobs: Mapping[str, Knob]
    _turning: Lock = field(default_factory=Lock)

    @property
    def ops(self) -> int:
        """Of its Program."""
        return len(self.case.resolved.program)

    @property
    def is_small(self) -> bool:
        """Whether turned numbers are simulated."""
        return self.ops <= MOST_OPS

    def turned(self, factors: Mapping[str, float]) -> Turned:
        """The total with numbers times factors; names that this case does not have are passed over.

        Raises:
            UserError: a number would be more than a file may say.
        """
        asked = {self.knobs[name]: factor for name, factor in factors.items() if name in self.knobs and factor != 1}
        with self._turning:
            return turn(self.case, asked, simulate=self.is_small)


@dataclass
class Looks:
    """The last few, for all sessions of a process."""

    library: Library
    _looking: Lock = field(default_factory=Lock)
    _kept: Kept[Look] = field(default_factory=lambda: Kept(_KEPT, _KEPT_OPS))

    def look(self, question: Question) -> Look:
        """The look at a question, kept from the last time if that was not long ago.

        Raises:
            UserError: as `case_of`, and whatever the simulator refuses.
        """
        case = case_of(self.library, question)
        said = case.resolved.scenario
        key = said.name, said.notes, case.resolved.hash  # what equal looks may be told with
        with self._looking:
            return self._kept.get(key, lambda: _looked(case), lambda look: look.ops)


def _looked(case: Case) -> Look:
    return Look(case, first_look(case), {knob.name: knob for knob in knobs(case)})


def case_of(library: Library, question: Question) -> Case:
    """The case of a question, not simulated yet.

    Raises:
        UserError: it says something that is not allowed, or is an RL cycle.
    """
    table, where = library.scenario(question.base)
    return make_case(changed(table, question.changes, where), where, Memo())


def weighed(library: Library, question: Question, quick: bool, progress: Callable[[str], None]) -> Explanation:
    """A whole explanation; it takes a while and tells how far it is.

    Raises:
        UserError: as `case_of`, and whatever the simulator refuses.
    """
    return explained(case_of(library, question), quick, progress)
