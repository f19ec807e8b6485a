"""docs/weight-update-ledger.md as it must be: `make ledger` writes it, test_ledger_page compares it."""

from runcast.simulator.answers.validate.updates import UpdateLedger, markdown, read_ledger

HEAD = """# The ledger of weight updates

Every row of `data/validation/weight_update.csv`, published against predicted. `make ledger` writes this page; a test
compares it. What is fitted, to what, and what the misses are: [weight-update.md](weight-update.md).

*as shipped*: parameters of software stacks moved by all rows. *model left out*, *system left out*: all rows of the same
model, or of the same software, out of the fit; these are the numbers to quote. The first table sums up, the second has
every row with the worst first, the list says which rows are not predicted and why.

"""


def page(ledger: UpdateLedger) -> str:
    """The page as text."""
    return HEAD + markdown(ledger) + "\n"


if __name__ == "__main__":
    print(page(read_ledger()), end="")
