"""Questions beside each other in an address, and links from one question to the pages that ask more of it.

`?a=base%3Dtiny-2ranks&b=base%3Dtiny-2ranks%26update.bucket%3D1+GiB` is two Questions, each as
its own address writes it.
"""

from collections.abc import Sequence
from urllib.parse import parse_qsl, urlencode

from dash import html

from ..simulator.base.errors import UserError
from .question import MOST_CHARACTERS, Question, from_query

NAMES = ("a", "b", "c", "d")
"""Of sides; there are no more."""


def sides_query(questions: Sequence[Question]) -> str:
    """As the query of an address."""
    pairs = zip(NAMES, questions, strict=False)
    return "?" + urlencode([(name, question.query().removeprefix("?")) for name, question in pairs])


def from_sides_query(query: str, base: str) -> list[Question]:
    """The questions of an address, up to four; a side asks about `base` where it names nothing.

    Raises:
        UserError: too long, or a change that names a file.
    """
    if len(query) > MOST_CHARACTERS:
        raise UserError(f"the address has {len(query):,} characters; at most {MOST_CHARACTERS:,}")
    given = dict(parse_qsl(query.removeprefix("?"), keep_blank_values=True))
    return [from_query(given[name], base) for name in NAMES if name in given]


def explain_link(question: Question, text: str = "Explain this") -> html.A:
    """A link to why a question has the answer that it has."""
    return html.A(text, href=f"/explain{question.query()}")


def onward(question: Question) -> html.A:
    """A link to a question beside itself, to change one of both."""
    return compare_link("Compare with …", question, question)


def compare_link(text: str, *questions: Question) -> html.A:
    """A link to questions beside each other."""
    return html.A(text, href=f"/compare{sides_query(questions)}")
