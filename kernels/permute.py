"""Tokens into the order of their experts before a MoE layer, and their weighted sum after it."""

import torch
from torch import Tensor

from .dispatch import check_dense, launch, runs_triton


def route(experts: Tensor) -> tuple[Tensor, Tensor]:
    """What `permute` and `unpermute` need, from the experts that each token goes to; torch on every device.

    experts   [T, k] any integers
    returns   tokens [T*k] int32, the token of each row in expert order, and places [T, k] int32, the row of each choice

    Rows of one expert keep the order of their tokens.
    """
    order = torch.argsort(experts.flatten(), stable=True)
    places = torch.empty_like(order, dtype=torch.int32)
    places[order] = torch.arange(len(order), dtype=torch.int32, device=order.device)
    return (order // max(experts.shape[1], 1)).to(torch.int32), places.view_as(experts)


def permute(states: Tensor, tokens: Tensor) -> Tensor:
    """Row `tokens[i]` of `states` as row i.

    states   [T, H] any dtype
    tokens   [N] int32 or int64 in 0 .. T-1, not checked; N = T*k for k experts a token
    returns  [N, H] like states

    Reads N*H elements and `tokens`, writes N*H elements. A token's row is read once per expert; while it stays in L2,
    memory sees T*H of these reads.
    """
    check_dense(states=states, tokens=tokens)
    if not runs_triton(states):
        return permute_reference(states, tokens)
    from . import compiled

    rows, hidden = len(tokens), states.shape[1]
    result = states.new_empty(rows, hidden)
    launch(compiled.permute, (rows,), states, tokens, result, hidden, block=4096, num_warps=4)
    return result


def unpermute(rows: Tensor, places: Tensor, weights: Tensor) -> Tensor:
    """The weighted sum of each token's rows, added in fp32 in the order of its choices.

    rows     [N, H] floating
    places   [T, k] int32 or int64: the rows of a token, below N (not checked); a negative one counts nothing
    weights  [T, k] floating
    returns  [T, H] like rows

    Reads T*k*H elements, `places` and `weights`, writes T*H elements.
    """
    check_dense(rows=rows, places=places, weights=weights)
    if not runs_triton(rows):
        return unpermute_reference(rows, places, weights)
    from . import compiled

    (tokens, k), hidden = places.shape, rows.shape[1]
    result = rows.new_empty(tokens, hidden)
    block = 1024  # 16 bytes of bf16 a thread for each of the k rows
    grid = tokens, -(-hidden // block)
    launch(compiled.unpermute, grid, rows, places, weights, result, hidden, k=k, block=block, num_warps=4)
    return result


def permute_reference(states: Tensor, tokens: Tensor) -> Tensor:
    """`permute` in torch."""
    return states.index_select(0, tokens)


def unpermute_reference(rows: Tensor, places: Tensor, weights: Tensor) -> Tensor:
    """`unpermute` in torch, in fp32."""
    kept = torch.where(places < 0, 0.0, weights.float())
    if not len(rows):
        return rows.new_zeros(len(places), rows.shape[1])
    chosen = rows[places.clamp(min=0).long()].float()  # [T, k, H]
    return torch.where(places[..., None] < 0, 0.0, chosen * kept[..., None]).sum(1).to(rows.dtype)
