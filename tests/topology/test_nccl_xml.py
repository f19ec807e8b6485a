"""NCCL's topology XML: what each shape becomes. The shapes were seen at the places named beside them."""

import tomllib

import pytest
from runcast.simulator import UserError
from runcast.simulator.formats.topology import Additions, cluster_text, describe, read_layout

SWITCH = '<nvlink target="0000:07:00.0" count="9" tclass="0x068000"/>'


def gpu(
    bus: str, dev: int, links: str = "", sm: int = 90, device: str = "0x2335", speed: str = "32.0 GT/s PCIe"
) -> str:
    return (
        f'<pci busid="{bus}" class="0x030200" vendor="0x10de" device="{device}" link_speed="{speed}" link_width="16">'
        f'<gpu dev="{dev}" sm="{sm}" rank="{dev}" gdr="1">{links}</gpu></pci>'
    )


def nic(name: str, speed: int = 400000, kind: str = "0x020000") -> str:
    return (
        f'<pci busid="0000:99:00.0" class="{kind}"><nic><net name="{name}" speed="{speed}" guid="0xdead"/></nic></pci>'
    )


def bridge(inside: str, speed: str = "32.0 GT/s PCIe", width: str = "16") -> str:
    return f'<pci busid="0000:15:00.0" class="0x060400" link_speed="{speed}" link_width="{width}">{inside}</pci>'


def cpu(numa: int, inside: str, host: str = "0xbeef") -> str:
    return f'<cpu host_hash="{host}" numaid="{numa}" arch="x86_64">{inside}</cpu>'


def system(*cpus: str) -> str:
    return f'<system version="1">\n{chr(10).join(cpus)}\n</system>\n'


def imported(tmp_path, text, **given):
    path = tmp_path / "topo.xml"
    path.write_text(text)
    description = describe(read_layout(path), Additions(**given), "topo.xml")
    table = tomllib.loads(cluster_text(description))
    return {key: x["value"] for key, x in table.items() if key != "about"}, description


def picked(values, *keys):
    return tuple(values[key] for key in keys)


# Two GPUs of an H200 node with a NIC beside each (https://github.com/NVIDIA/nccl-tests/issues/256), and a slow port.
H200 = system(
    cpu(0, bridge(gpu("0000:18:00.0", 0, SWITCH * 2) + nic("mlx5_0")) + '<nic><net name="eth0" speed="25000"/></nic>'),
    cpu(1, bridge(gpu("0000:28:00.0", 1, SWITCH * 2) + nic("mlx5_1"), speed="16.0 GT/s PCIe")),
)
# A100 with four NUMA nodes and no switch: three peers of four links each (a Perlmutter node).
BUSES = ["0000:03:00.0", "0000:41:00.0", "0000:82:00.0", "0000:c1:00.0"]
MESH = system(
    *(
        cpu(
            3 - dev,
            gpu(
                bus,
                dev,
                "".join(f'<nvlink target="{b}" count="4" tclass="0x030200"/>' for b in BUSES if b != bus),
                80,
                "0x20b0",
                "16.0 GT/s PCIe",
            )
            + nic(f"cxi{dev}", 200000),
        )
        for dev, bus in enumerate(BUSES)
    )
)
# GB200: switches that NVML does not name, C2C, NICs of two rates at the sockets.
GRACE = '<nvlink target="fffffff:ff:ff.0" count="18" tclass="0x068000"/><c2c bw="44712" count="5"/>'
GB200 = system(
    *(
        cpu(
            n,
            "".join(gpu(f"000{2 * n + d}:01:00.0", 2 * n + d, GRACE, 100, "0x2941") for d in range(2))
            + "".join(nic(f"mlx5_{3 * n + k}", 200000 if k == 2 else 400000, "0x020700") for k in range(3)),
        )
        for n in range(2)
    )
)


def test_everything_that_a_dump_says(tmp_path):
    values, description = imported(tmp_path, H200)
    told = {key: value for key, value in values.items() if key not in description.assumed}
    assert told == {
        "node": "hgx-h200",
        "device": "h200",
        "gpus_per_node": 2,
        "sockets": 2,
        "pcie_switches": 2,
        "pcie_gen": 5,
        "upstream_pcie_gen": 4,
        "nvlink": "switch",
        "nvlink_bytes_per_s": "450 GB/s",
        "nics": 2,
        "nic": "400 Gb/s",
        "nic_attach": "switch",
        "network": "roce",
    }


def test_peers_are_wires(tmp_path):
    values, _ = imported(tmp_path, MESH)
    every_pair = [[a, b, 4] for a in range(4) for b in range(a + 1, 4)]
    assert picked(values, "nvlink", "nvlink_wires", "sockets", "network") == ("wires", every_pair, 2, "infiniband")


def test_the_fastest_are_rails_where_none_is_beside_a_gpu(tmp_path):
    values, description = imported(tmp_path, GB200)
    left_out = [note for note in description.notes if "left out" in note]
    slower = [f"{name}: slower than the others; left out" for name in ("mlx5_2", "mlx5_5")]
    found = picked(values, "nics", "nic", "nic_attach", "network")
    assert (found, left_out) == ((4, "400 Gb/s", "socket", "infiniband"), slower)


def test_gpus_of_another_host_are_left_out(tmp_path):
    two = system(
        *(cpu(0, gpu(f"000{h}:01:00.0", 0, GRACE, 100, "0x2941"), host=f"0x{h}") for h in range(2)),
    )
    values, _ = imported(tmp_path, two)
    assert (values["gpus_per_node"], values["nvlink_domain_nodes"]) == (1, 18)


def test_a_gpu_that_lost_links_narrows_all(tmp_path):
    lame = H200.replace('count="9"', 'count="8"', 1)
    values, description = imported(tmp_path, lame)
    told = "NVLinks are missing: GPU0 has 17 of 18; every GPU is written with 17" in description.notes
    assert (values["nvlink_bytes_per_s"], told) == ("425 GB/s", True)


def test_handwritten_files_name_classes_only(tmp_path):
    # Azure's files for virtual machines have bus ids and classes, but no <gpu> and no <net>.
    bare = '<pci busid="0001:00:00.0" class="0x030200"/><pci busid="0101:00:00.0" class="0x020700"/>'
    text = system(cpu(0, bridge(bare * 2, "16 GT/s")))
    values, _ = imported(tmp_path, text, device="a100", nvlink=False)
    assert (values["gpus_per_node"], values["nics"], values["network"]) == (2, 2, "infiniband")


@pytest.mark.parametrize(("speed", "width", "gen"), [("32.0 GT/s PCIe", "8", 4), ("8.0 GT/s PCIe", "16", 3)])
def test_fewer_lanes_are_an_older_generation(tmp_path, speed, width, gen):
    text = system(cpu(0, bridge(gpu("0000:18:00.0", 0, SWITCH), speed, width)))
    values, _ = imported(tmp_path, text)
    assert values["upstream_pcie_gen"] == gen


@pytest.mark.parametrize("speed", ["", "Unknown", "2.5 GT/s PCIe"])
def test_an_unreadable_speed_is_the_catalogues(tmp_path, speed):
    _, description = imported(tmp_path, system(cpu(0, gpu("0000:18:00.0", 0, SWITCH, speed=speed))))
    assert "pcie_gen" in description.assumed


def test_identifiers_of_the_machine_stay_out(tmp_path):
    named = H200.replace("eth0", "my secret host").replace("<system", "root@secret# cat x\n<system", 1)
    _, description = imported(tmp_path, named)
    assert [word for word in ("secret", "0xdead", "0xbeef", "0000:") if word in cluster_text(description)] == []


DEEP = '<pci busid="b" class="0x060400">' * 70 + "</pci>" * 70


@pytest.mark.parametrize(
    ("text", "given", "message"),
    [
        (
            '<!DOCTYPE system [<!ENTITY a "aaaa">]>' + H200,
            {},
            "{path}: has a document type (<!DOCTYPE>); expected the plain XML that NCCL writes",
        ),
        (H200.replace("</system>", ""), {}, "{path}:5: is not XML: no element found"),
        ("banner\n" + H200.replace("</cpu>", "</pci>", 1), {}, "{path}:3: is not XML: mismatched tag"),
        (
            system(cpu(0, "")),
            {},
            "{path}: system: GPUs of the first host = 0: "
            "expected 1 to 128 <pci> elements with <gpu>, or of class 0x0302",
        ),
        (
            H200.replace('count="9"', 'count="many"'),
            {},
            "{path}: nvlink of pci 0000:18:00.0: count = 'many': expected a whole number",
        ),
        (
            H200.replace('speed="400000"', 'speed="fast"', 1),
            {},
            "{path}: net mlx5_0: speed = 'fast': expected a whole number",
        ),
        (
            H200.replace("0x10de", "0x1002"),
            {},
            "{path}: pci 0000:18:00.0: vendor = '0x1002': expected 0x10de, a GPU of NVIDIA",
        ),
        (
            H200.replace('sm="90"', 'sm="80"', 1),
            {},
            "{path}: sm = [80, 90]: expected one kind of GPU in a node",
        ),
        (system(cpu(0, DEEP)), {}, "{path}: pci b: more than 64 elements above it"),
        (
            H200,
            {"device": "a100"},
            "--device = 'a100': has compute capability 80; expected a device with 90, as topo.xml says",
        ),
        (
            H200.replace("0x2335", "0x9999"),
            {},
            "topo.xml: which GPU is it? nothing in it tells; name it with --device, "
            "one of gh200-96, h100-nvl, h100-pcie, h100-sxm, h20, h20-3e, h200, h800",
        ),
    ],
    ids=["doctype", "cut", "tags", "empty", "count", "speed", "amd", "mixed", "deep", "contradiction", "unknown"],
)
def test_mistakes_take_one_line(tmp_path, text, given, message):
    with pytest.raises(UserError) as error:
        imported(tmp_path, text, **given)
    assert str(error.value) == message.format(path=tmp_path / "topo.xml")
