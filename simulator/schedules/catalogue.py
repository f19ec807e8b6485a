"""All schedules by name: what each holds, and for which sizes it exists."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .dualpipe import dualpipe, dualpipe_v
from .grid import Grid
from .interleaved import interleaved
from .one_f_one_b import gpipe, one_f_one_b
from .stable import v_half, v_min
from .zb_h import zb_h1, zb_h2
from .zb_v import zb_v

MOST_FORWARDS = 10_000_000
"""Forwards of all ranks in one grid: larger ones would fill the memory."""


@dataclass(frozen=True)
class Schedule:
    """The facts about a schedule that are known before it is built."""

    make: Callable[..., Grid]
    chunks: int | None = 1  # stages that a rank holds; None: as many as asked for
    split: bool = False  # whether any backward runs as I and W
    copies: int = 1  # ranks that hold the parameters of one stage
    pairs: bool = False  # whether forwards and backwards overlap
    options: tuple[str, ...] = ()
    check: Callable[[str, int, int, Mapping[str, Any]], None] = lambda *_: None
    """Raises a ValueError for sizes that it does not exist for: its name, pipeline ranks, micro-batches, options."""

    def stages(self, pipeline_ranks: int, chunks: int = 1) -> int:
        """Number of stages of the model."""
        return pipeline_ranks * (self.chunks or chunks) // self.copies


def _overlapped(pipeline_ranks: int, microbatches: int, chunks: int, group: int | None = None) -> Grid:
    return interleaved(pipeline_ranks, microbatches, chunks, group, extra_warmup=1, overlap=True)


def _check_interleaved(name: str, p: int, m: int, options: Mapping[str, Any]) -> None:
    """Megatron-LM's own limits: groups of p to m micro-batches, the last one of at least p; no pair needs itself."""
    group = options.get("group")
    if m < p:
        raise ValueError(f"{name} with {m} micro-batches on {p} pipeline ranks; expected at least {p}")
    if group is not None and not p <= group <= m:
        raise ValueError(f"{name} with groups of {group} micro-batches; expected {p} (pipeline ranks) to {m} (all)")
    if 0 < m % (group or p) < p:
        rest = f"{m % (group or p)} of {m} micro-batches in the last group of {group or p}"
        raise ValueError(f"{name} with {rest}; expected a full group or at least {p} (pipeline ranks)")
    if options.get("extra_warmup", 0) not in (0, 1):
        raise ValueError(f"{name} with extra_warmup {options['extra_warmup']}; expected 0 or 1")
    if options.get("overlap") and not options.get("extra_warmup"):
        raise ValueError(f"{name} with overlap and extra_warmup 0 deadlocks; expected extra_warmup 1")


def _check_dualpipe(name: str, p: int, m: int, _: Mapping[str, Any]) -> None:
    if p % 2:
        raise ValueError(f"{name} on {p} pipeline ranks; expected an even number")
    if m % 2:
        raise ValueError(f"{name} with {m} micro-batches; expected an even number, half for each direction")
    _check_both_ends(name, p, m, {})


def _check_both_ends(name: str, p: int, m: int, _: Mapping[str, Any]) -> None:
    if m < 2 * p:
        raise ValueError(f"{name} with {m} micro-batches on {p} pipeline ranks; expected at least {2 * p}")


SCHEDULES = {
    "gpipe": Schedule(gpipe),
    "1f1b": Schedule(one_f_one_b),
    "interleaved": Schedule(interleaved, None, options=("group", "extra_warmup", "overlap"), check=_check_interleaved),
    "interleaved-overlap": Schedule(_overlapped, None, pairs=True, options=("group",), check=_check_interleaved),
    "zb-h1": Schedule(zb_h1, split=True),
    "zb-h2": Schedule(zb_h2, split=True),
    "zb-v": Schedule(zb_v, 2, split=True, options=("seconds",)),
    "v-half": Schedule(v_half, 2, split=True),
    "v-min": Schedule(v_min, 2, split=True),
    "dualpipe": Schedule(dualpipe, 2, split=True, copies=2, pairs=True, check=_check_dualpipe),
    "dualpipe-v": Schedule(dualpipe_v, 2, split=True, pairs=True, check=_check_both_ends),
}


def build(name: str, pipeline_ranks: int, microbatches: int, chunks: int = 1, **options: Any) -> Grid:
    """The Grid of a schedule.

    `chunks` is the number of stages per rank where a schedule takes any (1 or its own number elsewhere). Options:
    `group`, `extra_warmup` and `overlap` of interleaved, `seconds` of zb-v.

    Raises:
        ValueError: no such schedule, or none of this size; one line with the value and what would be allowed.
    """
    if name not in SCHEDULES:
        raise ValueError(f"schedule {name!r}; known: {', '.join(SCHEDULES)}")
    _check_sizes(name, pipeline_ranks, microbatches, chunks)
    _check_options(name, options)
    schedule = SCHEDULES[name]
    schedule.check(name, pipeline_ranks, microbatches, options)
    any_chunks = {"chunks": chunks} if schedule.chunks is None else {}
    return schedule.make(pipeline_ranks, microbatches, **any_chunks, **options)


def _check_sizes(name: str, pipeline_ranks: int, microbatches: int, chunks: int) -> None:
    sizes = {"pipeline ranks": pipeline_ranks, "micro-batches": microbatches, "chunks": chunks}
    for what, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} with {size} {what}; expected at least 1")
    if (forwards := pipeline_ranks * microbatches * chunks) > MOST_FORWARDS:
        sizes_text = f"{pipeline_ranks:,} pipeline ranks, {microbatches:,} micro-batches and {chunks:,} chunks per rank"
        raise ValueError(f"{name} with {sizes_text} has {forwards:,} forwards; expected at most {MOST_FORWARDS:,}")
    own = SCHEDULES[name].chunks
    if own is not None and chunks not in (1, own):
        allowed = f"it has {own}, interleaved takes any number: leave vpp out, or set it to {own}"
        raise ValueError(f"{name} with {chunks} chunks per rank; {allowed}")


def _check_options(name: str, options: dict[str, Any]) -> None:
    known = SCHEDULES[name].options
    for option in options:
        if option not in known:
            raise ValueError(f"{name} has no option {option!r}; known: {', '.join(known) or 'none'}")
