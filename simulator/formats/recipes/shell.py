"""The words of a shell script as a shell would see them, as far as the text alone says. Nothing is run.

Assignments are followed, defaults (`${TP:-8}`) and integer arithmetic (`$((TP * 2))`) are worked out, and of `if` and
`case`, lists of `&&` and `||` and loops that only assign what a shell would run is read; other loops are read once. A
variable that is not assigned counts as not set: `$TP` stays as it is written. So does `$(command)`; where a condition
hangs on one, all branches are read.
"""

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from ...base.errors import shorten
from .commands import (
    ASSIGNMENT,
    SEALED,
    SEPARATORS,
    assigned_names,
    bracket_pattern,
    command_end,
    drop_uncalled,
    keep_training,
    split_words,
    unseal,
)
from .loops import unroll

_LONGEST = 10_000  # characters of a value; a script that doubles a variable again and again stops there
_HEADS = {"if": "then", "elif": "then", "case": "in", "while": "do", "until": "do", "for": "do"}
_STARTS = SEPARATORS | {"then", "else", "do", "{", "(", ")", "()"}
_PRINTS = ("echo", "printf")
_LOOPS = ("for", "while", "until")
_LONGEST_HEAD = 60  # words of a condition


_ARITHMETIC = re.compile(r"\$" + bracket_pattern(SEALED[ord("(")], SEALED[ord(")")]))
_REFERENCE = re.compile(
    r"\$(?:(?P<bare>\d|[A-Za-z_]\w*)"
    r"|\{(?P<name>\w+)(?:(?P<how>:?[-=?+])(?P<other>[^{}]*(?:\{[^{}]*\}[^{}]*)*))?\})"
)

_BROUGHT = re.compile(r"\$\{\w+:?[-=+]--[A-Za-z][^{}]*\}")


class Variables:
    """Variables of a script by name: those that are `fixed` from outside, and those that it assigns.

    `mentioned` holds every name that was assigned or asked for, `undecided` the conditions that the text does not tell,
    and `grown` the loops that add to a variable in each turn, by its name.
    """

    def __init__(self, fixed: Mapping[str, str] | None = None):
        self._fixed = dict(fixed or {})
        self._values = dict(self._fixed)
        self.mentioned: set[str] = set()
        self.undecided: dict[str, None] = {}
        self.grown: dict[str, str] = {}

    def assign(self, name: str, value: str, more: bool = False) -> None:
        """Give a variable its value, or `more` text at its end; what is fixed stays."""
        self.mentioned.add(name)
        if name not in self._fixed:
            self._values[name] = (self._values.get(name, "") + value if more else value)[:_LONGEST]

    def grow(self, name: str, loop: str) -> None:
        """Note that this loop adds to a variable in each turn; what is fixed stays."""
        if name not in self._fixed:
            self.grown[name] = loop

    def get(self, name: str) -> str | None:
        """The value of a variable; None where it is not set."""
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
    words = keep_training(drop_uncalled(split_words(text, where)))
    return (part for word in _follow_branches(words, variables) for part in _arguments(word, variables))


def _arguments(word: str, variables: Variables) -> list[str]:
    """The words of a word: of several arguments that are quoted, or that a variable brings (`${FP8:+--fp8 hybrid}`)."""
    if _BROUGHT.fullmatch(word):
        return variables.substitute(word).split()
    several = re.match(r"--[A-Za-z][\w.-]*\s", word)
    return [part.strip("\"'") for part in word.split()] if several else [word]


class _Branches:
    """An `if`, a `case`, a loop or a group: whether its present branch is read, and whether one was surely taken.

    `holds` is None in a branch of which the text does not tell whether a shell takes it.
    """

    def __init__(self, head: str, subject: str | None = None):
        self.head = head
        self.subject = subject
        self.read = False
        self.holds: bool | None = True
        self._done: bool | None = False

    def enter(self, holds: bool | None) -> None:
        """Begin the next branch; `holds` says whether its condition does, None where the text does not tell."""
        self.read = self._done is not True and holds is not False
        self.holds = None if holds and self._done is None else holds
        self._done = True if holds or self._done else None if holds is None else self._done


class _Sequence:
    """Commands joined by && and ||: whether a shell runs the next one, None where the text does not tell."""

    def __init__(self) -> None:
        self.runs: bool | None = True
        self.head = ""
        self._result: bool | None = True
        self._operator = ""

    def end(self, command: Sequence[str], result: bool | None) -> None:
        """Take the result of a command; one that is not run has none."""
        if self.runs is not False:
            self._result = result if self.runs or result is (self._operator == "||") else None
            self.head = " ".join(command)

    def join(self, operator: str) -> None:
        """Go on to the next command behind this operator."""
        if operator in ("&&", "||"):
            self._operator, self.head = operator, f"{self.head} {operator}"
            self.runs = None if self._result is None else self._result == (operator == "&&")
        elif operator not in ("|", "|&"):
            self.runs, self._result, self._operator = True, True, ""

    @property
    def result(self) -> bool | None:
        """Whether the commands so far succeed."""
        return self._result


def _follow_branches(words: Sequence[str], variables: Variables) -> Iterator[str]:
    """The words that a shell would read, without those that are only printed."""
    open_branches: list[_Branches] = []
    sequence, place, words = _Sequence(), 0, list(words)
    while place < len(words):
        word, first = words[place], place == 0 or words[place - 1] in _STARTS
        if first and word == "for" and (turns := unroll(words, place, variables.calculate)):
            words[place : turns[1]] = turns[0]
            continue
        end = _find(words, _HEADS[word], place + 1) if first and word in _HEADS else None
        if end is not None and (word != "elif" or open_branches):
            head, place = words[place + 1 : end], end + 1
            if word != "elif":
                subject = _fill(" ".join(head), variables) if word == "case" else None
                open_branches.append(_Branches(" ".join([word, *head]).rstrip("; \n"), subject))
            if word == "case":
                place = _enter_pattern(words, place, open_branches[-1])
            else:
                holds = True if word == "for" else _holds(head, variables)
                open_branches[-1].enter(holds if word != "until" or holds is None else not holds)
            sequence = _Sequence()
        elif word in SEPARATORS or not first or word in ("then", "do", "()", ")"):
            if word == ";;" and open_branches and open_branches[-1].subject is not None:
                place = _enter_pattern(words, place + 1, open_branches[-1])
            else:
                place += 1
                if word == ")" and open_branches and open_branches[-1].head.endswith("("):
                    open_branches.pop()
            sequence.join(word)
            if all(branches.read for branches in open_branches):
                yield ";"
        elif word in ("{", "("):
            open_branches.append(_Branches(f"{sequence.head} {word}".strip()))
            open_branches[-1].enter(sequence.runs)
            place += 1
        elif word in ("else", "fi", "esac", "done", "}"):
            if open_branches and word == "else":
                open_branches[-1].enter(True)
            elif open_branches:
                open_branches.pop()
            place += 1
        else:
            end = max(command_end(words, place), place + 1)
            command, place = words[place:end], end
            if all(branches.read for branches in open_branches) and sequence.runs is not False:
                _note(command, open_branches, sequence, variables)
                if command[0] not in _PRINTS:
                    yield from command
            sequence.end(command, _result(command, variables))


def _note(
    command: Sequence[str], open_branches: Sequence[_Branches], sequence: _Sequence, variables: Variables
) -> None:
    """Note the conditions that decide about this command and that the text does not tell, if arguments hang on it."""
    sets = any(map(ASSIGNMENT.fullmatch, command))
    if sets or any(word.startswith("--") for word in command):
        unsure = [branches.head for branches in open_branches if branches.holds is None]
        unsure += [sequence.head] if sets and sequence.runs is None else []
        variables.undecided |= dict.fromkeys(map(_head_text, unsure))
    for loop in [branches.head for branches in open_branches if branches.head.split()[0] in _LOOPS][-1:]:
        for name in filter(None, map(_grown_name, command)):
            variables.grow(name, _head_text(loop))


def _head_text(head: str) -> str:
    return shorten(" ".join(unseal(head).split()), 60)


def _grown_name(word: str) -> str:
    """The name of a variable to which an assignment adds, else nothing."""
    if not (found := ASSIGNMENT.fullmatch(word)):
        return ""
    name, more, value = found.groups()
    own = any(name in (of.group("bare"), of.group("name")) for of in _REFERENCE.finditer(value))
    counted = any(name in re.findall(r"\w+", of.group()) for of in _ARITHMETIC.finditer(value))
    return name if more or own or counted else ""


def _result(command: Sequence[str], variables: Variables) -> bool | None:
    """Whether a command succeeds: assignments, what is printed, tests; None where the text does not tell."""
    return True if assigned_names(command) or command[0] in _PRINTS else _test(command, variables)


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
    """Whether it has a part that only a shell knows; a $ at the end of a pattern is none."""
    return re.search(r"[$](?![)|\s]|$)|`", text) is not None


def _holds(words: Sequence[str], variables: Variables) -> bool | None:
    """Whether a condition holds: commands joined by && and ||; None where the text does not tell."""
    sequence, place = _Sequence(), 0
    while place < len(words):
        if words[place] in SEPARATORS:
            if any(word not in SEPARATORS for word in words[place:]):
                sequence.join(words[place])
            place += 1
        else:
            end = max(command_end(words, place), place + 1)
            sequence.end(words[place:end], _result(words[place:end], variables))
            place = end
    return sequence.result


def _any_holds(parts: Sequence[bool | None]) -> bool | None:
    return True if True in parts else None if None in parts else False


def _all_hold(parts: Sequence[bool | None]) -> bool | None:
    return False if False in parts else None if None in parts else True


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
    bracket, last = list(words[:1]), list(words[-1:])
    for operators, combine in ((("||", "-o"), _any_holds), (("&&", "-a"), _all_hold)):
        if at := next((word for word in words if word in operators), None):
            parts = _cut(words[1:-1], at)
            return combine([_test([*bracket, *part, *last], variables) for part in parts])
    if bracket == ["(("]:
        return _compare_numbers("".join(words[1:-1]), variables)
    if bracket and bracket[0] in ("[", "[[", "test"):
        return _test_words([word for word in words[1:] if word not in ("]", "]]")], variables)
    known = {"true": True, ":": True, "": True, "false": False}
    return known.get(_fill(words[0], variables)) if len(words) == 1 else None


def _test_words(words: Sequence[str], variables: Variables) -> bool | None:
    """Whether the test between the brackets holds."""
    inside = [_fill(word, variables) for word in words]
    if any(map(_is_unknown, inside)):
        return None
    if inside[:1] == ["-v"]:
        return variables.get(words[1]) is not None if len(words) == 2 else None
    if inside[:1] in (["-z"], ["-n"]):
        return ("".join(inside[1:]) == "") == (inside[0] == "-z")
    if len(inside) == 1:
        return inside[0] != ""
    if inside[1] == "=~" if len(inside) > 2 else False:
        return _matches(inside[0], "".join(inside[2:]))
    return _compare(*inside) if len(inside) == 3 else None


def _matches(text: str, pattern: str) -> bool | None:
    """Whether the text has a part like the pattern; None where that may take long, or where it is no pattern."""
    repeats = len(re.findall(r"[*+?{]", pattern))
    if len(text) > 200 or repeats > (0 if "(" in pattern else 2):
        return None
    try:
        return re.search(pattern, text) is not None
    except re.error:
        return None


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
