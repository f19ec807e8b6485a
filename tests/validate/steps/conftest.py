"""Small tables of training steps: one row, with cells changed."""

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

HEADER = (
    "id,source,framework,sw_version,arch,layers,hidden,ffn_hidden,heads,kv_heads,vocab,seq_len,n_experts,topk,moe_ffn,"
    "gpu,gpus_per_node,n_gpus,tp,sp,pp,vpp,dp,ep,mbs,gbs,precision,recompute,schedule,overlap_tp,dp_mode,iter_time_s,"
    "tokens_per_s_per_gpu,peak_mem_gib,mem_convention"
)
ROW = (
    "a,here,nanotron,,dense,8,1024,4096,8,8,32000,2048,,,,H100-SXM-80GB,8,16,2,1,2,,4,,1,32,bf16,none,1f1b,,zero1,"
    "0.5,,,"
)


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """The file of one row per mapping of cells, which change the row above; ids are a, b, c."""

    def write(*rows: dict[str, str], name: str = "rows.csv") -> Path:
        plain = dict(zip(HEADER.split(","), ROW.split(","), strict=True))
        changed = [plain | {"id": "abcdefgh"[i]} | row for i, row in enumerate(rows)]
        with (tmp_path / name).open("w", newline="") as file:
            table = csv.DictWriter(file, plain)
            table.writeheader()
            table.writerows(changed)
        return tmp_path / name

    return write
