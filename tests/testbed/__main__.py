"""`python -m tests.testbed` measures, predicts and executes cases, and prints their table; see docs/testbed.md."""

import argparse
import sys
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory

from . import shares
from .cases import CASES, MORE_STEPS, SHARE, STEPS
from .comparing import lines, run_all
from .hosts import missing
from .ledger import write_ledger

PAGE = Path(__file__).parents[2] / "docs/testbed.md"
BEGIN, END = "<!-- table: python -m tests.testbed -->\n", "<!-- end of table -->\n"


def main() -> None:
    """Print the table; the page and the ledger of our own runs get it if `--write` is given."""
    parser = argparse.ArgumentParser(prog="python -m tests.testbed", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write docs/testbed.md and the ledger of our own runs")
    parser.add_argument("--only", default="", metavar="WORDS", help="cases that have these words in their name")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep scenarios and spans in a new folder")
    flags = parser.parse_args()
    if reason := missing():
        sys.exit(f"error: {reason}")
    steps = [] if (reason := shares.missing(4, SHARE)) else [*STEPS, *MORE_STEPS]
    if reason:
        print(f"without steps: {reason}", file=sys.stderr)
    cases = [case for case in (*CASES, *steps) if flags.only in case.name]
    with TemporaryDirectory() as folder:
        kept = flags.keep or Path(folder)
        outcomes = run_all(cases, kept)
        if flags.write:
            write_ledger(outcomes, kept, f"python -m tests.testbed, {date.today()}")
    table = "\n".join(lines(outcomes)) + "\n"
    print(table)
    if flags.write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n```\n{table}```\n\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
