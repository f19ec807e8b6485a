"""Published training steps predicted: rows of a table as scenarios, what came out, and the ledger of all of them."""

from ..ledger import full_name
from .answer import Answer, flop_fault, peak_of, predict_step, time_fault, tokens_fault
from .cases import TIME, TOKENS, StepCase, level_of, read_cases, row_columns, shipped_table, training_stacks
from .ledger import StepLedger, read_step_ledger, restore

__all__ = [
    "TIME", "TOKENS", "Answer", "StepCase", "StepLedger", "flop_fault", "full_name", "level_of", "peak_of",
    "predict_step", "read_cases", "read_step_ledger", "restore", "row_columns", "shipped_table", "time_fault",
    "tokens_fault", "training_stacks",
]  # fmt: skip
