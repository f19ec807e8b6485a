"""The runner of many machines: a scheduler of dask.distributed that runs already, or one whose workers are Slurm jobs.

What a worker that died was at, dask gives to others by itself, until several have died of it.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Self
from uuid import uuid4

from ..base.errors import UserError, fault
from .local import Died, Item, Result, Results, Task, Workers, keep_memo

CONNECT_S = 15
_JOB = {"cores": 1, "processes": 1, "memory": "4 GiB", "job_name": "runcast-sweep"}
"""What a Slurm job is where the sweep file says nothing else: one worker of one thread."""
_WAIT_FOR_WORKER = {"distributed.deploy.lost-worker-timeout": "10 minutes"}
"""A job whose worker is not there this long after a death is ended. The 15 s of dask fall into the next death of it."""


class Dask(Workers):
    """The scheduler at an address such as `tcp://host:8786`, or `slurm`, which starts `workers` jobs (default 1).

    `slurm` are arguments of dask-jobqueue's SLURMCluster beside ours; its own configuration files count too.

    Raises:
        UserError: workers are given with an address, whose workers are there already.
        ModuleNotFoundError: the extra `dask` is not installed.
    """

    def __init__(self, scheduler: str, workers: int | None = None, slurm: Mapping[str, Any] | None = None):
        from distributed import KilledWorker

        if scheduler != "slurm" and workers is not None:
            raise UserError(fault("--workers", "", workers, "goes with --engine local or --scheduler slurm"))
        self.death = KilledWorker
        self._scheduler, self._workers, self._slurm = scheduler, workers or 1, dict(slurm or {})
        self._stack, self._run = ExitStack(), ""

    def __enter__(self) -> Self:
        from distributed import Client

        address = self._stack.enter_context(self._start_jobs()) if self._scheduler == "slurm" else self._scheduler
        try:
            client = Client(address, timeout=CONNECT_S, set_as_default=False)
        except (OSError, ValueError) as error:
            self._stack.close()
            line = " ".join(str(error).split())[:100]
            raise UserError(fault("--scheduler", "", self._scheduler, f"cannot connect: {line}")) from None
        self._client: Client = self._stack.enter_context(client)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def capacity(self) -> int:
        """Two chunks for each thread of each worker that is there now.

        Raises:
            TimeoutError: the scheduler does not answer; `nthreads` alone would wait for ever.
        """
        return 2 * max(1, sum(self._client.nthreads(callback_timeout=CONNECT_S).values()))

    def submit(self, task: Task[Item, Result], chunk: Sequence[Item]) -> Any:
        """Start a chunk, under a key that no other run has left there."""
        return self._client.submit(keep_memo, self._run, task, chunk, key=f"chunk-{uuid4().hex}")

    def run(self, task: Task[Item, Result], chunks: Iterator[Sequence[Item]]) -> Results[Item, Result]:
        """Run all chunks; items that workers may have died of come last."""
        from distributed import CancelledError

        self._run = uuid4().hex
        try:
            yield from super().run(task, chunks)
        except (CancelledError, OSError):
            raise UserError(f"--scheduler: {self._scheduler} is gone; the same command goes on from here") from None

    def run_one_by_one(self, task: Task[Item, Result], items: Sequence[Item]) -> Results[Item, Result]:
        """Run each item alone: dask blames all that a worker had before it for the worker's death."""
        from distributed import KilledWorker

        for item in items:
            try:
                yield [(item, self.submit(task, [item]).result()[0])]
            except KilledWorker as error:
                yield [(item, Died(error.allowed_failures + 1))]

    def _start_jobs(self) -> Any:
        """A scheduler here, with jobs of Slurm as its workers."""
        import dask
        from dask_jobqueue import SLURMCluster

        self._stack.enter_context(dask.config.set(_WAIT_FOR_WORKER))
        try:
            cluster = SLURMCluster(**{**_JOB, **self._slurm})
        except (TypeError, ValueError) as error:
            raise UserError(f"engine.slurm: {' '.join(str(error).split())[:200]}") from None
        cluster.scale(jobs=self._workers)
        return cluster
