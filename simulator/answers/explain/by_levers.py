"""What explanations by levers share, of runs and of RL cycles: levers are tried, ordered, and told in words.

A lever is a change that was simulated. What it is worth is in `run` and `cycle`; what is said of them, in their texts.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from ...base.errors import UserError
from ...base.tables import align
from ...figures import Section, waterfall
from ...report.answer import Answer
from ...report.report import Table, Words
from ...scenario import WhatIf
from ...systems.machines import stamp
from ...systems.registry import SYSTEMS
from ...systems.system import System
from .case import Refused
from .sensitivity import Progress

if TYPE_CHECKING:
    import pandas as pd

LEAST = 5e-5  # of a gain that texts show


class AnyLever(Protocol):
    """A lever that was simulated; `gain` is the share of the time that it saves."""

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def changes(self) -> Mapping[str, Any]: ...  # noqa: D102

    @property
    def gain(self) -> float: ...  # noqa: D102

    @property
    def has_effect(self) -> bool: ...  # noqa: D102

    def to_json(self) -> dict[str, Any]: ...  # noqa: D102


L = TypeVar("L", bound=AnyLever)


def try_levers(
    every: Sequence[WhatIf], simulate: Callable[[WhatIf], L], progress: Progress
) -> tuple[tuple[L, ...], tuple[Refused, ...]]:
    """The levers that were simulated, the largest gain first, and those that do not go with the scenario."""
    tried, refused = list[L](), list[Refused]()
    for i, one in enumerate(every):
        progress("what-ifs", i, len(every), f": {one.name}")
        try:
            tried.append(simulate(one))
        except UserError as error:
            refused.append(Refused(one.name, one.subject, error.faults[0]))
    return tuple(sorted(tried, key=lambda one: -one.gain)), tuple(refused)


def check_memory(shortage: str) -> None:
    """Raise a UserError for a lever with which something does not fit, as a report says it."""
    if shortage:
        raise UserError(f"it does not fit: {shortage}")


@dataclass(frozen=True)
class LeverWords(Generic[L]):
    """An explanation in words.

    `said` are the words of the report, and `sentences` say where its time goes; `parts_s` are the seconds that one
    `whole` is made of. Levers are compared by `aim` and have a `row` of `columns` each; a terminal shows the best
    `most`, gains with `digits` digits of a per cent, and `notes` on them.
    """

    title: str
    said: Words
    sentences: Sequence[str]
    parts_title: str
    whole: str
    parts_s: Mapping[str, float]
    aim: str
    columns: tuple[str, ...]
    row: Callable[[L], tuple[Any, ...]]
    most: int
    digits: int
    notes: Sequence[str] = ()


class ByLevers(Answer, Generic[L]):
    """An explanation whose `tried` levers are ordered by gain; `quick` left them out, `inputs` reproduce it."""

    report: Any
    tried: tuple[L, ...]
    refused: tuple[Refused, ...]
    quick: bool
    inputs: Mapping[str, Any]

    @property
    def words(self) -> LeverWords[L]:
        """The explanation in words."""
        raise NotImplementedError

    @property
    def system(self) -> System:
        """The system of the scenario."""
        return SYSTEMS[self.report.kind]

    @property
    def size(self) -> int:
        """The number of spans that it holds."""
        return 0

    @property
    def best(self) -> list[L]:
        """The levers that help, the best first."""
        return [one for one in self.tried if one.gain > 0 and one.has_effect]

    @property
    def costly(self) -> list[L]:
        """The levers that make it worse, the worst first."""
        return [one for one in reversed(self.tried) if one.gain < 0 and one.has_effect]

    @property
    def without_effect(self) -> list[str]:
        """The levers that change nothing."""
        return [one.name for one in self.tried if not one.has_effect]

    def frame(self) -> "pd.DataFrame":
        """A row per lever that was simulated, largest gain first."""
        import pandas as pd

        return pd.DataFrame([one.to_json() for one in self.tried])

    def content(self, numbers: Sequence[str], parts: Mapping[str, Any], levers: list[dict[str, Any]]) -> dict[str, Any]:
        """Plain values: what all explanations have, these numbers of the report, and what a system adds."""
        said = {name: getattr(self.report, name) for name in ("name", "question", "scenario_hash", *numbers)}
        return stamp("explanation", {
            "kind": "explanation",
            "of": self.report.kind,
            **said,
            **parts,
            "best": [one.name for one in self.best],
            "what_ifs": levers,
            "refused": [vars(one) for one in self.refused],
            "quick": self.quick,
            "inputs": self.inputs,
        })  # fmt: skip

    def lines(self) -> Iterator[str]:
        """What `runcast explain` prints."""
        return _lines(self, self.words)

    def page(self) -> tuple[str, list[Section]]:
        """The title and the sections of its page."""
        said = self.words
        return said.title, list(_sections(self, said))


def _lines(found: ByLevers[L], words: LeverWords[L]) -> Iterator[str]:
    """The headline, sentences on it, the table of phases, and what to change."""
    yield found.report.name
    yield f"  {found.report.question}"
    yield from (f"  {what:<14}{amount}" for what, amount in words.said.rows)
    yield ""
    yield from words.sentences
    yield ""
    yield from _align(words.said.phases.headers, words.said.phases.rows)
    if not found.quick:
        yield from _advice(found, words)
    yield f"scenario {found.report.scenario_hash}"


def _advice(found: ByLevers[L], words: LeverWords[L]) -> Iterator[str]:
    """The best levers as a table, how many more there are, and those that make it worse or change nothing."""
    best = found.best[: words.most]
    yield from ("", f"what to change first, by {words.aim}:" if best else "nothing that was tried helps")
    if best:
        yield from _align(words.columns, [words.row(one) for one in best])
    if left := len(found.best) - len(best):
        yield f"{left} more save less"
    yield from words.notes
    if found.costly:
        yield f"worse: {'; '.join(f'{one.name} by {-one.gain:.{words.digits}%}' for one in found.costly)}"
    if found.without_effect:
        yield f"without any effect: {'; '.join(found.without_effect)}"
    yield f"{len(found.tried)} what-ifs were simulated, {len(found.refused)} do not go with this scenario"


def _align(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """A table: words to the left at both ends, numbers to the right between."""
    yield from align([list(columns), *(list(map(str, row)) for row in rows)], range(1, len(columns) - 1))


def _sections(found: ByLevers[L], words: LeverWords[L]) -> Iterator[Section]:
    """The page: words, what the time is made of, and tables of the levers."""
    facts = [(what, " ".join(amount.split())) for what, amount in words.said.rows]
    scenario = ("scenario", found.report.scenario_hash)
    yield Section("In words", [found.report.question, *words.sentences], [*facts, scenario])
    figures = {"Waterfall": waterfall(words.parts_s, words.whole)}
    yield Section(words.parts_title, figures=figures, tables=[words.said.phases])
    if not found.quick:
        yield Section("What to change first", tables=list(_tables(found, words)))


def _tables(found: ByLevers[L], words: LeverWords[L]) -> Iterator[Table]:
    effect: Iterable[L] = (one for one in found.tried if one.has_effect)
    yield Table(f"What-ifs, by {words.aim}", words.columns, [words.row(one) for one in effect])
    yield Table("Without any effect", ("what if",), [(name,) for name in found.without_effect])
    yield Table("Not allowed here", ("what if", "why"), [(one.name, one.reason) for one in found.refused])
