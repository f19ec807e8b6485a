"""The state of a page: a scenario of the library and changes to it, as it stands in the page's address.

`?base=train-llama3-70b-64xh100&parallel.tp=8` is a Question, so a what-if can be sent to a colleague. What comes from a
browser is text: it is read as TOML values, never evaluated, and names that would open files are refused.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qsl, urlencode

from dash import html

from ..simulator.base.errors import UserError, fault
from ..simulator.scenario import parse_changes, toml_value

BASE = "train-llama3-70b-64xh100"
"""The training step that pages ask about where nobody says which."""
MOST_CHARACTERS = 32_000
"""Of an address: a pasted config fits, a flood does not."""

_OPENS_FILES = ("cluster", "profile", "stack", "config", "base", "node", "device", "trace", "train", "file", "plan")
"""Keys whose text may be the path of a file in a scenario that the user keeps; here it may be a name alone."""
_FILES_ALONE = ("model.config", "jobs.trace", "schedule.file")
"""Keys without a catalogue: any text is a file, or a folder with one."""


@dataclass(frozen=True)
class Question:
    """A scenario by name, and changes to it by key."""

    base: str
    changes: Mapping[str, Any] = field(default_factory=dict)

    def change(self, changes: Mapping[str, Any]) -> "Question":
        """The question with more changes, which must not name files.

        Raises:
            UserError: one does, or they are no changes.
        """
        faults = [line for key, value in changes.items() for line in _paths(key, value)]
        if faults:
            raise UserError(*faults)
        return replace(self, changes={**self.changes, **changes})

    def query(self) -> str:
        """The question as the query of an address; values are written as in TOML."""
        return "?" + urlencode(
            [("base", self.base), *((key, value_text(value)) for key, value in self.changes.items())]
        )


def pairs_of(query: str) -> list[tuple[str, str]]:
    """Keys and values of an address.

    Raises:
        UserError: too long.
    """
    if len(query) > MOST_CHARACTERS:
        raise UserError(f"the address has {len(query):,} characters; at most {MOST_CHARACTERS:,}")
    return parse_qsl(query.removeprefix("?"), keep_blank_values=True)


def choices_of(query: str) -> dict[str, str]:
    """What an address says where it asks no question, none of it believed yet; of a flood, nothing."""
    return dict(parse_qsl(query.removeprefix("?"))) if len(query) <= MOST_CHARACTERS else {}


def parse_query(query: str, base: str) -> Question:
    """The question of an address; `base` is asked about where it names none.

    Raises:
        UserError: too long, or a change that names a file.
    """
    pairs = pairs_of(query)
    named = [value for key, value in pairs if key == "base"]
    lines = [f"{key}={value}" for key, value in pairs if key != "base"]
    return Question(named[-1] if named else base).change(parse_changes(lines))


def value_text(value: Any) -> str:
    """A value as text that `parse_changes` reads back."""
    plain = isinstance(value, str) and parse_changes([f"x={value}"])["x"] == value
    return value if plain else toml_value(value)


def _paths(key: str, value: Any) -> Iterator[str]:
    """A line for each text that would open a file."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _paths(f"{key}.{name}", item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _paths(key, item)
    elif isinstance(value, str) and key.rpartition(".")[2] in _OPENS_FILES and _is_path(key, value):
        yield fault("address", key, value, "expected a name of the catalogue; files are opened from the command line")


def _is_path(key: str, text: str) -> bool:
    if key in _FILES_ALONE:
        return True
    return any(mark in text for mark in "/\\\0") or text.startswith((".", "~")) or text.endswith((".toml", ".json"))


# Questions beside each other in an address, and links from one question to the pages that ask more of it.
#
# `?a=base%3Dtiny-2ranks&b=base%3Dtiny-2ranks%26update.bucket%3D1+GiB` is two Questions, each as
# its own address writes it.

NAMES = ("a", "b", "c", "d")
"""Of sides; there are no more."""


def sides_query(questions: Sequence[Question]) -> str:
    """As the query of an address."""
    pairs = zip(NAMES, questions, strict=False)
    return "?" + urlencode([(name, question.query().removeprefix("?")) for name, question in pairs])


def parse_sides_query(query: str, base: str) -> list[Question]:
    """The questions of an address, up to four; a side asks about `base` where it names nothing.

    Raises:
        UserError: too long, or a change that names a file.
    """
    given = dict(pairs_of(query))
    return [parse_query(given[name], base) for name in NAMES if name in given]


def explain_link(question: Question, text: str = "Explain this") -> html.A:
    """A link to why a question has the answer that it has."""
    return html.A(text, href=f"/explain{question.query()}")


def compare_link(question: Question, text: str = "Compare with …", other: Question | None = None) -> html.A:
    """A link to two questions beside each other: by default one beside itself, to change one of both."""
    return html.A(text, href=f"/compare{sides_query([question, other or question])}")
