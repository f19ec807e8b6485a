"""What was made last and may be asked for again: few things, and small ones in all."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

_Thing = TypeVar("_Thing")


class Kept(Generic[_Thing]):
    """The last `most` things by key, with at most `most_ops` ops in all, and the newest in any case.

    `ops_of` says how many a thing has. Whoever shares one among threads holds a lock around it.
    """

    def __init__(self, most: int, most_ops: int, ops_of: Callable[[_Thing], int]):
        self._most, self._most_ops, self._ops_of = most, most_ops, ops_of
        self._things: OrderedDict[Hashable, _Thing] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], _Thing]) -> _Thing:
        """The thing of this key, made now if it is not there; what raises is not kept."""
        if key not in self._things:
            self._things[key] = make()
            self._drop_oldest()
        self._things.move_to_end(key)
        return self._things[key]

    def _drop_oldest(self) -> None:
        ops = [self._ops_of(one) for one in self._things.values()]
        while len(ops) > 1 and (len(ops) > self._most or sum(ops) > self._most_ops):
            self._things.popitem(last=False)
            ops.pop(0)
