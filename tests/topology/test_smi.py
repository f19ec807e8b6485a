"""`nvidia-smi topo -m`: what each shape of machine becomes. The shapes were seen at the places named beside them."""

import tomllib

import pytest
from runcast.simulator import UserError
from runcast.simulator.formats.topology import Additions, cluster_text, describe, read_layout
from runcast.simulator.hardware import cluster_inputs

TOP, BOTTOM = "0-47", "48-95"


def matrix(cells: list[list[str]], nics: list[str], affinity: list[str], sep: str = "\t") -> str:
    """The text of a matrix: a row of cells per GPU, the NICs' columns last."""
    names = [f"GPU{i}" for i in range(len(cells))]
    rows = [sep.join([name, *row, where]) for name, row, where in zip(names, cells, affinity, strict=True)]
    return "\n".join([sep.join(["", *names, *nics, "CPU Affinity", "NUMA Affinity"]), *rows, ""])


def box(gpus: int, link: str | dict[tuple[int, int], str], beside: list[str], numa: list[str], sep: str = "\t") -> str:
    """`link` joins all GPUs, or those of a pair (else SYS); `beside` has one text of cells per NIC, a word per GPU."""
    near = link if isinstance(link, dict) else {(a, b): link for a in range(gpus) for b in range(a + 1, gpus)}
    cells = [
        ["X" if a == b else near.get((min(a, b), max(a, b)), "SYS") for b in range(gpus)]
        + [nic.split()[a] for nic in beside]
        for a in range(gpus)
    ]
    return matrix(cells, [f"NIC{k}" for k in range(len(beside))], numa, sep)


def only(gpus: int, near: list[int], cell: str, far: str = "SYS") -> str:
    return " ".join(cell if g in near else far for g in range(gpus))


def imported(tmp_path, text, **given):
    path = tmp_path / "topo.txt"
    path.write_text(text)
    description = describe(read_layout(path), Additions(**given), "topo.txt")
    table = tomllib.loads(cluster_text(description))
    return {key: x["value"] for key, x in table.items() if key != "about"}, description


def picked(values, *keys):
    return tuple(values[key] for key in keys)


WIRING = ("gpus_per_node", "sockets", "pcie_switches", "nvlink", "nics", "nic_attach")

# DGX H100: a NIC beside each GPU, a storage port per socket (https://github.com/NVIDIA/nccl/issues/1264).
H100 = box(
    8,
    "NV18",
    [*(only(8, [g], "PIX") for g in range(8)), only(8, [0, 1, 2, 3], "NODE"), only(8, [4, 5, 6, 7], "NODE")],
    [f"{TOP}\t0"] * 4 + [f"{BOTTOM}\t1"] * 4,
)
# DGX A100: four NUMA nodes of two sockets, PXB only, two storage ports (https://github.com/NVIDIA/nccl/issues/1505).
A100 = box(
    8,
    "NV12",
    [*(only(8, [k // 2 * 2, k // 2 * 2 + 1], "PXB") for k in range(8)), only(8, [], ""), only(8, [], "")],
    [f"{n}-{n}   {n}" for n in (3, 3, 1, 1, 7, 7, 5, 5)],
    sep="   ",
)
# DGX-2: two GPUs and a NIC below one switch, the next one PXB away (https://github.com/NVIDIA/nccl-tests/issues/78).
DGX2 = box(
    4,
    "NV6",
    ["PIX PIX PXB PXB", "PXB PXB PIX PIX", "NODE NODE NODE NODE"],
    [f"{TOP}"] * 4,
)
# 4 x A100 without a switch, each GPU in its own NUMA node (a Perlmutter node).
MESH = box(4, "NV4", [only(4, [g], "PHB") for g in range(1)], [f"{n}-{n}\t{n}" for n in (3, 2, 1, 0)])
# 4 x L40 in two sockets, two ports of one adapter at the second one.
L40S = box(4, {(0, 1): "NODE", (2, 3): "NODE"}, ["SYS SYS NODE NODE"] * 2, [f"{TOP}\t0"] * 2 + [f"{BOTTOM}\t1"] * 2)
# GB200 tray: everything is SYS away from the GPUs (https://github.com/sgl-project/sglang/issues/11208).
GB200 = box(4, "NV18", [only(4, [], "")] * 6, ["0-71\t0,3-9\t2"] * 2 + ["72-143\t1,19-25\t18"] * 2)


@pytest.mark.parametrize(
    ("text", "given", "expected"),
    [
        (H100, {"device": "h100"}, (8, 2, 8, "switch", 8, "switch")),
        (A100, {"device": "a100"}, (8, 2, 4, "switch", 8, "switch")),
        (DGX2, {"device": "v100-sxm3-32"}, (4, 1, 2, "switch", 2, "switch")),
        (MESH, {"device": "a100-sxm-40"}, (4, 2, 2, "wires", 1, "socket")),
        (L40S, {"device": "l40s", "nics": ["NIC0"]}, (4, 2, 0, "none", 1, "socket")),
        (GB200, {"device": "gb200", "nics": ["NIC0", "NIC1"]}, (4, 2, 0, "switch", 2, "socket")),
        (box(2, "NV12", [], ["0-7\t0"] * 2), {"device": "a100"}, (2, 1, 1, "switch", 2, "switch")),
        (box(2, "NV12", [], ["0-7\t0"] * 2), {"device": "a100-pcie-80"}, (2, 1, 1, "wires", 1, "switch")),
        (box(1, {}, ["PIX"], ["0-7\t0"]), {"device": "h200"}, (1, 1, 1, "none", 1, "switch")),
    ],
    ids=["h100", "a100", "dgx-2", "mesh", "l40s", "gb200", "two-sxm", "bridged-pair", "one"],
)
def test_wiring(tmp_path, text, given, expected):
    values, _ = imported(tmp_path, text, **given)
    assert picked(values, *WIRING) == expected


def test_unequal_links_are_wires(tmp_path):
    # The first four GPUs of a DGX-1 (https://gist.github.com/ashwin/e139748bdba15f5af63f0146d01ee4c3).
    links = {(0, 1): "NV1", (0, 2): "NV1", (0, 3): "NV2", (1, 2): "NV2", (1, 3): "NV1", (2, 3): "NV2"}
    values, _ = imported(tmp_path, box(4, links, ["PIX PIX PHB PHB", "PHB PHB PIX PIX"], [TOP] * 4), device="v100")
    wires = [[0, 1, 1], [0, 2, 1], [0, 3, 2], [1, 2, 2], [1, 3, 1], [2, 3, 2]]
    assert picked(values, "nvlink_wires", "nvlink_bytes_per_s") == (wires, "25 GB/s")


@pytest.mark.parametrize(
    ("links", "device", "port"),
    [("NV18", "h20", "450 GB/s"), ("NV8", "h800", "200 GB/s"), ("NV18", "b200", "900 GB/s")],
)
def test_port_of_a_switch_is_links_times_their_rate(tmp_path, links, device, port):
    values, _ = imported(tmp_path, box(8, links, [], [TOP] * 8), device=device)
    assert values["nvlink_bytes_per_s"] == port


def test_storage_ports_are_named_as_left_out(tmp_path):
    _, description = imported(tmp_path, H100 + "\nNIC Legend:\n  NIC8: mlx5_bond_0\n", device="h100")
    assert description.notes == (
        "NIC8 (mlx5_bond_0): no GPU's nearest: storage or management; left out",
        "NIC9: no GPU's nearest: storage or management; left out",
    )


def test_terminal_around_the_matrix_leaves_no_trace(tmp_path):
    header, rows = H100.split("\n", 1)
    before = "root@node17:~# env\nTOKEN=hunter2\nGPU 0: NVIDIA H20 (UUID: GPU-9)"
    session = f"{before}\n\x1b[4m{header}\x1b[0m\n{rows}root@node17:~#"
    _, description = imported(tmp_path, session)
    text = cluster_text(description)
    assert ([word for word in ("node17", "hunter2", "GPU-9") if word in text], "h20" in text) == ([], True)


def test_the_matrix_may_be_prefixed_by_a_logger(tmp_path):
    lines = [f"10:01:59 rank0 | {line}" for line in H100.splitlines() if line]
    values, _ = imported(tmp_path, "\n".join(lines), device="h100")
    assert values["gpus_per_node"] == 8


def test_what_the_file_does_not_say_comes_from_the_catalogue(tmp_path):
    _, description = imported(tmp_path, H100, device="h100", nic="200 Gb/s", network="roce")
    assert description.assumed == (
        "pcie_gen",
        "upstream_pcie_gen",
        "upstream_ports",
        "host_memory",
        "host_memory_bytes_per_s",
        "socket_bytes_per_s",
        "fabric",
        "oversubscription",
        "leaf_radix",
    )


CUT = "\n".join(H100.splitlines()[:3])


@pytest.mark.parametrize(
    ("text", "given", "message"),
    [
        (
            CUT,
            {},
            "{path}:1: the matrix has no row of GPU2, GPU3, GPU4, GPU5, GPU6, GPU7; expected one for each of 8 GPUs",
        ),
        (
            H100.replace("NV18", "NV?", 1),
            {},
            "{path}:2: GPU0 to GPU1 = 'NV?': expected X, PIX, PXB, PHB, NODE, SYS or NV#",
        ),
        (
            "\tGPU0\tGPU1\nGPU0\tX\n",
            {},
            "{path}:2: cells of GPU0 = 1: expected 2, as the header has; is the line cut or wrapped?",
        ),
        (
            box(1, {}, ["NV4"], [TOP]),
            {},
            "{path}:2: GPU0 to NIC0 = 'NV4': expected PIX, PXB, PHB, NODE or SYS between a GPU and a NIC",
        ),
        (
            H100,
            {"device": "a100"},
            "topo.txt: shows 18 NVLinks, but a100-sxm-80 has 12; name the right GPU with --device",
        ),
        (H100, {"device": "l40s"}, "topo.txt: shows NVLinks, but l40s has none; name the right GPU with --device"),
        (
            H100,
            {"device": "h100", "nic": "fast"},
            """--nic = 'fast': expected a quantity such as "400 Gb/s" or "55 GB/s\"""",
        ),
        (
            H100,
            {"device": "h100", "nics": ["NIC77"]},
            "--nics: NIC of topo.txt = 'NIC77': unknown; did you mean NIC7 or NIC9 or NIC8?",
        ),
        (
            L40S,
            {"device": "l40s"},
            "topo.txt: no NIC shares a PCIe switch with a GPU, so storage ports look like rails; "
            "name the rails, from --nics NIC0,NIC1",
        ),
        (
            box(2, {}, [], [TOP] * 2),
            {"device": "h100"},
            "topo.txt: shows no NVLinks, but boards with h100-sxm have them; `nvidia-smi topo -mp` hides them, "
            "`topo -m` does not; if the machine has none, add --no-nvlink",
        ),
        (
            box(4, {(0, 1): "NV18", (0, 2): "NV18"}, [], [TOP] * 4),
            {"device": "h100"},
            "topo.txt: NV# joins only some GPUs, yet with more links than the 18 of h100-sxm",
        ),
    ],
    ids=["rows", "cell", "short", "nic-cell", "too-many", "no-nvlink", "rate", "nics", "rails", "hidden", "partial"],
)
def test_mistakes_take_one_line(tmp_path, text, given, message):
    with pytest.raises(UserError) as error:
        imported(tmp_path, text, **given)
    assert str(error.value) == message.format(path=tmp_path / "topo.txt")


def test_an_unknown_gpu_asks_for_the_flag(tmp_path):
    with pytest.raises(
        UserError, match=r"^topo.txt: which GPU is it\? nothing in it tells; name it with --device, one of a"
    ):
        imported(tmp_path, H100)


@pytest.mark.parametrize(("text", "device", "name"), [(H100, "h100", "dgx-h100"), (A100, "a100", "dgx-a100")])
def test_a_machine_of_the_catalogue_comes_back(tmp_path, text, device, name):
    values, _ = imported(tmp_path, text, device=device)
    assert cluster_inputs(values) == cluster_inputs(name)
