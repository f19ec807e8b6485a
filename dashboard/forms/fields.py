"""Inputs of a page that each stand for one key of a scenario: labelled, with their fault beside them.

A form is a list of Fields. Its inputs have ids {"form": form, "key": key}, so that one callback reads all of them and
another tells each what is wrong with it.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import ceil, floor, isfinite, log2
from typing import TYPE_CHECKING, Any, NoReturn

import dash_mantine_components as dmc
from dash import ALL, MATCH, ClientsideFunction, Dash, Input, Output, html

from ...simulator.base.errors import UserError, fault
from ...simulator.base.files import check_levels
from ...simulator.base.units import Dimension, format_bytes, parse
from ...simulator.models import read_keys
from ...simulator.scenario import value_at
from .. import parts

if TYPE_CHECKING:
    from dash.development.base_component import Component


@dataclass(frozen=True)
class Field:
    """An input for a key. It is a text unless it says otherwise.

    With `options` it is a choice (which may be none where it is `optional`; `words` say what some are called), with
    `whole` a number of at least `least`, with `share` one from 0 to 1, with `switch` on or off, with `size` bytes with
    their unit and a slider beside them, with `pasted` a JSON object. `text` writes a number, or a list, as text that
    reads back. `help` says what the key means, as the reference of scenarios does; `applies` whether the field is shown
    beside what the others say (default: always), and `of` is a key without which it is not drawn.
    """

    key: str
    label: str
    help: str = ""
    options: Sequence[str] = ()
    words: Mapping[str, str] = field(default_factory=dict)
    optional: bool = False
    whole: bool = False
    switch: bool = False
    least: int = 1
    size: bool = False
    pasted: bool = False
    share: bool = False
    applies: Callable[[Mapping[str, Any]], bool] | None = None
    text: Callable[[Any], str] | None = None
    of: str | None = None

    @property
    def is_number(self) -> bool:
        """Whether its text is read as a number."""
        return self.whole or self.share

    def show(self, value: Any) -> Any:
        """A value of a scenario as the input shows it: sizes with a unit, a changed machine by its base."""
        if self.pasted:  # what is no table, such as the name of a file, is not shown
            return json.dumps(value, indent=1, ensure_ascii=False) if isinstance(value, Mapping) else ""
        if isinstance(value, Mapping):
            return value.get("base")
        write: Callable[[Any], str] | None = size_text if self.size else number_text if self.is_number else self.text
        return write(value) if write is not None and isinstance(value, int | float | list) else value

    def draw(self, form: str, value: Any, hidden: bool) -> "Component":
        """The input with a value as it is shown, and what else belongs to it."""
        one = self._input(form, value)
        if self.size:
            one = html.Div([one, _slider(form, self, value)], className="across")
        if self.applies is None:
            return one
        return html.Div(one, id={"form": form, "key": self.key, "part": "around"}, hidden=hidden)

    def _input(self, form: str, value: Any) -> "Component":
        common: dict[str, Any] = {
            "id": {"form": form, "key": self.key},
            "label": self.label,
            "description": self.help or None,
            "inputWrapperOrder": _ORDER,
        }
        if self.switch:
            del common["inputWrapperOrder"]
            return dmc.Switch(checked=bool(value), **common)
        if self.options:
            choices = list(dict.fromkeys([*self.options, *([value] if value else [])]))
            free: dict[str, Any] = {"clearable": True, "allowDeselect": True} if self.optional else {}
            whole = {"className": "whole"} if max(map(len, choices)) > _HALF_LETTERS else {}
            shown = parts.options({choice: self.words.get(choice, choice) for choice in choices})
            return parts.choice(data=shown, value=value, searchable=len(choices) > 8, **free, **whole, **common)
        if self.is_number:  # no NumberInput: it drops letters, and makes 112 of 1e12
            common["inputProps"] = {"inputMode": "decimal"}
        if self.pasted:
            size = {"autosize": True, "maxRows": 12, "className": "whole"}
            return dmc.Textarea(value=value, debounce=400, spellCheck=False, **size, **common)
        return dmc.TextInput(value="" if value is None else str(value), debounce=400, **common)


_ORDER = ["label", "input", "description", "error"]
"""Inputs beside each other stand in line, whether they have a description or not."""
_MOST_WHOLE = 1e15
"""Numbers below it are written with all their digits."""
_SHOWN_DIGITS = 9
"""Of a number for which half of a form's width has room."""
_HALF_LETTERS = 11
"""Of a name for which half of a form's width has room."""


def inputs(form: str) -> list[Input]:
    """What a callback listens to: values and marks of all fields of a form, with their ids."""
    return [Input({"form": form, "key": ALL}, "value"), Input({"form": form, "key": ALL}, "checked")]


def faults_of(form: str) -> Output:
    """The output in which a callback reports errors of each field of a form."""
    return Output({"form": form, "key": ALL}, "error")


def read(fields: Mapping[str, Field], given: Mapping[str, Any]) -> dict[str, Any]:
    """The values of fields; pasted texts become tables, and texts of numbers become these.

    Raises:
        UserError: a pasted text is no JSON object, or too long; a line per fault.
    """
    return {key: _read(fields[key], value) if value else value for key, value in given.items()}


def _read(field: Field, value: Any) -> Any:
    if field.pasted:
        return read_pasted(value, field.key)
    return read_number(value) if field.is_number else value


def read_number(text: Any) -> Any:
    """The number that a text is, such as `16384` or `1e12`; another text as it is: it is refused beside its field."""
    if not isinstance(text, str):
        return text
    for number in (int, float):
        with suppress(ValueError, OverflowError):
            if isfinite(found := number(text)):
                return int(found) if _is_whole(found) else found
    return text


def _is_whole(number: float) -> bool:
    return abs(number) < _MOST_WHOLE and number == int(number)


def number_text(value: float | list[Any]) -> str:
    """A number as text that reads back as the same, `2e12` where all digits are more than a field shows."""
    if not isinstance(value, int | float) or not _is_whole(value):
        return str(value)
    short, plain = f"{value:g}".replace("e+", "e"), f"{value:.0f}"
    return short if len(plain) > _SHOWN_DIGITS and float(short) == value else plain


def changes(fields: Mapping[str, Field], table: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that say something else than the values of the scenario do; empty ones say nothing."""
    said = {key: value_at(table, key) for key in given}
    as_said = {key for key in given if fields[key].pasted or fields[key].is_number}
    shown = {key: value if key in as_said else fields[key].show(value) for key, value in said.items()}
    return {key: value for key, value in given.items() if value not in (None, "") and value != shown[key]}


def size_text(size_bytes: float) -> str:
    """Whole bytes as text that reads back as the same number: `8 GiB`, `1.5 GiB`, `1000 B`."""
    for unit, scale in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        text = f"{size_bytes / scale:.6g} {unit}"
        if size_bytes >= scale and round(parse(text, "bytes")) == size_bytes:
            return text
    return f"{size_bytes:.0f} B"


def time_text(seconds: float) -> str:
    """A duration as text that reads back as the same number: `54 d`, `90 min`, `30 ms`."""
    return _exact(seconds, "seconds", ("d", "h", "min", "s", "ms", "us"))


def rate_text(bytes_per_s: float) -> str:
    """A rate likewise, of a store: `2 TB/s`."""
    return _exact(bytes_per_s, "bytes_per_s", ("TB/s", "GB/s", "MB/s", "kB/s"))


def link_text(bytes_per_s: float) -> str:
    """A rate likewise, of a link: `1 Gb/s`."""
    return _exact(bytes_per_s, "bytes_per_s", ("Gb/s", "Mb/s", "kb/s"))


def _exact(value: float, dimension: Dimension, units: Iterable[str]) -> str:
    """The number in the first unit in which it is no less than one, and short."""
    for unit in units:
        text = f"{value / parse(f'1 {unit}', dimension):.6g} {unit}"
        if value >= parse(f"1 {unit}", dimension) and "e" not in text and parse(text, dimension) == value:
            return text
    return f"{value:g}" if float(f"{value:g}") == value else repr(value)


def _slider(form: str, field: Field, text: str | None) -> "Component":
    """A slider for a size on a scale of powers of two; `connect_sizes` keeps it equal to the text."""
    try:
        value = round(4 * log2(parse(text or "1 GiB", "bytes") / 2**30)) / 4
    except ValueError:
        value = 0.0
    return dmc.Slider(
        id={"form": form, "key": field.key, "part": "slider"}, value=value, min=-10, max=5, step=0.25, mb="lg",
        marks=[{"value": at, "label": label} for at, label in _MARKS], label={"function": "sizeOfSlider"},
        thumbLabel=f"{field.label}, on a logarithmic scale", size="sm",
    )  # fmt: skip


_MARKS = ((-10, "1 MiB"), (-5, "32 MiB"), (0, "1 GiB"), (5, "32 GiB"))
"""Powers of two of GiB."""


def slider_ends(form: str, key: str, least_bytes: float | None, most_bytes: float | None) -> list[Any]:
    """What is to be written (assets/writes.js) so that a size's slider has allowed sizes alone; None: nothing limits.

    The slider is no output of a callback: Dash cannot read ids of its own that hold a dot.
    """
    low, high = float(_MARKS[0][0]), float(_MARKS[-1][0])
    low = low if least_bytes is None else max(low, ceil(4 * log2(least_bytes / 2**30)) / 4)
    high = high if most_bytes is None else min(high, floor(4 * log2(most_bytes / 2**30)) / 4)
    high = max(low + 0.25, high)
    marks = [(low, ""), *((at, label) for at, label in _MARKS if low + 1 < at < high - 1), (high, "")]
    named = [{"value": at, "label": label or format_bytes(2**at * 2**30)} for at, label in marks]
    return [({"form": form, "key": key, "part": "slider"}, {"min": low, "max": high, "marks": named})]


def write_ends(app: Dash, store: str) -> None:
    """What `slider_ends` says in a Store is written."""
    app.clientside_callback(ClientsideFunction("writes", "write"), Output(store, "id"), Input(store, "data"))


def connect_sizes(app: Dash, form: str) -> None:
    """Slider and text of each size say the same."""
    slider, text = {"form": form, "key": MATCH, "part": "slider"}, {"form": form, "key": MATCH}
    app.clientside_callback(
        ClientsideFunction("sizes", "same"),
        Output(slider, "value"),
        Output(text, "value"),
        Input(slider, "value"),
        Input(text, "value"),
        prevent_initial_call=True,
    )


def faults_by_key(error: UserError, keys: Iterable[str]) -> Iterator[tuple[str | None, str]]:
    """Each fault without its file: the key of a field with what follows it, or all of what is about none."""
    for line in error.faults:
        rest = line.partition(": ")[2] or line
        key = next((key for key in keys if rest.startswith((f"{key} =", f"{key}:"))), None)
        yield key, rest if key is None else rest.removeprefix(key)


# The config.json of a model that a user pastes: a table of plain values, limited in size, never a path.

MOST_PASTED = 16_000
"""Characters of one text: configs have some 2,000, and an address must hold it."""


def read_pasted(text: str, key: str) -> dict[str, Any]:
    """The config that a text is, without keys that say nothing of the model's size, so that an address can hold it.

    Raises:
        UserError: it is none, or it is too long; lines that name the key.
    """
    if len(text) > MOST_PASTED:
        raise UserError(f"form: {key}: {len(text):,} characters; at most {MOST_PASTED:,}")
    try:
        check_levels(table := json.loads(text, parse_constant=_no_number))
        json.dumps(table, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except (ValueError, RecursionError) as error:
        raise UserError(f"form: {key}: is not JSON: {str(error)[:100]}") from None
    if not isinstance(table, dict):
        raise UserError(fault("form", key, table, "expected a JSON object: {...}"))
    return read_keys(_without_none(table), f"form: {key}")


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return [_without_none(item) for item in value if item is not None] if isinstance(value, list) else value


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON's")
