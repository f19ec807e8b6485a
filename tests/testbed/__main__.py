"""`python -m tests.testbed` measures, predicts and executes all cases, and writes their table to docs/testbed.md."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from .cases import CASES, MISSED, STEPS
from .comparing import lines, run_all
from .hosts import missing

PAGE = Path(__file__).parents[2] / "docs/testbed.md"
BEGIN, END = "<!-- table: python -m tests.testbed -->\n", "<!-- end of table -->\n"


def main() -> None:
    """Print the table; the page gets it if `--write` is given."""
    if reason := missing():
        sys.exit(f"error: {reason}")
    with TemporaryDirectory() as folder:
        outcomes = run_all([*CASES, *STEPS, *MISSED], Path(folder))
    table = "\n".join(lines(outcomes)) + "\n"
    print(table)
    if "--write" in sys.argv[1:]:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n```\n{table}```\n\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
