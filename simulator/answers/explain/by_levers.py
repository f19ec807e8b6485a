"""What explanations by levers share, of runs and of RL cycles: which levers help, and how that is told.

A lever is a change that was simulated; what it is worth is in `run` and `cycle`, and what else they say in their texts.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from ...base.tables import align
from ...figures import Section
from ...report.answer import Answer
from ...report.report import Table
from ...systems.machines import stamp
from ...systems.registry import SYSTEMS
from ...systems.system import System
from .case import Refused

if TYPE_CHECKING:
    import pandas as pd

LEAST = 5e-5  # of a gain that texts show


class AnyLever(Protocol):
    """A lever that was simulated; `gain` is the share of the time that it saves."""

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def gain(self) -> float: ...  # noqa: D102

    @property
    def has_effect(self) -> bool: ...  # noqa: D102

    def to_json(self) -> dict[str, Any]: ...  # noqa: D102


L = TypeVar("L", bound=AnyLever)


class ByLevers(Answer, Generic[L]):
    """An explanation whose `tried` levers are ordered by gain; `quick` left them out, `inputs` reproduce it."""

    report: Any
    tried: tuple[L, ...]
    refused: tuple[Refused, ...]
    quick: bool
    inputs: Mapping[str, Any]

    @property
    def system(self) -> System:
        """The system of the scenario."""
        return SYSTEMS[self.report.kind]

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


# In words: `said` are the words of the report.


def opening(found: ByLevers[Any], said: Any, sentences: Iterable[str]) -> Iterator[str]:
    """The headline, sentences on it, and the table of phases."""
    yield found.report.name
    yield f"  {found.report.question}"
    yield from (f"  {what:<14}{amount}" for what, amount in said.rows)
    yield ""
    yield from sentences
    yield ""
    yield from align_ends(said.phases.headers, said.phases.rows)


def advice(
    found: ByLevers[L], aim: str, most: int, columns: Sequence[str], rows: Callable[[Sequence[L]], Sequence[Any]]
) -> Iterator[str]:
    """The best levers as a table, and how many more there are."""
    best = found.best[:most]
    yield from ("", f"what to change first, by {aim}:" if best else "nothing that was tried helps")
    if best:
        yield from align_ends(columns, rows(best))
    if left := len(found.best) - len(best):
        yield f"{left} more save less"


def closing(found: ByLevers[Any], digits: int) -> Iterator[str]:
    """Levers that make it worse or change nothing, and how many were tried."""
    if found.costly:
        yield f"worse: {'; '.join(f'{one.name} by {-one.gain:.{digits}%}' for one in found.costly)}"
    if found.without_effect:
        yield f"without any effect: {'; '.join(found.without_effect)}"
    yield f"{len(found.tried)} what-ifs were simulated, {len(found.refused)} do not go with this scenario"


def align_ends(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """A table: words to the left at both ends, numbers to the right between."""
    yield from align([list(columns), *(list(map(str, row)) for row in rows)], range(1, len(columns) - 1))


def sections(
    found: ByLevers[L],
    said: Any,
    sentences: Iterable[str],
    parts: Section,
    aim: str,
    columns: Sequence[str],
    rows: Callable[[Sequence[L]], Sequence[Any]],
) -> list[Section]:
    """The page: words, the section of the parts, and tables of the levers."""
    lines = [*said.rows, ("scenario", found.report.scenario_hash)]
    facts = [(what, " ".join(amount.split())) for what, amount in lines]
    shown = [Section("In words", [found.report.question, *sentences], facts), parts]
    if found.quick:
        return shown
    effect = [one for one in found.tried if one.has_effect]
    tables = [
        Table(f"What-ifs, by {aim}", tuple(columns), rows(effect)),
        Table("Without any effect", ("what if",), [(name,) for name in found.without_effect]),
        Table("Not allowed here", ("what if", "why"), [(one.name, one.reason) for one in found.refused]),
    ]
    return [*shown, Section("What to change first", tables=tables)]
