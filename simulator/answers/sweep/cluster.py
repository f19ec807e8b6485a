"""The engine of many machines: a scheduler of dask.distributed that runs already, or one whose workers are Slurm jobs.

A worker that dies is dask's business: it gives what that one had to others, until a few have died of it.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from ...base.errors import UserError, fault
from ...base.processes import with_memo
from .engines import Chunk, Runs, given_up
from .point import Point, Task

if TYPE_CHECKING:
    from distributed import Client, Future

    Submit = Callable[[Chunk], Future]

CONNECT_S = 15
_JOB = {"cores": 1, "processes": 1, "memory": "4 GiB", "job_name": "runcast-sweep"}
"""What a Slurm job is where the sweep file says nothing else: one worker of one thread."""


class Dask:
    """The scheduler at an address such as `tcp://host:8786`, or `slurm`, which starts `workers` jobs (default 1).

    `slurm` are arguments of dask-jobqueue's SLURMCluster beside ours; its own configuration files count too.

    Raises:
        UserError: workers are given with an address, whose workers are there already.
        ModuleNotFoundError: the extra `dask` is not installed.
    """

    def __init__(self, scheduler: str, workers: int | None = None, slurm: Mapping[str, Any] | None = None):
        import distributed  # noqa: F401 - say early that it is missing

        if scheduler != "slurm" and workers is not None:
            raise UserError(fault("--workers", "", workers, "goes with --engine local or --scheduler slurm"))
        self._scheduler, self._workers, self._slurm = scheduler, workers or 1, dict(slurm or {})

    def run(self, task: Task, chunks: Iterator[Chunk]) -> Runs:
        """Outcomes as workers end. Points of chunks that workers died of come last, one by one."""
        from distributed import CancelledError

        with ExitStack() as stack:
            client = self._client(stack)
            try:
                yield from _outcomes(client, task, chunks)
            except (CancelledError, OSError):
                raise UserError(f"--scheduler: {self._scheduler} is gone; the same command goes on from here") from None

    def _client(self, stack: ExitStack) -> "Client":
        from distributed import Client

        address = stack.enter_context(self._jobs()) if self._scheduler == "slurm" else self._scheduler
        try:
            return stack.enter_context(Client(address, timeout=CONNECT_S, set_as_default=False))
        except (OSError, ValueError) as error:
            line = " ".join(str(error).split())[:100]
            raise UserError(fault("--scheduler", "", self._scheduler, f"cannot connect: {line}")) from None

    def _jobs(self) -> Any:
        """A scheduler here, with jobs of Slurm as its workers."""
        from dask_jobqueue import SLURMCluster

        try:
            cluster = SLURMCluster(**{**_JOB, **self._slurm})
        except (TypeError, ValueError) as error:
            raise UserError(f"engine.slurm: {' '.join(str(error).split())[:200]}") from None
        cluster.scale(jobs=self._workers)
        return cluster


def _outcomes(client: "Client", task: Task, chunks: Iterator[Chunk]) -> Runs:
    run, suspects = uuid4().hex, list[Point]()

    def submit(chunk: Chunk) -> "Future":
        key = f"points-{uuid4().hex}"  # never what another sweep left there
        return client.submit(with_memo, run, task, chunk, key=key)

    yield from _together(client, submit, chunks, suspects)
    yield from _alone(submit, suspects)


def _together(client: "Client", submit: "Submit", chunks: Iterator[Chunk], suspects: list[Point]) -> Runs:
    """All chunks, but the points of those that workers died of: dask blames all that a worker had before it."""
    from distributed import KilledWorker, as_completed

    flying: dict[Future, Chunk] = {}
    ended = as_completed(loop=client.loop)
    while True:
        while len(flying) < _most(client) and (chunk := next(chunks, None)) is not None:
            future = submit(chunk)
            flying[future] = chunk
            ended.add(future)
        if not flying:
            return
        future = next(ended)
        chunk = flying.pop(future)
        try:
            yield future.result()
        except KilledWorker:
            suspects.extend(chunk)


def _alone(submit: "Submit", points: Chunk) -> Runs:
    """Each point while nothing else is under way, so that a death is its own."""
    from distributed import KilledWorker

    for point in points:
        try:
            yield submit([point]).result()
        except KilledWorker as error:
            yield [given_up(point, error.allowed_failures + 1)]


def _most(client: "Client") -> int:
    """How many chunks may be under way: two for each thread of each worker that is there now."""
    return 2 * max(1, sum(client.nthreads().values()))
