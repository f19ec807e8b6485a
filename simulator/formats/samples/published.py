"""Tables that others have published, as samples: what their columns mean, and which of their rows mislead.

Sources: NVIDIA AIConfigurator (system, src, us), Microsoft Vidur (hw, model), logs of multi-node nccl-tests, and single
figures of transfers. Rows that are known to mislead are left out with a reason, never used silently.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

import numpy as np
import pandas as pd

from ...base.errors import UserError
from ...hardware import device
from .table import Samples, sound_samples, summarize

_OPS = {"alltoall": "all_to_all"}

FORCED = "NCCL_ALGO was forced: not what NCCL takes by itself"
"""Why a row is no sample of a fitted curve although its log is sound."""
SUMS = ("all_reduce", "reduce_scatter", "reduce")
"""Collectives that compute on what they move."""
EIGHT_BIT_SUMS = "8-bit sums, 5 % slower than 16-bit ones: no step reduces them"
"""Why sums of elements of one byte, integer or not, are no samples."""
_DTYPES = {"bfloat16": "bf16", "half": "fp16"}

Reader = Callable[[pd.DataFrame, pd.DataFrame], Mapping[str, Any]]
"""What a table says: of its cells as texts, and of the same as numbers (NaN where a cell is none)."""


@dataclass(frozen=True)
class PublishedTable:
    """A table that is known by its header; `columns` makes samples of it, `misleading` says why rows are left out.

    `device` is the text by which the table calls a GPU.
    """

    header: frozenset[str]
    columns: Reader
    device: Callable[[pd.DataFrame], pd.Series]
    misleading: Reader

    @property
    def time(self) -> str:
        """The column that holds what was measured: microseconds, unless `columns` makes seconds of it."""
        return next(iter(self.header & {"us", "time_us", "us_median", "value"}))

    def samples(self, table: pd.DataFrame, file: str) -> Samples:
        """The samples of a table whose cells are text."""
        called = self.device(table)
        table = table.assign(device_name=called.map({name: _device(name) for name in called.unique()}))
        why = pd.Series("", index=table.index)
        reasons = self.misleading(table, _numbers(table))
        for reason, holds in {"device is not in the catalogue": table["device_name"] == "", **reasons}.items():
            why = why.where((why != "") | ~holds, reason)
        places = zip(table["line"][why != ""], called[why != ""], why[why != ""], strict=True)
        dropped = [f"{file}:{line}: {of}: {reason}" for line, of, reason in places]
        kept = table[why == ""]
        if kept.empty:
            raise UserError(*(summarize(dropped) or [f"{file}: holds no rows"]))
        samples, forced = sound_samples(self._by_our_columns(kept, file), file, dropped), table[why == FORCED]
        if forced.empty:
            return samples
        aside = self._by_our_columns(forced, file).assign(algorithm=forced["algorithm"])
        return replace(samples, forced=sound_samples(aside, file).forced)

    def _by_our_columns(self, rows: pd.DataFrame, file: str) -> pd.DataFrame:
        """Rows of the table, by our columns."""
        numbers = _numbers(rows)
        made = pd.DataFrame({"seconds": numbers[self.time] * 1e-6, **self.columns(rows, numbers)})
        return made.assign(device=rows["device_name"], source=f"{file}:" + rows["line"].astype(str))


def _numbers(table: pd.DataFrame) -> pd.DataFrame:
    return table.apply(pd.to_numeric, errors="coerce")


def _device(name: str) -> str:
    """The catalogue's name of a device, also where words follow it (`H800 SXM PCIe5`); nothing for an unknown one."""
    words = name.split()
    for known in range(len(words), 0, -1):
        try:
            return device(" ".join(words[:known])).name
        except UserError:
            continue
    return ""


TABLES: list[PublishedTable] = []
"""Every published table that can be read."""


def _table(
    header: str,
    device: Callable[[pd.DataFrame], pd.Series] = itemgetter("system"),
    misleading: Reader = lambda texts, numbers: {},
) -> Callable[[Reader], Reader]:
    """A decorator that registers the reader of a published table with this header."""

    def add(columns: Reader) -> Reader:
        TABLES.append(PublishedTable(frozenset(header.split()), columns, device, misleading))
        return columns

    return add


def _misleading_nccl(t: pd.DataFrame, n: pd.DataFrame) -> dict[str, pd.Series]:
    return {
        "2 GB/s bus bandwidth: peer-to-peer was off": t["device_name"] == device("l40s").name,
        EIGHT_BIT_SUMS: t["op"].isin(SUMS) & (t["dtype"] == "int8"),
    }


@_table("system src_file version op dtype num_gpus bytes time_us", misleading=_misleading_nccl)
def _aic_nccl(t: pd.DataFrame, n: pd.DataFrame) -> dict[str, Any]:
    return {
        "cost_class": t["op"].replace(_OPS),
        "library": "nccl " + t["version"].where(t["version"] != "", "unknown"),
        "group": t["src_file"] + " " + t["dtype"],
        "bytes": n["bytes"],
        "gpus": n["num_gpus"],
        "nodes": 1.0,
    }


def _network_bytes_per_s(network: str) -> float:
    """Line rate of a node's NICs from a text such as `8xNDR400 IB` or `EFA 100G`; NaN where it does not say."""
    found = re.match(r"(?:(\d+)x)?\D*?(\d{3})(?!\d)", network)
    return float(found[1] or 1) * float(found[2]) * 1e9 / 8 if found else float("nan")


def op_of(name: str) -> str:
    """Our name of an op of nccl-tests."""
    return _OPS.get(name, name)


def network_kind(network: str) -> str:
    """The kind of network (data/networks.toml) that a text names; nothing for what profiles were measured on."""
    if "EFA" in network:
        return "efa-1" if re.search(r"\(20(19|2[012])\)", network) else "efa"
    return "roce" if "RoCE" in network else ""


def _misleading_nodes(t: pd.DataFrame, n: pd.DataFrame) -> dict[str, pd.Series]:
    forced = t["algorithm"] if "algorithm" in t else pd.Series("", t.index)
    return {
        "a peak as quoted, not a row of a log": t["column"].str.startswith("peak"),
        "degraded network, as its source says": t["network"].str.contains("degraded|wrong HCA", regex=True),
        FORCED: ~forced.isin(["", "default"]),
    }


@_table("system gpu op n_gpus n_nodes network bytes time_us column", itemgetter("gpu"), _misleading_nodes)
def _multinode(t: pd.DataFrame, n: pd.DataFrame) -> dict[str, Any]:
    """`domains`, where given, are the NVLink domains that the nodes lie on: what a collective sees as nodes.

    Where the rate of the NICs is not told, it is that of the catalogue's node.
    """
    domains = n["domains"].fillna(n["n_nodes"]) if "domains" in n else n["n_nodes"]
    rate = t["network"].map(_network_bytes_per_s) * n["n_nodes"] / domains
    return {
        "cost_class": t["op"].replace(_OPS) + np.where(domains <= 1, "", ".network"),
        "library": "nccl",
        "group": t["system"] + " x" + t["n_gpus"],
        "network": t["network"].map(network_kind).where(domains > 1, ""),
        "bytes": n["bytes"],
        "gpus": n["n_gpus"],
        "nodes": domains,
        "network_bytes_per_s": rate.where(domains > 1),
    }


@_table("system src dtype m n k us")
def _aic_gemm(t: pd.DataFrame, n: pd.DataFrame) -> dict[str, Any]:
    return {
        "cost_class": "gemm." + t["dtype"].replace(_DTYPES),
        "library": t["src"],
        "group": t["n"] + "x" + t["k"],
        **n[["m", "n", "k"]],
    }


@_table("batch_size isl num_heads num_key_value_heads head_dim system src us")
def _aic_attention(t: pd.DataFrame, n: pd.DataFrame) -> dict[str, Any]:
    return {
        "cost_class": "attention.forward",
        "library": t["src"],
        "group": t["num_heads"] + "/" + t["num_key_value_heads"] + "/" + t["head_dim"],
        "batch": n["batch_size"],
        "seq": n["isl"],
        "heads": n["num_heads"],
        "kv_heads": n["num_key_value_heads"],
        "head_dim": n["head_dim"],
        "causal": 1.0,
    }


@_table("system src kernel_source moe_dtype num_tokens distribution us")
def _aic_moe(t: pd.DataFrame, n: pd.DataFrame) -> dict[str, Any]:
    return {
        "cost_class": "grouped_gemm." + t["moe_dtype"].replace(_DTYPES),
        "library": t["src"] + "/" + t["kernel_source"],
        "group": t[["hidden_size", "inter_size", "topk", "num_experts"]].agg("x".join, axis=1),
        "tokens": n["num_tokens"],
        "hidden": n["hidden_size"],
        "inter": n["inter_size"],
        "topk": n["topk"],
        "experts": n["num_experts"],
        "tp": n["moe_tp_size"],
        "ep": n["moe_ep_size"],
        "skew": pd.to_numeric(t["distribution"].str.extract(r"power_law_([\d.]+)")[0]).fillna(0.0),
        "matrices": np.where(t["kernel_source"].str.contains("nongated"), 2.0, 3.0),
    }


_VIDUR_KERNELS = {
    "input_layernorm": "rms_norm",
    "post_attention_layernorm": "rms_norm",
    "mlp_act": "swiglu",
    "add": "residual_add",
}


@_table("hw model op tokens bytes us", itemgetter("hw"))
def _vidur_membound(t: pd.DataFrame, n: pd.DataFrame) -> dict[str, Any]:
    """Bytes are 4 per element for the norms, which read and write, and 6 for the others, which read twice."""
    return {
        "cost_class": "memory." + t["op"].map(_VIDUR_KERNELS),
        "library": "pytorch",
        "group": t["model"],
        "bytes": n["bytes"],
        "width": n["bytes"] / (n["tokens"] * np.where(t["op"].str.endswith("layernorm"), 4.0, 6.0)),
    }


def _misleading_vidur(t: pd.DataFrame, n: pd.DataFrame) -> dict[str, pd.Series]:
    between_nodes = n["num_workers"] > n["devices_per_node"]
    return {
        "NVLink joins pairs only: another machine": t["file"].str.contains("pairwise"),
        "7.8 GB/s between nodes: not a tuned network": t["file"].str.startswith("a100") & between_nodes,
    }


@_table(
    "file collective num_workers devices_per_node bytes us_median",
    lambda table: table["file"].str.split("_").str[0],
    _misleading_vidur,
)
def _vidur_network(t: pd.DataFrame, n: pd.DataFrame) -> dict[str, Any]:
    nodes = n["num_workers"] / n["devices_per_node"]
    return {
        "cost_class": t["collective"] + np.where(nodes <= 1, "", ".network"),
        "library": "nccl (vidur)",
        "group": t["file"] + " x" + t["num_workers"] + "/" + t["devices_per_node"],
        "bytes": n["bytes"],
        "gpus": n["num_workers"],
        "nodes": nodes,
    }


_TRANSFERS = {
    **dict.fromkeys(("h2d_pinned_ce", "h2d_ce", "h2d_c2c_ce"), "copy.h2d"),
    **dict.fromkeys(("d2h_pinned_ce", "d2h_ce", "d2h_c2c_ce"), "copy.d2h"),
    "all8_h2d_simul_ce_per_gpu": "copy.h2d.concurrent",
    "all8_d2h_simul_ce_per_gpu": "copy.d2h.concurrent",
    "h2d_bidir_ce": "copy.h2d.bidirectional",
    **dict.fromkeys(("d2h_bidir_ce", "d2h_bidir_ce_typ"), "copy.d2h.bidirectional"),
    **dict.fromkeys(("d2d_read_ce", "d2d_write_ce", "p2p_unidir"), "copy.p2p"),
    **dict.fromkeys(("device_local_copy", "device_local_copy_rw_half"), "copy.d2d"),
}
_COPY_BYTES = 512 * 2**20
_OLD_COPY_BYTES = 64 * 2**20
"""Size of the buffer that nvbandwidth copies by default, since 0.7 and before (its release notes)."""


@_table(
    "metric device value unit method",
    itemgetter("device"),
    lambda t, n: {"no rate of a copy engine": ~t["metric"].isin(_TRANSFERS)},
)
def _transfers(t: pd.DataFrame, n: pd.DataFrame) -> dict[str, Any]:
    size = np.where(t["method"].str.contains(r"nvbandwidth 0\.[0-6]"), _OLD_COPY_BYTES, _COPY_BYTES).astype(float)
    return {
        "cost_class": t["metric"].map(_TRANSFERS),
        "library": "copy engine",
        "group": t["device"],
        "seconds": size / (n["value"] * 1e9),
        "bytes": size,
    }
