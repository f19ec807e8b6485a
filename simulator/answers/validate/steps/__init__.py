"""Published training steps predicted: rows of a table as scenarios, what came out, and the ledger of all of them."""

from .cases import Answer, Case, read_cases, shipped
from .ledger import StepLedger, read_step_ledger, restored

__all__ = ["Answer", "Case", "StepLedger", "read_cases", "read_step_ledger", "restored", "shipped"]
