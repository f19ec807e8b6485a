"""Values between ops: written once, read a known number of times, and dropped after the last reader."""

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

import torch

from .kernels import tensors_of

Act = Callable[[], None]


class NotThereError(Exception):
    """An op runs before what it reads is there."""


class Slot:
    """A value that one op gives and others take. What is there from the start (`value`) stays."""

    def __init__(self, value: Any = None):
        self._stays = value is not None
        self._value, self._readers, self._lock = value, 0, Lock()

    def promise(self) -> None:
        """One more op will take it."""
        self._readers += 1

    def put(self, value: Any) -> None:
        """Give the value; nobody keeps it if nobody will take it."""
        if self._readers:
            self._value = value

    def take(self) -> Any:
        """The value, for one reader.

        Raises:
            NotThereError: it is not there: an op runs before what it reads, so the Program lacks a dependency.
        """
        with self._lock:
            if self._value is None:
                raise NotThereError("runs before what it reads is there: the Program lacks a dependency")
            value = self._value
            self._readers -= 1
            if not self._readers and not self._stays:
                self._value = None
            return value


class Joined(Slot):
    """A value that its reader puts together of others'."""

    def __init__(self, work: Callable[..., Any], *parts: Slot):
        super().__init__()
        self._work, self._parts = work, parts

    def promise(self) -> None:
        """One more op will take it."""
        for part in self._parts:
            part.promise()

    def take(self) -> Any:
        """The value, for one reader; raises what its parts raise."""
        return self._work(*[part.take() for part in self._parts])


def act(work: Callable[..., Any], takes: Sequence[Slot], gives: Sequence[Slot] = ()) -> Act:
    """An op: takes values, works, gives values (a tuple, if they are several)."""
    for slot in takes:
        slot.promise()

    def run() -> None:
        values = [slot.take() for slot in takes]
        for tensor in tensors_of(values):
            if tensor.is_cuda:  # its memory is not given to others before this stream has read it
                tensor.record_stream(torch.cuda.current_stream(tensor.device))
        found = work(*values)
        for slot, value in zip(gives, found if len(gives) > 1 else (found,), strict=False):
            slot.put(value)

    return run


def nothing() -> None:
    """An op without work of its own."""
