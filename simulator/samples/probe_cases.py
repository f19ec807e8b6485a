"""Records that do not state their cost class: what each case of the one-call probe of a GPU becomes.

What is no kernel, copy or call of its own (interference, whole layers, sustained clocks) becomes nothing here.
"""

from collections.abc import Callable
from typing import Any

from ..forms import WIDE_ROW
from .table import Record

Features = dict[str, float]

_LAYOUTS = {"forward_NT": "", "dgrad_NN": ".dgrad", "wgrad_TN": ".wgrad"}


def row(record: Record) -> dict[str, Any] | None:
    """Class, library, group and features of a record, or None for what is no sample of a class."""
    price = _CASES.get(record["group"])
    params = record.get("params", {})
    found = price(str(record["case"]), params, float(record.get("bytes", 0))) if price else None
    if found is None:
        return None
    cost_class, library, features = found
    group = "x".join(str(params[name]) for name in _TOGETHER if name in params)
    return {"cost_class": cost_class, "library": library, "group": group, **features}


_TOGETHER = ("n", "k", "heads", "kv_heads", "head_dim", "hidden")
"""Parameters that make a group: the shape of a weight or of heads, whatever the layout or the number of tokens."""

_Found = tuple[str, str, Features] | None


def _gemm(case: str, params: Record, _bytes: float) -> _Found:
    layout = _LAYOUTS.get(case)
    if layout is None:
        return None
    m, n, k = (float(params[axis]) for axis in "mnk")
    shapes = {"": (m, n, k), ".dgrad": (m, k, n), ".wgrad": (n, k, m)}  # rows, columns and summed dimension of each
    return f"gemm.{params['dtype']}{layout}", "torch", dict(zip("mnk", shapes[layout], strict=True))


def _gemm_fp8(case: str, params: Record, bytes_: float) -> _Found:
    if not case.startswith("scaled_mm"):
        return "memory.amax_and_cast", "torch", {"bytes": bytes_, "width": float(params["cols"])}
    accumulate = "fast" if params["fast_accum"] else "full"
    return "gemm.fp8", f"torch {case} {accumulate}", {axis: float(params[axis]) for axis in "mnk"}


def _attention(case: str, params: Record, _bytes: float) -> _Found:
    features = {name: float(params[name]) for name in ("batch", "seq", "heads", "head_dim", "causal")}
    kv_heads = params["heads"] if params.get("kv_expanded") else params["kv_heads"]
    return f"attention.{case}", f"torch {params['backend']}", features | {"kv_heads": float(kv_heads)}


def _membound(case: str, params: Record, bytes_: float) -> _Found:
    """The width of a row is that of the model or of the vocabulary; an optimizer has no rows."""
    width = float(params.get("hidden", params.get("vocab", WIDE_ROW)))
    return f"memory.{case}", "torch", {"bytes": bytes_, "width": width}


def _copies(case: str, params: Record, _bytes: float) -> _Found:
    direction, _, pinned = case.partition("_")
    if direction not in ("h2d", "d2h", "d2d") or pinned.startswith("and"):
        return None
    how = ".pageable" if pinned == "pageable" else ""
    return f"copy.{direction}{how}", "torch", {"bytes": float(params["bytes"])}


def _launch(case: str, params: Record, _bytes: float) -> _Found:
    count = next((float(params[name]) for name in ("kernels", "calls", "waits") if name in params), 1.0)
    return f"host.{_CALLS.get(case, case)}", "torch", {"count": count}


_CALLS = {"tiny_kernels_issue": "launch", "tiny_kernels_device": "kernel_to_kernel", "linear_call_issue": "linear_call"}
"""What a case of the launch group says about the host, where its own name does not tell."""


def _reload(case: str, params: Record, _bytes: float) -> _Found:
    return f"host.reload_{case}", "torch", {"count": float(params["tensors"])}


def _grouped(case: str, params: Record, _bytes: float) -> _Found:
    """One product per expert, as a feed-forward of one matrix."""
    fixed = {"topk": 1.0, "tp": 1.0, "ep": 1.0, "matrices": 1.0, "skew": 0.0 if params["skew"] == "balanced" else 1.0}
    shape = {"tokens": params["rows"], "hidden": params["k"], "inter": params["n"], "experts": params["experts"]}
    return "grouped_gemm.bf16", f"torch {case}", fixed | {name: float(value) for name, value in shape.items()}


_CASES: dict[str, Callable[[str, Record, float], _Found]] = {
    "gemm": _gemm,
    "gemm_fp8": _gemm_fp8,
    "attention": _attention,
    "membound": _membound,
    "copies": _copies,
    "launch": _launch,
    "reload": _reload,
    "grouped": _grouped,
}
