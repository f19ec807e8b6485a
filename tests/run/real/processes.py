"""Real processes on this machine: a Gloo group of ranks, each of which calls one function.

`python -m tests.run.real.processes FOLDER` is their parent. It imports torch once and forks them, in a session of its
own that is killed as a whole: nothing is left, whatever fails. They meet in a file and need no port that is known
before.
"""

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from . import hosts

ROOT = Path(__file__).parents[3]
_MOST_S = 50  # until all ranks are done
_GLOO_S = 20  # a message that takes longer never comes


def run_ranks(
    ranks: int, function: Callable[..., Any], *arguments: Any, link_bits_per_s: float | None = None
) -> list[Any]:
    """What `function(*arguments)` returns in each of so many ranks; it and they are pickled.

    With a rate, each rank is a host of its own, with a link of this rate (`hosts`); else all share one machine.
    """
    with TemporaryDirectory() as folder:
        Path(folder, "job").write_bytes(pickle.dumps((ranks, link_bits_per_s, function, arguments)))
        command = [sys.executable, "-m", "tests.run.real.processes", folder]
        if link_bits_per_s is not None:
            command = [*hosts.INSIDE, *command]
        environment = _environment("lo" if link_bits_per_s is None else "eth0")
        parent = subprocess.Popen(
            command, cwd=ROOT, env=environment, start_new_session=True, stderr=subprocess.PIPE, preexec_fn=_in_time
        )
        try:
            _, errors = parent.communicate(timeout=_MOST_S + 10)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(parent.pid, signal.SIGKILL)
            parent.wait()
        assert parent.returncode == 0, errors.decode()
        return pickle.loads(Path(folder, "results").read_bytes())


def _in_time() -> None:
    """Ranks mostly sleep: where they may, they wake up in time on a busy machine, too."""
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def _environment(device: str) -> dict[str, str]:
    """All ranks meet on this network device; their messages are no output of tests."""
    return os.environ | {"GLOO_SOCKET_IFNAME": device, "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}


def _fork(folder: Path) -> None:
    """Run the job of a folder, one forked process per rank; the first rank that fails ends all."""
    ranks, link_bits_per_s, function, arguments = pickle.loads((folder / "job").read_bytes())
    jobs = [(rank, ranks, link_bits_per_s, folder / "store", function, arguments) for rank in range(ranks)]
    if link_bits_per_s is not None:
        hosts.make_switch()
    with get_context("fork").Pool(ranks) as pool:
        results = dict(pool.imap_unordered(_rank, jobs))
    (folder / "results").write_bytes(pickle.dumps([results[rank] for rank in range(ranks)]))


def _rank(job: tuple[int, int, float | None, Path, Callable[..., Any], tuple[Any, ...]]) -> tuple[int, Any]:
    rank, ranks, link_bits_per_s, store, function, arguments = job
    signal.alarm(_MOST_S)
    if link_bits_per_s is not None:
        hosts.plug_in(rank, link_bits_per_s)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{store}", rank=rank, world_size=ranks, timeout=timedelta(seconds=_GLOO_S))
    dist.barrier()
    result = function(*arguments)
    dist.barrier()
    return rank, result


if __name__ == "__main__":
    import torch
    import torch.distributed as dist

    signal.alarm(_MOST_S)
    _fork(Path(sys.argv[1]))
