"""The words of a shell script as a shell would see them, as far as the text alone says. Nothing is run.

Assignments are followed, defaults (`${TP:-8}`) and integer arithmetic (`$((TP * 2))`) are worked out, and of `if` and
`case` the branches are read that a shell would take. A variable that is not assigned counts as not set: `$TP` stays as
it is written. So does `$(command)`; where a condition hangs on one, all branches are read.
"""

import ast
import operator
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from ...base.errors import UserError
from ...base.files import read_text

_LONGEST = 10_000  # characters of a value; a script that doubles a variable again and again stops there
_HEADS = {"if": "then", "elif": "then", "case": "in"}
_LONGEST_HEAD = 60  # words of a condition
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)


def _bracket_pattern(start: str, end: str) -> str:
    """A pattern of brackets with up to two more levels inside."""
    other = f"[^{start}{end}]"
    inner = f"{start}(?:{other}|{start}{other}*{end})*{end}"
    return f"{start}(?:{other}|{inner})*{end}"


_SEALED = {ord(letter): chr(0xE000 + ord(letter)) for letter in " \t\r\n();<>|&#\"'\\"}
_UNSEALED = {ord(sealed): chr(letter) for letter, sealed in _SEALED.items()}
_COMMAND = re.compile(r"\$" + _bracket_pattern(r"\(", r"\)") + r"|`[^`\n]*`")
_ARITHMETIC = re.compile(r"\$" + _bracket_pattern(_SEALED[ord("(")], _SEALED[ord(")")]))
_DOCUMENT = re.compile(r"(?<!<)<<(?!<)-?[ \t]*([\"']?)(\w+)\1([^\n]*\n)(.*?\n)[ \t]*\2[ \t]*(?=\n|$)", re.DOTALL)
_SOURCE = re.compile(r"^[ \t]*(?:source|\.)[ \t][^\n]*?(?P<name>[\w-]+\.sh)[\"'`]*[ \t]*$", re.MULTILINE)
_REFERENCE = re.compile(
    r"\$(?:(?P<bare>\d|[A-Za-z_]\w*)"
    r"|\{(?P<name>\w+)(?:(?P<how>:?[-=?+])(?P<other>[^{}]*(?:\{[^{}]*\}[^{}]*)*))?\})"
)


def include_sourced(text: str, folder: Path) -> str:
    """The script with the files that it reads (`source common.sh`) put in, each once, if they lie beside it."""
    included: set[str] = set()

    def include(found: re.Match[str]) -> str:
        file = folder / found["name"]
        if file.name in included or not file.is_file():
            return found[0]
        included.add(file.name)
        return _SOURCE.sub(include, read_text(file, "a script"))

    return _SOURCE.sub(include, text)


def missing_sources(text: str) -> list[str]:
    """Names of the files that a script reads and that are not put in."""
    return list(dict.fromkeys(found["name"] for found in _SOURCE.finditer(text)))


def seal(text: str) -> str:
    """The text with each `$(command)` in characters that no reader of words splits."""
    return _COMMAND.sub(lambda found: found[0].translate(_SEALED), text)


def unseal(text: str) -> str:
    """The text as it was before `seal`."""
    return text.translate(_UNSEALED)


class Variables:
    """Variables of a script by name: those that are `fixed` from outside, and those that it assigns.

    `mentioned` holds every name that was assigned or asked for.
    """

    def __init__(self, fixed: Mapping[str, str] | None = None):
        self._fixed = dict(fixed or {})
        self._values = dict(self._fixed)
        self.mentioned: set[str] = set()

    def assign(self, name: str, value: str, more: bool = False) -> None:
        """Give a variable its value, or `more` text at its end; what is fixed stays."""
        self.mentioned.add(name)
        if name not in self._fixed:
            self._values[name] = (self._values.get(name, "") + value if more else value)[:_LONGEST]

    def get(self, name: str) -> str | None:
        """Its value, None where it is not set."""
        self.mentioned.add(name)
        return self._values.get(name)

    def substitute(self, text: str) -> str:
        """The text with variables and arithmetic put in; what is not known stays as it is written."""
        found = _ARITHMETIC.sub(self._compute, _REFERENCE.sub(self._value, text))
        return found if len(found) <= _LONGEST else text

    def _value(self, found: re.Match[str]) -> str:
        name, how = found["bare"] or found["name"], found["how"] or ""
        known = self.get(name)
        if how.startswith(":") and known == "":
            known = None
        if how.endswith("+"):
            return "" if known is None else self.substitute(found["other"])
        if known is None and how[-1:] in ("-", "="):
            known = self.substitute(found["other"])
            if how.endswith("="):
                self.assign(name, known)
        return found[0] if known is None else known

    def _compute(self, found: re.Match[str]) -> str:
        expression = unseal(found[0])
        if not expression.startswith("$((") or not expression.endswith("))"):
            return found[0]
        value = self.calculate(expression[3:-2])
        return found[0] if value is None else str(value)

    def calculate(self, expression: str) -> int | None:
        """The value of whole numbers and names of variables with + - * / %; None where it has none."""
        return _calculate(re.sub(r"(?<![\w$])[A-Za-z_]\w*", lambda name: self.get(name[0]) or name[0], expression))


_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: lambda a, b: _divide(a, b), ast.Mod: lambda a, b: a - _divide(a, b) * b,
}  # fmt: skip


def _divide(a: int, b: int) -> int:
    """The quotient, rounded towards zero."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _calculate(expression: str) -> int | None:
    """The value of whole numbers with + - * / %, rounded towards zero as a shell does; None where it has none."""
    if not re.fullmatch(r"[\d\s()+*/%-]{1,100}", expression):
        return None
    try:
        return _evaluate(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, OverflowError):
        return None


def _evaluate(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluate(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        return _OPERATIONS[type(node.op)](_evaluate(node.left), _evaluate(node.right))
    raise ValueError(ast.dump(node))


def read_words(text: str, where: str, variables: Variables) -> Iterator[str]:
    """The words of a script, comments and continued lines taken care of, operators as words of their own.

    Branches that a shell would not take are left out: the reader assigns `variables` while it reads. A quoted word of
    several arguments (`"--bf16 --lr 1"`, in an array) is split. A UserError, one line, where quotes do not end.
    """
    return (part for word in _follow_branches(_split(text, where), variables) for part in _arguments(word))


def _split(text: str, where: str) -> list[str]:
    without_code = _DOCUMENT.sub(lambda found: found[0] if " --" in found[4] else found[3], text)
    uncommented = re.sub(r"(?m)^[ \t]*#.*$", "", without_code)
    joined = seal(re.sub(r"\\\r?\n", " ", uncommented))
    quoted = re.sub(r"(?<=\s)(\(\[[^\s\"']*\))(?=\s|$)", r"'\1'", joined)  # ([0]*3+[1]*58), which a shell would refuse
    words = shlex.shlex(quoted, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    try:
        return list(words)
    except ValueError as error:
        raise UserError(f"{where}: is not a shell fragment: {str(error).lower()}") from None


def _arguments(word: str) -> list[str]:
    several = re.match(r"--[A-Za-z][\w.-]*\s", word)
    return [part.strip("\"'") for part in word.split()] if several else [word]


class _Branches:
    """An `if` or a `case`: whether words are read in its present branch, and whether a branch was surely taken."""

    def __init__(self, subject: str | None = None):
        self.subject = subject
        self.read = False
        self._done = False

    def enter(self, holds: bool | None) -> None:
        """Begin the next branch; `holds` says whether a shell takes it, None where the text does not tell."""
        self.read = not self._done and holds is not False
        self._done = self._done or holds is True


def _follow_branches(words: Sequence[str], variables: Variables) -> Iterator[str]:
    """The words outside the branches that a shell would not take."""
    open_branches: list[_Branches] = []
    place = 0
    while place < len(words):
        word, place = words[place], place + 1
        end = _find(words, _HEADS[word], place) if word in _HEADS else None
        if end is not None and (word != "elif" or open_branches):
            head, place = words[place:end], end + 1
            if word != "elif":
                open_branches.append(_Branches(_fill(" ".join(head), variables) if word == "case" else None))
            if word == "case":
                place = _enter_pattern(words, place, open_branches[-1])
            else:
                open_branches[-1].enter(_holds(head, variables))
        elif word == ";;" and open_branches and open_branches[-1].subject is not None:
            place = _enter_pattern(words, place, open_branches[-1])
        elif word == "else" and open_branches:
            open_branches[-1].enter(True)
        elif word in ("fi", "esac") and open_branches:
            open_branches.pop()
        elif all(branches.read for branches in open_branches):
            yield word


def _find(words: Sequence[str], word: str, start: int) -> int | None:
    """Where the word comes next, within the length of a condition."""
    near = range(start, min(start + _LONGEST_HEAD, len(words)))
    return next((place for place in near if words[place] == word), None)


def _enter_pattern(words: Sequence[str], start: int, branches: _Branches) -> int:
    """Begin the branch of the patterns (`a|b)`) that start here; where its words start."""
    end = _find(words, ")", start)
    if end is None or "esac" in words[start:end]:
        return start
    subject, patterns = branches.subject or "", [word for word in words[start:end] if word not in ("|", "(")]
    branches.enter(None if _is_unknown(subject) else any(fnmatchcase(subject, pattern) for pattern in patterns))
    return end + 1


def _fill(text: str, variables: Variables) -> str:
    """The text with variables put in; one that is not set is empty, as for a shell."""
    return _REFERENCE.sub("", variables.substitute(text))


def _is_unknown(text: str) -> bool:
    return "$" in text or "`" in text


def _holds(words: Sequence[str], variables: Variables) -> bool | None:
    """Whether a condition holds: tests joined by && and ||; None where the text does not tell."""
    either = [_all_hold(part, variables) for part in _cut([word for word in words if word != ";"], "||")]
    return True if True in either else None if None in either else False


def _all_hold(words: Sequence[str], variables: Variables) -> bool | None:
    found = [_test(part, variables) for part in _cut(words, "&&")]
    return False if False in found else None if None in found else True


def _cut(words: Sequence[str], at: str) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for word in words:
        if word == at:
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def _test(words: Sequence[str], variables: Variables) -> bool | None:
    """Whether one test holds: [ -z "$A" ], [[ $A == b* ]], (( A > 1 )) or [[ -v A ]], each perhaps behind a !."""
    if "!" in words[:2]:
        inner = _test([word for word in words if word != "!"], variables)
        return None if inner is None else not inner
    if words[:1] == ["(("]:
        return _compare_numbers("".join(words[1:-1]), variables)
    if not words or words[0] not in ("[", "[[", "test"):
        return None
    inside = [_fill(word, variables) for word in words[1:] if word not in ("]", "]]")]
    if any(map(_is_unknown, inside)):
        return None
    if inside[:1] == ["-v"]:
        return variables.get(words[2]) is not None
    if inside[:1] in (["-z"], ["-n"]):
        return ("".join(inside[1:]) == "") == (inside[0] == "-z")
    return _compare(*inside) if len(inside) == 3 else None


_COMPARISONS = {
    "-eq": operator.eq, "-ne": operator.ne, "-gt": operator.gt, "-ge": operator.ge, "-lt": operator.lt,
    "-le": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge, "<": operator.lt,
    "<=": operator.le,
}  # fmt: skip


def _compare(left: str, how: str, right: str) -> bool | None:
    if how in ("=", "==", "!="):
        return fnmatchcase(left, right) == (how != "!=")
    if how in _COMPARISONS and all(re.fullmatch(r"-?\d{0,12}", side) for side in (left, right)):
        return bool(_COMPARISONS[how](int(left or 0), int(right or 0)))
    return None


def _compare_numbers(expression: str, variables: Variables) -> bool | None:
    """Whether `A * 2 <= 4` holds; a number alone holds unless it is 0."""
    found = re.fullmatch(r"([^<>=!]*?)\s*(==|!=|<=|>=|<|>)\s*([^<>=!]*)", _fill(expression, variables))
    left, right = (variables.calculate(side) for side in ((found[1], found[3]) if found else (expression, "0")))
    if left is None or right is None:
        return None
    return bool(_COMPARISONS[found[2] if found else "!="](left, right))
