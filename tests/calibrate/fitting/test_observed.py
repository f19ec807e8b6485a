"""What records that are no samples tell: speed kept beside others, and that of settled clocks."""

import json
import math
from pathlib import Path

import pytest
from runcast.calibrate.fitting import observed
from runcast.calibrate.fitting.observed import COLLECTIVES
from runcast.simulator import cli, simulate
from runcast.simulator.hardware import Limits
from runcast.simulator.profile import load_profile, parameters

ROOT = Path(__file__).parents[3]
MACHINE = {"group": "environment", "gpu": "NVIDIA H100 80GB HBM3", "suite": 1}


def entries_of(records):
    """The entries of a device with 1 TB/s of memory bandwidth."""
    return observed.entries_of(records, Limits({}, 1e12, 1, 1e6, 1e9, 1e9, 1e9, 1))


def beside(victim, noise, us=125.0, case=None, source="s.jsonl:3", more=None, **params):
    """A record of `us` microseconds beside the noise and 100 alone."""
    return {
        "group": "interference",
        "case": case or f"{victim}_beside_{noise}",
        "params": {"victim": victim, "beside": noise, **params},
        "samples": [us] * 5,
        "cost_class": "",
        "more": {"alone_s": 1e-4} | (more or {}),
        "device": "H100 SXM",
        "source": source,
    }


def values(entries):
    return {name.removeprefix("interference."): entry["value"] for name, entry in entries.items()}


def test_a_victim_keeps_its_time_alone_over_that_beside():
    assert values(entries_of([beside("gemm", "h2d")])) == {"gemm.h2d": 0.8}


def test_the_noise_is_a_victim_too():
    slowed = {"noise_alone_s": 3e-3, "noise_beside_s": 4e-3}
    assert values(entries_of([beside("memory", "d2h", more=slowed)])) == {"d2h.memory": 0.75, "memory.d2h": 0.8}


def test_a_copy_on_the_device_is_called_as_weight_updates_call_it():
    slowed = {"noise_alone_s": 3e-3, "noise_beside_s": 4e-3}
    told = values(entries_of([beside("h2d", "d2d", more=slowed), beside("copy", "broadcast", us=200.0)]))
    assert told == {"copy.h2d": 0.75, "h2d.copy": 0.8, "copy.broadcast": 0.5}
    update = simulate(ROOT / "data/scenarios/kimi-k2-256xh20.toml").resolved.program
    assert {kind for pair in told for kind in pair.split(".")} <= set(update.kinds)


def test_nothing_runs_faster_beside_others():
    assert values(entries_of([beside("gemm", "h2d", us=90.0)])) == {"gemm.h2d": 1.0}


def test_an_entry_says_where_it_comes_from():
    rounds = [beside("gemm", "h2d", us=us, source=f"deep/s.jsonl:{us:g}") for us in (120.0, 125.0, 130.0)]
    entries = entries_of(rounds)
    assert parameters("this test", entries)["interference.gemm.h2d"].provenance == "measured"
    told = "speed of gemm beside h2d over alone; 3 records of 1 case in s.jsonl"
    assert entries["interference.gemm.h2d"] == {"value": 0.8, "spread": 0.05, "provenance": "measured", "source": told}


def test_the_value_is_that_of_all_cases_in_a_row_and_the_spread_their_scatter():
    cases = [beside("gemm", "h2d", us=us, case=f"{us:g}") for us in (100.0, 125.0, 200.0)]
    entry = entries_of(cases)["interference.gemm.h2d"]
    scatter = math.sqrt(((math.log(1.25) ** 2 + math.log(2) ** 2) - math.log(2.5) ** 2 / 3) / 2)
    assert (entry["value"], entry["spread"]) == (round(300 / 425, 4), pytest.approx(scatter, rel=0.01))


def test_repeats_widen_the_spread():
    wide = beside("gemm", "h2d") | {"samples": [100.0, 110.0, 125.0, 140.0, 150.0]}
    assert entries_of([wide])["interference.gemm.h2d"]["spread"] > 0.1


def test_held_sms_stand_in_for_collectives_at_about_twenty_programs():
    records = [beside("gemm", "occupy", us=us, programs=k) for k, us in ((8, 110.0), (16, 125.0), (32, 160.0))]
    slowed = beside("gemm", "occupy", programs=16, more={"noise_alone_s": 1.0, "noise_beside_s": 2.0})
    entries = entries_of([*records, slowed])
    assert values(entries) == {f"gemm.{kind}": 0.8 for kind in sorted(COLLECTIVES)}
    entry = entries["interference.gemm.all_reduce"]
    assert entry["source"].startswith("speed of gemm beside 16 programs that hold SMs, in place of a collective's; ")
    assert (entry["spread"] > 0.15, entry["provenance"]) == (True, "extrapolated")


def test_real_collectives_win_over_stand_ins():
    records = [beside("gemm", "occupy", us=200.0, programs=20), beside("gemm", "all_reduce")]
    records += [beside("gemm", "all_gather", us=160.0), beside("memory", "occupy", programs=20, us=400.0)]
    told = values(entries_of(records))
    assert {told[f"gemm.{kind}"] for kind in COLLECTIVES} == {0.8, 0.625}
    assert (told["gemm.all_reduce"], told["gemm.all_gather"], told["gemm.broadcast"]) == (0.8, 0.625, 0.8)
    assert {told[f"memory.{kind}"] for kind in COLLECTIVES} == {0.25}


def test_a_measured_collective_is_measured_and_no_wider_than_its_scatter():
    entries = entries_of([beside("gemm", "all_reduce")])
    labels = {name.rpartition(".")[2]: (entry["provenance"], entry["spread"]) for name, entry in entries.items()}
    assert labels["all_reduce"] == ("measured", 0.05)
    assert labels["all_gather"] == ("extrapolated", pytest.approx(math.hypot(0.05, 0.1), rel=0.01))


def probed(case, noise, us, **more):
    return {
        "group": "interference",
        "case": case,
        "params": {"beside": noise, "noise_passes": 3},
        "samples": [us] * 4,
        "noise_us": [50.0],
        "source": "probe.jsonl:9",
        **more,
    }


def test_records_of_the_one_call_probe():
    records = [
        *(probed(case, "none", 100.0) for case in ("gemm_8192", "membound_add")),
        probed("gemm_8192", "h2d", 125.0),
        probed("gemm_8192", "occupy_4_ctas", 110.0),
        probed("gemm_8192", "occupy_20_ctas", 200.0),
        probed("membound_add", "d2d", 400.0),
        probed("attention_8192", "d2d", 400.0),  # never alone
        {"group": "interference", "case": "noise_alone", "params": {"noise": "h2d"}, "samples": [1.0], "source": "p:1"},
    ]
    assert values(entries_of(records)) == {
        "gemm.h2d": 0.8,
        "memory.copy": 0.25,
        **{f"gemm.{kind}": 0.5 for kind in COLLECTIVES},
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"samples": []},
        {"samples": [0.0]},
        {"samples": ["fast"]},
        {"samples": [math.nan]},
        {"more": {}},
        {"more": {"alone_s": 0.0}},
        {"more": {"alone_s": "soon"}},
        {"more": None},
        {"params": None},
        {"params": {"victim": "gemm"}},
        {"params": {"beside": "h2d"}},
        {"params": {"victim": "GEMM 8k", "beside": "h2d"}},
    ],
    ids=str,
)
def test_a_record_that_lacks_what_is_needed_tells_nothing(changes):
    assert entries_of([beside("gemm", "h2d") | changes]) == {}


def sustained(samples, **params):
    return {"group": "sustained", "case": "gemm", "params": params, "samples": samples, "source": "s.jsonl:2"}


def test_settled_clocks_against_the_first_sample():
    fresh, falling, settled = [1e5], [1.1e5] * 20, [1.25e5] * 80
    entry = entries_of([sustained(fresh + falling + settled)])["gemm.training_rate"]
    told = "rate of the last third of a run over that of its first sample; 1 record of 1 case in s.jsonl"
    assert entry == {"value": 0.8, "spread": 0.02, "provenance": "measured", "source": told}


def test_a_sample_may_be_one_of_several_products():
    run = [1e3] * 100 + [2e3] * 500
    assert entries_of([sustained(run)]) == {}  # 1.1 s
    assert entries_of([sustained(run, per_sample=10)])["gemm.training_rate"]["value"] == 0.5


def test_a_run_that_was_disturbed_tells_nothing_of_clocks():
    assert entries_of([sustained([1e5] * 20 + [2e6] * 5)]) == {}


@pytest.fixture
def fit(tmp_path, monkeypatch, capsys):
    """`fit(records, *flags)`: the parameters of a profile, and what was printed."""
    monkeypatch.chdir(tmp_path)

    def fitted(records, *flags):
        (tmp_path / "s.jsonl").write_text("".join(json.dumps(r) + "\n" for r in (MACHINE, *records)))
        with pytest.raises(SystemExit) as leave:
            cli.main(["calibrate", "fit", "s.jsonl", "-o", "mine.json", *flags])
        out, err = capsys.readouterr()
        assert (leave.value.code or 0, err) == (0, "")
        return load_profile("mine.json").parameters, out

    return fitted


def test_they_stand_in_the_profile(fit):
    known, _ = fit([beside("gemm", "h2d"), sustained([1e5] * 100)])
    assert (known["interference.gemm.h2d"].value, known["gemm.training_rate"].value) == (0.8, 1.0)
    assert known["interference.all_gather.gemm"].provenance == "assumed"  # the base's


def test_what_a_user_states_wins(fit, tmp_path):
    speed = {"value": 0.5, "spread": 0.1, "provenance": "measured", "source": "a test"}
    (tmp_path / "known.json").write_text(json.dumps({"schema": 2, "parameters": {"interference.gemm.h2d": speed}}))
    known, _ = fit([beside("gemm", "h2d"), beside("gemm", "d2h")], "--also", "known.json")
    assert (known["interference.gemm.h2d"].value, known["interference.gemm.d2h"].value) == (0.5, 0.8)


def test_records_of_another_device_are_not_taken(fit, capsys):
    fit([beside("gemm", "h2d")])
    with pytest.raises(SystemExit):
        cli.main(["calibrate", "fit", "s.jsonl", "-o", "other.json", "--device", "H200"])
    assert capsys.readouterr().err == "error: no samples of H200 SXM; there are some of H100 SXM\n"


def odd(us, padded_us=100.0, case="forward", **params):
    """A record of an awkward shape that takes `us` microseconds, and padded so many."""
    return {
        "group": "shapes", "case": case, "params": params, "samples": [us] * 5, "cost_class": "",
        "more": {"padded_s": padded_us * 1e-6}, "device": "H100 SXM", "source": "s.jsonl:9",
    }  # fmt: skip


def test_products_of_each_alignment_take_so_much_longer_than_padded_ones():
    """By the least aligned of both widths; the medians over shapes and directions."""
    records = [odd(350.0, n=50257, k=2048), odd(150.0, n=4100, k=4096), odd(170.0, n=4096, k=4098),
               odd(190.0, n=4100, k=4096, case="wgrad"), odd(105.0, n=4104, k=4096)]  # fmt: skip
    assert values(entries_of(records)) == {
        "gemm.align16_factor": 1.05, "gemm.align2_factor": 3.5, "gemm.align4_factor": 1.7
    }  # fmt: skip


def test_no_awkward_product_is_faster_than_a_padded_one():
    assert values(entries_of([odd(98.0, n=4104, k=4096)])) == {"gemm.align16_factor": 1.0}


@pytest.mark.parametrize(("us", "multiple"), [(100.0, 32.0), (104.0, 32.0), (85.0, 8.0), (83.0, 8.0)])
def test_heads_that_take_as_long_as_padded_ones_are_padded(us, multiple):
    """80 elements take as long as 96, or five sixths of that; 180 are no whole vectors and say nothing."""
    records = [odd(us, case="attention_forward", head_dim=80, padded_head_dim=96),
               odd(150.0, case="attention_forward", head_dim=180, padded_head_dim=192)]  # fmt: skip
    assert values(entries_of(records)) == {"attention.head_multiple": multiple}


@pytest.mark.parametrize("record", [
    odd(150.0, n="many", k=4096), odd(150.0, n=4096, k=4096), odd(150.0, n=4100), odd(150.0, n=True, k=4100),
    odd(150.0, matrices=64, seq=2048, head_dim=73, padded_head_dim=80, case="scores"),
    odd(150.0, padded_us=-1.0, n=4100, k=4096),
])  # fmt: skip
def test_shapes_that_say_nothing_tell_nothing(record):
    assert entries_of([record]) == {}


def test_factors_of_awkward_shapes_are_parameters_with_their_source():
    entries = entries_of([odd(150.0, n=4100, k=4096), odd(160.0, n=4100, k=4096, case="dgrad")])
    assert parameters("this test", entries)["gemm.align4_factor"].provenance == "measured"
    told = "time of products over that of padded ones; 2 records of 2 cases in s.jsonl"
    assert entries["gemm.align4_factor"]["source"] == told
