"""The interval of peak memory and the probability of fitting: properties, widths from peaks made up here, coverage."""

import csv
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.calibrate.fitting.memory_errors import Peaks, memory_widths, peaks_of, without_source
from runcast.simulator.answers.validate.steps import restore, shipped_table
from runcast.simulator.answers.validate.steps.ledger import coverage_of_memory
from runcast.simulator.base.errors import UserError
from runcast.simulator.base.files import digest
from runcast.simulator.uncertainty import MemoryErrors, fit_probability, memory_interval, shipped_memory_errors

SIZES = st.floats(1.0, 1e12)
DEVIATIONS = st.floats(0.0, 1.0)


@given(SIZES, SIZES, SIZES, DEVIATIONS)
def test_more_memory_on_the_device_never_lowers_the_probability(peak, one, other, deviation):
    low, high = sorted((one, other))
    assert 0 <= fit_probability(peak, low, deviation) <= fit_probability(peak, high, deviation) <= 1


@given(SIZES, DEVIATIONS.filter(lambda deviation: deviation > 1e-3))
def test_a_device_as_large_as_a_bound_fits_with_the_probability_of_that_bound(peak, deviation):
    low, high = memory_interval(peak, deviation)
    found = [fit_probability(peak, limit, deviation) for limit in (low, peak, high)]
    assert found == pytest.approx([0.05, 0.5, 0.95])


def test_without_errors_a_peak_fits_or_does_not():
    assert [fit_probability(2.0, limit, 0.0) for limit in (1.0, 2.0, 3.0)] == [0.0, 1.0, 1.0]


def peaks(rows=2000, sources=8, activations=0.15, allocator=0.05, source=0.05):
    """Peaks with errors of these widths; the offsets are a grid of quantiles, so that they are not chance."""
    random, each = np.random.default_rng(0), rows // sources
    share, reserved = random.uniform(0, 1, rows), random.random(rows) < 0.5
    offsets = source * np.tile([-1.0, 1.0], sources // 2)
    own = random.standard_normal(rows) * np.hypot(activations * share, allocator * reserved)
    names = [f"source {number}" for number in range(sources) for _ in range(each)]
    return Peaks([str(row) for row in range(rows)], names, own + np.repeat(offsets, each), share, reserved)


def test_widths_are_those_that_peaks_were_made_with():
    found = memory_widths(peaks())
    assert (found.activations, found.allocator) == pytest.approx((0.15, 0.05), rel=0.1)
    assert found.source == pytest.approx(0.05 * 1.8595 / 1.6449, rel=0.1)  # t of 8 sources over the normal


def test_an_allocator_that_no_row_counts_has_no_width():
    every = peaks()
    assert memory_widths(every.only(~every.reserved)).allocator == 0


def test_one_source_says_nothing_of_others():
    with pytest.raises(UserError, match="expected two sources or more"):
        without_source(peaks(rows=20, sources=2).only(np.arange(20) < 10))


def test_what_is_allocated_is_more_certain_than_what_is_reserved():
    widths = MemoryErrors(0.1, 0.2, 0.3)
    assert widths.deviation(0.5, reserved=False) < widths.deviation(0.5) < widths.deviation(0.6)


def test_the_shipped_widths_are_of_the_shipped_ledger():
    assert shipped_memory_errors().about["sha256"] == digest(shipped_table())


def test_intervals_hold_the_peaks_of_the_ledger():
    """85 to 95 % of all rows with their source left out, and no source of ten rows or more below 75 %."""
    table = restore(shipped_table().with_name("training_predictions.csv")).table
    held = coverage_of_memory(table).query("errors == 'source left out'").set_index("family")["interval_coverage"]
    assert 0.85 <= held["all"] <= 0.95
    assert held["source"].min() >= 0.75


@pytest.mark.parametrize(
    ("cell", "said"),
    [("eighty", "peak_mem_gib = 'eighty': expected a number above zero"), ("", "no row has a peak_mem_gib")],
)
def test_a_table_without_a_readable_peak_is_refused(tmp_path, cell, said):
    with shipped_table().open() as table:
        row = next(row for row in csv.DictReader(table) if row["source"] == "simumax_b200")
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, row)
        writer.writeheader()
        writer.writerow(row | {"peak_mem_gib": cell})

    with pytest.raises(UserError, match=re.escape(said)):
        peaks_of(tmp_path / "rows.csv")
