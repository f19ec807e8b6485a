"""Pipelines of Megatron-LM: chunks per rank, and the ways of splitting layers into stages that are not all the same."""

import re
from typing import Any

from .arguments import Arguments
from .layers import layers_per_stage

_LONGEST_LAYOUT = 10_000
_LAYOUT_RUN = re.compile(
    r"\((?P<many>[^()]*)\)(?:\*(?P<times>\d{1,3}))?|(?P<one>[EtmL|])(?:\*(?P<count>\d{1,3}))?|,|\s"
)


def read_pipeline(args: Arguments, pp: int, layers: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The table `schedule`, and what of `parallel` splits layers into stages."""
    counts = _layout(args, pp, layers) if args.has("pipeline_model_parallel_layout") else layers_per_stage(args)
    if counts and len(counts) % pp:
        args.fault("hybrid_layer_pattern", f"expected a multiple of pp = {pp} stages split by |")
        return {"name": "1f1b"}, {}
    vpp = len(counts) // pp if counts else _chunks(args, pp, layers)
    combined = _is_combined(args)
    if vpp > 1 and pp == 1:
        ways = ("num_layers_per_virtual_pipeline_stage", "num_virtual_stages_per_pipeline_rank")
        way = next((name for name in ways if args.has(name)), "pipeline_model_parallel_layout")
        args.fault(way, "chunks need a pipeline, with --pipeline-model-parallel-size above 1")
    if combined and vpp == 1 and pp > 1:
        line = "--overlap-moe-expert-parallel-comm: in a pipeline only with chunks of an interleaved one"
        args.not_modelled.append(line)
    if vpp == 1:
        return {"name": "interleaved-overlap" if combined and pp == 1 else "1f1b"}, _split(args, pp, 1, layers, counts)
    schedule: dict[str, Any] = {"name": "interleaved-overlap" if combined else "interleaved", "vpp": vpp}
    group = args.whole("microbatch_group_size_per_virtual_pipeline_stage", pp)
    if group < pp:
        args.fault("microbatch_group_size_per_virtual_pipeline_stage", f"expected at least pp = {pp}")
    if group != pp:
        schedule["group"] = group
    return schedule, _split(args, pp, vpp, layers, counts)


def _is_combined(args: Arguments) -> bool:
    """Whether a forward and a backward run together, so that exchanges of experts overlap; they need exchanges."""
    name = "overlap_moe_expert_parallel_comm"
    combined = args.switch(name)
    if combined and args.whole("expert_model_parallel_size") == 1:
        args.fault(name, "needs --expert-model-parallel-size above 1", True)
    return combined


def _chunks(args: Arguments, pp: int, layers: int) -> int:
    per_chunk, chunks = "num_layers_per_virtual_pipeline_stage", "num_virtual_stages_per_pipeline_rank"
    if args.has(per_chunk) and args.has(chunks):
        args.fault(per_chunk, f"cannot go with {args.spelling(chunks)}; give one of them")
    if not args.has(per_chunk):
        return args.whole(chunks)
    each = args.whole(per_chunk)
    embedding, loss = _ends(args)
    ranks, rest = pp, layers + embedding + loss
    for end in ("decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers"):
        if args.has(end):
            ranks, rest = ranks - 1, rest - args.whole(end)
    if ranks < 1 or rest % (ranks * each):
        args.fault(per_chunk, f"{each} x pp {pp} must divide the {layers} layers")
        return 1
    return rest // ranks // each


def _ends(args: Arguments) -> tuple[int, int]:
    names = ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split")
    return int(args.switch(names[0])), int(args.switch(names[1]))


def _split(args: Arguments, pp: int, vpp: int, layers: int, counts: list[int] | None) -> dict[str, Any]:
    """Layers per stage where they are not all the same."""
    if counts is not None:
        return {"layers": counts}
    embedding, loss = _ends(args)
    first, last = (args.optional(f"decoder_{end}_pipeline_num_layers") for end in ("first", "last"))
    if (embedding or loss) and (first or last):
        args.fault("account_for_embedding_in_pipeline_split", "cannot go with layers of the first or last stage", True)
        return {}
    if pp == 1:
        return {}
    if first or last:
        return _uneven(args, pp, vpp, layers, first, last)
    if (layers + embedding + loss) % (pp * vpp):
        also = " with embedding and loss counted" if embedding or loss else ""
        args.fault(
            "num_layers", f"pp {pp} x {vpp} chunks = {pp * vpp} must divide them{also}", layers + embedding + loss
        )
        return {}
    if embedding and loss:
        return {"embedding_as_layer": True}
    each = [(layers + embedding + loss) // (pp * vpp)] * (pp * vpp)
    each[0], each[-1] = each[0] - embedding, each[-1] - loss
    return {"layers": each} if embedding or loss else {}


def _uneven(args: Arguments, pp: int, vpp: int, layers: int, first: int | None, last: int | None) -> dict[str, Any]:
    middle = pp - (first is not None) - (last is not None)
    rest = layers - (first or 0) - (last or 0)
    name = f"decoder_{'first' if first else 'last'}_pipeline_num_layers"
    ends = [end for end in (first, last) if end is not None]
    if rest < 0 or (middle == 0 and rest) or (middle and rest % (middle * vpp)) or any(end % vpp for end in ends):
        over = f"over {middle} ranks of {vpp} chunks" if vpp > 1 else f"over {middle} ranks"
        args.fault(name, f"leaves {rest} of {layers} layers {over}, which does not go evenly")
        return {}
    ranks = [rest // middle if middle else 0] * pp
    ranks[0] = first if first is not None else ranks[0]
    ranks[-1] = last if last is not None else ranks[-1]
    return {"layers": [count // vpp for _ in range(vpp) for count in ranks]}


def _layout(args: Arguments, pp: int, layers: int) -> list[int] | None:
    """Layers per stage of a layout such as Et*3|(tt|)*29,m|L: embedding, layers, MTP and loss, stages split by bars."""
    name = "pipeline_model_parallel_layout"
    text = args.text(name).replace("\\", "")  # a layout in YAML has its bars escaped for the shell
    clashes = (
        "num_layers_per_virtual_pipeline_stage", "decoder_first_pipeline_num_layers",
        "decoder_last_pipeline_num_layers", "account_for_embedding_in_pipeline_split",
    )  # fmt: skip
    if clash := [other for other in clashes if args.gives(other)]:
        args.fault(name, f"cannot go with {args.spelling(clash[0])}")
        return None
    stages = _spread(text).split("|")
    if not stages[0].startswith("E") or not stages[-1].endswith("L") or len(stages) % pp or "?" in "".join(stages):
        wanted = f"expected E (embedding), t (layers), m (MTP) and L (loss), a multiple of pp = {pp} stages split by |"
        args.fault(name, wanted)
        return None
    counts = [stage.count("t") for stage in stages]
    if sum(counts) != layers:
        args.fault(name, f"holds {sum(counts)} layers; the model has {layers}")
        return None
    chunks = args.optional("num_virtual_stages_per_pipeline_rank")
    if chunks is not None and chunks != len(counts) // pp:
        args.fault("num_virtual_stages_per_pipeline_rank", f"the layout has {len(counts) // pp}")
    if any("m" in stage for stage in stages[:-1]):
        args.assumed.append("layers of multi-token prediction are on the last stage, whatever the layout says")
    return counts


def _spread(text: str) -> str:
    """A layout with its repetitions written out; `?` where it is none, or far too long."""
    spread, place = "", 0
    while place < len(text):
        found = _LAYOUT_RUN.match(text, place)
        if found is None or len(spread) > _LONGEST_LAYOUT:
            return "?"
        if found["many"] is not None:
            spread += _spread(found["many"])[:_LONGEST_LAYOUT] * int(found["times"] or 1)
        elif found["one"]:
            spread += found["one"] * int(found["count"] or 1)
        place = found.end()
    return spread
