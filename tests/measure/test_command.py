import pytest

pytest.importorskip("torch", reason="measuring needs the [calibrate] extra")

from runcast.calibrate.measure.command import _options, _parser


@pytest.mark.parametrize(
    ("flags", "limit_s"),
    [([], 0), (["--quick"], 165), (["--quick", "--limit-min", "0"], 0), (["--quick", "--limit-min", "10"], 600)],
)
def test_a_quick_run_has_a_limit_unless_it_is_given_one(flags, limit_s):
    assert _options(_parser().parse_args(flags)).limit_s == limit_s


def test_patterns_may_be_listed_and_repeated():
    flags = _parser().parse_args(["--only", "gemm,moe", "--only", "collectives/all_*"])
    assert _options(flags).only == ("gemm", "moe", "collectives/all_*")
