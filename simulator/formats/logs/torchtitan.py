"""torchtitan's log: `step: 10  loss: …  memory: 47.85GiB(50.37%)  tps: 6,123  tflops: 358.48  mfu: 36.25%`.

`tps` is of one device, memory the most that its allocator took from it. The validator ends with `validate step: 10
loss: …  memory: …  tps: …`, where torchtitan's own clock starts anew, too. It does not after a checkpoint, whose line
is `Finished saving the checkpoint (or staging if async is enabled)in 3.00 seconds.` Source:
torchtitan/components/metrics.py, MetricsProcessor.log and log_validation, and checkpoint.py, CheckpointManager.save.
"""

import re
from math import prod

from .log import BY_CLOCK, NUMBER, Format, Line, lines_by_clock, quantities

_STEP = re.compile(
    rf"\bstep:\s*(\d+)\s+loss:.*?memory:\s*(?P<gib>{NUMBER})GiB.*?tps:\s*(?P<tps>{NUMBER})"
    rf"(?:.*?tflops:\s*(?P<tflops>{NUMBER}))?"
)
_VALIDATED = re.compile(r"\bvalidate step:\s*(\d+)")
_SAVED = re.compile(rf"\bFinished saving the checkpoint\b.*?in ({NUMBER}) seconds")
_MARKS = re.compile(rf"\bBuilding device mesh with|\bBuilding \d+-D device mesh|(?<!validate ){_STEP.pattern}")
_AXES = re.compile(r"Building device mesh with parallelism:(.*)")
_AXIS = re.compile(r"\b(\w+)=(\d+)")
_DATA = ("dp_replicate", "dp_shard")
_MESH = re.compile(r"Building \d+-D device mesh with \[.*?\], \[([\d, ]+)\]")


def _says(match: re.Match[str]) -> dict[str, float]:
    return quantities((
        ("memory_bytes", match["gib"], 2.0**30), ("tokens_per_s_per_gpu", match["tps"], 1.0),
        ("flop_per_s_per_gpu", match["tflops"], 1e12),
    ))  # fmt: skip


def _lines(text: str) -> dict[int, Line]:
    return lines_by_clock(text, _STEP, _says, _VALIDATED, _SAVED)


def _facts(text: str) -> dict[str, float]:
    """Ranks and axes by `Building device mesh with parallelism: pp=1, …`; before 2026 the line has sizes alone."""
    if axes := _AXES.search(text):
        sizes = {name: int(size) for name, size in _AXIS.findall(axes[1])}
        ranks = prod(sizes.get(name, 1) for name in ("pp", "cp", "tp", *_DATA))
        return {"world_size": ranks, **{name: sizes[name] for name in ("pp", "cp", "tp") if name in sizes}}
    mesh = _MESH.search(text)
    return {"world_size": prod(map(int, mesh[1].split(",")))} if mesh else {}


TORCHTITAN = Format("torchtitan_log", "torchtitan", _lines, _MARKS, BY_CLOCK, _facts, allocated=False)
