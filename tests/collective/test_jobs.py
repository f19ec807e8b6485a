"""Jobs on one fabric: closed forms on one uplink, the same as groups where both say the same, bytes, bad input.

Pods are those of test_links: 8 nodes of one GPU and one NIC, four under a leaf.
"""

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator import UserError
from runcast.simulator.collectives.algorithms import algorithms
from runcast.simulator.engine import simulate
from runcast.simulator.predict import predict
from runcast.simulator.scenario import change, check_question, resolve
from runcast.simulator.systems.collective.lower import lower
from runcast.simulator.systems.collective.text import csv_text

from ..command import runcast
from ..examples import examples
from .make import collective
from .test_links import CABLE, NIC, pods

MB = 10**6


def table(*jobs, nodes=8, cluster=None, **keys):
    """The table of a scenario of jobs on pods whose four nodes share one uplink."""
    given = {"jobs": list(jobs), **keys}
    return {
        "kind": "collective",
        "cluster": pods(4) if cluster is None else cluster,
        "nodes": nodes,
        "collective": given,
    }


def jobs(*tables, **keys):
    return resolve(check_question(table(*tables, **keys), "a.toml"), "a.toml")


def send(ranks, size, **keys):
    """One message from the first of two ranks to the other."""
    return {"op": "broadcast", "bytes": size, "algorithm": "chain", "pieces": 1, "ranks": ranks, **keys}


def call_s(found):
    """From the call to the first byte of a message."""
    net = found.jobs[0].net
    return net.launch_s + net.kinds["rail"].latency_s


sizes = st.integers(10 * MB, 1000 * MB)


@given(sizes, sizes)
@examples(30)
def test_two_jobs_on_one_uplink_get_half_each_until_the_shorter_ends(first, second):
    """Half of the cable is less than a NIC's rate; then the longer one goes on at the NIC's rate."""
    found = jobs(send([0, 4], first), send([1, 5], second))
    short, long = sorted((first, second))
    shared_s = 2 * short / CABLE
    expected = {short: shared_s, long: shared_s + (long - short) / NIC}
    for row, size in zip(found.job_rows, (first, second), strict=True):
        assert row.seconds == pytest.approx(call_s(found) + expected[size], rel=1e-4)
        assert row.alone_s == pytest.approx(call_s(found) + size / NIC, rel=1e-4)
        assert sum(row.slowed_by.values()) == pytest.approx(row.seconds - row.alone_s, rel=1e-9, abs=1e-12)


def test_a_job_that_starts_later_has_the_uplink_until_then_to_itself():
    size, later = 1000 * MB, 0.010
    first, second = jobs(send([0, 4], size, name="a"), send([1, 5], size, name="b", start=later)).job_rows
    left = size - NIC * later
    assert first.seconds - first.alone_s == pytest.approx(2 * left / CABLE - left / NIC, rel=1e-3)
    assert (second.start_s, second.end_s) == (later, pytest.approx(later + second.seconds))
    assert second.seconds == pytest.approx(first.seconds, rel=1e-3)  # they share for as long, each has its own rest
    assert (list(first.slowed_by), list(second.slowed_by)) == (["b"], ["a"])


def test_a_job_that_starts_when_the_other_has_ended_is_slowed_by_nobody():
    for row in jobs(send([0, 4], 100 * MB), send([1, 5], 100 * MB, start="1 s")).job_rows:
        assert row.seconds == pytest.approx(row.alone_s, rel=1e-9)
        assert row.slowed_by == {}


def test_of_three_jobs_each_says_who_slowed_it():
    """The third stays in its pod, so it slows nobody; of the others each is slowed by the other alone."""
    found = jobs(send([0, 4], 500 * MB, name="a"), send([1, 5], 800 * MB, name="b"), send([2, 3], 900 * MB, name="c"))
    a, b, c = found.job_rows
    assert (list(a.slowed_by), list(b.slowed_by), c.slowed_by) == (["b"], ["a"], {})
    assert a.slowed_by["b"] == pytest.approx(a.seconds - a.alone_s)


@pytest.mark.parametrize("placement", ["packed", "scattered", "rails", "interleaved"])
@pytest.mark.parametrize(("op", "name"), [("all_reduce", "ring"), ("all_to_all", "direct"), ("broadcast", "binomial"),
                                          ("all_reduce", "two_level")])  # fmt: skip
@pytest.mark.parametrize("groups", [2, 4])
def test_equal_jobs_take_what_groups_take(placement, op, name, groups):
    given = {"base": "dgx-h100", "fabric": "fat_tree", "leaf_radix": 16, "oversubscription": 3}
    keys = {"nodes": 8, "cluster": given, "placement": placement}
    together = collective(op, 64 * MB, algorithm=name, level="chunks", groups=groups, **keys)
    found = jobs(*[{"op": op, "bytes": 64 * MB, "algorithm": name}] * groups, **keys)
    assert [job.members[0] for job in found.jobs] == list(together.members)
    assert max(row.seconds for row in found.job_rows) == pytest.approx(together.rows[0].seconds, rel=1e-9)


def test_groups_of_a_job_take_what_groups_take():
    together = collective("all_reduce", 64 * MB, algorithm="ring", level="chunks", groups=2, nodes=8, cluster=pods(4))
    (row,) = jobs({"op": "all_reduce", "bytes": 64 * MB, "groups": 2}).job_rows
    assert (row.seconds, row.alone_s) == (pytest.approx(together.rows[0].seconds, rel=1e-9),) * 2
    assert (row.gpus, row.slowed_by) == (8, {})


OPS = [(op, name) for op in ("all_reduce", "all_gather", "broadcast", "all_to_all", "reduce", "gather")
       for name in algorithms(op) if name not in ("nvls", "sharp")]  # fmt: skip
each_job = st.fixed_dictionaries(
    {"op": st.sampled_from(OPS), "bytes": st.integers(1, 100) .map(lambda n: n * 256 * 1024),
     "start": st.integers(0, 20).map(lambda ms: ms / 1000)}
)  # fmt: skip


@given(st.lists(each_job, min_size=2, max_size=3), st.permutations(range(8)), st.sampled_from([1, 2, 4]))
@examples(40)
def test_links_carry_what_each_job_sends_and_no_more_than_they_can(drawn, order, oversubscription):
    """Bytes on each link are the sum of those of each job alone, and the fullest one bounds the time of all."""
    many = 8 // len(drawn) // 2 * 2
    tables = [{"op": job["op"][0], "algorithm": job["op"][1], "bytes": job["bytes"], "start": job["start"],
               "ranks": list(order[k * many : (k + 1) * many])} for k, job in enumerate(drawn)]  # fmt: skip
    found = jobs(*tables, cluster=pods(oversubscription))
    on, begin_s = found.hardware.capacity, min(job.launch_s for job in found.jobs)
    alone = [lower(found.cluster, on, job.exchanges(begin_s)) for job in found.jobs]
    program, costs = lower(found.cluster, on, [one for job in found.jobs for one in job.exchanges(begin_s)])
    total = sum(own.link_bytes for _, own in alone)
    assert costs.link_bytes == pytest.approx(total)
    assert len(program) == sum(len(own) for own, _ in alone)
    makespan_s = simulate(program, costs).makespan_s
    assert makespan_s >= (total / on).max() * (1 - 1e-9)
    ends = [row.end_s for row in found.job_rows]
    assert max(ends) == pytest.approx(begin_s + makespan_s)
    assert all(row.seconds >= row.alone_s * (1 - 1e-6) or len(drawn) > 2 for row in found.job_rows)


def test_ranks_in_words_and_jobs_that_share_what_is_left():
    found = jobs({"op": "all_gather", "bytes": MB, "ranks": "0:2, 5"}, {"op": "reduce", "bytes": MB, "gpus": 3},
                 {"op": "broadcast", "bytes": MB}, cluster=pods(1))  # fmt: skip
    assert [job.members for job in found.jobs] == [((0, 1, 5),), ((2, 3, 4),), ((6, 7),)]
    assert [row.algorithm for row in found.job_rows] == ["ring", "chain", "chain"]


def test_the_report_is_of_the_last_job_to_end_and_its_rows_are_the_jobs():
    found = predict(jobs(send([0, 4], 100 * MB, name="a"), send([1, 5], 300 * MB, name="b", start="1 ms")))
    report = found.report.to_json()
    rows = [(row["job"], row["gpus"], list(row["slowed_by"])) for row in report["rows"]]
    assert rows == [("a", 2, ["b"]), ("b", 2, ["a"])]
    assert report["seconds"] == 1e-3 + report["rows"][1]["seconds"] == pytest.approx(found.timeline.makespan_s)
    assert report["low_s"] < report["seconds"] < report["high_s"]
    assert report["exposed"]["start"] == pytest.approx(1e-3)
    assert abs(sum(report["exposed"].values()) - report["seconds"]) < 1e-12


def write(folder, *given):
    lines = ['kind = "collective"', "nodes = 8", "[cluster]", *(f"{k} = {json.dumps(v)}" for k, v in pods(4).items())]
    for one in given:
        lines += ["[[collective.jobs]]", *(f"{key} = {json.dumps(value)}" for key, value in one.items())]
    path = folder / "jobs.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_the_command_line_prints_jobs_and_writes_them(tmp_path):
    path = write(tmp_path, send([0, 4], 100 * MB, name="a"), send([1, 5], 300 * MB, name="b"))
    shown = runcast("simulate", path, "--json", tmp_path / "a.json", "--html", tmp_path / "a.html").stdout
    assert "2 jobs at once on 4 x H100 SXM" in shown
    assert [line.split()[0] for line in shown.splitlines() if " chain " in line and line[0] in "ab"] == ["a", "b"]
    assert [row["job"] for row in json.loads((tmp_path / "a.json").read_text())["rows"]] == ["a", "b"]
    refused = runcast("execute", path)
    assert (refused.returncode, "jobs are simulated, not executed" in refused.stderr) == (2, True)


def test_the_table_as_csv():
    report = predict(jobs(send([0, 4], 100 * MB, name="a"), send([1, 5], 300 * MB, name="b"))).report
    rows = list(csv.DictReader(io.StringIO(csv_text(report).decode())))
    assert [(row["job"], row["slowed_by"].split()[0]) for row in rows] == [("a", "b"), ("b", "a")]
    assert float(rows[0]["slowed_by"].split()[1]) == report.rows[0].slowed_by["b"]


def test_keys_of_a_table_without_jobs_and_their_hash_are_as_they_were():
    plain = collective(nodes=2)
    assert not plain.keys.jobs
    assert plain.hash == collective(nodes=2, jobs=[]).hash
    assert jobs(send([0, 4], MB)).hash != jobs(send([0, 5], MB)).hash


def test_sizes_of_jobs_may_be_changed():
    given = table(send([0, 4], 100 * MB), send([1, 5], 300 * MB))
    faster = change(given, {"cluster.oversubscription": 1, "cluster.leaf_radix": 8}, "a.toml")
    rows = resolve(check_question(faster, "a.toml"), "a.toml").job_rows
    assert all(row.slowed_by == {} for row in rows)


@pytest.mark.parametrize(
    ("given", "keys", "line"),
    [
        ([send([0, 4], MB), send([4, 5], MB)], {},
         "collective.jobs.1.ranks = [4, 5]: GPU 4 is one of jobs.0, too: a GPU is in one job"),
        ([send([0, 8], MB)], {}, "collective.jobs.0.ranks = [0, 8]: 8 nodes have 8 GPUs, numbered from 0"),
        ([send([0, 0], MB)], {}, "collective.jobs.0.ranks = [0, 0]: expected every GPU once"),
        ([send("0-4", MB)], {},
         "collective.jobs.0.ranks = '0-4': expected GPUs by their numbers from 0 on, such as '0:8'"),
        ([send([0], MB)], {}, "collective.jobs.0.groups = 1: expected groups of 2 GPUs or more, as many in each"),
        ([send([0, 1, 2], MB, groups=2)], {}, "collective.jobs.0.groups = 2: expected groups of 2 GPUs or more"),
        ([send([0, 4], MB, op="gossip")], {},
         "collective: jobs.0.op = 'gossip': expected one of all_reduce, all_gather"),
        ([send([0, 4], MB, algorithm="tree")], {},
         "collective: jobs.0.algorithm = 'tree': expected one of chain, binomial"),
        ([send([0, 4, 5], MB, algorithm="scatter_doubling")], {},
         "collective.jobs.0.algorithm = 'scatter_doubling': expected a power of two of ranks (given: 3)"),
        ([{"op": "all_reduce", "bytes": MB, "algorithm": "sharp"}], {}, "collective.jobs.0.algorithm = 'sharp': "),
        ([send([0, 4], MB, root=2)], {}, "collective.jobs.0.root = 2: there are 2 ranks in a group, numbered from 0"),
        ([send([0, 4], MB, gpus=2)], {}, "collective: jobs.0.gpus = 2: ranks are given: leave one of the two out"),
        ([send([0, 4], MB, name="a"), send([1, 5], MB, name="a")], {},
         "collective: jobs.1.name = 'a': expected another"),
        ([{"op": "reduce", "bytes": MB, "gpus": 6}, {"op": "reduce", "bytes": MB, "gpus": 4}], {},
         "collective.jobs.1.gpus = 4: 2 GPUs are left for it"),
        ([{"op": "reduce", "bytes": MB}] * 3, {}, "collective.jobs = 3: 8 GPUs are left, which is no even share for 3"),
        ([{"op": "all_reduce", "ranks": [0, 1]}], {}, "collective.jobs.0.bytes: "),
        ([send([0, 4], MB, start="-1 s")], {}, "collective.jobs.0.start = '-1 s': expected a duration"),
        ([send([0, 4], MB)], {"level": "formula"},
         "collective: level = 'formula': jobs share links at level chunks only"),
        ([send([0, 4], MB)], {"sizes": "1 MiB"},
         "collective.sizes = '1 MiB': does not go with jobs, each of which says"),
        ([send([0, 4], MB)], {"groups": 2}, "collective.groups = 2: does not go with jobs"),
        ([send([0, 4], MB)], {"seeds": 3}, "collective.seeds = 3: does not go with jobs"),
        ([{"op": "all_reduce", "bytes": 1 << 30, "algorithm": "two_level", "pieces": 1 << 20}], {},
         "collective.jobs = 1: at most 2,000,000 messages share links, these have more"),
    ],
)  # fmt: skip
def test_what_jobs_cannot_be_is_one_line(given, keys, line):
    with pytest.raises(UserError) as error:
        jobs(*given, **keys).rows  # noqa: B018
    assert str(error.value).startswith(f"a.toml: {line}")
    assert len(error.value.faults) == 1
