"""Commands of a shell script, as words: where one ends, and which of them belong to the training program."""

import re
from collections.abc import Iterator, Sequence

from ...base.errors import UserError

ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
DECLARATIONS = frozenset(["export", "declare", "local", "readonly", "typeset"])
SEPARATORS = frozenset([";", "\n", "&&", "||", "|", "|&", "&", ";;"])
KEYWORDS = frozenset(
    ["if", "then", "elif", "else", "fi", "case", "esac", "for", "while", "until", "do", "done", "{", "}", "(", ")"]
)
_CLOSED = {"[[": "]]", "((": "))"}
_TRAINING = re.compile(r"(?<![\w-])pretrain_\w+\.py\b")
_OTHER = re.compile(r"(?:.*/)?[\w-]+\.py")
_USED = re.compile(r"\$\{?(\w+)")


def bracket_pattern(start: str, end: str) -> str:
    """A pattern of brackets with up to two more levels inside."""
    other = f"[^{start}{end}]"
    inner = f"{start}(?:{other}|{start}{other}*{end})*{end}"
    return f"{start}(?:{other}|{inner})*{end}"


SEALED = {ord(letter): chr(0xE000 + ord(letter)) for letter in " \t\r\n();<>|&#\"'\\"}
_UNSEALED = {ord(sealed): chr(letter) for letter, sealed in SEALED.items()}
_COMMAND = re.compile(r"\$" + bracket_pattern(r"\(", r"\)") + r"|`[^`\n]*`")
_TOKEN = re.compile(
    r"""(?:[^\S\n]+|\#[^\n]*)|(?P<operator>\n|&&|\|\||;;|\(\(|\)\)|\(\)|[<>&|]+|[;()])"""
    r"""|(?P<word>(?:\$\{\w+:?[-=+][^{}"'\\\n]*\}|[^\s;&|()<>"'\\]|\\.|"(?:[^"\\]|\\.)*"|'[^']*')+)""",
    re.DOTALL,
)
_QUOTES = re.compile(r"""\\.|"(?:[^"\\]|\\.)*"|'[^']*'""", re.DOTALL)
_DOCUMENT = re.compile(r"(?<!<)<<(?!<)-?[ \t]*([\"']?)(\w+)\1([^\n]*\n)(.*?\n)[ \t]*\2[ \t]*(?=\n|$)", re.DOTALL)


def seal(text: str) -> str:
    """The text with each `$(command)` in characters that no reader of words splits."""
    return _COMMAND.sub(lambda found: found[0].translate(SEALED), text)


def unseal(text: str) -> str:
    """The text as it was before `seal`."""
    return text.translate(_UNSEALED)


def split_words(text: str, where: str) -> list[str]:
    """The words of a script, operators and ends of lines among them. A UserError, one line, where quotes do not end."""
    without_code = _DOCUMENT.sub(lambda found: found[0] if " --" in found[4] else found[3], text)
    uncommented = re.sub(r"(?m)^[ \t]*#.*$", "", without_code)
    joined = seal(re.sub(r"\\\r?\n", " ", uncommented))
    quoted = re.sub(r"(?<=\s)(\(\[[^\s\"']*\))(?=\s|$)", r"'\1'", joined)  # ([0]*3+[1]*58), which a shell would refuse
    words, place = [""], 0
    while found := _TOKEN.match(quoted, place):
        place = found.end()
        if found["operator"] or found["word"]:
            words.append(found["operator"] or _QUOTES.sub(_unquote, found["word"]))
    if place < len(quoted):
        ending = "no escaped character" if quoted[place] == "\\" else "no closing quotation"
        raise UserError(f"{where}: is not a shell fragment: {ending}")
    return _join_lines(words[1:])


def _unquote(found: re.Match[str]) -> str:
    """What is quoted, without its quotes and escapes."""
    text = found[0]
    if text.startswith('"'):
        return re.sub(r'\\(["\\])', r"\1", text[1:-1])
    return text[1:] if text.startswith("\\") else text[1:-1]


def _join_lines(words: Sequence[str]) -> list[str]:
    """The words without ends of lines that end no command: within an array, or behind an operator."""
    kept: list[str] = []
    in_array = False
    for word in words:
        opens = word == "(" and bool(kept) and kept[-1].endswith("=")
        in_array = (in_array or opens) and word not in (")", "))")
        if word != "\n" or not (in_array or (kept and kept[-1] in ("&&", "||", "|"))):
            kept.append(word)
    return kept


def command_end(words: Sequence[str], start: int) -> int:
    """Where the command that starts here ends: the place of a separator, or of a bracket that it did not open."""
    place = start
    while place < len(words) and words[place] not in SEPARATORS and words[place] != ")":
        place = _step_over(words, place)
    return min(place, len(words))


def _step_over(words: Sequence[str], place: int) -> int:
    """The place after this word, or after the brackets that it opens: [[ ]], (( )) or A=( )."""
    opens_array = words[place].endswith("=") and words[place + 1 : place + 2] == ["("]
    close = ")" if opens_array else _CLOSED.get(words[place])
    near = range(place + 1, len(words)) if close else ()
    return next((end + 1 for end in near if words[end] == close), place + 1)


def _commands(words: Sequence[str]) -> Iterator[slice]:
    """The commands of a script, without its keywords and separators."""
    place = 0
    while place < len(words):
        if words[place] in SEPARATORS | KEYWORDS:
            place += 1
        else:
            end = max(command_end(words, place), place + 1)
            yield slice(place, end)
            place = end


def assigned_names(command: Sequence[str]) -> list[str]:
    """Names of the variables that a command assigns, if it does nothing else."""
    first = command[1:] if command[0] in DECLARATIONS else command
    if not first or not ASSIGNMENT.fullmatch(first[0]):
        return []
    if first[0].endswith("=") and first[1:2] == ["("]:
        return [first[0].rstrip("+=")]
    names = [found[1] for word in first if (found := ASSIGNMENT.fullmatch(word))]
    return names if len(names) == len(first) else []


def keep_training(words: Sequence[str]) -> list[str]:
    """The words without commands of other Python programs, and without variables that only those use.

    All words where no command names `pretrain_*.py`.
    """
    commands = list(_commands(words))
    texts = [" ".join(words[command]) for command in commands]
    if not any(map(_TRAINING.search, texts)):
        return list(words)
    assigned = [assigned_names(words[command]) for command in commands]
    others = [
        not names and not _TRAINING.search(text) and any(map(_OTHER.fullmatch, words[command]))
        for command, text, names in zip(commands, texts, assigned, strict=True)
    ]
    values: dict[str, str] = {}
    for names, text in zip(assigned, texts, strict=True):
        values |= {name: f"{values.get(name, '')} {text}" for name in names}
    runs = [(text, other) for text, other, names in zip(texts, others, assigned, strict=True) if not names]
    only_theirs = _used([text for text, other in runs if other], values)
    only_theirs -= _used([text for text, other in runs if not other], values)
    dropped = {
        place
        for command, other, names in zip(commands, others, assigned, strict=True)
        if other or (names and only_theirs.issuperset(names))
        for place in range(command.start, command.stop)
    }
    return [word for place, word in enumerate(words) if place not in dropped]


def _used(texts: Sequence[str], values: dict[str, str]) -> set[str]:
    """Names of the variables in these texts, in their values, and so on."""
    used: set[str] = set()
    waiting = [name for text in texts for name in _USED.findall(text)]
    while waiting:
        name = waiting.pop()
        if name not in used:
            used.add(name)
            waiting += _USED.findall(values.get(name, ""))
    return used


def drop_uncalled(words: Sequence[str]) -> list[str]:
    """The words without functions whose name comes nowhere else."""
    kept = list(words)
    for place in range(len(kept) - 1, -1, -1):
        if (body := _body(kept, place)) and not _is_called(kept[place], [*kept[:place], *kept[body.stop :]]):
            start = place - 1 if place and kept[place - 1] == "function" else place
            kept[start : body.stop] = []
    return kept


def _body(words: Sequence[str], place: int) -> slice | None:
    """The body, in its braces, of the function whose name stands here; None where none does."""
    named = place > 0 and words[place - 1] == "function"
    start = place + 1
    if words[start : start + 1] == ["()"]:
        named, start = True, start + 1
    while words[start : start + 1] == ["\n"]:
        start += 1
    if not named or words[start : start + 1] != ["{"]:
        return None
    depth = 0
    for end in range(start, len(words)):
        depth += (words[end] == "{") - (words[end] == "}")
        if depth == 0:
            return slice(start, end + 1)
    return None


def _is_called(name: str, words: Sequence[str]) -> bool:
    """Whether the name is a word of its own, or in a word of several (`bash -c "run 1"`)."""
    within = re.compile(rf"(?<![\w./-]){re.escape(name)}(?![\w./=-])")
    return any(word == name or (name in word and within.search(word)) for word in words)
