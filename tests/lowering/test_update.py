"""What the end of a step moves in device memory for each parameter, by the types that are kept, by hand."""

import pytest
from runcast.simulator.models import total_params

from .steps import ops, program, resolved

ALL_FP32 = {"compute": "tf32"}  # read gradient, weight and two moments, write the last three
MASTER = {"compute": "bf16"}  # the master copy is read and written instead, and a weight in 16 bits written of it
NO_MASTER = {"compute": "bf16", "master": False}
SMALL = {"compute": "bf16", "gradients": "bf16", "moments": "bf16"}


@pytest.mark.parametrize(
    ("precision", "update", "norm"),
    [
        (ALL_FP32, 4 + 2 * 4 + 2 * (4 + 4), 4),
        (MASTER, 4 + 2 * 4 + 2 + 2 * (4 + 4), 4),
        (NO_MASTER, 4 + 2 * 2 + 2 * (4 + 4), 4),
        (SMALL, 2 + 2 * 4 + 2 + 2 * (2 + 2), 2),
    ],
)
def test_adam_and_the_norm_move_what_is_kept(precision, update, norm):
    step = resolved(precision=precision)
    moved = [int(step.program.bytes[ops(step.program, kind=kind)[0]]) for kind in ("adamw", "grad_norm")]
    parameters = total_params(step.spec)
    assert moved == [update * parameters, norm * parameters]


def test_adam_on_the_host_moves_as_much_there():
    made, there = program(), program(offload={"optimizer": True})
    (update,) = ops(made, kind="adamw")
    assert [int(there.bytes[op]) for op in ops(there, kind="host_adam")] == [int(made.bytes[update])]
