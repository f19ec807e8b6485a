"""What docs/collectives.md says of fitted curves against published measurements."""

import re
from pathlib import Path

import pandas as pd
import pytest
from runcast.simulator.answers.validate import shipped_file, validate

PAGE = (Path(__file__).parents[2] / "docs/collectives.md").read_text()
HEAD = "| all-reduce between nodes | rows | median | p90 | bias |\n|---|---|---|---|---|\n"


@pytest.fixture(scope="module")
def found():
    return validate(shipped_file("collectives.csv"), "collective")


def said(rows: pd.DataFrame) -> str:
    error = 100 * rows["signed_error"]
    return f"{len(rows)} | {error.abs().median():.1f} % | {error.abs().quantile(0.9):.1f} % | {error.median():+.1f} %"


def test_all_reduces_between_nodes(found):
    every = found.table[found.table["signed_error"].notna()]
    between = every[every["cost_class"] == "all_reduce.network"]
    h100, b200, gb200 = (between[between["device"] == name] for name in ("H100 SXM", "B200 SXM", "GB200"))
    gb300 = every[(every["device"] == "GB300") & (every["cost_class"] == "all_reduce")]
    lines = {
        "H100, below 128 GPUs": h100[h100["gpus"] < 128],
        "H100, 128 to 512 GPUs": h100[h100["gpus"] >= 128],
        "B200, below 128 GPUs": b200[b200["gpus"] < 128],
        "B200, 128 GPUs and more": b200[b200["gpus"] >= 128],
        "GB200, 128 GPUs": gb200,
        "GB300, 8 to 72 GPUs": gb300,
    }
    table = "".join(f"| {name} | {said(rows)} |\n" for name, rows in lines.items())
    assert PAGE.split(HEAD)[1].split("\n\n")[0] + "\n" == table

    far = pd.concat([h100, b200]).query("gpus >= 128")["signed_error"].abs() * 100
    assert f"The {len(far)} rows of H100 and B200 with 128 GPUs and more together: median {far.median():.1f} %, " \
        f"p90 {far.quantile(0.9):.1f} %." in " ".join(PAGE.split())  # fmt: skip


def test_all_rows(found):
    total = re.search(r"\d+ scored: (median .*?) in the 90 % interval", " ".join(found.lines()))
    assert total is not None
    errors, _, held = total[1].rpartition(", ")
    assert f"All {found.predicted} rows: {errors}; {held} are in their 90 % interval." in " ".join(PAGE.split())
