"""Ops of an overlapped pair carry the tags of their own action."""

from runcast.simulator.systems.train_step.lower import ACTIONS

from .steps import ops, program


def test_kernels_of_a_pair_are_of_the_forward_or_of_the_backward():
    made = program(2, 4, parallel={"pp": 2}, schedule={"name": "dualpipe"})
    found = [{ACTIONS[made.tags["action"][op]] for op in ops(made, label=label)} for label in ("up", "up_dgrad")]
    assert found == [{"F"}, {"B", "I"}]


def test_every_micro_batch_has_each_kernel_of_each_layer_once():
    made = program(2, 4, parallel={"pp": 2}, schedule={"name": "dualpipe"})
    own = [(int(made.tags["microbatch"][op]), int(made.tags["layer"][op])) for op in ops(made, label="up_dgrad")]
    assert sorted(own) == [(micro_batch, layer) for micro_batch in range(4) for layer in range(4)]
