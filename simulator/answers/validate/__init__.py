"""Predictions beside measurements: every row of a table predicted, and how far off each group of rows is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from . import runs
from .cycles import CycleLedger, read_cycle_ledger
from .executed import ExecutedLedger, read_executed_ledger
from .gate import TOLERANCE, Comparison, Gate, read_gate
from .ledger import shipped_file
from .runs import RunLedger, read_run_ledger
from .sample_report import Validation, validate
from .samples import KINDS, SHIPPED, predict_samples, score_samples
from .scores import scores_by
from .steps import StepLedger, read_step_ledger
from .steps import cases as of_steps
from .updates import UpdateLedger, read_ledger


@dataclass(frozen=True)
class LedgerKind:
    """How a ledger is read and predicted, and which columns of earlier predictions it is held against, if any."""

    read: Callable[..., Any]
    predicted: tuple[str, ...] = ()


LEDGERS: Mapping[str, LedgerKind] = {
    "weight_update": LedgerKind(read_ledger),
    "train_step": LedgerKind(read_step_ledger, of_steps.PREDICTED),
    "run": LedgerKind(read_run_ledger, runs.PREDICTED),
    "rl_cycle": LedgerKind(read_cycle_ledger, runs.PREDICTED),
    "executed": LedgerKind(read_executed_ledger, runs.PREDICTED),
}
"""The kinds of which runcast ships measurements: published ones, and our own of executed scenarios."""

__all__ = [
    "KINDS", "LEDGERS", "SHIPPED", "TOLERANCE", "Comparison", "CycleLedger", "ExecutedLedger", "Gate", "LedgerKind",
    "RunLedger", "StepLedger", "UpdateLedger", "Validation", "predict_samples", "read_cycle_ledger",
    "read_executed_ledger", "read_gate", "read_ledger", "read_run_ledger", "read_step_ledger", "score_samples",
    "scores_by", "shipped_file", "validate",
]  # fmt: skip
