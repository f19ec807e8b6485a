"""How the processes of a run meet: one key-value store, with what its keys mean, and the process groups of teams."""

import json
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from .place import Place

_CONNECT = timedelta(minutes=5)  # nodes of a job may start one after the other
FOREVER = timedelta(days=7)  # whoever waits this long is ended by its supervisor


class Board:
    """Values that processes leave for each other, as JSON; written once per name.

    Raises (any method):
        ConnectionError: whoever holds the store has gone.
    """

    def __init__(self, place: Place, holds: bool = False):
        store = _told(
            lambda: dist.TCPStore(place.host, place.port, is_master=holds, wait_for_workers=False, timeout=_CONNECT)
        )
        self.port: int = store.port
        self._store = dist.PrefixStore(f"runcast/{place.epoch}", store)

    def post(self, name: str, value: Any) -> None:
        """Leave a value."""
        _told(lambda: self._store.set(name, json.dumps(value)))

    def post_first(self, name: str, value: Any) -> None:
        """Leave a value, unless somebody has already."""
        _told(lambda: self._store.compare_set(name, "", json.dumps(value)))

    def seen(self, name: str) -> Any:
        """The value if it is there, else None."""
        return self.read(name) if _told(lambda: self._store.check([name])) else None

    def read(self, name: str) -> Any:
        """The value, once it is there."""

        def wait() -> bytes:
            self._store.wait([name], FOREVER)
            return bytes(self._store.get(name))

        return json.loads(_told(wait))

    def forget(self, name: str) -> None:
        """Nobody reads it any more."""
        _told(lambda: self._store.delete_key(name))

    def under(self, prefix: str) -> Any:
        """A store for torch.distributed, which keeps its own keys there."""
        return dist.PrefixStore(prefix, self._store)


def _told(act: Callable[[], Any]) -> Any:
    """What the store does, its own errors (torch's DistError is a RuntimeError) as one line."""
    try:
        return act()
    except RuntimeError as error:
        raise ConnectionError(str(error).partition("\n")[0]) from None


def join_groups(
    teams: Iterable[tuple[int, ...]], place: Place, backend: str, store: Any, timeout_s: float
) -> dict[tuple[int, ...], Any]:
    """A process group for each team of several ranks; every rank must call this with the same teams."""
    timeout = timedelta(seconds=timeout_s)
    dist.init_process_group(backend, store=store, rank=place.rank, world_size=place.ranks, timeout=timeout)
    return {team: dist.new_group(list(team), timeout=timeout) for team in sorted(teams)}
