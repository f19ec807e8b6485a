"""perftest, text and JSON. Shapes: logs in READMEs of skypilot and others, perftest_parameters.h, and posted JSON."""

import json

import pytest
from runcast.calibrate.importing import Network, Options, import_logs
from runcast.simulator.base.errors import UserError

DASHES = "-" * 87 + "\n"
SETTINGS = """ Dual-port       : OFF          Device         : mlx5_0
 Number of qps   : 2            Transport type : IB
 Mtu             : 4096[B]
 local address: LID 0x4624 QPN 0x0127 PSN 0x45bd8e
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:192:168:119:02
"""
GBITS = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
MIBS = " #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]\n"
LATENCY = (
    " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]"
    "   99% percentile[usec]   99.9% percentile[usec] \n"
)
H100 = Options(device="H100")


def log(title, header, rows):
    return f"{DASHES}                    {title} Test\n{SETTINGS}{DASHES}{header}{rows}{DASHES}"


def read(tmp_path, text, options=H100):
    (tmp_path / "ib.log").write_text(text)
    return import_logs([tmp_path / "ib.log"], options)


def test_a_row(tmp_path):
    samples = read(tmp_path, log("Send BW", GBITS, " 65536      1000             357.12    353.53   0.674308\n"))
    assert samples.table.iloc[0].to_dict() == {
        "cost_class": "nic.send",
        "device": "H100 SXM",
        "library": "perftest qps=2",
        "group": "nic.send mtu 4096",
        "seconds": 65536 / (353.53e9 / 8),
        "source": f"{tmp_path}/ib.log:10",
        "bytes": 65536.0,
    }


@pytest.mark.parametrize(
    ("title", "header", "row", "cost_class", "seconds"),
    [
        ("RDMA_Write BW", MIBS, "65536 5000 14954.91 14948.67 0.239179", "nic.write", 65536 / (14948.67 * 2**20)),
        (
            "RDMA_Read BW",
            MIBS.replace("MiB", "MB"),
            "65536 5000 0.00 3293.56 0.052697",
            "nic.read",
            65536 / (3293.56 * 2**20),
        ),
        (
            "RDMA_Write Bidirectional BW",
            MIBS,
            "65536 279928 0.00 5830.79 0.093293",
            "nic.write.bidirectional",
            2 * 65536 / (5830.79 * 2**20),
        ),
        ("Send Latency", LATENCY, "2 1000 1.10 2.05 1.11 1.12 0.00 1.19 2.05", "nic.send_latency", 1.11e-6),
        ("RDMA_Write Latency", " #bytes #iterations    t_avg[usec] \n", "2 1000 1.12", "nic.write_latency", 1.12e-6),
        ("RDMA_Read Latency", LATENCY.split("t_avg")[0] + "\n", "2 1000 1.10 2.05 1.11", "nic.read_latency", 1.11e-6),
    ],
)
def test_tests_and_units(tmp_path, title, header, row, cost_class, seconds):
    samples = read(tmp_path, log(title, header, f" {row}\n"))
    assert samples.table[["cost_class", "seconds"]].values.tolist() == [[cost_class, pytest.approx(seconds, rel=1e-12)]]


def test_warnings_between_rows_and_bad_rows(tmp_path):
    rows = (
        "Conflicting CPU frequency values detected: 5008.116000 != 3295.212000. CPU Frequency is not max.\n"
        " 65536      1000             357.12    353.53   0.674308\n"
        " 65536      1000             357.12    353.53   0.374308\n"
        " 65536      1000             0.00      0.00     0.000000\n"
        " 65536      1000             0.00\n"
    )
    samples = read(tmp_path, log("Send BW", GBITS, rows))
    assert len(samples) == 1
    assert samples.dropped == (
        f"{tmp_path}/ib.log: 1 left out: average rate is not bytes x MsgRate (line 12)",
        f"{tmp_path}/ib.log: 1 left out: rate is zero (line 13)",
        f"{tmp_path}/ib.log: 1 left out: row has 3 values; expected 5 numbers (line 14)",
    )


def test_durations_say_that_the_average_is_used(tmp_path):
    samples = read(tmp_path, log("Send Latency", " #bytes        #iterations       t_avg[usec]\n", " 2  1000  1.12\n"))
    assert samples.dropped == (f"{tmp_path}/ib.log: t_typical is not given (-D): t_avg is used",)


def test_several_tests_and_one_without_a_class(tmp_path):
    row = " 65536      1000             357.12    353.53   0.674308\n"
    samples = read(tmp_path, log("Send BW", GBITS, row) + log("Atomic FETCH_AND_ADD BW", GBITS, row))
    assert list(samples.table["cost_class"]) == ["nic.send"]
    assert "has no cost class" in samples.dropped[0]


def test_the_link_and_the_gpu(tmp_path):
    text = "initializing CUDA\n[pid = 1, dev = 0] device name = [NVIDIA H200]\n"
    row = " 65536      1000             357.12    353.53   0.674308\n"
    samples = read(tmp_path, text + log("Send BW", GBITS, row), Options(network=Network.parse("8 x 400 Gb/s")))
    assert samples.table[["device", "link_bytes_per_s"]].values.tolist() == [["H200 SXM", 50e9]]


def test_addresses_are_never_stored(tmp_path):
    samples = read(tmp_path, log("Send BW", GBITS, " 65536      1000             357.12    353.53   0.674308\n"))
    assert not [word for word in ("192", "mlx5", "0x") if word in samples.table.drop(columns="source").to_csv()]


def root(results, test="RDMA_Write BW Test"):
    info = {"test": test, "Device": "mlx5_11", "Number_of_qps": 1, "Mtu": 1024, "GID_index": 1}
    return json.dumps({"test_info": info, "results": results})


@pytest.mark.parametrize(
    ("average", "bytes_per_s"), [(2229.27, 2229.27 * 2**20), (18.70, 18.70e9 / 8)], ids=["MiB/s", "Gb/s"]
)
def test_json_takes_the_unit_from_the_rate_of_messages(tmp_path, average, bytes_per_s):
    row = {"MsgSize": 65536, "n_iterations": 5000, "BW_peak": 5293.52, "BW_average": average, "MsgRate": 0.035668}
    samples = read(tmp_path, root(row))
    assert samples.table[["cost_class", "seconds"]].values.tolist() == [
        ["nic.write", pytest.approx(65536 / bytes_per_s)]
    ]


def test_json_latency_and_bad_rows(tmp_path):
    rows = [{"MsgSize": 2, "t_typical": 1.11, "t_avg": 1.2}, {"MsgSize": 2}, {"t_typical": 1.0}, 7]
    samples = read(tmp_path, root(rows, "Send Latency Test"))
    assert samples.table[["cost_class", "seconds", "source"]].values.tolist() == [
        ["nic.send_latency", pytest.approx(1.11e-6), f"{tmp_path}/ib.log:results[0]"]
    ]
    assert len(samples.dropped) == 3


@pytest.mark.parametrize(
    ("text", "options", "line"),
    [
        (
            log("Send BW", GBITS, " 65536 1000 357.12 353.53 0.674308\n"),
            Options(),
            "does not name the GPU; give --device",
        ),
        (log("Send BW", GBITS, ""), H100, "holds no results"),
        (root({"MsgSize": 8, "BW_average": 5.0, "MsgRate": 9.0}), H100, "results: BW_average in no unit"),
        (root({"MsgSize": 8}), H100, "results: no BW_average or MsgRate"),
    ],
)
def test_refused_with_one_line(tmp_path, text, options, line):
    with pytest.raises(UserError, match=line) as error:
        read(tmp_path, text, options)
    assert len(error.value.faults) == 1
