"""What the predictions of one sweep share: values that are slow to make and depend on little, by what they depend on.

State lives in a Memo that is passed from one prediction to the next, never in a module; a prediction that is given none
starts afresh. Results do not depend on it, as long as files stay as they are: keys hold names of files, not what is in
them, so a Memo must not outlive the sweep, search or comparison that it is made for.
"""

import atexit
import gc
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, Generic, TypeVar

from cachetools import LRUCache

_Value = TypeVar("_Value")
_MOST = 256  # values of each kind
_MOST_OPS = 500_000  # of each kind, and the newest in any case: a coarse step of a million with its costs is 270 MB


class Kept(Generic[_Value]):
    """The values that were used last: at most `most`, with at most `most_ops` ops in all (those of what their keys hold
    among them), and the newest in any case.

    Threads may share one: at worst they make a value twice.
    """

    def __init__(self, most: int, most_ops: int):
        self._most, self._most_ops = most, most_ops
        self._cache: LRUCache[Hashable, tuple[_Value, int]] = LRUCache(most * most_ops, lambda entry: entry[1])
        self._lock = Lock()

    def get(
        self, key: Hashable, make: Callable[[], _Value], ops_of: Callable[[_Value], int] = lambda value: 0
    ) -> _Value:
        """The value that was made for this key, or one that is made now; what raises is not kept."""
        with self._lock:
            entry = self._cache.get(key)
        if entry is None:
            value = make()
            size = max(self._most_ops, ops_of(value) * self._most)  # each limit alone fills the cache
            entry = value, min(size, int(self._cache.maxsize))
            with self._lock:
                self._cache[key] = entry
        return entry[0]


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

    def share(self, *kinds: str) -> "Memo":
        """A Memo that shares values of these kinds with this one, and no others."""
        other = Memo(*self._limits)
        other._kinds = {kind: self._kinds.setdefault(kind, Kept(*self._limits)) for kind in kinds}
        return other


def collect_seldom() -> None:
    """Look for garbage in cycles once in 100,000 objects, not 700: of many objects that we make, hardly any is that.

    When the process ends it is not looked for either, which takes 0.2 s of a `runcast simulate`.
    """
    gc.set_threshold(100_000, 20, 100)
    atexit.register(gc.freeze)
