"""How widths are estimated: from rows left out, of a ledger made up here."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from runcast.calibrate.fitting.step_errors import Variances, leave_out, run_to_run, widths
from runcast.calibrate.fitting.step_slopes import Slopes, fit_of
from runcast.simulator.answers.validate.ledger import Cells
from runcast.simulator.costs import PHASES
from runcast.simulator.uncertainty import Term
from runcast.simulator.uncertainty.factors import split_covariance

NAME = "time_factor.gemm"
APART = {NAME: 0.3}


def ledger(stacks: list[str], weight: float = 400.0, sources: str = "") -> Slopes:
    """Rows that are all gemm, each of a stack that rests on `base`."""
    rows = len(stacks)
    by_phase = np.zeros((rows, len(PHASES)))
    by_phase[:, PHASES.index("gemm")] = 1.0
    keys = [("base", NAME), *((stack, NAME) for stack in dict.fromkeys(stacks))]
    slopes = np.array([[float(of in ("base", stack)) for of, _ in keys] for stack in stacks])
    machines = SimpleNamespace(fabric=SimpleNamespace(network="n"))
    spec, device = SimpleNamespace(architecture=""), SimpleNamespace(name="d")
    resolved = SimpleNamespace(profile_name="d", cluster=machines, spec=spec, devices=(device,))
    cases: list[Any] = [
        SimpleNamespace(stack=stack, resolved=resolved, cells=Cells({"source": source}))
        for stack, source in zip(stacks, sources or "a" * rows, strict=True)
    ]
    terms = [[Term(PHASES.index("gemm"), of, NAME, 1.0) for of in (stack, "base")] for stack in stacks]
    nothing = np.zeros(rows)
    return Slopes(cases, terms, keys, by_phase, slopes, nothing, nothing, np.full(rows, weight))


def seen(slopes: Slopes, groups: list[str]) -> np.ndarray:
    found = leave_out(slopes, groups, slopes.error, APART)
    return found.known + found.new


def test_one_row_leaves_open_what_its_weight_and_the_prior_do():
    """Base and own factor move the row alike: 1 / (weight + 1 / (2 x 0.3^2)) of their sum."""
    slopes = ledger(["one"])
    known, _, _ = split_covariance(slopes.terms[0], fit_of(slopes, np.ones(1, bool), APART))
    gemm = PHASES.index("gemm")
    assert known[gemm, gemm] == pytest.approx(1 / (400.0 + 1 / (2 * 0.3**2)))


def test_a_row_is_less_sure_with_its_stack_left_out_than_with_a_part_of_it():
    stacks = ["one"] * 6 + ["two"] * 6
    slopes = ledger(stacks)
    parts = [f"{stack} {row % 2}" for row, stack in enumerate(stacks)]
    assert (seen(slopes, stacks) > 10 * seen(slopes, parts)).all()


def test_a_stack_left_out_is_apart_from_its_base_by_what_stacks_are():
    slopes = ledger(["one"] * 6 + ["two"] * 6)
    found = leave_out(slopes, ["one"] * 6 + ["two"] * 6, slopes.error, APART)
    assert found.new.tolist() == pytest.approx([0.3**2] * 12)


def test_a_source_left_out_is_another_site_than_the_one_that_is_known():
    slopes = ledger(["one"] * 4, sources="aabb")
    assert leave_out(slopes, list("aabb"), slopes.error, APART).site.tolist() == [2.0] * 4


def test_widths_are_found_again_that_errors_were_drawn_with():
    rows, random = 20_000, np.random.default_rng(0)

    def drawn(site: float, most_new: float) -> Variances:
        known, new = random.uniform(0.0, [[0.1], [most_new]], (2, rows)) ** 2
        sites, routed = random.choice([0.0, site], rows), random.choice([0.0, 0.36], rows)
        variance = known + 3.0**2 * new + 0.15**2 * sites + 0.25**2 * routed + 0.06**2
        return Variances(known, new, sites, routed, random.random(rows) < 0.2, random.normal(0, np.sqrt(variance)))

    found = widths(drawn(0.0, 0.0), drawn(2.0, 0.1), np.ones(rows))

    numbers = (found.novelty, found.site, found.routing, found.floor)
    assert numbers == pytest.approx((3.0, 0.15, 0.25, 0.06), rel=0.1)


def test_run_to_run_is_pooled_over_configurations():
    """Each pair is off by 0.1 and 0.2 from its mean: (2 x 0.1^2 + 2 x 0.2^2) over one degree of freedom each."""
    rows = [("a", 1.0), ("a", np.exp(0.2)), ("b", 3.0), ("b", 3 * np.exp(0.4)), ("c", 9.0)]
    cases: list[Any] = [
        SimpleNamespace(cells=Cells({"id": str(i), "gbs": said, "iter_time_s": str(seconds)}))
        for i, (said, seconds) in enumerate(rows)
    ]
    assert run_to_run(cases) == (pytest.approx(np.sqrt((2 * 0.01 + 2 * 0.04) / 2)), 4)
