"""What a user gives a pool of jobs: the keys of [jobs], and Slurm's log."""

from math import inf

import numpy as np
import pytest
from runcast.simulator.base.errors import UserError
from runcast.simulator.base.schema import validate
from runcast.simulator.systems.run.jobs.sacct import read_sacct
from runcast.simulator.systems.run.jobs.scheduler import Job
from runcast.simulator.systems.run.jobs.tables import Jobs

# --- Keys


def keys(**table: object) -> Jobs:
    return validate(Jobs, table, "run.toml", "jobs.")


def test_a_table_of_jobs_makes_arrays_with_their_times():
    search = {"name": "trial", "gpus": 8, "time": "2 h", "at": "10 s", "count": 3, "every": "1 min", "user": "ann"}
    plan = keys(job=(search,), fabric="1 TB/s").plan((8, 8), seed=0, where="run.toml")

    assert plan.jobs == tuple(Job(f"trial_{n}", 8, 7200.0, 10.0 + 60 * n, user="ann") for n in range(3))
    assert (plan.fabric_bytes_per_s, plan.store_bytes_per_s, plan.pack) == (1e12, inf, "nodes")


def test_arrivals_come_at_their_rate_with_their_times_and_sizes():
    table = {
        "rate": 120.0,
        "count": 20_000,
        "gpus": [1, 8],
        "weights": [3.0, 1.0],
        "time": "100 s",
        "users": ("a", "b"),
    }
    jobs = keys(arrivals=table).plan((8,), seed=4, where="run.toml").jobs

    assert jobs[-1].at_s == pytest.approx(20_000 * 30, rel=0.02)
    assert np.mean([job.time_s for job in jobs]) == pytest.approx(100, rel=0.02)
    assert np.mean([job.gpus == 1 for job in jobs]) == pytest.approx(0.75, abs=0.01)
    assert np.mean([job.user == "a" for job in jobs]) == pytest.approx(0.5, abs=0.01)


def test_more_arrivals_do_not_change_the_first():
    few, many = (keys(arrivals={"rate": 1.0, "count": n, "time": 5}).plan((8,), 4, "run.toml") for n in (5, 50))

    assert many.jobs[:5] == few.jobs


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "run.toml: jobs.: give at least one of job, arrivals and trace"),
        ({"preempt": True, "trace": "x"}, "preempt goes with policy = 'priority'"),
        ({"weight": {"ann": 1.0}, "trace": "x"}, "weight goes with policy = 'fair'"),
        ({"job": ({"name": "a", "gpus": 0, "time": 1},)}, "jobs.job.0.gpus = 0: expected more than 0"),
        ({"job": ({"name": "a", "gpus": 1, "time": 0},)}, "jobs.job.0.time = 0: expected more than 0"),
        ({"arrivals": {"rate": 0.0, "count": 1, "time": 1}}, "jobs.arrivals.rate = 0.0: expected more than 0"),
        (
            {"arrivals": {"rate": 1.0, "count": 1, "time": 1, "spread": 1.0}},
            "and spread must be given together",
        ),
        ({"arrivals": {"rate": 1.0, "count": 1, "time": 1, "weights": [1.0, 2.0]}}, "a number for each of gpus"),
        (
            {"arrivals": {"rate": 1.0, "count": 1_000_000, "time": 1}},
            "jobs.arrivals.count = 1000000: expected at most 200000",
        ),
        (
            {"arrivals": {"rate": 1.0, "count": 200_000, "time": 1}, "job": ({"name": "a", "gpus": 1, "time": 1},)},
            "expected at most 200,000 jobs of job and arrivals together",
        ),
        ({"policy": "sjf", "trace": "x"}, "expected 'fifo', 'backfill', 'priority' or 'fair'"),
    ],
)
def test_keys_that_make_no_sense_are_one_line(table, message):
    with pytest.raises(UserError) as error:
        keys(**table)

    assert message in str(error.value)
    assert len(error.value.faults) == 1


def test_a_weight_of_nobody_is_refused():
    jobs = keys(policy="fair", weight={"bub": 2.0}, job=({"name": "a", "gpus": 1, "time": 1, "user": "bob"},))

    with pytest.raises(UserError, match=r"run.toml: jobs.weight = 'bub': unknown; did you mean bob\?"):
        jobs.plan((8,), 0, "run.toml")


def test_a_job_too_large_is_refused_with_its_file():
    with pytest.raises(UserError, match=r"^run.toml: jobs: a: gpus = 9: the pool has 8 GPUs"):
        keys(job=({"name": "a", "gpus": 9, "time": 1},)).plan((8,), 0, "run.toml")


# --- Slurm's log

LOG = """\
JobID|JobName|Partition|User|Submit|Start|End|AllocTRES|Timelimit|State|Priority|ExitCode
101|train|gpu|ann|2026-05-01T08:00:00|2026-05-01T08:05:00|2026-05-02T08:05:00|billing=16,cpu=64,gres/gpu=16,mem=1T,node=2|2-00:00:00|COMPLETED|4000|0:0
101.batch|batch||||2026-05-01T08:05:00|2026-05-02T08:05:00|cpu=64,gres/gpu=8,node=1||COMPLETED||0:0
101.0|python|||2026-05-01T08:05:01|2026-05-01T08:05:01|2026-05-02T08:05:00|cpu=64,gres/gpu=16||COMPLETED||0:0
102_7|sweep|gpu|bob|2026-05-01T08:30:00|2026-05-01T08:30:10|2026-05-01T08:40:10|cpu=8,gres/gpu:h100=1,gres/gpu:a100=2|15:00|TIMEOUT|12|0:0
103|cpu|cpu|bob|2026-05-01T09:00:00|2026-05-01T09:00:00|2026-05-01T10:00:00|billing=1,cpu=8,node=1|UNLIMITED|COMPLETED|1|0:0
104|gone|gpu|bob|2026-05-01T09:00:00|None|2026-05-01T10:00:00|||CANCELLED by 1000|1|0:0
105|runs|gpu|bob|2026-05-01T09:00:00|2026-05-01T09:10:00|Unknown|gres/gpu=8|Partition_Limit|RUNNING|1|0:0
106|free|gpu|ann|2026-05-01T09:30:00|2026-05-01T09:31:00|2026-05-01T09:32:00|gres/gpu=8|Partition_Limit|FAILED||1:0
"""


def log(tmp_path, text: str):
    path = tmp_path / "jobs.log"
    path.write_text(text)
    return path


def test_a_log_of_sacct_is_a_trace_of_jobs(tmp_path):
    trace = read_sacct(log(tmp_path, LOG), gpus_per_node=8)

    assert trace.jobs == (
        Job("train", 16, 86400.0, 0.0, 172800.0, "ann", 4000),
        Job("sweep", 3, 600.0, 1800.0, 900.0, "bob", 12),
        Job("free", 8, 60.0, 5400.0, None, "ann", 0),
    )
    assert trace.notes == (
        "jobs.log: 1 jobs are left out: have no GPUs",
        "jobs.log: 1 jobs are left out: have not ended",
        "jobs.log: 1 jobs are left out: never started",
    )


def test_a_csv_with_numbers_will_do(tmp_path):
    text = 'JobID,Submit,Start,End,GPUs\n1,100,150,250.5,4\n"2",130,200,300,8\n'

    assert read_sacct(log(tmp_path, text), 8).jobs == (Job("1", 4, 100.5, 0.0), Job("2", 8, 100.0, 30.0))


def test_a_log_without_tres_counts_nodes(tmp_path):
    text = "JobID|Submit|Start|End|NNodes\n1|0|0|10|3\n"

    assert read_sacct(log(tmp_path, text), 8).jobs == (Job("1", 24, 10.0, 0.0),)


def test_a_trace_lies_beside_its_scenario(tmp_path):
    log(tmp_path, LOG)
    (tmp_path / "run.toml").touch()
    plan = keys(trace="jobs.log").plan((8, 8), 0, str(tmp_path / "run.toml"))

    assert [job.name for job in plan.jobs] == ["train", "sweep", "free"]
    assert len(plan.notes) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: has no column jobid; expected JobID, Submit, Start and End at least"),
        ("JobID|Submit|Start|End\n", "line 1: says no GPUs; expected a column AllocTRES, ReqTRES, GPUs or NNodes"),
        ("JobID|Submit|Start|End|GPUs\n1|2|3\n", "line 2: has 3 fields; expected 5, as in line 1"),
        (
            "JobID|Submit|Start|End|GPUs\n1|yesterday|3|4|1\n",
            "line 2: Submit = 'yesterday': expected a time such as 2026-05-01T12:00:00, or a number of seconds",
        ),
        ("JobID|Submit|Start|End|GPUs\n1|1|3|2|1\n", "line 2: End = '2': expected a time after Start, which is 3"),
        ("JobID|Submit|Start|End|GPUs\n1|1|2|3|x\n", "line 2: GPUs = 'x': expected a whole number"),
        (
            "JobID|Submit|Start|End|AllocTRES\n1|1|2|3|gres/gpu=many\n",
            "line 2: gres/gpu = 'many': expected a whole number",
        ),
        (
            "JobID|Submit|Start|End|GPUs|Timelimit\n1|1|2|3|1|soon\n",
            "line 2: Timelimit = 'soon': expected a duration such as 1-12:00:00 (a day and 12 hours), "
            "or a number of seconds",
        ),
        ("JobID|Submit|Start|End|GPUs\n1|1|2|3|0\n", "has no job with GPUs that ran and ended"),
    ],
)
def test_a_log_that_cannot_be_read_is_one_line(tmp_path, text, message):
    path = log(tmp_path, text)

    with pytest.raises(UserError) as error:
        read_sacct(path, 8)

    assert error.value.faults in ((f"{path}: {message}",), (f"{path}: {message}",))
