"""Published training steps predicted: rows of a table as scenarios, what came out, and the ledger of all of them."""

from .cases import Answer, StepCase, read_cases, shipped_table
from .ledger import StepLedger, read_step_ledger, restore

__all__ = ["Answer", "StepCase", "StepLedger", "read_cases", "read_step_ledger", "restore", "shipped_table"]
