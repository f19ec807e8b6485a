"""What the predictions of one sweep share: values that are slow to make and depend on little, by what they depend on.

State lives in a Memo that is passed from one prediction to the next, never in a module; a prediction that is given none
starts afresh. Results do not depend on it, as long as files stay as they are: keys hold names of files, not what is in
them, so a Memo must not outlive the sweep, search or comparison that it is made for.
"""

import gc
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

_Value = TypeVar("_Value")
_MOST = 64  # values of each kind
_MOST_OPS = 500_000  # of each kind, and the newest in any case: a coarse step of a million with its costs is 270 MB


class Kept(Generic[_Value]):
    """The last `most` values that were asked for, with at most `most_ops` ops in all (those of what their keys hold
    among them), and the newest in any case.

    Threads may share one: at worst they make a value twice.
    """

    def __init__(self, most: int, most_ops: int):
        self._most, self._most_ops = most, most_ops
        self._held: dict[Hashable, tuple[_Value, int]] = {}

    def get(
        self, key: Hashable, make: Callable[[], _Value], ops_of: Callable[[_Value], int] = lambda value: 0
    ) -> _Value:
        """The value that was made for this key, or one that is made now; what raises is not kept."""
        if (held := self._held.pop(key, None)) is not None:
            self._held[key] = held  # the newest now
            return held[0]
        value = make()
        self._held[key] = value, ops_of(value)
        self._drop_oldest()
        return value

    def _drop_oldest(self) -> None:
        held = list(self._held.items())
        left, ops = len(held), sum(size for _, (_, size) in held)
        for key, (_, size) in held[:-1]:
            if left <= self._most and ops <= self._most_ops:
                return
            self._held.pop(key, None)
            left, ops = left - 1, ops - size


class Memo:
    """Values by kind and key; of each kind those that were asked for last, as `Kept`."""

    def __init__(self, most: int = _MOST, most_ops: int = _MOST_OPS):
        self._limits = most, most_ops
        self._kinds: dict[str, Kept[Any]] = {}

    def get(
        self,
        kind: str,
        key: Hashable,
        make: Callable[[], _Value],
        ops_of: Callable[[_Value], int] = lambda value: 0,
    ) -> _Value:
        """The value of this kind that was made for this key, or one that is made now; what raises is not kept."""
        if kind not in self._kinds:
            self._kinds[kind] = Kept(*self._limits)
        value: _Value = self._kinds[kind].get(key, make, ops_of)
        return value


def collect_seldom() -> None:
    """Look for garbage in cycles once in 100,000 objects, not 700: of many objects that we make, hardly any is that."""
    gc.set_threshold(100_000, 20, 100)
