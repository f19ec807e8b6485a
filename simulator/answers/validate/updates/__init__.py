"""Published weight updates predicted: rows of a table as scenarios, what came out, and the ledger of all of them."""

from .cases import UpdateCase, free_parameters, known_columns, read_cases, shipped_table, update_stacks
from .ledger import ERRORS, UpdateLedger, markdown, read_ledger

__all__ = [
    "ERRORS", "UpdateCase", "UpdateLedger", "free_parameters", "known_columns", "markdown", "read_cases",
    "read_ledger", "shipped_table", "update_stacks",
]  # fmt: skip
