"""`runcast calibrate run`, `show` and `drift`: as of `python -m runcast.calibrate`, which needs no more than torch."""

from importlib import import_module
from typing import Any

import typer

PASSED_ON: dict[str, Any] = {
    "add_help_option": False,
    "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True},
}
"""The flags are those of the measuring program itself, `--help` too."""


def run(context: typer.Context) -> None:
    """Measure this machine: collectives, copies, kernels, launches, interference (needs torch)."""
    _pass_on("command", context)


def show(context: typer.Context) -> None:
    """Print what was measured: each case with its median, spread and rate."""
    _pass_on("show", context)


def drift(context: typer.Context) -> None:
    """Compare two files of records, case by case: what has become slower or faster?"""
    _pass_on("drift", context)


def _pass_on(module: str, context: typer.Context) -> None:
    raise typer.Exit(import_module(f"..measure.{module}", __package__).run(context.args))
