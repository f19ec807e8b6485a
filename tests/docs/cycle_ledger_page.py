"""docs/rl-cycle-ledger.md as it must be: `make ledger` writes it, tests/validate/test_cycle_ledger.py compares it."""

from runcast.simulator.answers.validate.cycles import CycleLedger, read_cycle_ledger

from .run_ledger_page import gaps, measured, misses, origins, scores

HEAD = """# The ledger of rollouts and RL cycles

Every row of `data/validation/rl_cycle.csv`, published against predicted: rollouts of one engine, and whole steps of
[RL cycles](rl-cycle.md). `make ledger` writes this page; a test compares it. `runcast validate --kind rl_cycle` prints
the same for any table of these columns, `--csv` writes every row, and `--against` says which rows have moved since a
CSV was written.

A row is a scenario file of `data/validation/cycles`, changes to it, and a number of the report. Errors are predicted
over published less one. The 90 % interval is from the errors of the profile's kernels, of our training step and of our
update, and that of a whole step from what cycles of other sources missed beyond these
(`data/validation/cycle_errors.json`). Phases have no error for what is not modelled.
"""


def page(ledger: CycleLedger) -> str:
    """The page as text."""
    parts = [HEAD], scores(ledger), measured(ledger), misses(ledger), origins(ledger), gaps(ledger)
    return "\n".join(line for part in parts for line in part)


if __name__ == "__main__":
    print(page(read_cycle_ledger()), end="")
