"""Sides and scenarios for these tests."""

from runcast.simulator import cli
from runcast.simulator.answers.compare import Side

STEP = """
name = "small step"
kind = "train_step"
cluster = "dgx-h100"

[model]
preset = "llama3-8b"
overrides = { num_hidden_layers = 4 }

[parallel]
tp = 2
pp = 2

[batch]
global = 8
seq_len = 4096
"""


def side(terms, source="scenario", kind="train_step", **more):
    """One made of these terms."""
    given = {"where": "a.toml", "label": "a", "total_s": sum(terms.values()), **more}
    return Side(source=source, kind=kind, terms=terms, **given)


def left_with(*arguments):
    """The exit code of the command line."""
    try:
        cli.main([str(argument) for argument in arguments])
    except SystemExit as leave:
        return leave.code or 0
    return 0
