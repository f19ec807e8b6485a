"""Writes an action as a Piece, alone or overlapped with another; `script` writes its steps."""

from collections.abc import Callable, Sequence
from itertools import chain, zip_longest

from .held import Holdings
from .layers import LayerWriter
from .piece import Piece, PieceWriter, Tables
from .plan import TrainPlan
from .script import Fragments, Pass, Script
from .summa import GridWriter


def write_piece(
    plan: TrainPlan, holdings: Holdings, passes: tuple[Pass, ...], tables: Tables, fragments: Fragments
) -> Piece:
    """Write one action of a pipeline rank, or an overlapped forward and backward. `fragments` caches its layers."""
    w = GridWriter(plan) if plan.shard.side > 1 else PieceWriter()
    scripts = [
        Script(plan, holdings, one, LayerWriter(plan, w, one.kind == "B"), number) for number, one in enumerate(passes)
    ]
    if len(scripts) == 2:
        for step in interleave(scripts):
            step()
    else:
        scripts[0].write(fragments)
    ends = [list(chain(*ops)) for ops in zip_longest(*(script.ends for script in scripts), fillvalue=[])]
    heads, tails = [script.heads for script in scripts], [script.tail for script in scripts]
    return w.piece(tables, heads, tails, ends, [script.passes for script in scripts])


def interleave(scripts: Sequence[Script]) -> list[Callable[[], None]]:
    """Interleave a forward and a backward layer by layer, in the order in which Megatron-LM issues them.

    The exchanges of one overlap the computation of the other:

        comm   combine_back(b)        | dispatch(f) -> dispatch_back(b)              | combine(f)
        comp   attention(f)           | mlp_back(b) -> mlp_weights(b) -> mlp(f)      | attention_back(b) -> weights(b)

    The sum of a layer's combined tokens (`close`) comes after the first step of the next layer's backward, so that
    neither exchange delays the other.
    """
    forward, backward = scripts
    steps = [*backward.opening, *forward.opening]
    f_layers, b_layers = forward.by_layer, backward.by_layer
    both, closing = min(len(f_layers), len(b_layers)), list[Callable[[], None]]()
    for (attention, dispatch, mlp, combine, close), (begin, combine_back, mlp_back, dispatch_back, end) in zip(
        f_layers[:both], b_layers[:both], strict=True
    ):
        steps += [begin, *closing, combine_back, attention, dispatch, mlp_back, dispatch_back, mlp, combine, end]
        closing = [close]
    steps += closing
    for rest in (*f_layers[both:], *b_layers[both:]):
        steps += rest
    return [*steps, *forward.closing, *backward.closing]
