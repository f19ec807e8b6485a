import pytest

pytest.importorskip("torch", reason="measuring needs the [calibrate] extra")

import torch
from runcast.calibrate.measure.command import _options, _parser, run


@pytest.mark.parametrize(
    ("flags", "limit_s"),
    [([], 0), (["--quick"], 165), (["--quick", "--limit-min", "0"], 0), (["--quick", "--limit-min", "10"], 600)],
)
def test_a_quick_run_has_a_limit_unless_it_is_given_one(flags, limit_s):
    assert _options(_parser().parse_args(flags)).limit_s == limit_s


def test_patterns_may_be_listed_and_repeated():
    flags = _parser().parse_args(["--only", "gemm,moe", "--only", "collectives/all_*"])
    assert _options(flags).only == ("gemm", "moe", "collectives/all_*")


def test_a_quick_run_spends_less_on_a_case_and_gives_up_sooner():
    (slow, quick, own) = (
        _options(_parser().parse_args(flags))
        for flags in ([], ["--quick"], ["--quick", "--budget-ms", "40", "--timeout-s", "120"])
    )
    assert (slow.budget_s, slow.timeout_s) == (0.04, 120)
    assert (quick.budget_s, quick.timeout_s) == (0.01, 20)
    assert (own.budget_s, own.timeout_s) == (0.04, 120)


def test_a_list_has_every_case_once(capsys):
    assert run(["--list", "--device", "cpu", "--only", "overheads"]) == 0
    said = capsys.readouterr()
    cases = said.out.splitlines()
    assert len(cases) == len(set(cases)) >= 3
    assert said.err.startswith(f"{len(cases)} cases, about ")


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--out", "samples.csv"], "--out = 'samples.csv': expected a name that ends in .jsonl"),
        (["--budget-ms", "0"], "--budget-ms = 0: expected 0.1 to 1e6"),
        (["--rounds", "0"], "--rounds = 0: expected 1 to 100"),
    ],
)
def test_a_mistake_is_one_line(capsys, flags, told):
    assert (run(["--device", "cpu", *flags]), capsys.readouterr()) == (2, ("", f"error: {told}\n"))


def test_a_device_that_is_not_there_is_a_mistake(capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert run(["--device", "cuda"]) == 2
    assert capsys.readouterr().err == "error: --device = 'cuda': torch finds no GPU here\n"
