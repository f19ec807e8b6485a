"""What the predictions of one sweep share: values that are slow to make and depend on little, by what they depend on.

State lives in a Memo that is passed from one prediction to the next, never in a module; a prediction that is given none
starts afresh. Results do not depend on it, as long as files stay as they are: keys hold names of files, not what is in
them, so a Memo must not outlive the sweep, search or comparison that it is made for.
"""

from collections.abc import Callable, Hashable
from typing import TypeVar, cast

_Value = TypeVar("_Value")
_MOST = 64  # values of each kind
_ABSENT = object()


class Memo:
    """Values by kind and key; of each kind the oldest go first.

    Threads may share one: at worst they make a value twice.
    """

    def __init__(self, most: int = _MOST):
        self._most = most
        self._values: dict[str, dict[Hashable, object]] = {}

    def get(self, kind: str, key: Hashable, make: Callable[[], _Value]) -> _Value:
        """The value that was made for this key, or one that is made now; what raises is not kept."""
        values = self._values.setdefault(kind, {})
        if (found := values.get(key, _ABSENT)) is _ABSENT:
            found = make()
            for oldest in list(values)[: len(values) + 1 - self._most]:
                values.pop(oldest, None)
            values[key] = found
        return cast(_Value, found)
