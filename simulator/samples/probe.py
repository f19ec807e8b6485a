"""Raw samples of a GPU as JSON lines: one record per case with its repeats, as `data/measured/` keeps them.

The first record is the environment (`group` is "environment", `params` name the GPU); a record with an `error` holds no
samples. A sample here is the median of a record's repeats. What is no kernel, copy or call of its own (interference,
whole layers, sustained clocks) is left to those who read it whole.
"""

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from ..errors import UserError
from ..forms import WIDE_ROW
from ..hardware import device
from .table import Samples, checked

Record = Mapping[str, Any]
Features = dict[str, float]

_LAYOUTS = {"forward_NT": "", "dgrad_NN": ".dgrad", "wgrad_TN": ".wgrad"}


def read(lines: Sequence[str], file: str) -> Samples:
    """The samples of a file.

    Raises:
        UserError: a line is no record (with its number), the GPU is unknown, or nothing can be used.
    """
    records = {number: _record(line, f"{file}:{number}") for number, line in enumerate(lines, 1) if line.strip()}
    first = next(iter(records.values()), {})
    gpu = _gpu(first, file)
    rows: list[dict[str, Any]] = []
    dropped: list[str] = []
    for number, record in records.items():
        found = _row_or_fault(record)
        if isinstance(found, str):
            dropped.append(f"{file}:{number}: {record['group']}/{record.get('case')}: {found}")
        elif found is not None:
            rows.append(found | {"device": gpu, "source": f"{file}:{number}"})
    if not rows:
        raise UserError(*(dropped[:3] or [f"{file}: holds no samples of kernels, copies or calls"]))
    return replace(checked(pd.DataFrame(rows), file, dropped), environment=_environment(first))


def _environment(record: Record) -> dict[str, str]:
    """What is known of the machine: versions and the GPU, nothing that names a host or a user."""
    told = ("gpu", "torch", "cuda", "cudnn", "nccl", "python", "sms", "memory_bytes", "clocks")
    drivers = [key for key in record if key.startswith("driver_version")]
    return {key.partition(",")[0]: str(record[key]) for key in (*told, *drivers) if key in record}


def _record(line: str, where: str) -> Record:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: is not JSON: {error}") from None
    if not isinstance(record, dict) or "group" not in record:
        raise UserError(f"{where}: expected an object with group, case, params and samples")
    return record


def _gpu(first: Record, file: str) -> str:
    told = first.get("params", first) if first.get("group") == "environment" else {}
    known = told if isinstance(told, Mapping) else {}
    names = [str(known[key]) for key in ("gpu", "device_name", "name") if key in known]
    if not names:
        raise UserError(f"{file}:1: the first line does not name the GPU; expected the environment")
    return device(names[0].removeprefix("NVIDIA "), file, "gpu").name


def _row_or_fault(record: Record) -> dict[str, Any] | str | None:
    """A row of the table, why there is none, or None for a group that holds no samples of ours."""
    if "error" in record:
        return str(record["error"])
    try:
        return _row(record)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return f"params or samples that do not fit the case: {type(error).__name__}: {error}"


def _row(record: Record) -> dict[str, Any] | None:
    price = _CASES.get(record["group"])
    if price is None or not record.get("samples"):
        return None
    found = price(str(record["case"]), record.get("params", {}), float(record.get("bytes", 0)))
    if found is None:
        return None
    cost_class, library, features = found
    params = record.get("params", {})
    group = "x".join(str(params[name]) for name in _TOGETHER if name in params)
    seconds = statistics.median(record["samples"]) * 1e-6
    return {"cost_class": cost_class, "library": library, "group": group, "seconds": seconds, **features}


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
