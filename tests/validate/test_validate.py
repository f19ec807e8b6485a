"""`runcast validate`: rows beside predictions of a profile by which every copy here takes 1 ms, give or take 18 %."""

import csv
import hashlib
import json
from collections.abc import Callable
from math import exp
from pathlib import Path
from typing import Any

import pytest
from runcast.simulator import UserError, cli
from runcast.simulator.answers.outputs import json_text
from runcast.simulator.answers.validate import Validation, validate
from runcast.simulator.profile import Z90

HEADER = "cost_class,device,bytes,seconds"
COPY = "copy.h2d,H100 SXM,39600000"  # 10 us and 39.6 MB at 0.8 x 50 GB/s
NCCL = "system,src_file,version,op,dtype,num_gpus,bytes,time_us"
ERRORS = {"rows": 7, "median": 0.04, "p90": 0.12, "bias": 0.0}
LIMITS = {
    "flop_per_s": {"bf16": 1e15},
    "memory_bytes_per_s": 1e12,
    "sms": 100,
    "l2_bytes": 1e7,
    "link_bytes_per_s": 4e11,
    "host_bytes_per_s": 5e10,
    "nic_bytes_per_s": 5e10,
    "nics": 8,
}
MODEL = {
    "form": "link",
    "coefficients": {"a_s": 1e-5, "e": 0.8},
    "range": {"bytes": [1e7, 1e8], "link_bytes_per_s": [5e10, 5e10]},
    "growth": {"bytes": 0.1, "link_bytes_per_s": 0.1},
    "fitted": ERRORS,
    "held_out": ERRORS,
    "groups": 1,
    "bands": [{"size": 0.0, **ERRORS, "spread": 0.1}],
    "left_out": "whole groups",
    "source": "this test",
}


@pytest.fixture
def table(tmp_path: Path) -> Callable[..., Path]:
    def written(*rows: str, header: str = HEADER, name: str = "rows.csv") -> Path:
        (tmp_path / name).write_text("\n".join([header, *rows]) + "\n")
        return tmp_path / name

    return written


@pytest.fixture
def profile(tmp_path: Path) -> Callable[..., str]:
    def written(name: str = "mine", **content: Any) -> str:
        models = {"copy.h2d": {"default": "torch", "variants": {"torch": MODEL}}}
        of = {"schema": 2, "name": name, "devices": ["H100 SXM"], "limits": LIMITS, "models": models} | content
        (tmp_path / f"{name}.json").write_text(json.dumps(of))
        return str(tmp_path / f"{name}.json")

    return written


@pytest.fixture
def runcast(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[Any, str, str]]:
    def run(*arguments: object) -> tuple[Any, str, str]:
        with pytest.raises(SystemExit) as leave:
            cli.main(["validate", *map(str, arguments)])
        return leave.value.code, *capsys.readouterr()

    return run


def faults(*arguments: Any, **options: Any) -> tuple[str, ...]:
    with pytest.raises(UserError) as caught:
        validate(*arguments, **options)
    return caught.value.faults


def cells(validation: Validation) -> list[dict[str, str]]:
    return list(csv.DictReader(validation.to_csv().decode().splitlines()))


def sample_of(path: Path, rows: int = 3) -> list[dict[str, Any]]:
    return [{"file": "x.csv", "sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "rows": rows}]


def line_with(word: str, validation: Validation) -> list[str]:
    return [line for line in validation.lines() if line.startswith(word)]


def test_errors_are_those_worked_out_by_hand(table: Any, profile: Any) -> None:
    rows = table(*(f"{COPY},{seconds}" for seconds in ("0.8e-3", "1e-3", "1.25e-3", "0.5e-3", "0.625e-3")))
    overall = validate(rows, "copy", profile()).overall
    assert overall == pytest.approx(  # errors of +25, 0, -20, +100 and +60 %; the first two are in the interval or not
        {
            "rows": 5,
            "predicted": 5,
            "scored": 5,
            "median_abs_error": 0.25,
            "p90_abs_error": 0.84,
            "bias": 0.25,
            "interval_coverage": 0.2,
        }
    )


def test_each_device_counts_once_in_the_median_over_devices(table: Any, profile: Any) -> None:
    other = COPY.replace("H100", "H200")
    rows = table(*[f"{COPY},0.8e-3"] * 3, f"{other},0.5e-3")
    told = line_with("median over", validate(rows, "copy", profile(devices=[])))
    assert told == ["median over devices of each device's median: 62.5 % (plain median: 25.0 %)"]


def test_groups_are_by_device_class_and_library(table: Any, profile: Any) -> None:
    other = COPY.replace("H100", "H200")
    rows = table(f"{other},1e-3", f"{COPY},1e-3", f"{COPY},1e-3")
    groups = validate(rows, "copy", profile(devices=[])).groups
    assert [(of["device"], of["cost_class"], of["library"], of["rows"]) for of in groups] == [
        ("H100 SXM", "copy.h2d", "torch", 2),
        ("H200 SXM", "copy.h2d", "torch", 1),
    ]


def test_table_has_a_line_per_group_and_one_total(table: Any, profile: Any) -> None:
    rows = table(f"{COPY},0.8e-3")
    told = list(validate(rows, "copy", profile()).lines())
    assert (told[1].split(), told[3]) == (
        ["H100", "SXM", "copy.h2d", "torch", "1", "1", "1", "25.0", "25.0", "25.0", "0/1"],
        "total: 1 rows, 1 predicted, 1 scored: median 25.0 %, p90 25.0 %, bias 25.0 %, 0.0 % in the 90 % interval",
    )


def test_each_row_is_predicted_by_the_profile_of_its_device(table: Any) -> None:
    rows = table("H100_sxm,x,2.29.2,all_gather,half,8,1048576,50", "b200,x,2,all_gather,half,8,1048576,50", header=NCCL)
    groups = validate(rows, "collective").groups
    assert [(of["profile"], of["scored"]) for of in groups] == [("b200-sxm", 1), ("h100-sxm", 1)]


def test_device_of_our_own_rows_is_found_by_alias(table: Any, profile: Any) -> None:
    rows = table(COPY.replace("H100 SXM", "h100_sxm") + ",1e-3")
    overall = validate(rows, "copy", profile()).overall
    assert overall["predicted"] == 1


def test_row_without_a_time_is_predicted_and_not_scored(table: Any, profile: Any) -> None:
    rows = table(f"{COPY},1e-3", f"{COPY},")
    found = validate(rows, "copy", profile())
    assert (found.overall["predicted"], found.overall["scored"], cells(found)[1]["signed_error"]) == (2, 1, "")


@pytest.mark.parametrize("header", [NCCL, NCCL.removesuffix(",time_us")])
def test_published_table_without_times_is_predicted(table: Any, header: str) -> None:
    rows = table("h100_sxm,x,2.29.2,all_gather,half,8,1048576", header=header)
    overall = validate(rows, "collective").overall
    assert (overall["predicted"], overall["scored"], overall["median_abs_error"]) == (1, 0, None)


def test_rate_of_a_link_counts_in_the_rows_that_give_one(table: Any, profile: Any) -> None:
    rows = table(f"{COPY},1e-3,", f"{COPY},1e-3,1e11", header=f"{HEADER},link_bytes_per_s")
    seconds = [float(row["predicted_s"]) for row in cells(validate(rows, "copy", profile()))]
    assert seconds == pytest.approx([1e-3, 0.505e-3])


def test_what_cannot_be_predicted_is_told_once_per_reason(table: Any, profile: Any) -> None:
    rows = table(f"{COPY},1e-3", f"{COPY},-1", f"{COPY},none", *["copy.h2d,H200 SXM,1,1"] * 3, "gemm.bf16,H100 SXM,,1")
    rows.write_text(rows.read_text() + "copy.d2h,H100 SXM,1,1\nmemory.copy,H100 SXM,1,1\n")
    told = line_with("not predicted", validate(rows, "copy", profile()))
    assert told == [
        f"not predicted: {rows}:3: seconds: expected a number greater than zero, 1e-12 to 1e9 (2 rows)",
        f"not predicted: {rows}:5: profile mine is made for H100 SXM, not for H200 SXM (3 rows)",
        f"not predicted: {rows}:8: m: expected a number greater than zero, at most 1e18",
        f"not predicted: {rows}:9: profile mine: copy.d2h: is missing; did you mean copy.h2d?",
        f"not predicted: {rows}:10: memory.copy is not of --kind copy",
    ]


def test_device_without_a_profile_is_told_so(table: Any) -> None:
    rows = table("gemm.bf16,GH200 96GB,1,1,1,1e-3", header="cost_class,device,m,n,k,seconds")
    found = validate(rows, "gemm")
    assert (found.overall["predicted"], found.reasons) == (
        0,
        {2: "no profile for GH200 96GB: generic does not know its rates"},
    )


def test_rows_that_the_profile_was_fitted_on_are_called_in_sample(table: Any, profile: Any) -> None:
    rows = table(f"{COPY},1e-3")
    told = line_with("in-sample", validate(rows, "copy", profile(samples=sample_of(rows))))
    assert told == [
        "in-sample: profile mine was fitted on this file; errors on rows left out: median 4.0 %, p90 12.0 % (7 rows)"
    ]


@pytest.mark.parametrize("content", [{"samples": []}, {}])
def test_rows_of_another_file_are_not_in_sample(table: Any, profile: Any, content: dict[str, Any]) -> None:
    rows = table(f"{COPY},1e-3")
    found = validate(rows, "copy", profile(**content))
    assert found.to_json()["in_sample"] == line_with("in-sample", found) == []


def test_file_of_which_a_fit_used_no_row_is_not_in_sample(table: Any, profile: Any) -> None:
    rows = table(f"{COPY},1e-3")
    found = validate(rows, "copy", profile(samples=sample_of(rows, rows=0)))
    assert found.to_json()["in_sample"] == []


def test_csv_keeps_the_cells_and_the_order_of_all_rows(table: Any, profile: Any) -> None:
    rows = table(f'{COPY},0.8e-3,"a, b"', "copy.h2d,H100 SXM,0,1e-3,", f"{COPY},1.0E-03,007", header=f"{HEADER},note")
    text = validate(rows, "copy", profile()).to_csv().decode().splitlines()
    kept = [line.startswith(given) for line, given in zip(text, rows.read_text().splitlines(), strict=True)]
    assert kept == [True] * 4


def test_csv_says_for_each_row_what_was_predicted_or_why_not(table: Any, profile: Any) -> None:
    rows = table("copy.h2d,H100 SXM,0,1e-3", f"{COPY},0.8e-3")
    left_out, found = cells(validate(rows, "copy", profile()))
    added = [float(found[name]) for name in ("predicted_s", "signed_error", "interval_low_s", "interval_high_s")]
    assert (added, found["provenance"], left_out["predicted_s"], left_out["reason"]) == (
        pytest.approx([1e-3, 0.25, 1e-3 * exp(-0.1 * Z90), 1e-3 * exp(0.1 * Z90)]),
        "fitted",
        "",
        "bytes: expected a number greater than zero, at most 1e18",
    )


def test_a_row_stands_where_it_is_whatever_source_it_names(table: Any, profile: Any) -> None:
    rows = table(f"{COPY},1e-3,a.csv:9", f"{COPY},0,a.csv:9", f"{COPY},0.5e-3,a.csv:9", header=f"{HEADER},source")
    found = cells(validate(rows, "copy", profile()))
    assert [(row["source"], row["signed_error"][:3], row["reason"][:8]) for row in found] == [
        ("a.csv:9", "0.0", ""),
        ("a.csv:9", "", "seconds:"),
        ("a.csv:9", "1.0", ""),
    ]


def test_json_holds_the_numbers_per_group_and_label(table: Any, profile: Any) -> None:
    rows = table(f"{COPY},0.8e-3", "copy.h2d,H100 SXM,396000000,1e-3", "copy.h2d,H100 SXM,0,1")
    told = json.loads(json_text(validate(rows, "copy", profile()).to_json()))
    assert (told["rows"], told["groups"][0]["rows"], told["provenance"], told["not_predicted"]) == (
        3,
        2,
        {"fitted": 0.5, "extrapolated": 0.5},
        [{"reason": "bytes: expected a number greater than zero, at most 1e18", "first_line": 4, "rows": 1}],
    )


def test_own_profile_that_rests_on_a_shipped_one_is_in_sample_with_it(
    table: Any, profile: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = table(f"{COPY},1e-3")
    monkeypatch.setattr("runcast.simulator.answers.validate.samples.profile_names", lambda: [below])
    below = profile("below", samples=sample_of(rows))
    told = line_with("in-sample", validate(rows, "copy", profile(base=below)))
    assert [line.partition(";")[0] for line in told] == ["in-sample: profile below was fitted on this file"]


def test_json_of_send_and_receive_between_nodes_has_no_number_of_gpus(table: Any, profile: Any) -> None:
    header = "cost_class,device,bytes,link_bytes_per_s,gpus,seconds"
    rows = table("send_recv.network,H100 SXM,50000000,5e10,,1e-3", header=header)
    models = {"send_recv.network": {"default": "nccl", "variants": {"nccl": MODEL}}}
    told = json.loads(json_text(validate(rows, "collective", profile(models=models)).to_json()))
    assert (told["predicted"], told["by_gpus"]) == (1, [])


def test_json_on_stdout_stands_alone(table: Any, profile: Any, runcast: Any, tmp_path: Path) -> None:
    rows = table(f"{COPY},1e-3")
    code, out, err = runcast(
        "--kind", "copy", "--rows", rows, "--profile", profile(), "--json", "-", "--csv", rows.with_name("o.csv")
    )
    assert (code, json.loads(out)["scored"], err) == (0, 1, f"wrote {tmp_path / 'o.csv'}\n")


def test_files_are_written_and_named(table: Any, profile: Any, runcast: Any, tmp_path: Path) -> None:
    rows, to_csv, to_json = table(f"{COPY},1e-3"), tmp_path / "o.csv", tmp_path / "o.json"
    code, out, _ = runcast("--kind", "copy", "--rows", rows, "--profile", profile(), "--json", to_json, "--csv", to_csv)
    assert (
        code,
        out.splitlines()[-2:],
        json.loads(to_json.read_text())["rows"],
        len(to_csv.read_text().splitlines()),
    ) == (
        0,
        [f"wrote {to_json}", f"wrote {to_csv}"],
        1,
        2,
    )


def test_nothing_predicted_is_told_and_fails(table: Any, profile: Any, runcast: Any) -> None:
    rows = table("copy.h2d,H200 SXM,1,1e-3")
    code, out, err = runcast("--kind", "copy", "--rows", rows, "--profile", profile())
    assert (code, [line for line in out.splitlines() if line.startswith("total")], err.count("\n")) == (
        2,
        ["total: 1 rows, 0 predicted, 0 scored"],
        1,
    )


def test_wrong_profile_is_one_line(table: Any, runcast: Any) -> None:
    rows = table(f"{COPY},1e-3")
    code, out, err = runcast("--kind", "copy", "--rows", rows, "--profile", "h100-smx")
    assert (
        code,
        out,
        err.startswith("error: --profile: profile = 'h100-smx': unknown; did you mean"),
        err.count("\n"),
    ) == (
        2,
        "",
        True,
        1,
    )


def test_unknown_kind(table: Any) -> None:
    rows = table(f"{COPY},1e-3")
    found = faults(rows, "gem")
    assert found == ("--kind = 'gem': unknown; did you mean gemm?",)


def test_missing_file(tmp_path: Path) -> None:
    rows = tmp_path / "none.csv"
    found = faults(rows, "copy")
    assert found == (f"{rows}: no such file",)


@pytest.mark.parametrize("rows", [[], ["", ""]])
def test_no_rows(table: Any, rows: list[str]) -> None:
    path = table(*rows)
    found = faults(path, "copy")
    assert found == (f"{path}: holds no rows",)


def test_no_rows_of_the_kind(table: Any) -> None:
    rows = table(f"{COPY},1e-3")
    found = faults(rows, "gemm")
    assert found == (f"{rows}: holds no rows of --kind gemm; its rows are of copy",)


def test_another_table(table: Any) -> None:
    rows = table("1,2", header="a,b")
    found = faults(rows, "gemm")
    assert found == (f"{rows}:1: not a table of samples; its columns are a, b",)


def test_csv_of_rows_that_have_predictions_already(table: Any, profile: Any) -> None:
    rows = table(f"{COPY},1e-3,1", header=f"{HEADER},predicted_s")
    found = faults(rows, "copy", profile(), to_csv=True)
    assert found == (f"--csv: {rows}: has columns named predicted_s already",)


def test_csv_of_json_lines(tmp_path: Path) -> None:
    rows = tmp_path / "probe.jsonl"
    environment = {"group": "environment", "params": {"gpu": "NVIDIA H100 SXM"}}
    copy = {"group": "copies", "case": "h2d_pinned", "params": {"bytes": 1e6}, "samples": [20.0]}
    rows.write_text(json.dumps(environment) + "\n" + json.dumps(copy) + "\n")
    found = faults(rows, "copy", to_csv=True)
    assert found == (f"--csv: {rows}: is JSON lines; there are no columns to keep",)


def test_rows_are_not_written_over(table: Any, runcast: Any) -> None:
    rows = table(f"{COPY},1e-3")
    told = runcast("--kind", "copy", "--rows", rows, "--csv", rows)
    assert told == (2, "", f"error: {rows}: is a file that is read; it is not written over\n")


def test_bad_output_is_told_before_the_rows_are_read(tmp_path: Path, runcast: Any) -> None:
    out = tmp_path / "none" / "o.csv"
    told = runcast("--kind", "copy", "--rows", "none.csv", "--csv", out)
    assert told == (2, "", f"error: --csv {out}: there is no folder {out.parent}\n")
