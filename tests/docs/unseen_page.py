"""docs/unseen-models.md: published steps of models that no fit has read, beside their predictions.

python -m tests.docs.unseen_page
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pandas as pd
from runcast.simulator.answers.validate.steps import read_step_ledger, shipped_table
from runcast.simulator.base.files import write_atomic

ROOT = Path(__file__).parents[2]
PAGE, ROWS = ROOT / "docs/unseen-models.md", shipped_table().with_name("training_unseen.csv")

HEAD = """# Models that no fit has read

`data/validation/training_unseen.csv` holds published steps of models that are not in the [ledger](training-ledger.md)
to which stacks and devices are fitted, or of runs that came later: Nemotron 3 and 3.5, Qwen3.5, GLM-5 and 5.2,
DeepSeek-V4, GPT-OSS 20B, a BERT, and adapters (LoRA); and runs on clusters of others. Their errors say what a
prediction is worth for what runcast has never been shown. `python -m tests.docs.unseen_page` writes this page, a test
compares it, and `runcast validate --kind train_step --rows data/validation/training_unseen.csv` prints every row.

## Runs for speed
"""

AFTER_SPEED = """\
BERT's rows are of NeMo 22.11, on up to 16 nodes. NVIDIA published tokens per second and the plan, not the batch, for
which 2,048 sequences are assumed; on more nodes the error is the exchange's, which a smaller batch would hide less.

On Blackwell Nemotron's steps are predicted too short. Fewer bits are not the reason: Super takes 9.9 s in 16 bits, 9.3
to 9.9 in 8 and 9.1 to 9.7 in 4, where 7.1, 6.6 to 7.0 and 5.9 to 6.0 are predicted. Until 2026-11-30 scans were priced
as if their kernels used the rates of newer GPUs, and such steps were predicted 3 to 7 points shorter still; what else
there is, is not known. Of the kernels of GLM-5.2 those of the indexer were never timed alone. For DeepSeek-V3.2 no
published step was found (on 2026-11-30, in NVIDIA's summaries, cards, recipes and pull requests): GLM-5 below has its
attention, with an indexer in each layer. Llama 3 70B's adapters on 8 and 16 GPUs are the only rows with tensor
parallelism by PyTorch's DTensor, without sequence parallelism, in ten chunks per stage: what its host does between
small kernels is not modelled as such.

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
their own below. Its spread is what 19 of the others miss, in which hosts decide: their errors are of rows that no fit
has read, their intervals are not.
"""

TAIL = """\
Known of the rest: Super's runs have a part of the optimizer on the host, which a scenario has all or nothing of;
packed texts of 32,768 tokens over several context-parallel ranks take up to 17 times as long as predicted, for
reasons that are not known; GLM-5.2 ran on H100 in deterministic mode, and GLM-5's kernels for sparse attention were
new. The indexer is not what these predictions lack: GLM-5 has one in each layer and GLM-5.2 in one of four, and both
took 34 s a step.
"""

SITES = """\

## Clusters of others

Most rows of the ledger come from those who wrote the software. Others ran NVIDIA's recipes (NVIDIA/dgxc-benchmarking)
on clusters of their own, and published what they measured: Together AI on up to 592 B200, on racks of GB200 and on
nodes of B200 and B300 (togethercomputer/together-dgxc-benchmarking), a site with B200 at Vultr, and one with H100 at
Azure (edwardsp/azcluster). 29 runs of Together's are in the ledger since 2026-11-29. Predicted before a fit had read
them, their median error was 6.1 %, the 90th percentile 27 %, and 90 % of them lay in their intervals. Steps in 16
bits were predicted 16 to 67 % too long on B200: the fit knew these products from a single node, whose own GEMMs
turned out to be a quarter slower than those of others. The rows here are still unread: those in 16 bits show what the
fit has learned. Where a recipe has no CUDA graphs (Qwen3 235B on B200 and B300, DeepSeek-V3 on B200), or those of
the router only (Qwen3 30B on B200), rows are predicted with the stack `megatron-bridge-no-graphs`, whose one number is
from three runs of NVIDIA's; so are five of the runs for speed above (Nemotron 3 Ultra, Nemotron 3.5 Lightning with
Megatron-FSDP, Qwen3.5, GPT-OSS 120B in 16 bits), which until 2026-11-29 had the stack of their release, with graphs:
-19 to -37 % then.
"""

AFTER_SITES = """\
With one sequence to a micro-batch and no graphs of whole layers, hosts hold up Qwen3 30B (4.3 ms for a pass over a
layer on B200, and 2.9 to 3.7 on B300) and 235B (5.0 ms in bf16, 6.1 in 8 bits, which take more kernels); the stack has
5 ms. With `megatron-bridge-26.02`, 30B's steps are predicted 44 to 61 % too short, and 235B's in 8 bits 30 %; with
`megatron-bridge-eager` up to 2.7 times too long. The sends of 405B's stages in NVFP4 go across rails at a third of
a NIC's rate once 16 nodes or more send at a time, as its owners measured; its recipe recomputes a layer of each chunk.
Qwen3 235B in bf16 took 29.2 and 32.2 s on two days of the same cluster, and 31.7 and 37.8 s on half of its GPUs.
"""

FUNCTIONAL = "megatron-bridge-eager"
FITTED = ("Qwen3-30B-A3B", "Nemotron_3.5_Lightning")
"""Models of which ten rows set the number of that stack."""

OTHERS = ("azcluster_", "together_", "vultr_")
"""How the names of sources begin that ran somebody else's recipes on their own clusters."""

MODEL = {"model": "model", "gpu": "GPU", "precision": "type"}
SITE = {"source": "cluster", "model": "model", "precision": "type"}
"""Columns that tell rows apart, and their heads."""


def page(table: pd.DataFrame) -> str:
    """The page as text."""
    functional, others = table["stack"] == FUNCTIONAL, table["source"].str.startswith(OTHERS)
    fast, works = table[~functional & ~others], table[functional]
    unread = works[~works["model"].isin(FITTED)]
    found = [*_groups(fast), "", *_summary(fast), "", AFTER_SPEED]
    found += [*_groups(works), "", *_summary(works), *_summary(unread, "Of models without a fitted row"), "", TAIL]
    theirs = table[others]
    dense = _errors("Of models without experts", theirs[~theirs["arch"].str.startswith("moe")])
    found += [SITES, *_groups(theirs, SITE), "", _errors("All", theirs), dense, "", AFTER_SITES]
    return "\n".join([HEAD, *found])


def _groups(table: pd.DataFrame, by: Mapping[str, str] = MODEL) -> Iterator[str]:
    yield f"| {' | '.join(by.values())} | GPUs | rows | measured s | predicted s | error % (median) |"
    yield "|---|---|---|--:|--:|--:|--:|--:|"
    for names, rows in table.groupby(list(by)):
        seconds = [_span(rows[column]) for column in ("measured_s", "predicted_s")]
        cells = [*names, _span(rows["gpus"]), len(rows), *seconds, f"{100 * rows['error'].median():+.0f}"]
        yield f"| {' | '.join(map(str, cells))} |"


def _summary(table: pd.DataFrame, of: str = "All") -> Iterator[str]:
    yield _errors(of, table)
    yield _errors(f"{of}, on H100", table[table["gpu"].str.startswith("H100")])


def _errors(of: str, table: pd.DataFrame) -> str:
    size = 100 * table["error"].abs()
    return f"- {of}: {len(table)} rows, median error {size.median():.0f} %, 90th percentile {size.quantile(0.9):.0f} %"


def _span(values: pd.Series) -> str:
    low, high = (f"{value:.3g}" for value in (values.min(), values.max()))
    return low if low == high else f"{low} to {high}"


def predict() -> pd.DataFrame:
    """All rows with their predictions."""
    return read_step_ledger(ROWS).table


if __name__ == "__main__":
    write_atomic(PAGE, page(predict()).encode())
