"""docs/unseen-models.md: published steps of models that no fit has read, beside their predictions.

python -m tests.docs.unseen_page
"""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from runcast.simulator.answers.validate.steps import read_step_ledger, shipped_table
from runcast.simulator.base.files import write_atomic

ROOT = Path(__file__).parents[2]
PAGE, ROWS = ROOT / "docs/unseen-models.md", shipped_table().with_name("training_unseen.csv")

HEAD = """# Models that no fit has read

`data/validation/training_unseen.csv` holds published steps of models that are not in the [ledger](training-ledger.md)
to which stacks and devices are fitted: Nemotron 3 Nano and Super, of Mamba-2, attention and experts, a BERT, whose
tokens see each other in both directions, and adapters (LoRA) by NeMo AutoModel, of which no fit has read a dense
step. Their errors say what a prediction is worth for what runcast has never been shown.
`python -m tests.docs.unseen_page` writes this page, a test compares it, and
`runcast validate --kind train_step --rows data/validation/training_unseen.csv` prints every row.
"""

TAIL = """\
BERT's rows are of NeMo 22.11, on up to 16 nodes. NVIDIA published tokens per second and the plan, not the batch, for
which 2,048 sequences are assumed; on more nodes the error is the exchange's, which a smaller batch would hide less.

On GPUs later than H100 Nemotron's steps are predicted too short, the more so in four bits. Two reasons are likely, and
not proved: scans are Triton kernels made for Hopper, and are priced as if they used the rates of newer GPUs; and these
recipes keep attention, latents, MTP and some projections in 16 or 8 bits, while a scenario has one type for all GEMMs.
Llama 3 70B's adapters on 8 and 16 GPUs are the only rows with tensor parallelism by PyTorch's DTensor, without sequence
parallelism, in ten chunks per stage: what its host does between small kernels is not modelled as such.

The spread of `state-space` in `data/architectures.toml` is from these misses: errors are of runs that no fit has read,
intervals are not. Recomputation and dispatchers are those of the recipes (NVIDIA-NeMo/Megatron-Bridge,
scripts/performance and recipes/nemotronh; NVIDIA-NeMo/Automodel, examples/llm_benchmark).
"""


def page(table: pd.DataFrame) -> str:
    """The page as text."""
    return "\n".join([HEAD, *_groups(table), "", *_summary(table), "", TAIL])


def _groups(table: pd.DataFrame) -> Iterator[str]:
    yield "| model | GPU | type | GPUs | rows | measured s | predicted s | error % (median) |"
    yield "|---|---|---|--:|--:|--:|--:|--:|"
    for (model, gpu, dtype), rows in table.groupby(["model", "gpu", "precision"]):
        seconds = [_span(rows[column]) for column in ("measured_s", "predicted_s")]
        cells = [model, gpu, dtype, _span(rows["gpus"]), len(rows), *seconds, f"{100 * rows['error'].median():+.0f}"]
        yield f"| {' | '.join(map(str, cells))} |"


def _summary(table: pd.DataFrame) -> Iterator[str]:
    for name, rows in (("All", table), ("On H100", table[table["gpu"].str.startswith("H100")])):
        size = 100 * rows["error"].abs()
        errors = f"median error {size.median():.0f} %, 90th percentile {size.quantile(0.9):.0f} %"
        yield f"- {name}: {len(rows)} rows, {errors}"


def _span(values: pd.Series) -> str:
    low, high = (f"{value:.3g}" for value in (values.min(), values.max()))
    return low if low == high else f"{low} to {high}"


def predict() -> pd.DataFrame:
    """All rows with their predictions."""
    return read_step_ledger(ROWS).table


if __name__ == "__main__":
    write_atomic(PAGE, page(predict()).encode())
