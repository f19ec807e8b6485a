"""The catalogue: every entry loads, every number says where it comes from, and rates are per direction."""

import json
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from runcast.simulator import UserError
from runcast.simulator.hardware import cluster, cluster_inputs, cluster_names, device, device_names
from runcast.simulator.hardware.files import loose, tables

DATA = Path(str(files("runcast.data") / "hardware"))
FILES = sorted(DATA.rglob("*.toml"))
TEXT_KEYS = {"name", "about", "aliases", "node", "device"}


def numbers_without_source(table: dict[str, Any], path: str) -> Iterator[str]:
    for key, value in table.items():
        if isinstance(value, dict) and "value" in value:
            if set(value) != {"value", "source"} or len(value["source"].strip()) < 10:
                yield f"{path}.{key}"
        elif isinstance(value, dict):
            yield from numbers_without_source(value, f"{path}.{key}")
        elif key not in TEXT_KEYS:
            yield f"{path}.{key}"


def rate(name: str, link: str) -> float:
    machine = cluster(name, 1)
    return next(x.bytes_per_s for x in machine.links if x.name == f"n0.{link}")


@pytest.mark.parametrize("file", FILES, ids=lambda f: f"{f.parent.name}/{f.stem}")
def test_every_number_has_a_source(file: Path) -> None:
    assert list(numbers_without_source(tomllib.loads(file.read_text()), file.stem)) == []


@pytest.mark.parametrize("name", device_names())
def test_device_loads_with_plausible_limits(name: str) -> None:
    gpu = device(name)
    flop_per_byte = gpu.peak_flop_per_s["fp16"] / gpu.memory_bytes_per_s
    assert 30 < flop_per_byte < 1000


@pytest.mark.parametrize("name", cluster_names())
def test_cluster_loads_with_routes_between_all_gpus_of_two_nodes(name: str) -> None:
    machine = cluster(name, 2)
    gpus = [machine.gpu(i) for i in range(machine.n_gpus)]
    assert all(machine.route(a, b) for a in gpus for b in gpus if a != b)


@pytest.mark.parametrize("name", cluster_names())
def test_every_capacity_is_positive(name: str) -> None:
    assert cluster(name, 2).capacity.min() > 0


@pytest.mark.parametrize(
    ("name", "bytes_per_s"),
    [
        ("dgx-h100", 450e9),
        ("h20-hgx", 450e9),
        ("h800-hgx", 200e9),
        ("h200-hgx", 450e9),
        ("dgx-a100", 300e9),
        ("dgx-b200", 900e9),
        ("gb300-nvl72", 900e9),
    ],
)
def test_nvlink_is_half_of_the_vendors_total(name: str, bytes_per_s: float) -> None:
    assert rate(name, "gpu0>nvswitch") == bytes_per_s


def test_v100_mesh_has_single_and_double_links() -> None:
    assert (rate("dgx-v100", "gpu0>gpu1"), rate("dgx-v100", "gpu0>gpu3")) == (25e9, 50e9)


@pytest.mark.parametrize(("generation", "bytes_per_s"), [(3, 15.75e9), (4, 31.5e9), (5, 63e9), (6, 121e9)])
def test_pcie_is_one_direction_of_sixteen_lanes(generation: int, bytes_per_s: float) -> None:
    machine = cluster({"base": "dgx-h100", "pcie_gen": generation}, 1)
    assert machine.capacity[machine.h2d_route(0)[-1]] == pytest.approx(bytes_per_s, rel=1e-3)


def test_nic_rate_is_bits_over_eight() -> None:
    machine = cluster("dgx-h100", 1)
    assert machine.capacity[machine.nic_tx("n0.nic0")] == 50e9


@pytest.mark.parametrize("name", ["H100 SXM", "h100_sxm", "H100-SXM-80GB", "h100", "H100 SXM5 80GB"])
def test_spelling_of_a_device_does_not_matter(name: str) -> None:
    assert device(name) is device("h100-sxm")


@pytest.mark.parametrize("name", device_names())
def test_every_name_of_a_device_finds_it_and_no_other(name: str) -> None:
    gpu = device(name)
    assert [device(alias) for alias in (gpu.name, *gpu.aliases)] == [gpu] * (1 + len(gpu.aliases))


def test_h20_is_as_published() -> None:
    gpu = device("h20")
    assert (gpu.peak_flop_per_s["bf16"], gpu.peak_flop_per_s["fp8"], gpu.memory_bytes_per_s, gpu.sms) == (
        148e12,
        296e12,
        4.0e12,
        78,
    )


def test_bf16_of_h100_is_dense() -> None:
    assert device("h100").peak_flop_per_s["bf16"] == 989.4e12


def test_overrides_change_what_they_name() -> None:
    spec = {"base": "h20-hgx", "nics": 4, "nic": "200 Gb/s", "network": "roce", "nic_attach": "socket"}
    machine = cluster(spec, 2, "s.toml")
    assert (len(machine.nics_of(1)), machine.capacity[machine.nic_rx("n1.nic3")]) == (4, 25e9)


def test_a_what_if_without_nvlink() -> None:
    machine = cluster({"base": "dgx-h100", "nvlink": "none"}, 1)
    assert machine.nvlink_domain(0) == (0,)


def test_equal_nodes_listed_one_by_one_share_their_rack() -> None:
    listed = {"mix": [{"base": "gb200-nvl72", "nodes": 1}, {"base": "gb200-nvl72", "nodes": 2}]}

    assert cluster(listed, 3).nvlink_domain(0) == tuple(range(12))
    assert cluster_inputs(listed, 3) == cluster_inputs("gb200-nvl72", 3)


def test_equal_nodes_are_one_kind_wherever_they_are_listed() -> None:
    mix = [{"base": base, "nodes": 1} for base in ("dgx-h100", "dgx-a100", "dgx-h100")]

    first, other, last = cluster({"mix": mix}, 3).nodes
    assert [first is last, first is other] == [True, False]


def test_a_user_may_bring_another_device() -> None:
    assert cluster({"base": "dgx-h100", "device": "H200"}, 1).device(7) is device("h200")


def test_a_user_may_change_a_device() -> None:
    faster = {"base": "H200", "memory_bytes_per_s": "6 TB/s", "peak_flop_per_s": {"bf16": "1 PFLOP/s"}}
    gpu = cluster({"base": "dgx-h100", "device": faster}, 1).device(0)
    assert (gpu.memory_bytes_per_s, gpu.peak_flop_per_s["bf16"], gpu.sms) == (6e12, 1e15, 132)


def test_another_gpu_inherits_no_price_and_no_power() -> None:
    faster = device({"base": "h100-sxm", "memory_bytes_per_s": "4 TB/s", "power": "900 W"})
    like = device({"base": "h100-sxm", "memory": "96 GiB"})

    assert [(one.price_usd_per_hour, one.power_w) for one in (faster, like)] == [(None, 900.0), (None, None)]


def test_the_same_gpu_at_another_price_keeps_its_power() -> None:
    cheaper = device({"base": "h100-sxm", "name": "Mine", "price_usd_per_hour": 2, "memory": "80 GiB"})

    assert (cheaper.price_usd_per_hour, cheaper.power_w) == (2.0, 700.0)


def test_a_user_may_bring_a_device_file(tmp_path: Path) -> None:
    shipped = (DATA / "devices" / "h100-sxm.toml").read_text()
    (tmp_path / "mine.toml").write_text(shipped.replace('"H100 SXM"', '"Mine"', 1))
    (tmp_path / "scenario.toml").write_text("")
    assert device("mine.toml", str(tmp_path / "scenario.toml")).name == "Mine"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"base": "h100", "sms": 0}, r"s.toml: cluster.device.sms = 0: expected at least 1"),
        ({"base": "h100", "peak_flop_per_s": {"bf17": 1}}, r"peak_flop_per_s.bf17 = 'bf17': expected one of fp32"),
        ({"base": "h100", "peak_flop_per_s": 3}, r"device.peak_flop_per_s = 3: expected a table"),
        ({"name": "mine"}, r"s.toml: cluster.device.memory: is missing"),
        ({"base": 3}, r"s.toml: cluster.device.base = 3: expected a device's name"),
        (3, r"s.toml: cluster.device = 3: expected a device's name, a .toml file or a table"),
    ],
)
def test_a_mistake_in_a_device_is_a_clear_line(changes: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        cluster({"base": "dgx-h100", "device": changes}, 1, "s.toml")


def test_a_node_with_fewer_gpus_has_the_wires_between_them() -> None:
    links = [sum(link.kind == "nvlink" for link in cluster(spec, 1).links) for spec in _MESHES]

    assert links == [32, 12]


_MESHES = ("dgx-v100", {"base": "dgx-v100", "gpus_per_node": 4})


def test_a_node_with_fewer_gpus() -> None:
    assert cluster({"base": "dgx-h100", "gpus_per_node": 4}, 3).gpus_per_node == (4, 4, 4)


def test_resolved_is_plain_json_and_names_the_device() -> None:
    plain = cluster_inputs("dgx-h100", 4)
    assert json.loads(json.dumps(plain)) == plain


def test_resolved_is_equal_for_a_name_and_the_same_mapping() -> None:
    assert cluster_inputs("dgx-h100", 2) == cluster_inputs({"base": "DGX_H100", "nics": 8}, 2)


def test_resolved_sees_an_override() -> None:
    assert cluster_inputs("dgx-h100", 2) != cluster_inputs({"base": "dgx-h100", "oversubscription": 2}, 2)


def test_cluster_file_beside_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "ours.toml").write_text('base = "dgx-h100"\nnics = 4\n')
    scenario = tmp_path / "scenario.toml"
    scenario.write_text("")
    assert len(cluster("ours.toml", 1, str(scenario)).nics_of(0)) == 4


@pytest.mark.parametrize("name", cluster_names())
def test_a_copy_of_a_shipped_cluster_is_that_cluster(tmp_path: Path, name: str) -> None:
    text = (DATA / "clusters" / f"{name}.toml").read_text()
    (tmp_path / "ours.toml").write_text(text)
    assert cluster_inputs(str(tmp_path / "ours.toml"), 2) == cluster_inputs(name, 2)


def test_a_cluster_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "ours.toml").write_text('base = "dgx-h100"\nnics = 4\n', encoding="utf-8-sig")
    assert len(cluster(str(tmp_path / "ours.toml"), 1).nics_of(0)) == 4


def test_the_largest_cluster() -> None:
    assert cluster("h20-hgx", 2048).n_gpus == 16_384


@pytest.mark.slow
def test_a_node_of_a_thousand_gpus_is_wired_in_a_moment() -> None:
    most = {"gpus_per_node": 1024, "nics": 64, "sockets": 8, "pcie_switches": 64}
    machine = cluster({"base": "h20-hgx", **most}, 1)
    assert (machine.nic_of(1023), machine.numa_of(1023)) == ("n0.nic63", "n0.numa7")


def test_pcie_generations_say_nothing_that_nobody_reads() -> None:
    generations = tomllib.loads((DATA / "wires.toml").read_text())["pcie"]
    assert {key for generation in generations.values() for key in generation} == {"line"}


def test_host_memory_of_each_node() -> None:
    machine = cluster({"mix": [{"base": "dgx-v100", "nodes": 1}, {"base": "dgx-2", "nodes": 1}]}, 2)
    assert [machine.nodes[node].host_memory_bytes for node in range(2)] == [512 * 10**9, 1500 * 10**9]


def test_mixed_nodes_are_on_the_smallest_leaves_wherever_they_are_listed() -> None:
    mix = [{"base": base, "nodes": 1} for base in ("dgx-h100", "dgx-a100", "dgx-v100")]
    fabrics = [cluster({"mix": listed}, 3).fabric for listed in (mix, mix[::-1])]
    assert [(one.kind, one.leaf_radix) for one in fabrics] == [("leaf", 36)] * 2


def test_mixed_node_types() -> None:
    mix = {"mix": [{"base": "dgx-h100", "nodes": 2}, {"base": "gb200-nvl72", "nodes": 1}]}
    assert cluster(mix, 3).gpus_per_node == (8, 8, 4)


@pytest.mark.parametrize(
    ("spec", "nodes", "message"),
    [
        ("dgx-h1000", 1, r"^s.toml: cluster = 'dgx-h1000': unknown; did you mean .*dgx-h100"),
        ({"base": "dgx"}, 1, r"s.toml: cluster.base = 'dgx': unknown; "),
        ({"base": "mine.toml"}, 1, r"cluster.base = 'mine.toml': expected a cluster of the catalogue, not a file"),
        ({"nics": 2}, 1, r"s.toml: cluster.base: is missing; expected a cluster of the catalogue, such as"),
        ({}, 1, r"s.toml: cluster.base: is missing; .* or node, a node type$"),
        ({"node": 7}, 1, r"s.toml: cluster.node = 7: expected the name of a node type"),
        (
            {"node": "hgx-b200"},
            1,
            r"cluster.network, fabric, .*: missing beside node; expected base = \"dgx-b200\"",
        ),
        ({"base": "h20-hgx", "nicks": 4}, 1, r"s.toml: cluster.nicks: unknown key; did you mean nics or nic\?$"),
        ({"base": "h20-hgx", "nics": {"value": 4, "sauce": "x"}}, 1, r"cluster.nics.sauce: unknown key; did you mean "),
        ({"base": "h20-hgx", "nics": {"vale": 4, "source": "x"}}, 1, r"cluster.nics.vale: unknown .* mean value\?$"),
        ({"base": "h20-hgx", "nics": {"source": "x"}}, 1, r"s.toml: cluster.nics.value: is missing beside source$"),
        ({"base": "h20-hgx", "nics": {"vale": 4}}, 1, r"cluster.nics = \{'vale': 4\}: expected a whole number$"),
        ({"base": "h20-hgx", "nics": -1}, 1, r"s.toml: cluster.nics = -1: expected at least 0"),
        ({"base": "h20-hgx", "nics": True}, 1, r"s.toml: cluster.nics = True: expected a whole number"),
        ({"base": "h20-hgx", "nic": "200 GiB"}, 1, r"s.toml: cluster.nic = '200 GiB': unknown unit 'GiB'"),
        ({"base": "h20-hgx", "nic": "0 Gb/s"}, 1, r"s.toml: cluster.nic = '0 Gb/s': expected 1 kB/s to 1000 PB/s"),
        ({"base": "h20-hgx", "nic": "1e-300 B/s"}, 1, r"cluster.nic = '1e-300 B/s': expected 1 kB/s to 1000 PB/s$"),
        ({"base": "h20-hgx", "nic": "2000 PB/s"}, 1, r"cluster.nic = '2000 PB/s': expected 1 kB/s to 1000 PB/s$"),
        ({"base": "h20-hgx", "nic": 10**400}, 1, r"cluster.nic = 10+\.\.\.: is too large$"),
        ({"base": "h20-hgx", "host_memory": "1e-9 B"}, 1, r"host_memory = '1e-9 B': expected 1 B to 1000 PB$"),
        ({"base": "h20-hgx", "nvlink_bytes_per_s": 1e-9}, 1, r"nvlink_bytes_per_s = 1e-09: expected 1 kB/s to "),
        ({"base": "h20-hgx", "gpus_per_node": 1025}, 1, r"gpus_per_node = 1025: .* at most 1024$"),
        ({"base": "h20-hgx", "nics": 10**9}, 1, r"nics = 1000000000: .* at most 1024$"),
        ({"base": "h20-hgx", "sockets": 65}, 1, r"sockets = 65: .* at most 64$"),
        ({"base": "h20-hgx", "pcie_switches": 257}, 1, r"pcie_switches = 257: .* at most 256$"),
        ({"base": "h20-hgx", "leaf_radix": 10**400}, 1, r"leaf_radix = 10+\.\.\.: .* at most 4096$"),
        ({"base": "h20-hgx", "upstream_ports": 4097}, 1, r"upstream_ports = 4097: .* at most 4096$"),
        ({"base": "h20-hgx", "oversubscription": 10**400}, 1, r"oversubscription = 10+\.\.\.: expected a number$"),
        ({"base": "h20-hgx", "nodes": 2}, 1, r"cluster.nodes: unknown key"),
        ("h20-hgx", 16385, r"^s.toml: nodes = 16385: 131080 GPUs; at most 131072 are supported yet$"),
        ("h20-hgx", 10**30, r"s.toml: nodes = 10+: 80+ GPUs; at most 131072 are supported yet$"),
        ({"mix": [{"base": "gh200", "nodes": 10**9}]}, 10**9, r"s.toml: nodes = 10+: 10+ GPUs; at most 131072"),
        ({"base": "h20-hgx", "network": "token-ring"}, 1, r"expected one of infiniband, roce, efa, efa-1, ethernet"),
        ({"base": "h20-hgx", "oversubscription": 0}, 1, r"oversubscription = 0: expected at least 1"),
        ({"base": "h20-hgx", "pcie_gen": 7}, 1, r"pcie_gen = 7: expected one of 3, 4, 5, 6"),
        ({"base": "h20-hgx", "device": "h300"}, 1, r"s.toml: cluster.device = 'h300': unknown; did you mean "),
        ({"base": "h20-hgx", "fabric": "single"}, 2, r"s.toml: nodes = 2: fabric \"single\" has no network"),
        ({"base": "h20-hgx", "colour": 1}, 1, r"cluster.colour: unknown key; known: about, c2c_bytes_per_s, "),
        ({"base": "l40s-pcie", "nvlink": "switch"}, 1, r"nvlink = 'switch': needs nvlink_bytes_per_s above zero"),
        (
            {"base": "h100-pcie", "nvls": True},
            1,
            r"nvls = True: needs nvlink = 'switch': an NVSwitch adds \(given: 'wires'\)",
        ),
        ({"base": "gh200", "sockets": 2}, 1, r"cluster.sockets = 2: needs socket_bytes_per_s above zero"),
        ({"base": "dgx-h100", "nvlink": "wires"}, 1, r"nvlink = 'wires': needs nvlink_wires"),
        *(
            ({"base": "dgx-v100", "nvlink_wires": wires}, 1, rf"s.toml: cluster.nvlink_wires{why}$")
            for wires, why in [
                ([[0, 1]], ".0.2: is missing"),
                ([[0, 0, 1]], " = .*: expected a list of .* between two GPUs, no pair of them twice"),
                ([[0, 1, 0]], ".0.2 = 0: expected at least 1"),
                ([[0, 1, True]], ".0.2 = True: expected a whole number"),
                ([[0, 1, 5000]], ".0.2 = 5000: expected at most 4096"),
                ([[0, 9, 1]], r" = \[0, 9, 1\]: a node has 8 GPUs, numbered from 0"),
                ([[0, 1, 1], [1, 0, 2]], " = .*: expected a list of .* between two GPUs, no pair of them twice"),
            ]
        ),
        ("h20-hgx", 0, r"s.toml: nodes = 0: expected a whole number, at least 1"),
        (
            {"mix": [{"base": "dgx-h100", "nodes": 1}, {"base": "p5-h100-efa", "nodes": 1}]},
            2,
            r"s.toml: cluster.mix = \['efa', 'infiniband'\]: expected one kind of network: set network in each entry",
        ),
        ({"mix": [{"base": "h20-hgx", "nodes": 2}]}, 3, r"s.toml: nodes = 3: the nodes of `mix` add up to 2"),
        ({"mix": [{"base": "h20-hgx"}]}, 1, r"s.toml: cluster.mix\[0\].nodes = None: expected a whole number"),
        ("gone.toml", 1, r"^s.toml: cluster = 'gone.toml': no such file: /.*gone.toml$"),
        (7, 1, r"s.toml: cluster = 7: expected a cluster's name"),
    ],
)
def test_a_mistake_is_one_clear_line(spec: Any, nodes: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        cluster(spec, nodes, "s.toml")


def test_every_fault_has_its_own_line() -> None:
    with pytest.raises(UserError) as caught:
        cluster({"base": "h20-hgx", "nics": -1, "nic": "fast", "colour": "red"}, 1, "s.toml")
    assert len(caught.value.faults) == 3


@pytest.mark.parametrize("name", ["k4.json", "k5.yaml", "C1.TOML", "k6"])
@pytest.mark.parametrize("key", ["cluster", "node", "device"])
def test_a_file_of_another_suffix_is_said_to_be_there(tmp_path: Path, name: str, key: str) -> None:
    (tmp_path / name).touch()
    spec = {"cluster": name, "node": {"node": name}, "device": {"base": "dgx-h100", "device": name}}[key]
    (tmp_path / "s.toml").touch()

    with pytest.raises(
        UserError, match=rf" = '{name}': is a file \(/.*{name}\); expected one whose name ends in .toml$"
    ):
        cluster(spec, 1, str(tmp_path / "s.toml"))


def test_a_node_file_that_is_missing_is_named_with_its_key_and_place(tmp_path: Path) -> None:
    (tmp_path / "ours.toml").write_text('base = "dgx-h100"\nnode = "n.toml"\n')
    with pytest.raises(UserError, match=r"^/.*/ours\.toml: node = '.*: no such file: /.*n\.toml$"):
        cluster(str(tmp_path / "ours.toml"), 1)


@pytest.mark.parametrize("name", ["a" * 300 + ".toml", "a/" * 2000 + "b.toml"])
def test_a_name_that_no_file_can_have_is_missing_file(tmp_path: Path, name: str) -> None:
    (tmp_path / "s.toml").touch()
    with pytest.raises(UserError):
        cluster(name, 1, str(tmp_path / "s.toml"))


@pytest.mark.parametrize("key", ["sizes = [3, 3]", 'sites = 3\nsite_bandwidth = "1 Gb/s"', "planes = 9"])
def test_a_fault_of_the_network_names_the_clusters_file(tmp_path: Path, key: str) -> None:
    (tmp_path / "k.toml").write_text(f'base = "dgx-h100"\nfabric = "torus"\n{key}\n')

    with pytest.raises(UserError) as error:
        cluster("k.toml", 4, str(tmp_path / "k.toml"))

    assert str(error.value).startswith(f"{tmp_path / 'k.toml'}: {key.partition(' ')[0]} = ")


def test_broken_cluster_file_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "broken.toml"
    path.write_text("nics = = 4")
    with pytest.raises(UserError, match=r"broken.toml: is not TOML: "):
        cluster(str(path), 1, "s.toml")


@pytest.mark.parametrize("folder", ["devices", "nodes", "clusters"])
def test_a_name_or_alias_is_of_one_file(folder: str) -> None:
    spoken = {
        name: {loose(word) for word in (name, known.get("name", name), *known.get("aliases", ()))}
        for name, known in tables(folder).items()
    }
    assert sum(map(len, spoken.values())) == len(set().union(*spoken.values()))


def test_an_nvswitch_that_is_taken_away_no_longer_adds():
    assert [cluster(spec, 1).nodes[0].nvls for spec in ("dgx-h100", {"base": "dgx-h100", "nvlink": "none"})] == [
        True,
        False,
    ]
