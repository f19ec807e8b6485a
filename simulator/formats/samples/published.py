"""Tables that others have published, as samples: what their columns mean, and which of their rows mislead.

Sources: NVIDIA AIConfigurator (system, src, us), Microsoft Vidur (hw, model), logs of multi-node nccl-tests, and single
figures of transfers. Rows that are known to mislead are left out with a reason, never used silently.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ...base.errors import UserError
from ...hardware import device
from .table import Samples, checked, summed

_OPS = {"alltoall": "all_to_all"}
_DTYPES = {"bfloat16": "bf16", "half": "fp16"}


@dataclass(frozen=True)
class PublishedTable:
    """A table that is known by its header; `rows` makes samples of it, `misleading` says why rows are left out."""

    header: frozenset[str]
    rows: Callable[[pd.DataFrame], pd.DataFrame]
    device: Callable[[pd.DataFrame], pd.Series]
    misleading: Callable[[pd.DataFrame], pd.Series]

    def samples(self, table: pd.DataFrame, file: str) -> Samples:
        """The samples of a table whose cells are text."""
        called = self.device(table)
        named = table.assign(device_name=called.map({name: _device(name) for name in called.unique()}))
        why = self.misleading(named).where(named["device_name"] != "", "device is not in the catalogue")
        kept = named[why == ""]
        out = named[why != ""]
        places = zip(out["line"], called[why != ""], why[why != ""], strict=True)
        dropped = [f"{file}:{line}: {of}: {reason}" for line, of, reason in places]
        if kept.empty:
            raise UserError(*(summed(dropped) or [f"{file}: holds no rows"]))
        made = self.rows(kept).assign(device=kept["device_name"], source=f"{file}:" + kept["line"].astype(str))
        return checked(made, file, dropped)


def _device(name: str) -> str:
    """The catalogue's name of a device, also where words follow it (`H800 SXM PCIe5`); nothing for an unknown one."""
    words = name.split()
    for known in range(len(words), 0, -1):
        try:
            return device(" ".join(words[:known])).name
        except UserError:
            continue
    return ""


def _column(name: str) -> Callable[[pd.DataFrame], pd.Series]:
    return lambda table: table[name]


def _nothing(table: pd.DataFrame) -> pd.Series:
    return pd.Series("", index=table.index)


def _numbers(table: pd.DataFrame, **of: str) -> dict[str, pd.Series]:
    """Features by the columns that hold them."""
    return {feature: pd.to_numeric(table[column], errors="coerce") for feature, column in of.items()}


def _microseconds(table: pd.DataFrame, column: str = "us") -> pd.Series:
    return pd.to_numeric(table[column], errors="coerce") * 1e-6


def _aic_nccl(table: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "cost_class": table["op"].replace(_OPS),
            "library": "nccl " + table["version"].where(table["version"] != "", "unknown"),
            "group": table["src_file"] + " " + table["dtype"],
            "seconds": _microseconds(table, "time_us"),
            **_numbers(table, bytes="bytes", gpus="num_gpus"),
            "nodes": 1.0,
        }
    )


def _aic_nccl_misleading(table: pd.DataFrame) -> pd.Series:
    reducing = table["op"].isin(["all_reduce", "reduce_scatter"])
    reasons = {
        "2 GB/s bus bandwidth: peer-to-peer was off": table["device_name"] == device("l40s").name,
        "8-bit sums, 5 % slower than 16-bit ones: no step reduces them": reducing & (table["dtype"] == "int8"),
    }
    return _first(reasons, table.index)


def _multinode(table: pd.DataFrame) -> pd.DataFrame:
    nodes = _numbers(table, nodes="n_nodes")["nodes"]
    rate = table["network"].map(_network_bytes_per_s)
    return pd.DataFrame(
        {
            "cost_class": table["op"].replace(_OPS) + np.where(nodes <= 1, "", ".network"),
            "library": "nccl",
            "group": table["system"] + " x" + table["n_gpus"],
            "seconds": _microseconds(table, "time_us"),
            **_numbers(table, bytes="bytes", gpus="n_gpus"),
            "nodes": nodes,
            "network_bytes_per_s": rate.where(nodes > 1),
        }
    )


def _network_bytes_per_s(network: str) -> float:
    """Line rate of a node's NICs from a text such as `8xNDR400 IB`; NaN where it does not say."""
    found = re.match(r"(\d+)x\D*(\d{3})", network)
    return float(found[1]) * float(found[2]) * 1e9 / 8 if found else float("nan")


def _multinode_misleading(table: pd.DataFrame) -> pd.Series:
    reasons = {
        "a peak as quoted, not a row of a log": ~table["column"].str.startswith("in-place"),
        "degraded network, as its source says": table["network"].str.contains("degraded|wrong HCA", regex=True),
        "rate of the NICs not known": table["network"].map(_network_bytes_per_s).isna() & (table["n_nodes"] != "1"),
    }
    return _first(reasons, table.index)


def _first(reasons: dict[str, pd.Series], index: pd.Index) -> pd.Series:
    """The first reason that holds of each row, or nothing."""
    why = pd.Series("", index=index)
    for reason, holds in reasons.items():
        why = why.where((why != "") | ~holds, reason)
    return why


def _aic_gemm(table: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "cost_class": "gemm." + table["dtype"].replace(_DTYPES),
            "library": table["src"],
            "group": table["n"] + "x" + table["k"],
            "seconds": _microseconds(table),
            **_numbers(table, m="m", n="n", k="k"),
        }
    )


def _aic_attention(table: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "cost_class": "attention.forward",
            "library": table["src"],
            "group": table["num_heads"] + "/" + table["num_key_value_heads"] + "/" + table["head_dim"],
            "seconds": _microseconds(table),
            **_numbers(table, batch="batch_size", seq="isl", heads="num_heads", kv_heads="num_key_value_heads"),
            **_numbers(table, head_dim="head_dim"),
            "causal": 1.0,
        }
    )


def _aic_moe(table: pd.DataFrame) -> pd.DataFrame:
    features = {"tokens": "num_tokens", "hidden": "hidden_size", "inter": "inter_size", "topk": "topk"}
    sharded = {"experts": "num_experts", "tp": "moe_tp_size", "ep": "moe_ep_size"}
    return pd.DataFrame(
        {
            "cost_class": "grouped_gemm." + table["moe_dtype"].replace(_DTYPES),
            "library": table["src"] + "/" + table["kernel_source"],
            "group": table[["hidden_size", "inter_size", "topk", "num_experts"]].agg("x".join, axis=1),
            "seconds": _microseconds(table),
            **_numbers(table, **features, **sharded),
            "skew": pd.to_numeric(table["distribution"].str.extract(r"power_law_([\d.]+)")[0]).fillna(0.0),
            "matrices": np.where(table["kernel_source"].str.contains("nongated"), 2.0, 3.0),
        }
    )


_VIDUR_KERNELS = {
    "input_layernorm": "rms_norm",
    "post_attention_layernorm": "rms_norm",
    "mlp_act": "swiglu",
    "add": "residual_add",
}


def _vidur_membound(table: pd.DataFrame) -> pd.DataFrame:
    """Bytes are 4 per element for the norms, which read and write, and 6 for the others, which read twice."""
    moved, tokens = _numbers(table, bytes="bytes", tokens="tokens").values()
    each = np.where(table["op"].str.endswith("layernorm"), 4.0, 6.0)
    return pd.DataFrame(
        {
            "cost_class": "memory." + table["op"].map(_VIDUR_KERNELS),
            "library": "pytorch",
            "group": table["model"],
            "seconds": _microseconds(table),
            "bytes": moved,
            "width": moved / (tokens * each),
        }
    )


def _vidur_network(table: pd.DataFrame) -> pd.DataFrame:
    gpus, local = _numbers(table, gpus="num_workers", local="devices_per_node").values()
    nodes = gpus / local
    return pd.DataFrame(
        {
            "cost_class": table["collective"] + np.where(nodes <= 1, "", ".network"),
            "library": "nccl (vidur)",
            "group": table["file"] + " x" + table["num_workers"] + "/" + table["devices_per_node"],
            "seconds": _microseconds(table, "us_median"),
            **_numbers(table, bytes="bytes"),
            "gpus": gpus,
            "nodes": nodes,
        }
    )


def _vidur_network_misleading(table: pd.DataFrame) -> pd.Series:
    gpus, local = _numbers(table, gpus="num_workers", local="devices_per_node").values()
    a100 = table["file"].str.startswith("a100")
    reasons = {
        "NVLink joins pairs only: another machine": table["file"].str.contains("pairwise"),
        "7.8 GB/s between nodes: not a tuned network": a100 & (gpus > local),
    }
    return _first(reasons, table.index)


_TRANSFERS = {
    "h2d_pinned_ce": "copy.h2d",
    "h2d_ce": "copy.h2d",
    "h2d_c2c_ce": "copy.h2d",
    "d2h_pinned_ce": "copy.d2h",
    "d2h_ce": "copy.d2h",
    "d2h_c2c_ce": "copy.d2h",
    "all8_h2d_simul_ce_per_gpu": "copy.h2d.concurrent",
    "all8_d2h_simul_ce_per_gpu": "copy.d2h.concurrent",
    "h2d_bidir_ce": "copy.h2d.bidirectional",
    "d2h_bidir_ce": "copy.d2h.bidirectional",
    "d2h_bidir_ce_typ": "copy.d2h.bidirectional",
    "d2d_read_ce": "copy.p2p",
    "d2d_write_ce": "copy.p2p",
    "p2p_unidir": "copy.p2p",
    "device_local_copy": "copy.d2d",
    "device_local_copy_rw_half": "copy.d2d",
}
_COPY_BYTES = 512 * 2**20
_OLD_COPY_BYTES = 64 * 2**20
"""Size of the buffer that nvbandwidth copies by default, since 0.7 and before (its release notes)."""


def _transfers(table: pd.DataFrame) -> pd.DataFrame:
    rate = pd.to_numeric(table["value"], errors="coerce") * 1e9
    size = np.where(table["method"].str.contains(r"nvbandwidth 0\.[0-6]"), _OLD_COPY_BYTES, _COPY_BYTES).astype(float)
    return pd.DataFrame(
        {
            "cost_class": table["metric"].map(_TRANSFERS),
            "library": "copy engine",
            "group": table["device"],
            "seconds": size / rate,
            "bytes": size,
        }
    )


def _transfers_misleading(table: pd.DataFrame) -> pd.Series:
    return pd.Series(np.where(table["metric"].isin(_TRANSFERS), "", "no rate of a copy engine"), index=table.index)


TABLES = (
    PublishedTable(
        frozenset({"system", "src_file", "version", "op", "dtype", "num_gpus", "bytes", "time_us"}),
        _aic_nccl,
        _column("system"),
        _aic_nccl_misleading,
    ),
    PublishedTable(
        frozenset({"system", "gpu", "op", "n_gpus", "n_nodes", "network", "bytes", "time_us", "column"}),
        _multinode,
        _column("gpu"),
        _multinode_misleading,
    ),
    PublishedTable(frozenset({"system", "src", "dtype", "m", "n", "k", "us"}), _aic_gemm, _column("system"), _nothing),
    PublishedTable(
        frozenset({"batch_size", "isl", "num_heads", "num_key_value_heads", "head_dim", "system", "src", "us"}),
        _aic_attention,
        _column("system"),
        _nothing,
    ),
    PublishedTable(
        frozenset({"system", "src", "kernel_source", "moe_dtype", "num_tokens", "distribution", "us"}),
        _aic_moe,
        _column("system"),
        _nothing,
    ),
    PublishedTable(frozenset({"hw", "model", "op", "tokens", "bytes", "us"}), _vidur_membound, _column("hw"), _nothing),
    PublishedTable(
        frozenset({"file", "collective", "num_workers", "devices_per_node", "bytes", "us_median"}),
        _vidur_network,
        lambda table: table["file"].str.split("_").str[0],
        _vidur_network_misleading,
    ),
    PublishedTable(
        frozenset({"metric", "device", "value", "unit", "method"}),
        _transfers,
        _column("device"),
        _transfers_misleading,
    ),
)
"""Every published table that can be read."""
