"""The JSON of nccl-tests (-J), as src/util.cu of nccl-tests writes schema 3."""

import json

import pytest
from runcast.calibrate.importing import Options, import_logs
from runcast.simulator.base.errors import UserError

NO_NETWORK = "rows between nodes do not say the rate of NICs: state --network here, or --cluster of fit"


def half(us, size, wrong=0.0):
    return {"time": us, "alg_bw": size / us / 1e3, "bus_bw": size / us / 1e3 * 15 / 8, "nwrong": wrong}


def result(size, us, **changes):
    common = {"size": size, "count": size // 4, "type": "float", "redop": "sum", "root": "    -1"}
    return {**common, "out_of_place": half(us, size), "in_place": half(us + 1, size, None), **changes}


def log(*results, **changes):
    device = {"group": 0, "pid": 4242, "device": 0, "device_info": "NVIDIA H100 80GB HBM3"}
    return {
        "version": 3,
        "start_time": "2026-01-01 12:00:00",
        "args": ["/opt/nccl-tests/build/all_reduce_perf", "-g", "8", "-J", "out.json"],
        "env": ["HF_TOKEN=hunter2", "PATH=/usr/bin"],
        "nccl_version": 22602,
        "config": {
            "nthreads": 1,
            "ngpus": 8,
            "devices": [
                {**device, "rank": 8 * i, "hostname": f"secret-host-{i}", "device_hex": "0000:19:00"} for i in range(2)
            ],
        },
        "results": list(results) or [result(1 << 20, 71.93), result(1 << 30, 4484.9)],
        "out_of_bounds": {"count": 0, "okay": "true"},
        **changes,
    }


def read(tmp_path, root, options=Options()):  # noqa: B008
    (tmp_path / "out.json").write_text(root if isinstance(root, str) else json.dumps(root))
    return import_logs([tmp_path / "out.json"], options)


def test_one_device_of_each_process_is_listed(tmp_path):
    samples = read(tmp_path, log())
    assert samples.table.iloc[0].to_dict() == {
        "cost_class": "all_reduce.network",
        "device": "H100 SXM",
        "library": "nccl 2.26.2",
        "group": "16 GPUs on 2 nodes, float",
        "seconds": pytest.approx(71.93e-6),
        "source": f"{tmp_path}/out.json:results[0]",
        "bytes": float(1 << 20),
        "gpus": 16.0,
        "nodes": 2.0,
    }


def test_the_environment_and_hosts_are_never_stored(tmp_path):
    samples = read(tmp_path, log())
    text = samples.table.to_csv() + str(samples.dropped)
    assert not [word for word in ("hunter2", "TOKEN", "secret-host", "4242") if word in text]


def test_bad_results_are_counted(tmp_path):
    bad = [
        result(1 << 20, 71.93, out_of_place=half(71.93, 1 << 20, 3.0)),
        result(1 << 20, 71.93, out_of_place={**half(71.93, 1 << 20), "time": "nan"}, in_place=None),
        {"size": "8"},
    ]
    samples = read(tmp_path, log(result(1 << 20, 71.93), *bad))
    assert len(samples) == 1
    assert samples.dropped == (
        f"{tmp_path}/out.json: 1 left out: not a result of schema 3 (at results[3])",
        f"{tmp_path}/out.json: 1 left out: wrong results (at results[1])",
        f"{tmp_path}/out.json: 1 left out: time is N/A (at results[2])",
        f"{tmp_path}/out.json: {NO_NETWORK}",
    )


def test_in_place_alone(tmp_path):
    samples = read(tmp_path, log(result(1 << 20, 71.93, out_of_place=None)))
    assert list(samples.table["seconds"]) == [pytest.approx(72.93e-6)]


def test_a_list_of_devices_at_the_root(tmp_path):
    root = log()
    root["devices"] = root["config"].pop("devices")
    assert set(read(tmp_path, root).table["nodes"]) == {2.0}


@pytest.mark.parametrize("form", ["[{},{}]", "{}\n{}\n", "[{}]\n[{}]"])
def test_several_runs_in_one_file(tmp_path, form):
    one = json.dumps(log(result(1 << 20, 71.93)))
    sources = read(tmp_path, form.replace("{}", one)).table["source"]
    assert [source.rpartition(":")[2] for source in sources] == ["[0].results[0]", "[1].results[0]"]


def test_several_groups_are_left_out(tmp_path):
    root = log()
    root["config"]["devices"][1]["group"] = 1
    with pytest.raises(UserError, match="several groups of ranks at once"):
        read(tmp_path, root)


def rccl(in_place, us, **changes):
    size, ranks = 1 << 20, 8
    algbw = size / us / 1e3
    return {
        "numCycle": 0, "name": "AllReduce", "nodes": 1, "ranks": ranks, "ranksPerNode": ranks, "gpusPerRank": 1,
        "size": size, "type": "float", "redop": "sum", "inPlace": in_place, "time": us, "algBw": algbw,
        "busBw": algbw * 2 * (ranks - 1) / ranks, "wrong": "0", **changes,
    }  # fmt: skip


RCCL = [rccl(0, 71.93), rccl(1, 72.93)]


@pytest.mark.parametrize(("column", "us"), [("out-of-place", 71.93), ("in-place", 72.93)])
def test_both_halves_of_rccl_tests(tmp_path, column, us):
    samples = read(tmp_path, RCCL, Options(device="H100", nodes=2, column=column))
    assert samples.table.iloc[0].to_dict() == {
        "cost_class": "all_reduce.network",
        "device": "H100 SXM",
        "library": "rccl",
        "group": "8 GPUs on 2 nodes, float",
        "seconds": pytest.approx(us * 1e-6),
        "source": f"{tmp_path}/out.json:[0]",
        "bytes": float(1 << 20),
        "gpus": 8.0,
        "nodes": 2.0,
    }


def test_one_process_of_rccl_tests_is_on_one_node(tmp_path):
    rows = [rccl(0, 71.93, ranks=1, ranksPerNode=1, gpusPerRank=8)]
    assert list(read(tmp_path, rows, Options(device="H100")).table["cost_class"]) == ["all_reduce"]


def test_rows_of_old_rccl_tests_follow_one_another(tmp_path):
    text = "".join(json.dumps(row) + "\n" for row in RCCL)
    assert len(read(tmp_path, text, Options(device="H100", nodes=1))) == 1


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, r"does not say on how many nodes its 8 ranks ran \(its `nodes` counts communicators\); give"),
        ({"nodes": 4, "ranks": 32}, r"out.json:\[0\]: several groups of ranks at once"),
        ({"name": "AllReduceWithBias"}, r"out.json:\[0\]: AllReduceWithBias has no cost class"),
        ({"wrong": "3"}, r"out.json:\[0\]: wrong results"),
        ({"size": "8"}, r"out.json:\[0\]: not a row of rccl-tests"),
    ],
)
def test_what_rccl_tests_does_not_say_is_refused(tmp_path, changes, line):
    with pytest.raises(UserError, match=line):
        read(tmp_path, [rccl(0, 71.93, **changes)], Options(device="H100"))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (json.dumps(log(), indent=1)[:-40], r"out.json:\d+: is not JSON"),
        (json.dumps({"results": {}}), "is a log of no known tool; known: nccl-tests"),
        (json.dumps(log(config={"devices": 3})), "config.devices: expected a list"),
        (json.dumps(log(args=[])), "give --op"),
        ("{" * 100_000, "is not JSON"),
    ],
)
def test_refused_with_one_line(tmp_path, text, line):
    with pytest.raises(UserError, match=line) as error:
        read(tmp_path, text)
    assert len(error.value.faults) == 1
    assert "hunter2" not in str(error.value)
