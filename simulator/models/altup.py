"""Gemma 3n: several hidden states of a token, of which layers compute one (AltUp, arXiv 2301.13310), and LAuReL.

A layer predicts all states from those before it, computes one, and corrects the others by the difference. LAuReL (arXiv
2411.07501) adds a GEMM of low rank beside attention. Before the layers, projections of the embedding give the other
states; behind them, projections bring them back to one. Source: `modeling_gemma3n.py` of transformers 5.
"""

from .kernels import Kernels
from .model import ModelSpec
from .parameters import Parameter, Parameters, linear, norm
from .shard import Shard, gemm, memory_bound


def layer_parameters(spec: ModelSpec) -> Parameters:
    """Coefficients of predictions and corrections, the router that weights them, and LAuReL; no rank cuts them."""
    if not spec.altup:
        return []
    states, hidden = spec.streams, spec.hidden_size
    return [
        Parameter("altup.correct_output_scale", (hidden,)),
        Parameter("altup.correction_coefs.weight", (states, states)),
        Parameter("altup.prediction_coefs.weight", (states**2, states)),
        *linear("altup.modality_router", states, hidden, "altup_router"),
        *norm(spec, "altup.router_norm"),
        *linear("laurel.linear_left", spec.laurel_rank, hidden, "laurel_left"),
        *linear("laurel.linear_right", hidden, spec.laurel_rank, "laurel_right"),
        *norm(spec, "laurel.post_laurel_norm"),
    ]


def end_parameters(spec: ModelSpec, name: str) -> Parameters:
    """The projections before or behind the layers, one for each further state."""
    states, hidden = range(spec.streams - 1), spec.hidden_size
    matrices = [linear(f"{spec.trunk}.{name}.{state}", hidden, hidden, name) for state in states]
    return [parameter for matrix in matrices for parameter in matrix] if spec.altup else []


def predict(spec: ModelSpec, shard: Shard) -> Kernels:
    """Predictions of all states."""
    return _weigh(spec, shard, "predict", 2 * spec.streams)


def correct(spec: ModelSpec, shard: Shard) -> Kernels:
    """Corrections of all states by what the layer computed."""
    return _weigh(spec, shard, "correct", 2 * spec.streams + 1)


def _weigh(spec: ModelSpec, shard: Shard, name: str, moved: int) -> Kernels:
    """A router, which reads a norm of one state, and a pass over the states, which the backward keeps."""
    if not spec.altup:
        return ()
    hidden, made = spec.hidden_size, shard.own_tokens * spec.hidden_size
    kept = spec.streams * made * shard.wide
    return (
        memory_bound("rms_norm", f"{name}_norm", "residual", hidden, made, 2, shard, made * shard.wide),
        *gemm(shard, layer_parameters(spec), "altup_router", "residual", shard.own_tokens, keeps=shard.wide),
        memory_bound("residual_add", name, "residual", hidden, made, moved, shard, kept),
    )


def laurel(spec: ModelSpec, shard: Shard) -> Kernels:
    """The branch of low rank, its norm, and its sum with the layer's input."""
    if not spec.altup:
        return ()
    table, tokens, wide = layer_parameters(spec), shard.own_tokens, shard.wide
    hidden, made = spec.hidden_size, tokens * spec.hidden_size
    return (
        *gemm(shard, table, "laurel_left", "residual", tokens, keeps=wide),
        *gemm(shard, table, "laurel_right", "residual", tokens, keeps=wide),
        memory_bound("rms_norm", "laurel_norm", "residual", hidden, made, 2, shard),
        memory_bound("residual_add", "laurel_add", "residual", hidden, made, 3, shard),
    )


def end_kernels(spec: ModelSpec, shard: Shard, name: str) -> Kernels:
    """The projections, and passes that give all states one magnitude and, behind the layers, their mean."""
    if not spec.altup:
        return ()
    table, tokens, hidden = end_parameters(spec, name), shard.own_tokens, spec.hidden_size
    return (
        *gemm(shard, table, name, "residual", tokens, keeps=shard.wide, dtype=shard.plain),
        memory_bound("rms_norm", f"{name}_norm", "residual", hidden, tokens * hidden, 2 * spec.streams, shard),
    )
