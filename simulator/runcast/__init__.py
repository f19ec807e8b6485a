"""Forecast a distributed LLM training step, an RL weight update or a run before anyone pays for the GPUs.

    import runcast

    prediction = runcast.simulate("train-llama3-70b-64xh100", {"parallel.tp": 8})
    print(prediction)

A scenario is the name of a shipped one, a file, or a table of plain values. Names load on first use. This is the
package `runcast` itself; docs/api.md describes it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runcast.simulator.api import (
        Answer,
        Comparison,
        CycleExplanation,
        Explanation,
        Prediction,
        RunExplanation,
        SearchResult,
        SweepResult,
        UserError,
        compare,
        explain,
        load,
        schema,
        search,
        shipped,
        simulate,
        sweep,
    )

    __version__: str

__all__ = [
    "Answer", "Comparison", "CycleExplanation", "Explanation", "Prediction", "RunExplanation", "SearchResult",
    "SweepResult", "UserError",
    "compare", "explain", "load", "schema", "search", "shipped", "simulate", "sweep",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("runcast")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("runcast.simulator.api"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
