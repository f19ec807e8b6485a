"""Memory of ranks on other machines, read and written without a part of their own, as RDMA does it.

The owner opens a door: a socket on the interface by which it reaches rank 0. A thread for each peer does what the peer
asks for, in place of a NIC. Who opens a door must show its token, which ranks tell each other.
"""

import os
import secrets
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from threading import Thread

import torch

from ...simulator.base.errors import UserError
from .world import TIMEOUT, World

_ASK = struct.Struct("<cQQ")  # verb, offset, bytes
_READ, _WRITE, _DONE = b"r", b"w", b"."
_TOKEN_BYTES = 16


@dataclass(frozen=True)
class Door:
    """The way to the memory of a rank; `machine` is the first rank of its machine."""

    machine: int
    host: str
    port: int
    token: bytes

    @property
    def is_needed(self) -> bool:
        """Whether this rank is on another machine, and cannot map the memory."""
        world = World.find()
        return world is not None and world.ranks_here.start != self.machine


def open_door(memory: torch.Tensor) -> tuple[Door, Callable[[], None]] | None:
    """A door to memory of this rank, and what closes it; None where all ranks are on one machine."""
    world = World.find()
    if world is None or world.local_size >= world.size:
        return None
    listening = socket.create_server((_own_host(), 0))
    host, port = listening.getsockname()[:2]
    door = Door(world.ranks_here.start, host, port, secrets.token_bytes(_TOKEN_BYTES))
    view = memoryview(memory.numpy())
    Thread(target=_let_in, args=(listening, door.token, view), daemon=True, name="door").start()

    def close() -> None:
        """Also wakes the thread that waits for peers."""
        with suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)
        listening.close()

    return door, close


class FarMemory:
    """The memory behind a door.

    Raises:
        UserError: its owner has ended, or does not answer.
    """

    def __init__(self, door: Door):
        self._where = f"{door.host}:{door.port}"
        try:
            self._peer = socket.create_connection((door.host, door.port), TIMEOUT.total_seconds())
            self._peer.sendall(door.token)
        except OSError as error:
            raise self._lost(error) from None

    def read(self, place: slice, into: torch.Tensor) -> None:
        """Read a range of bytes."""
        here = into if into.device.type == "cpu" else torch.empty(len(into), dtype=torch.uint8)
        try:
            self._peer.sendall(_ASK.pack(_READ, place.start, len(here)))
            _receive(self._peer, memoryview(here.numpy()))
        except OSError as error:
            raise self._lost(error) from None
        if here is not into:
            into.copy_(here)

    def write(self, place: slice, values: torch.Tensor) -> None:
        """Write a range of bytes, until they are there."""
        here = values.cpu().contiguous()
        try:
            self._peer.sendall(_ASK.pack(_WRITE, place.start, len(here)))
            self._peer.sendall(memoryview(here.numpy()))
            _receive(self._peer, memoryview(bytearray(len(_DONE))))
        except OSError as error:
            raise self._lost(error) from None

    def _lost(self, error: OSError) -> UserError:
        return UserError(f"cannot reach the memory of another rank at {self._where}: {error}")


def _own_host() -> str:
    """The address of the interface by which this machine reaches rank 0."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_:
        any_.connect((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
        host: str = any_.getsockname()[0]
        return host


def _let_in(listening: socket.socket, token: bytes, memory: memoryview) -> None:
    """Serve each peer on a thread of its own, until the door is closed."""
    with suppress(OSError):
        while True:
            peer, _ = listening.accept()
            Thread(target=_serve, args=(peer, token, memory), daemon=True, name="door").start()


def _serve(peer: socket.socket, token: bytes, memory: memoryview) -> None:
    shown, asked = bytearray(len(token)), bytearray(_ASK.size)
    with peer, suppress(OSError):  # a peer that has all it wants leaves
        _receive(peer, memoryview(shown))
        while secrets.compare_digest(bytes(shown), token):
            _receive(peer, memoryview(asked))
            verb, offset, size = _ASK.unpack(asked)
            place = memory[offset : offset + size]
            if verb == _READ:
                peer.sendall(place)
            else:
                _receive(peer, place)
                peer.sendall(_DONE)


def _receive(peer: socket.socket, into: memoryview) -> None:
    """Fill memory; an OSError if the peer leaves before."""
    while len(into):
        if not (count := peer.recv_into(into)):
            raise ConnectionError("it has left")
        into = into[count:]
