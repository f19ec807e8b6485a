"""What is predicted from four measured hosts is what other hosts, links, sizes and algorithms take when executed."""

from statistics import median

import pytest

pytest.importorskip("torch", reason="executing needs the [calibrate] extra")

from .cases import CASES
from .comparing import lines, run_all
from .hosts import missing

pytestmark = [
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(missing()), reason=missing() or "none"),
]

MEDIAN, MOST = 0.05, 0.10


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    found = run_all(CASES, tmp_path_factory.mktemp("testbed"))
    print(*lines(found), sep="\n")
    return found


def test_there_are_enough_cases():
    assert len(CASES) >= 25


def test_predictions_are_near_what_is_executed(outcomes):
    errors = [abs(one.error) for one in outcomes]
    assert median(errors) <= MEDIAN, outcomes
    assert [one for one in outcomes if abs(one.error) > MOST] == []


def test_every_byte_is_right(outcomes):
    assert [one for one in outcomes if one.wrong] == []
