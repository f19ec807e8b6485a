"""`runcast calibrate fit` and `check`: from a table to a profile and back, and what a user may get wrong."""

import json
import shlex

import numpy as np
import pytest
from runcast.simulator import cli
from runcast.simulator.profile import load_profile

from .reach import MACHINE, groups, record

HEADER = "cost_class,device,library,group,seconds,bytes,count\n"
SIZES = 2.0 ** np.arange(10, 31)
LINK = [f"send_recv,H100 SXM,nccl-2.27,g,{8e-6 + size / 3.6e11!r},{size:.0f},\n" for size in SIZES.tolist()]
CALLS = [f"host.launch,H100 SXM,torch,g,{4e-6 * count},,{count}\n" for count in (1, 10, 100)]
TABLE = HEADER + "".join(LINK + CALLS)


@pytest.fixture
def runcast(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.csv").write_text(TABLE)

    def run(*arguments):
        with pytest.raises(SystemExit) as leave:
            cli.main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return leave.value.code or 0, out, err

    return run


@pytest.fixture
def fit(runcast, tmp_path):
    """`fit("s.csv", ...)`: what the profile says."""

    def fitted(*arguments, out="mine.json"):
        code, _, err = runcast("calibrate", "fit", *arguments, "-o", out)
        assert (code, err) == (0, "")
        return json.loads((tmp_path / out).read_text())

    return fitted


def test_a_table_becomes_a_profile_that_predicts_it(fit):
    fit("s.csv")
    mine = load_profile("mine.json")
    assert mine.estimate("send_recv", {"bytes": SIZES}).seconds == pytest.approx(8e-6 + SIZES / 3.6e11, rel=0.01)
    assert mine.estimate("host.launch", {"count": 50}).seconds == pytest.approx(2e-4, rel=0.01)


def test_a_profile_says_where_it_comes_from(fit):
    said = fit("s.csv", "--source", "a test")
    assert {key: said[key] for key in ("name", "base", "devices", "source")} == {
        "name": "mine",
        "base": "generic",
        "devices": ["H100 SXM"],
        "source": "a test",
    }
    assert [(file["file"], file["rows"], len(file["sha256"])) for file in said["samples"]] == [("s.csv", 24, 64)]


def test_errors_are_printed_per_class(runcast):
    _, out, _ = runcast("calibrate", "fit", "s.csv", "-o", "mine.json", "--base", "h100-sxm")
    lines = out.splitlines()
    assert [line.split()[0] for line in lines] == ["class", "host.launch", "send_recv", "wrote"]


def test_rows_that_are_left_out_are_said(runcast, tmp_path):
    (tmp_path / "s.csv").write_text(TABLE + "send_recv,H100 SXM,nccl,g,fast,1024,\n" * 2)
    _, out, _ = runcast("calibrate", "fit", "s.csv", "-o", "mine.json")
    assert (
        out.splitlines()[0] == "left out: s.csv:26: seconds: expected a number greater than zero, 1e-12 to 1e9 (2 rows)"
    )


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["--name", "other", "--source", "it's a test", "--wider", "0.3"],
        ["--prefer", "2.27", "--prefer", "x", "--cluster", "h100-hgx", "--base", "h20"],
        ["--also", "known.json"],
    ],
)
def test_the_command_in_a_profile_makes_it_again(flags, fit, runcast, tmp_path):
    speed = {"value": 0.5, "spread": 0.1, "provenance": "measured", "source": "a test"}
    (tmp_path / "known.json").write_text(json.dumps({"schema": 2, "parameters": {"reload.s": speed}}))
    first = fit("s.csv", *flags)
    (tmp_path / "mine.json").unlink()
    runcast(*shlex.split(first["command"])[1:])
    assert json.loads((tmp_path / "mine.json").read_text()) == first


def test_the_command_names_no_folders(fit, tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "s.csv").write_text(TABLE)
    assert fit(tmp_path / "deep" / "s.csv")["command"] == fit("s.csv")["command"]


def test_models_do_not_depend_on_the_order_of_files(fit, tmp_path):
    (tmp_path / "a.csv").write_text(HEADER + "".join(LINK))
    (tmp_path / "b.csv").write_text(HEADER + "".join(CALLS))
    kinds = ("send_recv", "host.launch")
    one, other = (fit(*files)["models"] for files in (("a.csv", "b.csv"), ("b.csv", "a.csv")))
    assert [one[kind] for kind in kinds] == [other[kind] for kind in kinds]


@pytest.mark.parametrize(
    ("shared", "default"), [(True, "faster"), (False, "a")], ids=["shapes in common", "no shapes in common"]
)
def test_of_equally_many_samples_those_of_the_faster_library_on_equal_shapes_win(shared, default, fit, tmp_path):
    """`slower` has a small shape that nobody else has, which must not count."""
    others = {"a": 2.0, "slower": 3.0, "faster": 1.0}
    sizes = {name: [1e6, 1e7, 1e8 if shared or name == "faster" else 1e9] for name in others}
    sizes["slower"][0] = 1e3
    if not shared:
        sizes["a"] = [2e6, 2e7, 2e8]
    lines = [
        f"memory.add,H100 SXM,{name},g,{times * size / 3e12!r},{size:.0f},\n"
        for name, times in others.items()
        for size in sizes[name]
    ]
    (tmp_path / "s.csv").write_text(HEADER + "".join(lines))
    assert fit("s.csv")["models"]["memory.add"]["default"] == default


def test_the_preferred_library_is_the_default_else_the_one_with_most_rows(fit, tmp_path):
    (tmp_path / "s.csv").write_text(TABLE + LINK[0].replace("nccl-2.27", "rccl"))
    defaults = [fit("s.csv", *flags)["models"]["send_recv"]["default"] for flags in ([], ["--prefer", "rccl"])]
    assert defaults == ["nccl-2.27", "rccl"]


@pytest.fixture
def records(tmp_path):
    """The name of a file of records of several classes, of the device of the table."""
    taken = ("membound/copy", "gemm/forward NT bf16")
    lines = [MACHINE, *(record(case) for name in taken for case in groups()[name])]
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return "r.jsonl"


def test_of_records_some_classes_may_be_taken_and_of_tables_all(fit, records):
    found = fit("s.csv", records, "--classes", "memory", "--cluster", "dgx-h100")
    assert set(found["models"]) == {"send_recv", "host.launch", "memory.copy"}
    assert "--classes memory" in found["command"]


def test_classes_that_no_record_has_are_named(runcast, records):
    code, _, err = runcast("calibrate", "fit", "s.csv", records, "--classes", "membound", "-o", "mine.json")
    assert (code, err) == (
        2,
        "error: --classes = 'membound': expected the beginning of a class of records; there are gemm, memory\n",
    )


def test_classes_without_samples_are_one_line(runcast):
    arguments = ("--classes", "memory", "--base", "h100-sxm", "--device", "H200 SXM", "-o", "mine.json")
    assert runcast("calibrate", "fit", *arguments)[::2] == (
        2,
        "error: --classes = 'memory': there are no records to take it from\n",
    )


def test_without_samples_a_profile_is_its_base_with_other_limits(fit):
    said = fit("--device", "H200", "--base", "h20", "--wider", "0.2")
    assert (said["models"], said["devices"], said["wider"], said["limits"]["sms"]) == ({}, ["H200 SXM"], 0.2, 132)


def test_parameters_follow_from_models(fit, tmp_path):
    rows = [f"copy.h2d,H100 SXM,x,g,{3e-6 + size / 50e9!r},{size:.0f},\n" for size in SIZES.tolist()]
    (tmp_path / "s.csv").write_text(HEADER + "".join(rows))
    entry = fit("s.csv")["parameters"]["link_fraction.pcie"]
    assert (entry["value"], entry["provenance"]) == (pytest.approx(50e9 / 63.015e9, rel=0.01), "fitted")


def test_parameters_that_are_known_otherwise_win(fit, tmp_path):
    speed = {"value": 0.5, "spread": 0.1, "provenance": "measured", "source": "a test"}
    (tmp_path / "known.toml").write_text(
        'schema = 2\n[parameters."reload.s"]\nvalue = 0.5\nspread = 0.1\nprovenance = "measured"\nsource = "a test"\n'
    )
    assert fit("s.csv", "--also", "known.toml")["parameters"] == {"reload.s": speed}


def test_other_parameters_may_be_none(fit, tmp_path):
    (tmp_path / "known.json").write_text('{"schema": 2}')
    assert fit("s.csv", "--also", "known.json")["parameters"] == {}


OTHER = LINK[0].replace("H100 SXM", "H20")


@pytest.mark.parametrize(
    ("table", "flags", "message"),
    [
        (TABLE, ["s.csv", "-o", "mine.txt"], "--out = 'mine.txt': expected a name that ends in .json"),
        (TABLE + OTHER, ["s.csv", "-o", "mine.json"], "--device: the samples are of H100 SXM, H20; name one"),
        (TABLE, ["-o", "mine.json"], "--device: missing; without samples a profile of this device is derived from"),
        (
            TABLE,
            ["s.csv", "-o", "mine.json", "--cluster", "dgx-h1000"],
            "--cluster: cluster = 'dgx-h1000': unknown; did you mean",
        ),
        (
            TABLE,
            ["s.csv", "-o", "mine.json", "--cluster", "dgx-a100"],
            "--cluster = 'dgx-a100': has A100 SXM 80GB, not",
        ),
        (TABLE, ["s.csv", "-o", "mine.json", "--device", "H2000"], "--device: name = 'H2000': unknown; did you mean"),
        (TABLE, ["s.csv", "-o", "mine.json", "--device", "B200"], "no samples of B200 SXM; there are some of H100 SXM"),
        (
            TABLE,
            ["s.csv", "-o", "mine.json", "--base", "generik"],
            "--base: profile = 'generik': unknown; did you mean generic?",
        ),
        (TABLE, ["s.csv", "-o", "mine.json", "--also", "no.json"], "profile = 'no.json': no such file"),
        (TABLE, ["no.csv", "-o", "mine.json"], "no.csv: no such file"),
        (
            "size,time\n1,2\n",
            ["s.csv", "-o", "mine.json"],
            "s.csv:1: not a table of samples; its columns are size, time",
        ),
        (TABLE + "a,b,c,d,e,f,g,h\n", ["s.csv", "-o", "mine.json"], "s.csv:26: 8 cells; expected 7, as the header has"),
        (
            HEADER + LINK[0].replace("H100 SXM", "Abacus"),
            ["s.csv", "-o", "mine.json"],
            "v100-sxm3-32; of a GPU of your own name the file: --cluster",
        ),
        (
            "cost_class,device,seconds,m,n,k\ngemm.fp4,H100 SXM,1,1024,1024,1024\n",
            ["s.csv", "-o", "mine.json"],
            "s.csv:2: cost_class = 'gemm.fp4' of H100 SXM: dtype = 'fp4': the device has no fast path",
        ),
        (
            "cost_class,device,seconds,bytes\nsend_recv,GH200,1,1e6\n",
            ["s.csv", "-o", "mine.json"],
            "s.csv:2: cost_class = 'send_recv' of GH200 96GB: send and receive in one node: link_bytes_per_s = 0.0",
        ),
    ],
)
def test_a_mistake_is_one_line_and_leaves_no_file(table, flags, message, runcast, tmp_path):
    (tmp_path / "s.csv").write_text(table)
    (tmp_path / "mine.json").write_text("before")
    code, out, err = runcast("calibrate", "fit", *flags)
    assert (code, out, err.count("\n"), err.startswith("error: "), message in err) == (2, "", 1, True, True), err
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"s.csv": table, "mine.json": "before"}


ASSUMED = "check: samples between nodes:"
BETWEEN = "cost_class,device,seconds,bytes,gpus,nodes,network_bytes_per_s\n"


@pytest.mark.parametrize(
    ("rate", "flags", "said"),
    [
        (
            "",
            [],
            [f"{ASSUMED} 8 x 400 Gb/s infiniband of dgx-h100 assumed; state --cluster, or --network at import"],
        ),
        ("4e11", [], [f"{ASSUMED} infiniband of dgx-h100 assumed; state --cluster"]),
        ("", ["--cluster", "h100-hgx"], []),
    ],
)
def test_what_is_assumed_of_the_network_is_said(rate, flags, said, runcast, tmp_path):
    (tmp_path / "s.csv").write_text(BETWEEN + f"all_reduce,H100 SXM,0.01,1e9,32,4,{rate}\n")
    _, out, _ = runcast("calibrate", "fit", "s.csv", "-o", "mine.json", "--base", "h100-sxm", *flags)
    assert [line for line in out.splitlines() if "assumed" in line] == said


def test_what_a_profile_lacks_is_said(runcast):
    _, out, _ = runcast("calibrate", "fit", "s.csv", "-o", "mine.json")
    assert "which training steps may need; --base h100-sxm has them" in out


def test_a_base_is_named_by_its_path_from_the_profile(fit, runcast, tmp_path, monkeypatch):
    fit("s.csv", "--base", "h100-sxm", out="base.json")
    (tmp_path / "sub").mkdir()
    said = fit("s.csv", "--base", "base.json", out="sub/mine.json")
    monkeypatch.chdir(tmp_path / "sub")
    assert (said["base"], "gemm.bf16" in load_profile("mine.json").models) == ("../base.json", True)


@pytest.mark.parametrize("base", ["mine.json", "sub/between.json"])
def test_a_profile_that_would_rest_on_itself_is_refused(base, fit, runcast, tmp_path):
    fit("s.csv")
    (tmp_path / "sub").mkdir()
    fit("s.csv", "--base", "mine.json", out="sub/between.json")
    before = (tmp_path / "mine.json").read_text()
    code, _, err = runcast("calibrate", "fit", "s.csv", "-o", "mine.json", "--base", base)
    assert (code, err, (tmp_path / "mine.json").read_text()) == (
        2,
        f"error: --base = {base!r}: is --out itself, or rests on it; expected another profile than 'mine.json'\n",
        before,
    )


def test_a_gpu_of_ones_own_is_known_by_its_cluster(fit, tmp_path):
    (tmp_path / "own.toml").write_text('base = "dgx-h100"\ndevice = { base = "h100-sxm", name = "Abacus" }\n')
    (tmp_path / "s.csv").write_text(TABLE.replace("H100 SXM", "Abacus"))
    assert fit("s.csv", "--cluster", "own.toml")["devices"] == ["Abacus"]


def test_check_finds_no_error_on_what_was_fitted(fit, runcast):
    fit("s.csv")
    code, out, err = runcast("calibrate", "check", "mine.json", "s.csv")
    *lines, note = out.splitlines()[1:]
    rows = [line.split() for line in lines]
    assert (code, err, sum(int(row[-5]) for row in rows)) == (0, "", 24)
    assert note == "in-sample: profile mine was fitted on s.csv: these errors are no check of it"
    assert {(row[-4], row[-1]) for row in rows} == {("0.0", "100.0")}


def test_check_says_what_it_could_not_predict(fit, runcast, tmp_path):
    fit("s.csv")
    (tmp_path / "more.csv").write_text(HEADER + OTHER + LINK[0] + LINK[0].replace("send_recv", "copy.h2d") * 2)
    code, out, err = runcast("calibrate", "check", "mine.json", "more.csv")
    assert (code, err) == (0, "")
    other_device, missing_class = [line for line in out.splitlines() if line.startswith("left out")]
    assert other_device == "left out: more.csv:2: H20: another device"
    assert missing_class.startswith("left out: more.csv:4: profile mine: copy.h2d: is missing; ")
    assert missing_class.endswith(" (2 rows)")


def test_check_shows_errors_in_per_cent_by_band(fit, runcast, tmp_path):
    fit("s.csv")
    slower = [line.replace(line.split(",")[4], repr(float(line.split(",")[4]) * 1.25)) for line in LINK]
    (tmp_path / "slow.csv").write_text(HEADER + "".join(slower))
    _, out, _ = runcast("calibrate", "check", "mine.json", "slow.csv")
    rows = [line.split() for line in out.splitlines()[1:]]
    assert [(row[-4], row[-2]) for row in rows] == [("20.0", "-20.0")] * 4


def test_check_may_score_one_library_on_all_rows(fit, runcast, tmp_path):
    (tmp_path / "s.csv").write_text(TABLE + "".join(line.replace("nccl-2.27", "rccl") for line in LINK[:5]))
    fit("s.csv")
    _, out, _ = runcast("calibrate", "check", "mine.json", "s.csv", "--library", "rccl")
    assert sum(int(line.split()[-5]) for line in out.splitlines() if line.split()[:2] == ["send_recv", "rccl"]) == 26


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["h1000", "s.csv"], "profile = 'h1000': unknown; did you mean"),
        (["h20", "no.csv"], "no.csv: no such file"),
        (["h20", "s.csv", "--library", "nope"], "--library = 'nope': unknown; profile h20 has"),
        (["s.json", "s.csv"], "profile = 's.json': no such file"),
    ],
)
def test_a_mistake_of_check_is_one_line(flags, message, runcast):
    code, out, err = runcast("calibrate", "check", *flags)
    assert (code, out, err.count("\n"), message in err) == (2, "", 1, True), err


def test_samples_in_another_unit_are_told_when_a_base_knows_better(runcast, tmp_path):
    slow = [line.replace(line.split(",")[4], repr(float(line.split(",")[4]) * 100)) for line in LINK]
    (tmp_path / "us.csv").write_text(HEADER + "".join(slow))
    code, out, _ = runcast("calibrate", "fit", "us.csv", "--base", "h100-sxm", "-o", "us.json")
    told = [line for line in out.splitlines() if line.startswith("check: ")]
    assert (code, [line.endswith("times what h100-sxm says; seconds?") for line in told][:1]) == (0, [True])


@pytest.mark.parametrize("base", ["h100-sxm", "generic"])
@pytest.mark.parametrize(("unit", "times"), [(1e-3, "1.03e+03"), (1e-6, "1.03e+06"), (1e3, "0.00103")])
def test_a_table_in_another_unit_is_refused(unit, times, base, runcast, tmp_path):
    given = [line.replace(line.split(",")[4], repr(float(line.split(",")[4]) / unit)) for line in LINK]
    (tmp_path / "us.csv").write_text(HEADER + "".join(given))
    told = f"error: us.csv: send_recv: the samples take {times} times what h100-sxm says; expected seconds\n"
    assert runcast("calibrate", "fit", "us.csv", "--base", base, "-o", "us.json") == (2, "", told)
