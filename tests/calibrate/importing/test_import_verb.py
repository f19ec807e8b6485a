"""The verb, files of no known tool, and what is said in flags."""

import gzip

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from runcast.calibrate.importing import Network, Options, import_logs
from runcast.calibrate.verbs.profiles import import_
from runcast.simulator.base.errors import UserError
from runcast.simulator.formats.samples import read_samples
from typer.testing import CliRunner

HEADER = "#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong\n"
LOG = (
    "# Collective test starting: all_reduce_perf\n"
    + HEADER
    + "0  0  float  sum  -1  0.06  0.00  0.00  0  0.04  0.00  0.00  0\n"
    "1073741824  268435456  float  sum  -1  4484.9  239.41  448.90  0  4470.2  240.20  450.37  0\n"
)
FLAGS = ["--device", "H100 SXM", "--nodes", "2", "--network", "8 x 400 Gb/s", "--gpus", "16"]


def run(*arguments):
    app = typer.Typer()
    app.command("import")(import_)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_samples_are_written_and_read_back(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.log").write_text(f"{LOG}# {name}\n")
    result = run(tmp_path / "a.log", tmp_path / "b.log", "-o", tmp_path / "s.csv", *FLAGS)
    assert result.output.splitlines() == [
        "all_reduce.network: 2 samples",
        *[f"{tmp_path}/{name}.log: 1 left out: size is zero (line 3)" for name in ("a", "b")],
        f"wrote {tmp_path}/s.csv",
    ]
    assert list(read_samples([tmp_path / "s.csv"]).table["network_bytes_per_s"]) == [400e9] * 2


def test_samples_of_a_forced_algorithm_are_written_and_read_back_apart(tmp_path):
    (tmp_path / "a.log").write_text(LOG)
    result = run(tmp_path / "a.log", "-o", tmp_path / "s.csv", "--algorithm", "Ring", *FLAGS)
    samples = read_samples([tmp_path / "s.csv"])
    assert (result.output.splitlines()[0], len(samples), list(samples.forced["algorithm"])) == (
        "all_reduce.network: 1 sample", 0, ["Ring"],
    )  # fmt: skip


def test_a_log_counts_once(tmp_path):
    (tmp_path / "a.log").write_text(LOG)
    (tmp_path / "b.log.gz").write_bytes(gzip.compress(LOG.encode()))
    with pytest.raises(UserError, match=r"b\.log\.gz: holds the same as .*a\.log, which is named too"):
        import_logs([tmp_path / "a.log", tmp_path / "b.log.gz"], Options())


def test_samples_are_written_as_csv_alone(tmp_path):
    (tmp_path / "a.log").write_text(LOG)
    result = run(tmp_path / "a.log", "-o", "mine.json", *FLAGS)
    assert str(result.exception) == "--out = 'mine.json': expected a file that ends in .csv"


def test_a_log_that_ships_goes_by_its_name(tmp_path):
    result = run("nccl-tests-all-reduce", "-o", tmp_path / "s.csv", "--device", "H100 SXM", "--nodes", 4, *FLAGS[4:6])

    assert result.output.splitlines() == ["all_reduce.network: 10 samples", f"wrote {tmp_path}/s.csv"]


@pytest.mark.parametrize("flags", [["--device", "H100 SXM"], [*FLAGS, "--op", "alltoall"], [*FLAGS, "--buffer", "no"]])
def test_a_mistake_leaves_the_file_as_it_was(tmp_path, flags):
    (tmp_path / "a.log").write_text(LOG)
    (tmp_path / "s.csv").write_text("before")
    result = run(tmp_path / "a.log", "-o", tmp_path / "s.csv", *flags)
    assert isinstance(result.exception, UserError)
    assert len(result.exception.faults) == 1
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a.log": LOG, "s.csv": "before"}


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"hello\n", "x.log: is a log of no known tool; known: nccl-tests or rccl-tests, nvbandwidth, perftest"),
        (b"", "is a log of no known tool"),
        (b'{"a": 1}', "is a log of no known tool"),
        (b"[1, 2]", "is a log of no known tool"),
        (b'{"a": \n 1,', "x.log:2: is not JSON"),
        (b"\xff\xfe\x00", "is not text; expected a log"),
    ],
)
def test_files_that_are_no_logs(tmp_path, content, line):
    (tmp_path / "x.log").write_bytes(content)
    with pytest.raises(UserError, match=line) as error:
        import_logs([tmp_path / "x.log"], Options())
    assert len(error.value.faults) == 1


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        import_logs([tmp_path / "x.log"], Options())


def test_a_log_of_two_tools(tmp_path):
    local = "nvbandwidth Version: v0.8\nRunning device_local_copy.\nmemcpy bandwidth (GB/s)\n   0\n 0   1000.0\n"
    (tmp_path / "a.log").write_text(LOG + local)
    samples = import_logs([tmp_path / "a.log"], Options(device="H100", nodes=2))
    assert list(samples.table["cost_class"]) == ["all_reduce.network", "copy.d2d"]


@pytest.mark.parametrize(
    ("text", "network"),
    [
        ("8 x 400 Gb/s", Network(400e9, 50e9)),
        ("8x50GB/s", Network(400e9, 50e9)),
        ("3.2 Tb/s", Network(400e9, None)),
    ],
)
def test_rates_of_a_network(text, network):
    assert Network.parse(text) == network


@pytest.mark.parametrize("text", ["", "fast", "0 x 400 Gb/s", "8 x", "-1 Gb/s"])
def test_no_rates_of_a_network(text):
    with pytest.raises(UserError, match="expected a rate per node"):
        Network.parse(text)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"gpus": 0}, "--gpus = 0: expected a whole number"),
        ({"nodes": -1}, "--nodes = -1: expected a whole number"),
        ({"gpus": 2, "nodes": 3}, "--nodes = 3: expected at most --gpus = 2"),
        ({"op": "all_redux"}, "--op.*did you mean all_reduce"),
        ({"algorithm": "=Ring"}, "--algorithm = '=Ring': expected what NCCL_ALGO was, as Ring"),
        ({"device": "H1000"}, "--device.*'H1000'"),
    ],
)
def test_flags_that_say_nothing_possible(given, line):
    with pytest.raises(UserError, match=line):
        Options(**given)


@given(st.data())
def test_a_damaged_log_is_read_or_refused(tmp_path_factory, data):
    text = LOG
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(0, len(text)))
        put = data.draw(st.sampled_from(["", "\n", " ", "-1", "9" * 5000, "1e999", "N/A", "#", "{", "\x1b[", "nan"]))
        text = text[:at] + put + text[at + data.draw(st.integers(0, 8)) :]
    path = tmp_path_factory.mktemp("log") / "a.log"
    path.write_text(text)
    try:
        seconds = import_logs([path], Options(device="H100", nodes=2)).table["seconds"]
    except UserError:
        return
    assert (seconds > 0).all()
