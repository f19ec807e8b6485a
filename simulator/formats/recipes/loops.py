"""Loops of a shell script that only assign variables, turn by turn, as far as the text alone says how many there are.

Loops that start something are not unrolled: they are several runs.
"""

import re
from collections.abc import Callable, Sequence

from .commands import ASSIGNMENT, KEYWORDS, SEPARATORS, assigned_names, command_end, unseal

Calculate = Callable[[str], int | None]
"""The value of whole numbers and variables, None where it has none."""
_MOST_TURNS, _MOST_WORDS = 1000, 20_000
_UNTIL: dict[str, Callable[[int, int], bool]] = {
    "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
    "!=": lambda a, b: a != b,
}  # fmt: skip
_CONDITION = re.compile(r"(\w+)(<=|>=|!=|<|>)(.+)")
_STEP = re.compile(r"\w+(?:(?P<once>\+\+|--)|(?P<sign>[+-])=(?P<by>.+))|(?P<pre>\+\+|--)\w+")
_RANGE = re.compile(r"\{(-?[0-9]+)\.\.(-?[0-9]+)(?:\.\.(-?[0-9]+))?\}")
_SEQUENCE = re.compile(r"\$\(seq\s+(\S+)(?:\s+(\S+))?(?:\s+(\S+))?\)")


def unroll(words: Sequence[str], start: int, calculate: Calculate) -> tuple[list[str], int] | None:
    """The turns of the `for` at this place as plain words, and the place behind its `done`.

    None where the text does not tell the turns, or where they do more than assign.
    """
    body = next((place for place in range(start, len(words)) if words[place] == "do"), len(words))
    end = _end_of(words, body)
    if end is None or not _assigns_only(words[body + 1 : end]):
        return None
    head = list(words[start + 1 : body])
    while head and head[-1] in SEPARATORS:
        head.pop()
    values = _counted(head, calculate) if head[:1] == ["(("] else _listed(head, calculate)
    if values is None or len(values) * (end - body + 2) > _MOST_WORDS:
        return None
    name = head[0] if head[0] != "((" else "".join(head[1:]).partition("=")[0].strip()
    turns = [[f"{name}={value}", "\n", *words[body + 1 : end], "\n"] for value in values]
    return [word for turn in turns for word in turn], end + 1


def _end_of(words: Sequence[str], body: int) -> int | None:
    depth = 0
    for place in range(body, len(words)):
        depth += (words[place] == "do") - (words[place] == "done")
        if depth == 0:
            return place
    return None


def _assigns_only(words: Sequence[str]) -> bool:
    """Whether a body has assignments and nothing else."""
    place, found = 0, False
    while place < len(words):
        if words[place] in SEPARATORS:
            place += 1
            continue
        end = max(command_end(words, place), place + 1)
        command, place, found = words[place:end], end, True
        if command[0] in KEYWORDS or not assigned_names(command) or not ASSIGNMENT.match(command[0]):
            return False
    return found


def _listed(head: Sequence[str], calculate: Calculate) -> list[str] | None:
    """The values of `for x in a b c`, `{1..8}`, `{0..8..2}`, `$(seq 8)` or `$(seq 0 2 8)`."""
    if head[1:2] != ["in"]:
        return None
    found: list[str] = []
    for word in map(unseal, head[2:]):
        if (counted := _range_of(word, calculate)) is not None:
            found += [str(value) for value in counted[: _MOST_TURNS + 1]]
        elif re.search(r"[$`*?{(]", word):
            return None
        else:
            found.append(word)
    return found if len(found) <= _MOST_TURNS else None


def _range_of(word: str, calculate: Calculate) -> range | None:
    """The numbers of a range of the shell, which turns by itself, or of `seq`, which does not."""
    if found := _RANGE.fullmatch(word):
        first, last, by = int(found[1]), int(found[2]), abs(int(found[3] or 1)) or 1
        return range(first, last + 1, by) if first <= last else range(first, last - 1, -by)
    if found := _SEQUENCE.fullmatch(word):
        texts = [text.lstrip("$") for text in found.groups() if text]
        begin, step, end = map(calculate, {1: ["1", "1", *texts], 2: [texts[0], "1", texts[-1]]}.get(len(texts), texts))
        if begin is None or not step or end is None:
            return None
        return range(begin, end + (1 if step > 0 else -1), step)
    return None


def _counted(head: Sequence[str], calculate: Calculate) -> list[str] | None:
    """The values of `for ((i = 0; i < 8; i++))`."""
    parts = "".join(head[1:-1]).replace(" ", "").split(";")
    if len(parts) != 3:
        return None
    name, _, begin = parts[0].partition("=")
    condition, step = _CONDITION.fullmatch(parts[1]), _STEP.fullmatch(parts[2])
    value = calculate(begin)
    if condition is None or step is None or condition[1] != name or value is None:
        return None
    limit, by = calculate(condition[3]), calculate(step["by"]) if step["by"] else 1
    if limit is None or not by:
        return None
    by = -by if "-" in (step["once"] or step["pre"] or step["sign"]) else by
    found: list[str] = []
    while _UNTIL[condition[2]](value, limit) and len(found) <= _MOST_TURNS:
        found.append(str(value))
        value += by
    return found if len(found) <= _MOST_TURNS else None
