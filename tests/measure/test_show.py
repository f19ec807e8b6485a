import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.calibrate.measure import show
from runcast.calibrate.measure.show import bandwidths, rates, spread, spread_word, table
from runcast.simulator.profile.forms.collective import BUS_FACTOR


def test_bus_bandwidth_is_that_of_the_busiest_link():
    """8 ranks, 8 bytes in 2 s: 4 B/s; an all-reduce passes 2 x 7/8 of them, a broadcast all."""
    assert bandwidths("all_reduce", 8, 8, 2) == (4, 7)
    assert bandwidths("all_gather", 8, 8, 2) == (4, 3.5)
    assert bandwidths("reduce_scatter", 8, 8, 2) == (4, 3.5)
    assert bandwidths("all_to_all", 8, 8, 2) == (4, 3.5)
    assert bandwidths("broadcast", 8, 8, 2) == (4, 4)


def test_it_is_what_the_simulator_means_by_it():
    for name, factor in BUS_FACTOR.items():
        for ranks in (2.0, 3.0, 64.0):
            assert bandwidths(name, int(ranks), 1, 1)[1] == pytest.approx(float(factor(ranks)))


@pytest.mark.parametrize(
    ("record", "told"),
    [
        (
            {"group": "collectives", "case": "all_reduce", "params": {"gpus": 8}, "bytes": 8e9},
            "algbw 4 GB/s, busbw 7 GB/s",
        ),
        ({"group": "collectives", "case": "of_mine", "params": {}, "bytes": 8e9}, "4 GB/s"),
        ({"group": "gemm", "case": "wgrad", "flop": 6e14, "bytes": 1e9}, "300 TFLOP/s"),
        ({"group": "copies", "case": "h2d", "flop": 0, "bytes": 5e10}, "25 GB/s"),
        ({"group": "overheads", "case": "launch", "flop": 0, "bytes": 0}, ""),
    ],
)
def test_rates_of_a_call_of_two_seconds(record, told):
    assert rates(record, 2.0) == told


def test_the_table_has_a_line_per_case_with_what_to_look_at():
    copy = {"group": "copies", "case": "h2d", "params": {"bytes": 8}, "flop": 0, "bytes": 8, "wrong": 0, "cache": "hot"}
    records = [
        {"group": "environment"},
        copy | {"round": 0, "samples": [4.0, 4.0]},
        copy | {"round": 1, "samples": [4.0, 8.0]},
        copy | {"round": 0, "params": {"bytes": 9}, "samples": [1.0, 2.0], "wrong": 3},
        {"group": "gemm", "case": "nt", "params": {}, "round": 0, "error": "RuntimeError: no"},
    ]
    assert table(records) == [
        "    median  spread samples cache  rate                               case",
        "      4 us   25.0%       4 hot    2 MB/s                             copies/h2d bytes=8  WIDE SPREAD",
        "    1.5 us   33.3%       2 hot    5.33 MB/s                          copies/h2d bytes=9  VERY WIDE SPREAD  #"
        "WRONG 3",
        "         -                                                           gemm/nt  FAILED: RuntimeError: no",
    ]
    assert len(table(records, ["gemm"])) == 2


def test_sizes_are_in_the_order_of_numbers():
    copies = [{"group": "copies", "case": "h2d", "params": {"bytes": size}, "round": 0, "samples": [1.0]}
              for size in (1024, 4194304, 524288)]  # fmt: skip
    assert [line.rpartition("=")[2] for line in table(copies)[1:]] == ["1024", "524288", "4194304"]


def test_a_file_that_is_not_there(tmp_path, capsys):
    code = show.run([str(tmp_path / "none.jsonl")])
    assert (code, capsys.readouterr().err) == (2, f"error: {tmp_path}/none.jsonl: no such file\n")


@pytest.mark.parametrize(
    ("flags", "code", "told"),
    [
        ([], 0, "2 us"),
        (["--only", "copies,moe"], 0, "2 us"),
        (["--only", "moe"], 2, "holds no such cases"),
        (["--no"], 2, "no-such-file"),
    ],
)
def test_the_verb_prints_the_table_or_one_line(tmp_path, capsys, flags, code, told):
    path = tmp_path / ("no-such-file" if flags == ["--no"] else "s.jsonl")
    (tmp_path / "s.jsonl").write_text(
        json.dumps({"group": "copies", "case": "h2d", "params": {}, "round": 0, "samples": [2.0], "wrong": 0}) + "\n"
    )
    assert show.run([str(path), *(flag for flag in flags if flag != "--no")]) == code
    said = capsys.readouterr()
    assert told in (said.err if code else said.out)
    assert len((said.err or said.out).splitlines()) == (1 if code else 2)


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=50))
def test_spread_is_the_middle_half_over_the_median(samples):
    low, middle, high = np.quantile(samples, [0.25, 0.5, 0.75])
    assert spread(samples) == pytest.approx((high - low) / middle)
    assert spread([80, 90, 100, 110, 120]) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("samples", "told"),
    [([1.0], ""), ([95, 100, 105], ""), ([90, 100, 110], ""), ([80, 100, 120], "wide"), ([50, 100, 150], "very wide")],
)
def test_wide_from_a_tenth_and_very_wide_from_a_quarter(samples, told):
    assert spread_word(samples) == told
