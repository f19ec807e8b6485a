"""Records that do not state their cost class: what each case of the one-call probe of a GPU becomes.

What is no kernel, copy or call of its own (interference, whole layers, sustained clocks) becomes nothing here, and
neither do grouped products: `grouped_gemm` means a whole feed-forward, of which the probe times one product.
Memory-bound kernels join the classes that the suite states, and count their bytes as those do (docs/profiles.md).
"""

from collections.abc import Callable
from typing import Any

from ...profile.forms import WIDE_ROW
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


_TOGETHER = ("n", "k", "heads", "kv_heads", "head_dim", "hidden", "vocab")
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
    kernel, library, share = _KERNELS.get(case, (case, "torch", 1.0))
    return f"memory.{kernel}", library, {"bytes": bytes_ * share, "width": width}


_KERNELS = {
    "rms_norm_forward": ("rms_norm", "torch", 1.0),
    "rms_norm_backward": ("rms_norm_backward", "torch", 6 / 8),
    "layer_norm_forward": ("layer_norm", "torch", 1.0),
    "layer_norm_backward": ("layer_norm_backward", "torch", 6 / 8),
    "swiglu_forward_unfused": ("swiglu", "torch", 1.0),
    "swiglu_backward_unfused": ("swiglu_backward", "torch", 1.0),
    "cast_bf16_fp32": ("cast", "torch", 1.0),
    "cross_entropy_fp32_forward": ("cross_entropy", "torch", 2 / 6),
    "cross_entropy_fp32_backward": ("cross_entropy_backward", "torch", 4 / 10),
    "adamw_fused": ("adamw", "torch fused", 1.0),
    "adamw_foreach": ("adamw", "torch foreach", 1.0),
    "grad_norm_foreach": ("grad_norm", "torch foreach", 1.0),
}
"""Cases of the probe: class, library, and bytes of the class over those that the probe counts, per element each. It
counts what torch's backward of a norm and its cross-entropy in fp32 move besides, a class only what they must."""


def _copies(case: str, params: Record, _bytes: float) -> _Found:
    direction, _, pinned = case.partition("_")
    if direction not in ("h2d", "d2h", "d2d") or pinned.startswith("and"):
        return None
    how = ".pageable" if pinned == "pageable" else ""
    return f"copy.{direction}{how}", "torch", {"bytes": float(params["bytes"])}


def _launch(case: str, params: Record, _bytes: float) -> _Found:
    """Two waits are one of the probe's; one call replays a whole graph, whatever its kernels."""
    counts = {"kernels": 1.0, "calls": 1.0, "waits": 2.0}
    count = next((each * float(params[name]) for name, each in counts.items() if name in params), 1.0)
    return f"host.{_CALLS.get(case, case)}", "torch", {"count": 1.0 if case == "graph_replay_issue" else count}


_CALLS = {
    "tiny_kernels_issue": "launch",
    "tiny_kernels_device": "kernel_to_kernel",
    "linear_call_issue": "linear_call",
    "graph_replay_device": "graph_node",
}
"""What a case of the launch group says about the host, where its own name does not tell."""


def _reload(case: str, params: Record, _bytes: float) -> _Found:
    """The device's times depend on bytes, not on the number of tensors alone."""
    return (f"host.reload_{case}", "torch", {"count": float(params["tensors"])}) if case.endswith("_issue") else None


_CASES: dict[str, Callable[[str, Record, float], _Found]] = {
    "gemm": _gemm,
    "gemm_fp8": _gemm_fp8,
    "attention": _attention,
    "membound": _membound,
    "copies": _copies,
    "launch": _launch,
    "reload": _reload,
}
