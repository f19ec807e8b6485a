"""Logs of nccl-tests as text. Shapes: NVIDIA/nccl-tests issues 290 and 309, its src/util.cu, and logs of rccl-tests."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.calibrate.importing import Network, Options, import_logs
from runcast.simulator.base.errors import UserError

HEADER = "#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong\n"
OLD = "#  size  count  type  redop  time  algbw  busbw  error  time  algbw  busbw  error\n"  # to about 2022
RANKS = "".join(
    f"#  Rank {i:2d} Group 0 Pid 29262 on host-{i // 8} device {i % 8:2d} [0000:{i % 8:02x}:00] NVIDIA H100 80GB HBM3\n"
    for i in range(16)
)
START = "# Collective test starting: all_reduce_perf\n"
VERSION = "NCCL version 2.26.2+cuda12.8\n"
ROWS = (
    "   1048576  262144  float  sum  -1   71.93   14.58   27.33      0    71.47   14.67   27.51      0\n"
    "1073741824  268435456  float  sum  -1  4484.9  239.41  448.90   0    4470.2  240.20  450.37      0\n"
    "17179869184  4294967296  float  sum  -1  68652  250.24  469.21  0   68668  250.19  469.10      0\n"
)
LOG = START + RANKS + VERSION + HEADER + ROWS
NO_NETWORK = "rows between nodes do not say the rate of NICs: state --network here, or --cluster of fit"
HERE = Options(op="all_reduce", gpus=16, nodes=2, device="H100")


def read(tmp_path, text, options=Options(), name="run.log"):  # noqa: B008
    (tmp_path / name).write_bytes(text.encode())
    return import_logs([tmp_path / name], options)


def seconds(samples):
    return list(samples.table["seconds"].round(12))


def test_a_log_that_says_all_needs_no_flag(tmp_path):
    samples = read(tmp_path, LOG)
    row = samples.table.iloc[0].to_dict()
    assert row == {
        "cost_class": "all_reduce.network",
        "device": "H100 SXM",
        "library": "nccl 2.26.2",
        "group": "16 GPUs on 2 nodes, float",
        "seconds": pytest.approx(71.93e-6),
        "source": f"{tmp_path}/run.log:20",
        "bytes": 1048576.0,
        "gpus": 16.0,
        "nodes": 2.0,
    }


@pytest.mark.parametrize("says", [
    "mpirun -np 16 -x NCCL_ALGO=Tree ./build/all_reduce_perf -b 1M -e 16G\n",
    "NCCL_ALGO='Tree' ./build/all_reduce_perf -b 1M -e 16G\n",
    "host-1:1:1 [0] NCCL INFO NCCL_ALGO set by environment to Tree\n",
])  # fmt: skip
def test_a_log_says_which_algorithm_was_forced(tmp_path, says):
    samples = read(tmp_path, says + LOG)
    assert (len(samples), list(samples.forced["algorithm"])) == (0, ["Tree"] * 3)


def test_a_flag_does_not_contradict_the_algorithm_of_a_log(tmp_path):
    says = "mpirun -np 16 -x NCCL_ALGO=Tree ./build/all_reduce_perf\n"
    with pytest.raises(UserError, match="--algorithm = 'Ring': this table says Tree"):
        read(tmp_path, says + LOG, Options(algorithm="Ring"))


def test_times_of_any_width(tmp_path):
    row = "1200000000  300000000  float  sum  -1  1.2e+06  1.00  1.88  0  1200000  1.00  1.88  0\n"
    assert seconds(read(tmp_path, LOG + row)) == [71.93e-6, 4484.9e-6, 68652e-6, 1.2]


def test_the_in_place_column(tmp_path):
    assert seconds(read(tmp_path, LOG, Options(column="in-place")))[0] == 71.47e-6


def test_a_node_is_a_class_without_network(tmp_path):
    samples = read(tmp_path, HEADER + ROWS, Options(op="all_reduce", nodes=1, device="H100"))
    assert list(samples.table["cost_class"].unique()) == ["all_reduce"]


def test_the_network_of_a_node_is_a_feature(tmp_path):
    samples = read(tmp_path, LOG, Options(network=Network.parse("8 x 400 Gb/s")))
    assert list(samples.table["network_bytes_per_s"]) == [400e9] * 3


def one_rank_in_each_of(nodes):
    """A log of one rank in each node: 40 GB/s through a NIC of 50."""
    bus = f"40.00  {40 * (1 - 1 / nodes):.2f}  0"
    rows = "".join(
        f"{size}  {size // 4}  float  none  -1  {size / 4e4:.2f}  {bus}  N/A N/A N/A N/A\n"
        for size in (1 << 26, 1 << 28)
    )
    ranks = "".join(
        f"#  Rank {i:2d} Group 0 Pid 1 on host-{i} device  0 [0000:00:00] NVIDIA H100 80GB HBM3\n" for i in range(nodes)
    )
    return START.replace("reduce", "gather") + ranks + VERSION + HEADER + rows


@pytest.mark.parametrize(
    ("network", "bytes_per_s"), [("8 x 400 Gb/s", 50e9), ("16 x 200 Gb/s", 50e9), ("4 x 400 Gb/s", 50e9)]
)
def test_one_rank_of_a_node_uses_the_nics_beside_it(tmp_path, network, bytes_per_s):
    """Of nodes of eight GPUs, as predictions have it."""
    samples = read(tmp_path, one_rank_in_each_of(4), Options(network=Network.parse(network)))
    assert (list(samples.table["network_bytes_per_s"]), samples.dropped) == ([bytes_per_s] * 2, ())


@pytest.mark.parametrize("network", [None, Network.parse("3.2 Tb/s")])
def test_one_rank_of_a_node_uses_nobody_knows_how_many_nics(tmp_path, network):
    with pytest.raises(UserError, match="one rank of a node uses some of its NICs only; say how many there are"):
        read(tmp_path, one_rank_in_each_of(4), Options(network=network))


def test_a_log_of_several_nodes_without_a_network_says_so(tmp_path):
    assert read(tmp_path, LOG).dropped == (f"{tmp_path}/run.log: {NO_NETWORK}",)


FAST = "8589934592  2147483648  float  sum  -1  33173.4  258.94  485.51  0  33173.4  258.94  485.51  0\n"
"""An all-reduce of 16 ranks that moves at least 2,072 Gb/s between two nodes."""


def test_a_line_rate_below_what_was_reached_is_refused(tmp_path):
    with pytest.raises(UserError) as refused:
        read(tmp_path, LOG + FAST, Options(network=Network.parse("400 Gb/s")))

    assert str(refused.value).partition(": ")[2] == (
        "--network = '400 Gb/s': at least 2072 Gb/s pass the NICs of a node here; expected their line rate together"
    )


@pytest.mark.parametrize(
    ("network", "said"),
    [
        ("8 x 400 Gb/s", []),
        ("8 x 400 GB/s", ["3200 Gb/s of one NIC: is it bytes for bits?"]),
        ("3.2 TB/s", ["no row has more than 2072 Gb/s of the 2.56e+04 Gb/s of a node: is it bytes for bits?"]),
    ],
)
def test_bytes_for_bits_are_told(tmp_path, network, said):
    samples = read(tmp_path, LOG + FAST, Options(network=Network.parse(network)))

    assert [line.partition("--network: ")[2] for line in samples.dropped if "--network" in line] == said


def test_send_and_receive_has_the_link_only(tmp_path):
    log = LOG.replace("all_reduce", "sendrecv").replace(" sum ", " ")
    samples = read(tmp_path, log, Options(network=Network.parse("8 x 400 Gb/s")))
    assert samples.table.iloc[0][["cost_class", "bytes", "link_bytes_per_s"]].tolist() == [
        "send_recv.network",
        1048576.0,
        50e9,
    ]
    assert not {"gpus", "network_bytes_per_s"} & set(samples.table)


PREFIXES = ["0: ", " 0: ", "[1,0]<stdout>:", "[1,0]<stdout>: ", "2024-05-01T12:00:00.123Z ", "12:00:01 ", "worker-0: ",
            "[2024-05-01 12:00:00] 0: ", "worker-0  | ", "(Actor pid=12, ip=10.0.0.1) "]  # fmt: skip


@pytest.mark.parametrize("prefix", PREFIXES)
def test_prefixes_of_launchers_and_collectors(tmp_path, prefix):
    prefixed = "".join(prefix + line for line in LOG.splitlines(keepends=True))
    assert seconds(read(tmp_path, prefixed)) == seconds(read(tmp_path, LOG))


def test_windows_line_ends_and_colours(tmp_path):
    coloured = "".join(f"\x1b[1;32m{line[:-1]}\x1b[0m\r\n" for line in LOG.splitlines(keepends=True))
    assert seconds(read(tmp_path, coloured)) == seconds(read(tmp_path, LOG))


def test_old_rows_without_root_and_with_error(tmp_path):
    log = OLD + "1048576  262144  float  sum  71.93  14.58  27.33  2e-07  71.47  14.67  27.51  2e-07\n"
    wrong = "2097152  524288  float  sum  143.8  14.58  27.34  3e+02  143.8  14.58  27.34  2e-07\n"
    samples = read(tmp_path, log + wrong, HERE)
    assert seconds(samples) == [71.93e-6]
    assert samples.dropped[0] == f"{tmp_path}/run.log: 1 left out: wrong results (line 3)"


def test_old_all_gather_rows_have_no_redop(tmp_path):
    log = OLD + "1048576  262144  float  71.93  14.58  13.67  0e+00  71.47  14.67  13.75  0e+00\n"
    samples = read(tmp_path, log, Options(op="all_gather", nodes=2, device="H100"))
    assert samples.table[["cost_class", "gpus"]].values.tolist() == [["all_gather.network", 16.0]]


def test_rows_that_are_no_samples_are_counted_with_their_lines(tmp_path):
    bad = (
        "0  0  float  sum  -1  0.06  0.00  0.00  0  0.04  0.00  0.00  N/A\n"
        "1048576  262144  float  sum  -1  71.93  14.58  27.33  12  71.47  14.67  27.51  0\n"
        "1048576  262144  float  sum  -1  71.93  24.58  27.33  0  71.47  14.67  27.51  0\n"
        "1048576  262144  float  sum  -1  71.93  14.58\n"
        "1048576  262144  float  sum  -1  N/A  N/A  N/A  N/A  N/A  N/A  N/A  N/A\n"
        "1048576  262144  float  sum  -1  fast  14.58  27.33  0  71.47  14.67  27.51  0\n"
    )
    samples = read(tmp_path, HEADER + ROWS + bad, HERE)
    file = f"{tmp_path}/run.log"
    assert len(samples) == 3
    assert sorted(samples.dropped) == sorted(
        [
            f"{file}: 1 left out: size is zero (line 5)",
            f"{file}: 1 left out: wrong results (line 6)",
            f"{file}: 1 left out: time x algbw is not the size (line 7)",
            f"{file}: 1 left out: row has 3 values; expected 8 (line 8)",
            f"{file}: 1 left out: time is N/A (line 9)",
            f"{file}: 1 left out: row holds what is no number (line 10)",
            f"{file}: {NO_NETWORK}",
        ]
    )


def test_in_place_stands_in_for_out_of_place_that_is_not_there(tmp_path):
    row = "1048576  262144  float  sum  -1  N/A  N/A  N/A  N/A  71.47  14.67  27.51  0\n"
    samples = read(tmp_path, HEADER + row, HERE)
    assert seconds(samples) == [71.47e-6]
    assert samples.dropped[0].endswith("out-of-place times are N/A in some rows: in-place is used there")


def test_a_row_without_its_first_half(tmp_path):
    row = "1048576  262144  float  sum  -1                                71.47  14.67  27.51  N/A\n"
    assert seconds(read(tmp_path, HEADER + row, HERE)) == [71.47e-6]


def test_columns_of_single_iterations_and_time_stamps(tmp_path):
    half = "time  algbw  busbw  #wrong  i_min  i_max  i_p99  i_cv%"
    header = f"#  size  count  type  redop  root  {half}  {half}  timestamp\n"
    values = "71.93  14.58  27.33  0  70.01  80.22  79.11  3.10"
    row = f"1048576  262144  float  sum  -1  {values}  {values}  2026-01-01 12:00:00\n"
    assert seconds(read(tmp_path, header + row, HERE)) == [71.93e-6]


def test_times_of_the_cpu_are_left_out(tmp_path):
    with pytest.raises(UserError, match=r"run.log:2: times of the CPU \(-C\); none of 3 rows can be used"):
        read(tmp_path, HEADER.replace("time ", "cputime ") + ROWS, HERE)


def test_several_tests_in_one_log(tmp_path):
    gather = LOG.replace("all_reduce", "all_gather").replace("NVIDIA H100 80GB HBM3", "NVIDIA H200")
    gather = gather.replace(" sum ", " none ")
    for allreduce, gathered in (("27.33", "13.67"), ("448.90", "224.45"), ("469.21", "234.60")):
        gather = gather.replace(allreduce, gathered)
    skipped = LOG.replace("all_reduce", "hypercube")
    end = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 139.56\n#\n"
    samples = read(tmp_path, LOG + end + gather + end + skipped)
    assert samples.table.groupby("cost_class")["device"].first().to_dict() == {
        "all_gather.network": "H200 SXM",
        "all_reduce.network": "H100 SXM",
    }
    assert "3 left out: hypercube_perf has no cost class" in samples.dropped[0]


@pytest.mark.parametrize(
    ("banner", "library"),
    [
        ("# nccl-tests version 2.18.0 nccl-headers=23102 nccl-library=23102\n", "nccl 2.31.2"),
        ("# rccl-tests version 2.17.9-develop:4a65e8d rccl-headers=22707 rccl-library=22707\n", "rccl 2.27.7"),
        ("RCCL version : 2.22.3-develop:abc\n", "rccl 2.22.3"),
        ("# nccl-tests version 2.4 nccl-headers=2708 nccl-library=2708\n", "nccl 2.7.8"),
        ("", "nccl"),
    ],
)
def test_the_library_and_its_version(tmp_path, banner, library):
    samples = read(tmp_path, LOG.replace(VERSION, banner))
    assert set(samples.table["library"]) == {library}


def test_ranks_from_the_command_when_the_list_is_cut(tmp_path):
    command = (
        "$ mpirun --allow-run-as-root \\\n  -np 16 -x NCCL_DEBUG=INFO \\\n  ./build/all_reduce_perf -b 1M -n 20 -g 1\n"
    )
    samples = read(tmp_path, command + HEADER + ROWS, Options(nodes=2, device="H100"))
    assert samples.table[["cost_class", "gpus"]].iloc[0].tolist() == ["all_reduce.network", 16.0]


def test_nodes_of_srun_and_gpus_of_a_process(tmp_path):
    log = "srun -N 2 -n 2 all_reduce_perf -g 8\n# nThread 1 nGpus 8 minBytes 8\n" + HEADER + ROWS
    samples = read(tmp_path, log, Options(device="H100"))
    assert samples.table[["gpus", "nodes"]].iloc[0].tolist() == [16.0, 2.0]


def test_a_list_of_ranks_with_gaps_that_leave_no_doubt(tmp_path):
    few = "".join(RANKS.splitlines(keepends=True)[i] for i in (0, 1, 15))
    samples = read(tmp_path, START + few + HEADER + ROWS)
    assert samples.table[["gpus", "nodes"]].iloc[0].tolist() == [16.0, 2.0]


def test_ranks_inferred_from_the_bandwidths(tmp_path):
    samples = read(tmp_path, START + HEADER + ROWS, Options(nodes=2, device="H100"))
    assert set(samples.table["gpus"]) == {16.0}


EIGHT = "   1048576  262144  float  sum  -1  71.93  14.58  25.51  0  71.93  14.58  25.51  0\n"
RANK_3 = RANKS.splitlines(keepends=True)[3]
REFUSED = {
    "ranks that contradict": (
        START + HEADER + ROWS,
        Options(gpus=8, nodes=2),
        "run.log:3: 8 ranks of all_reduce contradict busbw / algbw, which fits 16; give --gpus",
    ),
    "ranks that are listed": (LOG, Options(gpus=8), "run.log:20: --gpus = 8: this table says 16"),
    "ranks fewer than are listed": (LOG.replace(RANK_3, ""), Options(gpus=8), "this table says 16"),
    "nodes that are listed": (LOG, Options(nodes=4), "run.log:20: --nodes = 4: this table says 2"),
    "one node that is listed": (
        LOG.replace("host-1 ", "host-0 ").replace("0000:", "00:", 8),
        Options(nodes=2),
        "run.log:20: --nodes = 2: this table says 1",
    ),
    "nodes of 16 or of 8 ranks": (
        START + HEADER + ROWS + "# Avg bus bandwidth : 1\n" + START + HEADER + EIGHT,
        Options(nodes=2, device="H100"),
        "run.log:9: --nodes = 2: is for 16 ranks \\(line 3\\), or for 8 here; import one from another file",
    ),
    "a whole list that contradicts": (
        LOG.replace(ROWS, EIGHT),
        Options(),
        "16 ranks of all_reduce contradict busbw / algbw, which fits 8$",
    ),
    "groups": (
        LOG.replace("Group 0", "Group 1", 8),
        Options(),
        r"run.log:20: several groups of ranks at once \(NCCL_TESTS_SPLIT\), which share links; none of 3 rows",
    ),
    "groups of a command": (
        "mpirun -np 16 -x NCCL_TESTS_SPLIT=%8 all_reduce_perf -g 1\n" + HEADER + ROWS,
        HERE,
        "run.log:3: several groups",
    ),
    "sums of 8 bits": (LOG.replace("float", "int8"), Options(), "run.log:20: 8-bit sums, .*none of 3 rows"),
    "rows that do not reduce": (
        LOG.replace(" sum ", " none "),
        Options(),
        "run.log:20: redop = 'none': all_reduce reduces$",
    ),
    "rows that reduce": (
        HEADER + ROWS,
        Options(op="broadcast", gpus=16, nodes=2, device="H100"),
        "run.log:2: redop = 'sum': --op broadcast does not reduce; import this table from a file of its own",
    ),
    "a cut list": (
        START + "".join(RANKS.splitlines(keepends=True)[:8]) + HEADER + ROWS,
        Options(),
        "8 ranks of all_reduce contradict busbw / algbw, which fits 16; give --gpus",
    ),
    "no ranks": (
        HEADER + "1048576  262144  float  none  0  71.93  14.58  14.58  0  71.47  14.67  14.67  0\n",
        Options(op="broadcast", nodes=2, device="H100"),
        "does not say how many ranks ran; give --gpus",
    ),
    "no nodes": (START + HEADER + ROWS, Options(device="H100"), "on how many nodes its 16 ranks ran; give --nodes"),
    "nodes of one name": (
        LOG.replace("host-1", "host-0"),
        Options(),
        "on how many nodes its 16 ranks ran; give --nodes",
    ),
    "no test": (RANKS + HEADER + ROWS, Options(), "does not name the test that ran; give --op"),
    "another test": (LOG, Options(op="alltoall"), "run.log:20: --op = 'alltoall': this table says all_reduce"),
    "no device": (START + HEADER + ROWS, Options(nodes=2), "does not name the GPU; give --device"),
    "unknown device": (LOG.replace("NVIDIA H100 80GB HBM3", "AMD X1"), Options(), "'AMD X1' is not in the catalogue"),
    "two devices": (
        LOG.replace("NVIDIA H100 80GB HBM3", "NVIDIA H200", 1),
        Options(),
        "several kinds of GPUs, H100 SXM and H200 SXM; give --device",
    ),
    "no rows": (LOG.replace(ROWS, ""), Options(), "holds no results"),
    "no good row": (HEADER + "8  2  float  sum  -1  1\n", HERE, "run.log:2: row has 2 values; expected 8"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_one_line(tmp_path, name):
    log, options, line = REFUSED[name]
    with pytest.raises(UserError, match=line) as error:
        read(tmp_path, log, options)
    assert len(error.value.faults) == 1


END = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 139.56\n#\n"


def test_every_faulty_table_is_named_with_its_line(tmp_path):
    unnamed, of_eight = RANKS + HEADER + ROWS, LOG.replace(ROWS, EIGHT)
    with pytest.raises(UserError) as error:
        read(tmp_path, LOG + END + unnamed + END + of_eight)
    assert [line.removeprefix(f"{tmp_path}/") for line in error.value.faults] == [
        "run.log:43: does not name the test that ran; give --op, such as --op all_reduce",
        "run.log:68: 16 ranks of all_reduce contradict busbw / algbw, which fits 8",
    ]


def test_a_flag_is_for_tables_that_do_not_say_it(tmp_path):
    gathered = ROWS.replace("27.33", "13.67").replace("448.90", "224.45").replace("469.21", "234.60")
    unnamed = RANKS + HEADER + gathered.replace(" sum ", " none ")
    samples = read(tmp_path, LOG + END + unnamed, Options(op="all_gather"))
    assert (list(samples.table["cost_class"].unique()), samples.dropped) == (
        ["all_reduce.network", "all_gather.network"],
        tuple(
            f"{tmp_path}/run.log: {said}"
            for said in (NO_NETWORK, "--op is for tables that do not say it; others do (line 20)")
        ),
    )


def test_a_cut_list_of_ranks_may_have_more(tmp_path):
    cut = START + "".join(RANKS.splitlines(keepends=True)[:8]) + HEADER + ROWS
    samples = read(tmp_path, cut, Options(gpus=16, nodes=2))
    assert set(samples.table["gpus"]) == {16.0}


def test_a_mask_of_zero_makes_one_group(tmp_path):
    command = "mpirun -np 16 -x NCCL_TESTS_SPLIT_MASK=0x0 all_reduce_perf -g 1\n"
    assert len(read(tmp_path, command + HEADER + ROWS, HERE)) == 3


def test_nvlink_may_join_hosts_to_one_node(tmp_path):
    log = LOG.replace("NVIDIA H100 80GB HBM3", "NVIDIA GB200")
    assert set(read(tmp_path, log, Options(nodes=1)).table["cost_class"]) == {"all_reduce"}


def test_bytes_that_are_not_summed_are_samples(tmp_path):
    row = "1048576  1048576  int8  none  -1  71.93  14.58  13.67  0  71.47  14.67  13.75  0\n"
    assert len(read(tmp_path, HEADER + row, Options(op="all_gather", nodes=2, device="H100"))) == 1


def test_hosts_and_environment_are_never_stored(tmp_path):
    secrets = "export HF_TOKEN=hunter2\nhost-0:1:1 [0] NCCL INFO NCCL_SOCKET_IFNAME set to hunter2\n"
    samples = read(tmp_path, secrets + LOG)
    text = samples.table.to_csv() + str(samples.dropped)
    assert not [word for word in ("hunter2", "host-0", "host-1", "29262", "0000:07") if word in text]


FACTOR = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "alltoall": 1}


def rendered(op, ranks, rows):
    """What nccl-tests prints for messages of so many bytes and microseconds."""
    lines = [f"# Collective test starting: {op}_perf\n", HEADER]
    for size, us in rows:
        algbw = size / us / 1e3
        half = f"{us:>7.2f}  {algbw:6.2f}  {algbw * FACTOR[op] * (ranks - 1) / ranks:6.2f}      0"
        redop = "sum" if "reduce" in op else "none"
        lines.append(f"{size:>12}  {size // 4:>12}  {'float':>8}  {redop:>6}  {'-1':>6}  {half}  {half}\n")
    return "".join(lines)


@given(
    op=st.sampled_from(sorted(FACTOR)),
    ranks=st.integers(2, 64),
    rows=st.lists(st.tuples(st.integers(1, 1 << 32).map(lambda n: 4 * n), st.floats(1, 1e6)), min_size=1, max_size=8),
)
def test_random_rows_read_back(tmp_path_factory, op, ranks, rows):
    rows = [(size, round(us, 2)) for size, us in rows]
    folder = tmp_path_factory.mktemp("log")
    samples = read(folder, rendered(op, ranks, rows), Options(gpus=ranks, nodes=1, device="H100"))
    read_back = list(zip(samples.table["bytes"], seconds(samples), strict=True))
    assert read_back == [(size, round(us * 1e-6, 12)) for size, us in rows]
