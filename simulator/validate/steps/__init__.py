"""Published training steps predicted: rows of a table as scenarios, what came out, and the ledger of all of them."""

from .cases import Answer, Case, read_cases, shipped

__all__ = ["Answer", "Case", "read_cases", "shipped"]
