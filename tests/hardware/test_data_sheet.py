"""`runcast device add`: files of a GPU known by data sheet load at once, and inherit no price, power or network."""

from pathlib import Path

import pytest
from runcast.simulator import UserError
from runcast.simulator.hardware import cluster, device_names
from runcast.simulator.hardware.data_sheet import DataSheet, add_device, describe
from runcast.simulator.hardware.files import plain

from ..command import runcast

SCENARIOS = Path(__file__).parents[2] / "data/scenarios"
NUMBERS = ("--peak-bf16", "1.2 PFLOP/s", "--memory", "141 GB", "--bandwidth", "5 TB/s")
KEYS = {"like": "h100-sxm", "memory": "141 GB", "memory_bytes_per_s": "5 TB/s"}
PEAKS = {"bf16": "1.2 PFLOP/s"}
NICS = {"nics": 4, "nic": "800 Gb/s", "network": "roce"}


def add(folder: Path, *words: str):
    return runcast("device", "add", "Mine", "--like", "h100-sxm", *NUMBERS, *words, cwd=folder)


def sheet(server: str | None = None, **keys: object) -> DataSheet:
    return DataSheet("Mine", KEYS | keys, PEAKS, server)


def faults(sheet: DataSheet) -> tuple[str, ...]:
    with pytest.raises(UserError) as error:
        describe(sheet)
    return error.value.faults


@pytest.mark.parametrize("scenario", ["train-llama3-8b-8xh100", "tiny-stage-heads"])
def test_one_command_then_a_scenario_runs(tmp_path, scenario):
    added = add(tmp_path)
    done = runcast("simulate", SCENARIOS / f"{scenario}.toml", "--set", "cluster=mine-cluster.toml", cwd=tmp_path)

    assert (added.returncode, done.returncode, "x Mine" in done.stdout) == (0, 0, True)


def test_a_price_is_set_in_the_scenario_too(tmp_path):
    add(tmp_path)
    changes = ("cluster=mine-cluster.toml", "cluster.device.price_usd_per_hour=2")
    words = [word for change in changes for word in ("--set", change)]
    done = runcast("simulate", SCENARIOS / "train-llama3-8b-8xh100.toml", *words, cwd=tmp_path)

    assert ("at $2.00 per GPU-hour" in done.stdout, "no power known for Mine" in done.stdout) == (True, True)


def test_the_command_says_what_is_assumed_and_what_is_not_known(tmp_path):
    said = add(tmp_path).stdout.splitlines()

    assert [line for line in said if not line.startswith("server of")] == [
        "profile h100-sxm",
        "as H100 SXM: sms, l2, copy_engines",
        "price not known: reports have no cost; state --price",
        "power not known: reports have no energy; state --power",
        "no NVLink: GPUs of a server exchange over PCIe; state --nvlink, or name a --server",
        "no network: one server only; state --nics, --nic and --network, or name a --server",
        "wrote mine.toml",
        "wrote mine-node.toml",
        "wrote mine-cluster.toml",
        "use it: --set cluster=mine-cluster.toml",
    ]


def test_numbers_far_from_those_of_the_device_that_it_is_like_are_told(tmp_path):
    _, found = add_device(sheet(memory_bytes_per_s="33.5 GB/s"), tmp_path)

    assert found.notes[0] == "--bandwidth is 0.01 times that of H100 SXM: check its unit"


def test_nothing_of_another_gpu_is_inherited_but_its_chip(tmp_path):
    add_device(sheet(), tmp_path)
    made = cluster(str(tmp_path / "mine-cluster.toml"), 1)
    gpu, node = made.device(0), made.nodes[0]

    assert (gpu.price_usd_per_hour, gpu.power_w, node.host_power_w, node.nics, made.fabric.kind, gpu.sms) == (
        None, None, None, (), "single", 132,
    )  # fmt: skip


def test_what_is_stated_is_what_loads(tmp_path):
    stated = sheet(
        price_usd_per_hour=3.5, power="900 W", sms=160, gpus_per_node=4, nvlink_bytes_per_s="600 GB/s", **NICS
    )
    add_device(stated, tmp_path)
    made = cluster(str(tmp_path / "mine-cluster.toml"), 2)
    gpu, node = made.device(0), made.nodes[0]

    assert (gpu.price_usd_per_hour, gpu.power_w, gpu.sms, len(node.gpus), len(node.nics), made.fabric.network) == (
        3.5, 900.0, 160, 4, 4, "roce",
    )  # fmt: skip


def test_a_named_server_lends_its_board_and_network(tmp_path):
    add_device(sheet("dgx-h100"), tmp_path)
    made, shipped = cluster(str(tmp_path / "mine-cluster.toml"), 2), cluster("dgx-h100", 2)

    wires = [[wire for wire in of.nodes[0].graph.wires if wire.link.kind != "hbm"] for of in (made, shipped)]

    assert (wires[0], made.nodes[0].host_power_w, made.fabric) == (wires[1], 4600.0, shipped.fabric)


def test_a_named_server_on_another_network_lends_no_switches_that_add(tmp_path):
    add_device(sheet("dgx-h100", network="roce"), tmp_path)
    assert not cluster(str(tmp_path / "mine-cluster.toml"), 2).fabric.sharp


def test_every_number_has_a_source():
    entries = [
        entry
        for table in describe(sheet("dgx-h100")).files.values()
        for key, entry in table.items()
        if key not in ("about", "name", "device", "node", "peak_flop_per_s")
    ]

    assert [entry for entry in entries if not entry["source"]] == []


@pytest.mark.parametrize("like", device_names())
def test_a_gpu_may_be_like_any_of_the_catalogue(like):
    found = describe(sheet(like=like))

    assert plain(found.files["mine.toml"])["like"] == found.device.like


def test_all_that_is_missing_is_said_at_once():
    assert faults(DataSheet("h100", {"nics": 2}, {})) == (
        "--like: is missing; expected the device of the catalogue whose profile serves it, such as h100-sxm",
        '--peak-bf16: is missing; expected dense bf16 FLOP/s, such as "1.2 PFLOP/s"',
        '--memory: is missing; expected a quantity such as "96 GiB"',
        '--bandwidth: is missing; expected a rate such as "4 TB/s"',
        "NAME = 'h100': is a device of the catalogue; give another name",
        "--nic: is missing; expected with --nics, or name a --server",
        "--network: is missing; expected one of infiniband, roce, efa, efa-1, ethernet, or name a --server",
    )


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        (sheet(memory="3 parsecs"), "--memory = '3 parsecs': unknown unit 'parsecs'"),
        (sheet(memory="141"), "--memory = '141': expected 1 MiB to 1000 PB, such as \"141 GiB\""),
        (sheet(l2="51200"), "--l2 = '51200': expected 64 KiB to 1000 PB, such as \"50 MiB\""),
        (sheet(memory_bytes_per_s="4800"), "--bandwidth = '4800': expected 1 MB/s to 1000 PB/s, such as \"3.35 TB/s\""),
        (DataSheet("Mine", KEYS, {"bf16": "2250"}), "--peak-bf16 = '2250': expected 1 MFLOP/s to 1e9 PFLOP/s, such as"),
        (sheet(sms=0), "--sms = 0: expected at least 1"),
        (sheet(nvlink_bytes_per_s="4 foo"), "--nvlink = '4 foo': unknown unit 'foo'"),
        (sheet(**NICS | {"network": "token-ring"}), "--network = 'token-ring': expected one of infiniband, roce"),
        (sheet("dgx"), "--server = 'dgx': expected one of a100-40-hgx, a100-pcie"),
        (sheet(like="h1000"), "--like = 'h1000': unknown; did you mean"),
        (DataSheet("Mine", KEYS, PEAKS | {"fp7": "1 PFLOP/s"}), "--peak fp7 = 'fp7': expected one of fp32, tf32"),
        (DataSheet("../..", KEYS, PEAKS), "NAME = '../..': expected a name with a letter or a digit"),
    ],
)
def test_a_wrong_value_is_named_by_its_flag(wrong, line):
    (said,) = faults(wrong)

    assert said[: len(line)] == line


def test_a_mistake_leaves_nothing_and_files_that_are_there_stay(tmp_path):
    refused = add(tmp_path, "--sms", "0", "-o", "new")
    add(tmp_path, "-o", "new2")
    again = add(tmp_path, "-o", "new2")

    assert (refused.returncode, (tmp_path / "new").exists(), again.returncode, again.stderr.splitlines()[0]) == (
        2, False, 2, "error: new2/mine.toml: is there already; give another --out, or --force",
    )  # fmt: skip
