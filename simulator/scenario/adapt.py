"""What a change leaves of a scenario: keys that it makes meaningless are left out, and `notes` say which and why.

A key that the change itself sets stays, and is refused where it does not fit: the user has said it. So does a key that
had no meaning before: a file that contradicts itself is not mended.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..base.errors import UserError, fault
from ..base.memo import Memo
from ..systems.keys import Change, Values, is_said, value_at
from ..systems.registry import resolve, system_of
from ..systems.system import System
from .check import check_question


def adapt(before: Mapping[str, Any], after: dict[str, Any], keys: Collection[str], where: str) -> dict[str, Any]:
    """The table `after`, which changes of `keys` made of `before`, less what lost its meaning by them."""
    if not keys or before.get("kind") != after.get("kind"):
        return after
    system = system_of(before)
    kept = {key for key in Values(before, system.schema).given if key in system.dependent and not _sets(keys, key)}
    compared = _Comparison(system, before, after, kept, where)
    while (lost := next(compared.find_lost(), None)) is not None:
        kept.remove(lost.key)
        _leave_out(after, lost)
    return after


def _sets(keys: Collection[str], key: str) -> bool:
    """Whether changes of these keys set this one, something in it, or the table around it."""
    return any(f"{one}.".startswith(f"{key}.") or f"{key}.".startswith(f"{one}.") for one in keys)


@dataclass(frozen=True)
class _Lost:
    """A key that lost its meaning, why, and what of its value has one."""

    key: str
    why: str
    rest: Any = None


@dataclass(frozen=True)
class _Comparison:
    """A table before and after changes, and the keys that may be left out."""

    system: System
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    kept: Collection[str]
    where: str
    memo: Memo = field(default_factory=Memo)

    def find_lost(self) -> Iterator[_Lost]:
        """The keys that lost their meaning. Lazy: values that do not fit are checked only after all others."""
        if self.kept:
            yield from self._unmet()
            yield from self._displaced()
            yield from self._unfit()

    def _unmet(self) -> Iterator[_Lost]:
        """Keys that no longer have what they go with."""
        now = self._values(self.after)
        if unmet := [need for need in self.system.needs if need.key in self.kept and need.fails(now)]:
            was = self._values(self.before)
            yield from (_Lost(need.key, need.words(now)) for need in unmet if not need.fails(was))

    def _displaced(self) -> Iterator[_Lost]:
        """Keys whose place others take."""
        for rivals in self.system.rivals:
            given = [key for key in rivals if is_said(value_at(self.after, key))]
            new = [key for key in given if key not in self.kept]
            yield from (_Lost(key, f"{new[0]} is given") for key in given if new and key in self.kept)

    def _unfit(self) -> Iterator[_Lost]:
        """Keys whose values do not fit what they were chosen for."""
        pins = [pin for pin in self.system.pins if pin.key in self.kept and value_at(self.after, pin.key) is not None]
        before, after = _with_tables(self.before), _with_tables(self.after)
        pins = [pin for pin in pins if any(value_at(before, key) != value_at(after, key) for key in pin.of)]
        if not pins:
            return
        try:
            now = resolve(check_question(self.after, self.where), self.where, self.memo)
        except UserError:
            return  # told when the scenario is asked for
        change = Change(self.before, self.after, now)
        for pin in pins:
            if faults := pin.faults(change):
                value = value_at(self.after, pin.key)
                yield _Lost(pin.key, faults[0].allowed, _rest(value, [one.value for one in faults]))

    def _values(self, table: Mapping[str, Any]) -> Values:
        """The values of a table with its stack's defaults, if there is such a stack."""
        try:
            return Values(self.system.fill(table, self.where), self.system.schema)
        except UserError:
            return Values(table, self.system.schema)


def _with_tables(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """The table with its cluster, and the cluster's device, written as tables of changes."""
    named = table.get("cluster")
    cluster = dict(named) if isinstance(named, Mapping) else {"base": named}
    if isinstance(cluster.get("device"), str):
        cluster["device"] = {"base": cluster["device"]}
    return {**table, "cluster": cluster}


def _rest(value: Any, refused: Collection[Any]) -> Any:
    """The values of a list that are not refused; None if none is left."""
    if not isinstance(value, list) or not all(one in value for one in refused):
        return None
    return [one for one in value if one not in refused] or None


def _leave_out(table: dict[str, Any], lost: _Lost) -> None:
    """Take the key out, or leave what has a meaning of its value, and note it."""
    *path, last = lost.key.split(".")
    inner = table
    for part in path:
        inner = inner[part]
    note = str(fault("left out", lost.key, inner.pop(last), lost.why))
    if lost.rest is not None:
        inner[last] = lost.rest
        note += f"; {lost.rest} stays"
    notes = table.get("notes", [])
    if isinstance(notes, list) and note not in notes:
        table["notes"] = [*notes, note]
