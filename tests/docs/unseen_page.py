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
to which stacks and devices are fitted, or of runs that came later: Nemotron 3 and 3.5, Qwen3.5, GLM-5.2, DeepSeek-V4,
GPT-OSS 20B, a BERT, and adapters (LoRA). Their errors say what a prediction is worth for what runcast has never been
shown. `python -m tests.docs.unseen_page` writes this page, a test compares it, and
`runcast validate --kind train_step --rows data/validation/training_unseen.csv` prints every row.

## Runs for speed
"""

AFTER_SPEED = """\
BERT's rows are of NeMo 22.11, on up to 16 nodes. NVIDIA published tokens per second and the plan, not the batch, for
which 2,048 sequences are assumed; on more nodes the error is the exchange's, which a smaller batch would hide less.

On Blackwell Nemotron's steps are predicted too short. Fewer bits are not the reason: Super takes 9.9 s in 16 bits,
9.3 to 9.9 in 8 and 9.1 to 9.7 in 4, where 6.5, 6.2 and 5.5 are predicted. Scans are Triton kernels made for Hopper,
and are priced as if they used the rates of newer GPUs; what else there is, is not known. Kernels that GLM-5.2 attends
with were never timed alone. GPT-OSS 120B in 16 bits on GB200 ran without CUDA graphs, which the stack of its release
has. Llama 3 70B's adapters on 8 and 16 GPUs are the only rows with tensor parallelism by PyTorch's DTensor, without
sequence parallelism, in ten chunks per stage: what its host does between small kernels is not modelled as such.

The spreads of `state-space` and `sparse-mla` in `data/architectures.toml` are from these misses: errors are of runs
that no fit has read, intervals are not. Recomputation and dispatchers are those of the recipes
(NVIDIA-NeMo/Megatron-Bridge, scripts/performance, perf_recipes and recipes; NVIDIA-NeMo/Automodel,
examples/llm_benchmark).

## Runs that show that a recipe works

Megatron-Bridge's model verification cards also have bounded runs, with a few micro-batches, tokens routed as the
model routes them, and mostly without CUDA graphs. Qwen3 30B then takes 10 to 16 ms per layer with experts and
micro-batch, and Nemotron 3.5 Lightning 18 to 29, on H100 and on GB200: their hosts hold them up. Stacks that are
fitted to runs for speed predict such steps up to 14 times too short. Reports note steps that are shorter than any in
the ledger, and their intervals do not include this. The stack `megatron-bridge-eager` counts that host work. Its one
number was fitted to ten of these rows, of those two models; all others are predicted with it, and have a line of
their own below.
"""

TAIL = """\
Known of the rest: Super's runs have a part of the optimizer on the host, which a scenario has all or nothing of;
packed texts of 32,768 tokens over several context-parallel ranks take up to 17 times as long as predicted, for
reasons that are not known; GLM-5.2 ran on H100 in deterministic mode, its kernels for sparse attention were new, and
its recipes' uneven stages stand in no row.
"""

FUNCTIONAL = "megatron-bridge-eager"
FITTED = ("Qwen3-30B-A3B", "Nemotron_3.5_Lightning")
"""Models of which ten rows set the number of that stack."""


def page(table: pd.DataFrame) -> str:
    """The page as text."""
    functional = table["stack"] == FUNCTIONAL
    fast, works = table[~functional], table[functional]
    unread = works[~works["model"].isin(FITTED)]
    found = [*_groups(fast), "", *_summary(fast), "", AFTER_SPEED]
    found += [*_groups(works), "", *_summary(works), *_summary(unread, "Of models without a fitted row"), "", TAIL]
    return "\n".join([HEAD, *found])


def _groups(table: pd.DataFrame) -> Iterator[str]:
    yield "| model | GPU | type | GPUs | rows | measured s | predicted s | error % (median) |"
    yield "|---|---|---|--:|--:|--:|--:|--:|"
    for (model, gpu, dtype), rows in table.groupby(["model", "gpu", "precision"]):
        seconds = [_span(rows[column]) for column in ("measured_s", "predicted_s")]
        cells = [model, gpu, dtype, _span(rows["gpus"]), len(rows), *seconds, f"{100 * rows['error'].median():+.0f}"]
        yield f"| {' | '.join(map(str, cells))} |"


def _summary(table: pd.DataFrame, of: str = "All") -> Iterator[str]:
    for name, rows in ((of, table), (f"{of}, on H100", table[table["gpu"].str.startswith("H100")])):
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
