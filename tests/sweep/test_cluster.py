"""The same sweep on dask.distributed: real workers, one of which is killed, and a real Slurm."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from runcast.simulator import UserError
from runcast.simulator.answers.sweep import load_sweep, run_sweep
from runcast.simulator.runner import Dask, InProcess

from .conftest import many

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def workers_start_again():
    """A cluster looks 15 s after a death whether the worker is there, and if not, never starts it again."""
    import dask
    import distributed  # noqa: F401 - its defaults come first

    with dask.config.set({"distributed.deploy.lost-worker-timeout": "1 hour"}):
        yield


@pytest.fixture
def local_cluster():
    """A scheduler with two workers, each a process that is started again when it dies."""
    with _cluster(workers=2, threads=1) as cluster:
        yield cluster


def _cluster(workers: int, threads: int):
    from distributed import LocalCluster

    return LocalCluster(n_workers=workers, threads_per_worker=threads, dashboard_address=None)


def report(path: Path, folder: Path, engine) -> bytes:
    run_sweep(load_sweep(path), folder, engine)
    return (folder / "report.csv").read_bytes()


def test_dask_gives_the_report_of_one_process(sweep_file, tmp_path, local_cluster):
    path = sweep_file()
    engine = Dask(local_cluster.scheduler_address)

    assert report(path, tmp_path / "dask", engine) == report(path, tmp_path / "one", InProcess())


def test_a_worker_that_is_killed_costs_nothing_but_time(sweep_file, tmp_path, local_cluster):
    path, folder, killed = sweep_file(many(200)), tmp_path / "dask", []

    def kill_one(progress):
        if progress.done >= 20 and not killed:
            workers = local_cluster.scheduler_info["workers"].values()
            pid = local_cluster.workers[next(iter(workers))["id"]].pid
            killed.append(pid)
            os.kill(pid, signal.SIGKILL)

    swept = run_sweep(load_sweep(path), folder, Dask(local_cluster.scheduler_address), kill_one)
    expected = report(path, tmp_path / "one", InProcess())

    assert (len(killed), swept.counts, (folder / "report.csv").read_bytes()) == (1, {"ok": 200}, expected)


def test_a_point_that_workers_die_of_is_given_up_and_its_neighbours_are_not(sweep_file, tmp_path, monkeypatch):
    """One worker of two threads: what is at work beside the deadly point loses a worker as often as that one."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    from sweep_tasks import Deadly

    task = Deadly(0, str(tmp_path / "deaths"), others_s=0.5)
    with _cluster(workers=1, threads=2) as cluster, cluster.get_client() as client:
        client.register_plugin(_Path(str(Path(__file__).parent)))
        engine = Dask(cluster.scheduler_address)
        swept = run_sweep(load_sweep(sweep_file(many(6))), tmp_path / "out", engine, task=task)
    report = (tmp_path / "out/report.csv").read_text()

    assert (swept.counts, "its worker process died 4 times" in report) == ({"failed": 1, "ok": 5}, True)


def _Path(folder):  # noqa: N802 - a class, made where distributed is there
    from distributed import WorkerPlugin

    class OnPath(WorkerPlugin):
        """Workers find the tasks of the tests."""

        name = "tasks"

        def setup(self, worker):
            import sys

            sys.path.insert(0, folder)

    return OnPath()


def test_nobody_at_the_address_is_one_line(sweep_file, tmp_path):
    with pytest.raises(UserError, match=r"--scheduler = 'tcp://127\.0\.0\.1:9': cannot connect"):
        run_sweep(load_sweep(sweep_file()), tmp_path / "out", Dask("tcp://127.0.0.1:9"))


def test_a_scheduler_that_goes_is_one_line_and_the_sweep_goes_on_elsewhere(sweep_file, tmp_path, local_cluster):
    path, folder = sweep_file(many(200)), tmp_path / "out"

    def close(progress):
        if progress.done >= 20:
            local_cluster.close()

    with pytest.raises(UserError, match="is gone; the same command goes on from here"):
        run_sweep(load_sweep(path), folder, Dask(local_cluster.scheduler_address), close)

    assert report(path, folder, InProcess()) == report(path, tmp_path / "one", InProcess())


def test_a_scheduler_that_does_not_answer_is_not_waited_for(local_cluster, monkeypatch):
    monkeypatch.setattr("runcast.simulator.runner.cluster.CONNECT_S", 1)
    with Dask(local_cluster.scheduler_address) as runner:
        never = asyncio.Event()
        monkeypatch.setattr(runner._client.scheduler, "ncores", lambda **_: never.wait(), raising=False)
        with pytest.raises(TimeoutError):
            runner.capacity()
