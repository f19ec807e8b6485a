"""Raw records of a machine as JSON lines: one record per case and round, with its repeats in microseconds.

The first record is the environment (`group` is "environment"; it or its `params` name the GPU, "CPU" for none). A
record with an `error` holds no samples, one with `wrong` elements none that can be trusted. A record that states its
`cost_class` is a sample of it with its `features`; an empty class says that it is no sample. What older records mean
that do not state one is `_row_of_probe`. One sample here is one case: the median of the repeats of all its rounds.
"""

import json
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from ...base.errors import UserError
from ...hardware import device
from ...profile.forms import FEATURES, WIDE_ROW
from .table import KEYS, Record, Samples, sound_samples

Placed = tuple[str, Record]
"""A record with its file and line."""

_VENDOR = re.compile(r"^(NVIDIA|Tesla)\s+")
_ENVIRONMENT = (
    *("gpu", "cpu", "sms", "memory_bytes", "clocks", "threads", "ranks", "nodes"),
    *("suite", "runcast", "torch", "cuda", "cudnn", "nccl", "collectives", "driver", "python"),
)
"""What a profile keeps of a machine: versions and the GPU, nothing that names a host or a user."""


def read(lines: Sequence[str], file: str) -> Samples:
    """The samples of a file whose lines keep their ends; records that are no samples go to `others`.

    A UserError if a line is no record (with its number), the GPU is unknown, or nothing can be used. A last line that
    was cut short, as when a run is stopped, is left out.
    """
    records, dropped = _records(lines, file)
    first = next((record for _, record in records), {})
    gpu = _gpu(first, file)
    rows: list[dict[str, Any]] = []
    others: list[Record] = []
    for rounds in _sound_cases(records, dropped):
        place, record = rounds[0]
        found = _row_or_fault(rounds)
        if isinstance(found, str):
            dropped.append(f"{place}: {_called(record)}: {found}")
        elif found is not None:
            rows.append({**found, "device": gpu, "source": place})
        else:
            others += [{**one, "device": gpu, "source": where} for where, one in rounds]
    if not rows and not others:
        raise UserError(*(dropped[:3] or [f"{file}: holds no samples of kernels, copies or calls"]))
    empty = Samples(pd.DataFrame(columns=list(KEYS)), tuple(dropped))
    samples = sound_samples(pd.DataFrame(rows), file, dropped) if rows else empty
    return replace(samples, environment=_environment(first), others=tuple(others))


def _records(lines: Sequence[str], file: str) -> tuple[list[Placed], list[str]]:
    """All records by place, and a last line that was cut short as left out."""
    found: list[Placed] = []
    for number, line in enumerate(lines, 1):
        place = f"{file}:{number}"
        try:
            found += [(place, _record(line, place))] if line.strip() else []
        except UserError:
            if number < len(lines) or number == 1 or line.endswith("\n"):
                raise
            return found, [f"{place}: cut short"]
    return found, []


def _record(line: str, where: str) -> Record:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: is not JSON: {error}") from None
    if not isinstance(record, dict) or "group" not in record:
        raise UserError(f"{where}: expected an object with group, case, params and samples")
    return record


def _environment(record: Record) -> dict[str, str]:
    drivers = [key for key in record if key.startswith("driver_version")]
    return {key.partition(",")[0]: str(record[key]) for key in (*_ENVIRONMENT, *drivers) if record.get(key) is not None}


def _gpu(first: Record, file: str) -> str:
    params = first.get("params")
    told = {**first, **params} if isinstance(params, Mapping) else first
    known = told if first.get("group") == "environment" else {}
    names = [str(known[key]) for key in ("gpu", "device_name", "name") if key in known]
    if not names:
        raise UserError(f"{file}:1: the first line does not name the GPU; expected the environment")
    return device(_VENDOR.sub("", names[0]), file, "gpu").name


def _called(record: Record) -> str:
    return f"{record['group']}/{record.get('case')}"


def _sound_cases(records: Iterable[Placed], dropped: list[str]) -> list[list[Placed]]:
    """The records with samples, the rounds of a case together; those that failed or were wrong go to `dropped`."""
    cases: dict[str, list[Placed]] = {}
    for place, record in records:
        if "error" in record:
            dropped.append(f"{place}: {_called(record)}: {record['error']}")
        elif "left_out" in record:
            dropped.append(f"{place}: {_called(record)}: left out, {record['left_out']}")
        elif wrong := record.get("wrong"):
            dropped.append(f"{place}: {_called(record)}: {wrong} elements of the result were wrong")
        elif record.get("samples"):
            identity = [record.get(key) for key in ("group", "case", "params")]
            key = json.dumps(identity, sort_keys=True) if "round" in record else place
            cases.setdefault(key, []).append((place, record))
    return list(cases.values())


def _row_or_fault(rounds: Sequence[Placed]) -> dict[str, Any] | str | None:
    """A row of the table, why there is none, or None for what is no sample of a class."""
    record = rounds[0][1]
    try:
        row = _stated(record) if "cost_class" in record else _row_of_probe(record)
        repeats = [float(us) for _, one in rounds for us in one["samples"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return f"params or samples that do not fit the case: {type(error).__name__}: {error}"
    return row and {**row, "seconds": statistics.median(repeats) * 1e-6}


def _stated(record: Record) -> dict[str, Any] | None:
    """The row that a record says it is."""
    if not record["cost_class"]:
        return None
    features = {name: float(value) for name, value in record.get("features", {}).items()}
    if strange := [name for name in features if name not in FEATURES]:
        raise ValueError(f"unknown feature {strange[0]!r}")
    library, group = str(record.get("library") or "torch"), str(record.get("together") or record["case"])
    return {"cost_class": str(record["cost_class"]), "library": library, "group": group, **features}


# Records that do not state their cost class: what each case of the one-call probe of a GPU becomes. What is no kernel,
# copy or call of its own (interference, whole layers, sustained clocks) becomes nothing here, and neither do grouped
# products: `grouped_gemm` means a whole feed-forward, of which the probe times one product. Memory-bound kernels join
# the classes that the suite states, and count their bytes as those do (docs/profiles.md).

Features = dict[str, float]

_LAYOUTS = {"forward_NT": "", "dgrad_NN": ".dgrad", "wgrad_TN": ".wgrad"}


def _row_of_probe(record: Record) -> dict[str, Any] | None:
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
    "cross_entropy_fp32_forward": ("loss_passes", "torch", 38 / 6),
    "cross_entropy_fp32_backward": ("loss_passes_backward", "torch", 14 / 10),
    "adamw_fused": ("adamw", "torch fused", 1.0),
    "adamw_foreach": ("adamw", "torch foreach", 1.0),
    "grad_norm_foreach": ("grad_norm", "torch foreach", 1.0),
}
"""Cases of the probe: class, library, and bytes of the class over those that the probe counts, per element each. It
counts more for torch's backward of a norm, and less for the passes of its cross-entropy in fp32."""


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
