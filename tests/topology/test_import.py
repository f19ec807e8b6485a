"""`runcast cluster import`: the file that it writes loads, and nothing is written when it cannot."""

import pytest
from runcast.simulator import UserError
from runcast.simulator.cli import main
from runcast.simulator.formats.topology import Additions, import_cluster
from runcast.simulator.hardware import cluster, device_names

# Two GPUs with a NIC each on one socket, as a container of an HGX H100 shows them.
PAIR = """\
	GPU0	GPU1	NIC0	NIC1	CPU Affinity	NUMA Affinity	GPU NUMA ID
GPU0	 X 	NV18	PIX	NODE	0-55	0		N/A
GPU1	NV18	 X 	NODE	PIX	0-55	0		N/A
NIC0	PIX	NODE	 X 	NODE
"""
# The same two GPUs without a link between them.
LONE = PAIR.replace("NV18", "NODE")


@pytest.fixture
def topo(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "topo.txt").write_text(PAIR)
    return tmp_path


def run(*arguments):
    with pytest.raises(SystemExit) as leave:
        main(["cluster", "import", *arguments])
    return leave.value.code or 0


@pytest.mark.parametrize("nodes", [1, 2])
def test_what_is_written_loads(topo, nodes):
    import_cluster("topo.txt", "mine.toml", Additions(device="h100"))
    made = cluster("mine.toml", nodes)
    assert (made.n_gpus, made.device(0).name) == (2 * nodes, "H100 SXM")


@pytest.mark.parametrize("device", device_names())
def test_every_device_has_a_node(topo, device):
    (topo / "topo.txt").write_text(LONE)
    import_cluster("topo.txt", "mine.toml", Additions(device=device, nvlink=False))
    assert cluster("mine.toml", 2).n_gpus == 4


def test_four_superchips_in_one_node(topo):
    # A node of four GH200 whose GPUs see each other over six links each.
    rows = [
        "\t".join([f"GPU{g}", *("X" if g == h else "NV6" for h in range(4)), f"{72 * g}-{72 * g + 71}", f"{g}"])
        for g in range(4)
    ]
    (topo / "topo.txt").write_text("\n".join(["\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity", *rows]))
    import_cluster("topo.txt", "mine.toml", Additions(device="gh200"))
    assert cluster("mine.toml", 2).n_gpus == 8


def test_the_command_prints_what_was_assumed(topo, capsys):
    code = run("topo.txt", "--device", "h100", "-o", "mine.toml")
    assert (code, capsys.readouterr().out.splitlines()) == (
        0,
        [
            "2 x h100-sxm, nvlink switch, 1 sockets, 2 PCIe switches, 2 x 400 Gb/s on each switch (infiniband)",
            "from the catalogue node hgx-h100: pcie_gen, upstream_pcie_gen, upstream_ports, host_memory, "
            "host_memory_bytes_per_s, socket_bytes_per_s, nic, network, fabric, oversubscription, leaf_radix",
            "check: 2 GPUs where such nodes have 8: a container or a job shows its own only",
            "wrote mine.toml",
        ],
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--device", "h100", "-o", "mine.json"], "--out = 'mine.json': expected a name that ends in .toml"),
        (["--device", "h100", "-o", "no/such.toml"], "no/such.toml: cannot be written: there is no folder"),
        (
            ["--device", "h100", "-o", "there.toml"],
            "there.toml: is there already; give another name with --out, or --force",
        ),
        (["--device", "h100", "--format", "yaml"], "--format = 'yaml': expected one of auto, smi, xml"),
        (["--device", "h100", "--format", "xml"], "topo.txt: is no topology; expected the matrix of"),
        (
            ["--device", "h100", "--network", "token"],
            "--network = 'token': expected one of infiniband, roce, efa, efa-1, ethernet",
        ),
        (["--device", "h101"], "--device = 'h101': unknown; known: a100"),
    ],
)
def test_mistakes_leave_with_2_and_write_nothing(topo, capsys, arguments, message):
    (topo / "there.toml").write_text("mine")
    before = sorted(path.name for path in topo.iterdir())
    code = run("topo.txt", *arguments)
    errors = capsys.readouterr().err.splitlines()
    after = sorted(path.name for path in topo.iterdir())
    assert (code, len(errors), message in errors[0], after) == (2, 1, True, before)


def test_force_replaces(topo):
    (topo / "cluster.toml").write_text("mine")
    assert (run("topo.txt", "--device", "h100", "--force"), cluster("cluster.toml", 1).n_gpus) == (0, 2)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("hello GPU0\n", "is no topology; expected"),
        ("", "is no topology; expected"),
        ('<graphs version="1"></graphs>', "is no topology; it is of NCCL_GRAPH_DUMP_FILE; expected"),
    ],
)
def test_a_file_that_is_neither_format(topo, text, why):
    (topo / "topo.txt").write_text(text)
    with pytest.raises(UserError) as error:
        import_cluster("topo.txt", "mine.toml", Additions(device="h100"))
    assert str(error.value).startswith(f"topo.txt: {why}")
