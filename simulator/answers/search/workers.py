"""The same function over many plans, here or in processes of our own, in one order whatever ends first."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from ...base.errors import UserError
from ...base.memo import Memo
from ...base.processes import Processes
from .subject import Asked

_One = TypeVar("_One")
_Other = TypeVar("_Other")
Ask = Callable[[Asked, Sequence[_One], Memo | None], list[_Other]]
_CHUNK = 64  # plans that a process is given at once, at most: neighbours in the space have most in common
_PART = 16  # plans between two looks at progress, without processes
_BATCH = 16


@dataclass(frozen=True)
class Workers:
    """Who works: `pool` is None where this process does."""

    asked: Asked
    memo: Memo
    pool: Processes | None = None
    count: int = 1

    @property
    def batch(self) -> int:
        """Plans that are simulated before bounds are looked at again: the same for up to eight workers, so that equal
        questions have equal answers, and two for each of more.
        """
        return max(_BATCH, 2 * self.count)

    def over(self, ask: Ask[_One, _Other], many: Sequence[_One]) -> list[_Other]:
        """`ask` of many, in their order.

        Raises:
            UserError: a process died.
        """
        return [one for part in self.parts(ask, many) for one in part]

    def parts(self, ask: Ask[_One, _Other], many: Sequence[_One]) -> Iterator[list[_Other]]:
        """The same, as parts are ready."""
        if self.pool is None or len(many) < 2:
            yield from (ask(self.asked, many[i : i + _PART], self.memo) for i in range(0, len(many), _PART))
            return
        size = min(_CHUNK, -(-len(many) // self.count))
        task = partial(_of, ask, self.asked)
        try:
            parts = [self.pool.submit(task, many[i : i + size]) for i in range(0, len(many), size)]
            try:
                yield from (part.result() for part in parts)
            finally:
                for part in parts:
                    part.cancel()
        except BrokenProcessPool:
            advice = f"perhaps for lack of memory: fewer than --workers {self.count}"
            raise UserError(f"{self.asked.where}: a process of the search died, {advice}") from None


def _of(ask: Ask[_One, _Other], asked: Asked, many: Sequence[_One], memo: Memo) -> list[_Other]:
    """In a process, which keeps its memo."""
    return ask(asked, many, memo)


@contextmanager
def hired(asked: Asked, count: int, plans: int) -> Iterator[Workers]:
    """Processes for as long as they are needed, which end with this one; none where that costs more than it saves."""
    if count < 2 or plans < _CHUNK:
        yield Workers(asked, Memo())
        return
    with Processes(count) as pool:
        yield Workers(asked, Memo(), pool, count)
