"""All ranks of a run as processes of this machine, for who has no launcher of their own; imports no torch."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence


def spawn(size: int, module: str, arguments: Sequence[str]) -> int:
    """Run `python -m module arguments` as `size` ranks on this machine; returns the exit code of the first to fail."""
    shared = os.environ | {
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }
    command = [sys.executable, "-m", module, *arguments]
    ranks: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(size):
            ranks.append(subprocess.Popen(command, env=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)}))
        return _first_failure(ranks)
    finally:
        _end(ranks)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _first_failure(ranks: Sequence[subprocess.Popen[bytes]]) -> int:
    while None in (codes := [rank.poll() for rank in ranks]) and not any(codes):
        time.sleep(0.02)
    return next((code for code in codes if code), 0)


def _end(ranks: Sequence[subprocess.Popen[bytes]]) -> None:
    """Whoever still runs has lost its peers: ask it to leave, then make it."""
    for rank in ranks:
        rank.terminate()
    for rank in ranks:
        try:
            rank.wait(timeout=5)
        except subprocess.TimeoutExpired:
            rank.kill()
