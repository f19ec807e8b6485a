"""What the gaps of a rank are named after, in small steps timed by hand."""

import numpy as np
from runcast.simulator.costs import PHASES
from runcast.simulator.insight import split_by_place

from ..lowering.steps import MOE, program, run


def waits(made, seconds):
    """Seconds of each place by phase."""
    found = split_by_place(run(made, seconds))
    return [{name: s for name, s in zip(PHASES, row.tolist(), strict=True) if s} for row in found]


def test_a_gap_before_a_short_exchange_is_of_what_that_waited_for():
    """Gradients are reduced for 4 s, then the replicated ones for 0.5 s over tp; the norm waits for both."""
    made = program(4, 1, parallel={"tp": 2, "sequence_parallel": True}, overlap={"dp": False, "params": False})
    (found,) = waits(
        made, {"attention": 1.0, "reduce_scatter": 0.0, "reduce gradients": 4.0, "replicated gradients": 0.5}
    )
    assert (found["dp"], found["tp"]) == (4.0, 0.5)


def test_what_a_rank_does_behind_its_last_kernel_keeps_its_name():
    """Both stages copy states to the host, update them there, and copy weights back; the second began 2 s later."""
    made = program(2, 1, parallel={"pp": 2}, offload={"optimizer": True})
    seconds = {"attention": 1.0, "attention_dgrad": 1.0, "d2h": 0.25, "host_adam": 3.0, "h2d": 0.5}
    found = waits(made, seconds)
    assert [(row["offload"], row["optimizer"]) for row in found] == [(0.75, 3.0)] * 2


def test_exchanges_between_kernels_are_of_their_axis():
    made = program(4, 1, MOE, parallel={"ep": 4})
    (found,) = waits(made, {"attention": 1.0, "all_to_all": 0.5})
    assert found["ep"] == 0.5 * np.sum(made.is_kind("all_to_all"))
