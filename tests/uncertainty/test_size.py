"""What grows with the number of GPUs and is not simulated widens the interval, and a note says so."""

from math import log

import pytest
from runcast.simulator.insight import critical_path
from runcast.simulator.predict import simulate
from runcast.simulator.profile import Z90, load_stack
from runcast.simulator.systems.train_step.errors import step_errors
from runcast.simulator.systems.train_step.terms import terms_of
from runcast.simulator.uncertainty import path_interval, size_error, size_notes

from ..lowering.steps import resolved

STACK = load_stack("generic")
TYPICAL, FRACTION = STACK.value("scale.gpus"), STACK.value("scale.doubling_fraction")


@pytest.mark.parametrize(("times", "doublings"), [(1 / 8, 0), (1, 0), (2, 1), (256, 8)])
def test_each_doubling_beyond_a_typical_row_adds_a_fraction(times, doublings):
    assert size_error(STACK, round(TYPICAL * times)) == pytest.approx(doublings * FRACTION)


def test_a_note_names_what_is_not_simulated_from_one_per_cent_on():
    (note,) = size_notes(STACK, 16_384)
    assert note == (
        "stragglers and failures among 16,384 GPUs are not simulated: published steps of one plan lose 0.7% per "
        "doubling, 5.9% beyond 64 GPUs, for which the interval is wider"
    )
    assert list(size_notes(STACK, 128)) == []


def test_it_is_one_error_of_all_phases():
    found = [term for term in terms_of(resolved(256)) if term.name == "scale.doubling_fraction"]
    assert {(term.of, term.power, term.stated) for term in found} == {("all", 1.0, size_error(STACK, 256))}
    assert len({term.phase for term in found}) == len(found)


def test_the_interval_contains_it():
    """Variances of ln(seconds) add up."""
    large = resolved(1024, 1, parallel={"zero": 1})
    timeline = simulate(large.scenario).timeline
    path, stated = critical_path(timeline), large.restate({"scale.doubling_fraction": 0.0})
    with_it, without = (path_interval(path, step_errors(of), timeline.makespan_s) for of in (large, stated))
    grown = [(log(of.high_s / of.low_s) / 2 / Z90) ** 2 for of in (with_it, without)]
    assert grown[0] - grown[1] == pytest.approx(size_error(STACK, 1024) ** 2, rel=0.05)
