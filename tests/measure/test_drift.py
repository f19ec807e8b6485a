"""What has moved between two runs: nothing by chance, whatever the noise, and what is slower than noise explains."""

import json
import math
import random

import pytest
from runcast.calibrate.measure import drift as verb
from runcast.calibrate.measure.drift import FLOOR, compare, report

SHAPES = {
    "normal": lambda g: g.gauss(0, 1),
    "skewed": lambda g: g.expovariate(1) - 1,
    "student": lambda g: g.gauss(0, 1) / math.sqrt(g.expovariate(1)),
    "spikes": lambda g: g.gauss(0, 1) + (g.expovariate(0.1) if g.random() < 0.1 else 0),
}


def run(seed, cases=60, rounds=2, repeats=10, noise=0.1, shape="normal", drift=0.0, factor=lambda i: 1.0):
    """Records of cases of very different length; `drift` is how much the rounds of a case differ (relative)."""
    g = random.Random(seed)
    return [
        {
            "group": ("gemm", "copies", "all_reduce")[i % 3],
            "case": "c",
            "params": {"i": i},
            "round": r,
            "samples": [10 * (1 + i) * factor(i) * shift * math.exp(noise * SHAPES[shape](g)) for _ in range(repeats)],
        }
        for i in range(cases)
        for r in range(rounds)
        for shift in [math.exp(g.gauss(0, drift))]
    ]


def moved(before, after):
    return list(compare(before, after).changes)


def numbers(found):
    return {int(one.case.rpartition("=")[2]) for one in found}


@pytest.mark.parametrize("drift", [0.0, 0.05])
@pytest.mark.parametrize("noise", [0.001, 0.1, 0.5])
@pytest.mark.parametrize("shape", SHAPES)
def test_nothing_moves_by_chance(shape, noise, drift):
    found = [
        compare(*(run(2 * seed + file, noise=noise, shape=shape, drift=drift) for file in (0, 1))) for seed in range(10)
    ]
    assert sum(len(one.changes) for one in found) <= 1  # a false alarm in twenty comparisons is what was asked for
    assert not any(one.machine_changed for one in found)


@pytest.mark.parametrize(("rounds", "repeats"), [(1, 5), (1, 40), (4, 3)])
def test_nothing_moves_by_chance_with_few_repeats_or_rounds(rounds, repeats):
    for seed in range(10):
        assert moved(*(run(2 * seed + file, rounds=rounds, repeats=repeats, drift=0.02) for file in (0, 1))) == []


def test_nothing_moves_by_chance_among_a_thousand_cases():
    assert moved(run(1, 1000, shape="student", drift=0.03), run(2, 1000, shape="student", drift=0.03)) == []


@pytest.mark.parametrize("cases", [1, 30, 300])
@pytest.mark.parametrize("factor", [1.5, 1 / 1.5])
def test_a_case_that_became_half_as_slow_again_is_found(factor, cases):
    for seed in range(5):
        before, after = run(2 * seed, cases), run(2 * seed + 1, cases, factor=lambda i: factor if i == 0 else 1.0)
        (one,) = moved(before, after)
        assert one.case == "gemm/c i=0"
        assert one.ratio == pytest.approx(factor, rel=0.25)


def test_many_that_moved_do_not_hide_each_other():
    slow = set(range(0, 300, 3))  # all of one family
    found = moved(run(1, 300, noise=0.05), run(2, 300, noise=0.05, factor=lambda i: 1.5 if i in slow else 1.0))
    assert len(numbers(found) & slow) >= 95
    assert numbers(found) <= slow


def test_noisy_cases_do_not_hide_a_change_in_quiet_ones():
    quiet = run(1, 90, noise=0.01), run(2, 90, noise=0.01, factor=lambda i: 1.1 if i == 0 else 1.0)
    noisy = [[r | {"group": "noisy"} for r in run(seed, 90, noise=0.5)] for seed in (3, 4)]
    assert [one.case for one in moved(*(a + b for a, b in zip(quiet, noisy, strict=True)))] == ["gemm/c i=0"]


def test_runs_that_differ_from_case_to_case_widen_all_bands():
    def count_differences(seed):
        g = random.Random(seed)
        factors = [math.exp(g.gauss(0, 0.1)) for _ in range(300)]
        return run(seed, 300, noise=0.001, factor=factors.__getitem__)

    assert len(moved(count_differences(1), count_differences(2))) <= 1


def test_a_slower_machine_is_one_line():
    drift = compare(run(1, 300), run(2, 300, factor=lambda _: 1.1))
    assert (drift.shared, drift.changes) == (pytest.approx(1.1, rel=0.01), ())
    assert drift.machine_changed


def test_a_case_that_did_not_slow_with_the_machine_has_moved():
    drift = compare(run(1, noise=0.02), run(2, noise=0.02, factor=lambda i: 1.0 if i == 7 else 1.5))
    assert numbers(drift.changes) == {7}
    assert drift.changes[0].own_ratio == pytest.approx(1 / 1.5, rel=0.05)


def test_what_rounds_share_is_no_slower_machine():
    def shifting(seed):
        g = random.Random(seed)
        shift = [math.exp(g.gauss(0, 0.1)) for _ in range(4)]
        return [r | {"samples": [x * shift[r["round"]] for x in r["samples"]]} for r in run(seed, rounds=4, noise=0.01)]

    found = [compare(shifting(2 * seed), shifting(2 * seed + 1)) for seed in range(10)]
    assert sum(one.machine_changed for one in found) <= 1


def test_a_change_below_the_floor_is_none():
    quiet = {"noise": 1e-6}
    assert moved(run(1, **quiet), run(2, factor=lambda i: 1 + 0.9 * FLOOR * (i == 0), **quiet)) == []
    assert numbers(moved(run(1, **quiet), run(2, factor=lambda i: 1 + 1.2 * FLOOR * (i == 0), **quiet))) == {0}


def test_the_order_of_lines_does_not_matter():
    before, after = run(1), run(2, factor=lambda i: 2.0 if i % 9 == 0 else 1.0)
    expected = report(compare(before, after))
    for seed in range(5):
        random.Random(seed).shuffle(before)
        random.Random(seed + 9).shuffle(after)
        assert report(compare(before, after)) == expected


def test_the_other_way_round_is_the_inverse():
    before, after = run(1), run(2, factor=lambda i: 2.0 if i % 9 == 0 else 1.0)
    there, back = moved(before, after), moved(after, before)
    assert [one.case for one in there] == [one.case for one in back]
    assert [one.ratio for one in there] == pytest.approx([1 / one.ratio for one in back])
    assert [one.low for one in there] == pytest.approx([1 / one.high for one in back])


def test_the_furthest_comes_first():
    factors = {3: 2.0, 5: 8.0, 9: 0.2}
    found = moved(run(1, noise=0.01), run(2, noise=0.01, factor=lambda i: factors.get(i, 1.0)))
    assert [int(one.case.rpartition("=")[2]) for one in found] == [5, 9, 3]


def test_a_file_against_itself():
    drift = compare(run(1), run(1))
    assert (drift.changes, drift.shared, drift.compared) == ((), 1.0, 60)


def test_cases_of_one_file_only():
    lost = {"group": "gemm", "case": "lost", "params": {}, "round": 0}
    wrong = lost | {"case": "wrong"}
    before = [*run(1), lost | {"samples": [1.0]}, wrong | {"samples": [1.0]}]
    after = [*run(2), lost | {"error": "timed out"}, wrong | {"samples": [1.0], "wrong": 3}]
    drift = compare(before, after)
    assert (drift.only_a, drift.only_b, drift.changes) == (("gemm/lost", "gemm/wrong"), (), ())


@pytest.mark.parametrize("files", [([], []), ([], run(1)), (run(1, cases=1, repeats=1, rounds=1),) * 2])
def test_little_or_nothing_to_compare(files):
    assert not compare(*files).changes
    assert "0 of" in report(compare(*files))


def test_a_report():
    machine = {"group": "environment", "gpu": "CPU", "torch": "2.12"}
    quiet = {"cases": 20, "noise": 0.0}
    before = [machine, *run(1, **quiet)]
    after = [machine | {"torch": "2.13"}, *run(2, factor=lambda i: 2.0 if i == 1 else 1.0, **quiet)]
    after.append({"group": "copies", "case": "new", "params": {"bytes": 8}, "round": 0, "samples": [1.0]})
    assert report(compare(before, after)).splitlines() == [
        "torch: 2.12 in A, 2.13 in B",
        "all cases together: B takes 1.000 times as long as A (within 2.0%, which chance explains)",
        "1 of 20 cases moved beyond that (of noise alone: 0.05 per comparison)",
        "",
        "      A          B        B/A  explained    case",
        "    20 us      40 us    2.000  0.98 to 1.02  copies/c i=1",
        "",
        "only in B: 1",
        "  copies/new bytes=8",
    ]


@pytest.mark.parametrize(
    ("after", "code", "told"),
    [
        (run(1), 0, "0 of 60 cases moved"),
        (run(1, factor=lambda i: 2.0 if i == 1 else 1.0), 1, "1 of 60 cases moved"),
        (run(1, factor=lambda _: 2.0), 1, "B takes 2.000 times as long as A (moved)"),
        ([{"group": "gemm", "case": "another", "params": {}, "samples": [1.0]}], 2, "no measured case in common"),
    ],
    ids=["as before", "a case moved", "the machine moved", "nothing to compare"],
)
def test_exit_codes(tmp_path, capsys, after, code, told):
    files = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for path, records in zip(files, (run(1), after), strict=True):
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    assert verb.run([str(path) for path in files]) == code
    said = capsys.readouterr()
    assert told in (said.err if code == 2 else said.out)


def test_a_file_that_is_not_there_is_one_line(tmp_path, capsys):
    assert verb.run([str(tmp_path / "no.jsonl")] * 2) == 2
    assert capsys.readouterr().err.startswith("error: ")
