"""Published weight updates predicted: rows of a table as scenarios, what came out, and the ledger of all of them."""

from .cases import UpdateCase, free_parameters, read_cases, row_columns, shipped_table, update_stacks
from .ledger import ERRORS, UpdateLedger, markdown, read_ledger

__all__ = [
    "ERRORS", "UpdateCase", "UpdateLedger", "free_parameters", "markdown", "read_cases", "read_ledger",
    "row_columns", "shipped_table", "update_stacks",
]  # fmt: skip
