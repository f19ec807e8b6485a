"""Delta rules in chunks, as of Gated DeltaNet, Kimi Delta and RWKV-7: their FLOP are those that torch counts."""

import pytest
import torch
from runcast.simulator.models.kernels import flop, input_gradient
from runcast.simulator.models.linear_attention import chunked
from runcast.simulator.models.shard import Shard
from torch.utils.flop_counter import FlopCounterMode

SEQ, HEADS, KEY, VALUE, CHUNK = 192, 3, 32, 16, 64


def recur(q, k, v, decay, along, by):
    """Token by token: S = decay S + (S along) by^T + v k^T, and o = S q. All are (heads, seq, width)."""
    state, out = torch.zeros(HEADS, VALUE, KEY), []
    for t in range(SEQ):
        left = torch.einsum("hvk,hk->hv", state, along[:, t])
        state = state * decay[:, t, None, None].exp() + left.unsqueeze(-1) * by[:, t].unsqueeze(1)
        state = state + v[:, t].unsqueeze(-1) * k[:, t].unsqueeze(1)
        out.append(torch.einsum("hvk,hk->hv", state, q[:, t]))
    return torch.stack(out, 1)


def split(x):
    return x.unflatten(1, (SEQ // CHUNK, CHUNK))


def in_chunks(q, k, v, decay, along, by, pairs):
    """The same in chunks of CHUNK tokens; of one pair, `by` is `k`, and strengths are in `along` and `v`.

    The triangle of each chunk is inverted at once, as in arXiv 2412.06464, section 3.3, and likewise for two pairs.
    """
    q, k, v, along, by = map(split, (q, k, v, along, by))
    total = split(decay.unsqueeze(-1)).cumsum(2)
    since = (total - total.transpose(2, 3)).exp()  # from the end of one token to the end of another
    before = ((total - split(decay.unsqueeze(-1))) - total.transpose(2, 3)).exp()
    lower, full = torch.ones(CHUNK, CHUNK).tril(-1), torch.ones(CHUNK, CHUNK).tril()
    vectors = [by, k][-pairs:]
    reads = torch.matmul(along, torch.cat(vectors, 2).transpose(2, 3)).split(CHUNK, 3)
    triangle = torch.eye(CHUNK) - reads[0] * before * lower
    inverse = torch.linalg.solve_triangular(triangle, torch.eye(CHUNK), upper=False)
    own = v if pairs == 1 else torch.matmul(reads[1] * before * lower, v)
    reach = along * (total - split(decay.unsqueeze(-1))).exp()
    solved = torch.matmul(inverse, torch.cat([reach, own], 3))
    w, u = solved.split([KEY, VALUE], 3)
    scores = torch.matmul(q, torch.cat(vectors, 2).transpose(2, 3)) * torch.cat([since * full] * pairs, 3)
    to_end = (total[:, :, -1:] - total).exp()
    state, out = torch.zeros(HEADS, KEY, VALUE), []
    for number in range(SEQ // CHUNK):
        learned = u[:, number] + torch.bmm(w[:, number], state)
        values = torch.cat([learned, v[:, number]][:pairs], 1)
        inside = torch.bmm(scores[:, number], values)
        out.append(inside + torch.bmm(q[:, number] * total[:, number].exp(), state))
        keys = torch.cat([one[:, number] * to_end[:, number] for one in vectors], 1)
        state = state * total[:, number, -1:].exp() + torch.bmm(keys.transpose(1, 2), values)
    return torch.cat(out, 1)


def inputs(pairs):
    """q, k, v, decay, along, by of a rule whose state stays bounded."""
    unit = torch.nn.functional.normalize
    q, k, along = (unit(torch.randn(HEADS, SEQ, KEY), dim=2) for _ in range(3))
    v, decay, strength = torch.randn(HEADS, SEQ, VALUE), -torch.rand(HEADS, SEQ) / 8, torch.rand(HEADS, SEQ, 1)
    if pairs == 1:  # S = decay S (1 - strength k k^T) + strength v k^T: what is left of v is written at k
        return q, k, strength * v, decay, -strength * k * decay.exp().unsqueeze(-1), k
    return q, k, v, decay, -along, strength * along


@pytest.mark.parametrize("pairs", [1, 2])
def test_a_delta_rule_in_chunks_is_the_recurrence(pairs):
    given = inputs(pairs)
    torch.testing.assert_close(in_chunks(*given, pairs), recur(*given), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("pairs", [1, 2])
def test_a_delta_rule_takes_the_operations_that_torch_counts(pairs):
    with FlopCounterMode(display=False) as counter:
        in_chunks(*inputs(pairs), pairs)

    assert counter.get_total_flops() == sum(map(flop, chunked(Shard(1, SEQ), HEADS, KEY, VALUE, pairs)))


@pytest.mark.parametrize("pairs", [1, 2])
def test_its_gradients_take_the_operations_that_torch_counts(pairs):
    """But for a product in the gradient of each inverse, the first state, and all that only the last one needs."""
    given = [one.requires_grad_() for one in inputs(pairs)]
    with FlopCounterMode(display=False) as counter:
        in_chunks(*given, pairs).sum().backward()

    ours = chunked(Shard(1, SEQ), HEADS, KEY, VALUE, pairs)
    inverses = SEQ * HEADS * 2 * CHUNK**2
    at_ends = (2 + 2 * pairs) * CHUNK * HEADS * 2 * KEY * VALUE
    assert counter.get_total_flops() == sum(flop(k) + flop(input_gradient(k)) for k in ours) + inverses - at_ends
