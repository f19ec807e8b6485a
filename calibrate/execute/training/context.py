"""Attention where ranks share sequences (context parallelism): a ring, a gather of keys and values, or all-to-alls.

A rank has tokens of both ends of a sequence, so that causal attention is even work. In a ring, blocks of keys and
values go from rank to rank beside attention to the block that is there; parts are joined by their log-sum-exps. The
backward goes the other way round: it begins with the block that came last, and the gradient of a block follows it, one
step behind, until both are at home.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from .exchanges import Exchanges, GroupKey
from .kernels import Heads, join_heads, split_heads
from .view import RankView


class Part(NamedTuple):
    """Attention to some keys: outputs and log-sum-exps, [sequences, heads, tokens, size] and without size."""

    out: Tensor
    lse: Tensor


@dataclass(frozen=True)
class Context:
    """The attention of one rank among those that share its sequences."""

    view: RankView
    exchanges: Exchanges

    @property
    def heads(self) -> Heads:
        """The rank's heads."""
        return self.view.heads

    @property
    def key(self) -> GroupKey:
        """The ranks that share sequences."""
        return self.view.key("cp")

    @property
    def place(self) -> int:
        """The position of this rank among them."""
        return self.key[1].index(self.view.rank)

    def positions_of(self, place: int) -> Tensor:
        """The places in a sequence of another rank's tokens."""
        return self.view.positions_at(place)

    @property
    def everywhere(self) -> Tensor:
        """The same of all ranks, one after another."""
        return torch.cat([self.positions_of(place) for place in range(len(self.key[1]))])

    # Shapes: [sequences, heads, tokens, size], keys and values in one tensor

    def query(self, qkv: Tensor) -> Tensor:
        """The queries of rows of q, k and v."""
        return self._by_head(split_heads(qkv, self.heads)[0])

    def keys(self, qkv: Tensor) -> Tensor:
        """Keys and values of such rows, [2, ...]."""
        _, k, v = split_heads(qkv, self.heads)
        return torch.stack((self._by_head(k), self._by_head(v)))

    def rows(self, by_head: Tensor) -> Tensor:
        """[tokens, heads, size], one sequence after another."""
        return by_head.transpose(1, 2).flatten(0, 1)

    def by_head(self, rows: Tensor) -> Tensor:
        """Rows of outputs as [sequences, heads, tokens, size]."""
        return self._by_head(rows.view(len(rows), -1, self.heads.size))

    def _by_head(self, rows: Tensor) -> Tensor:
        return rows.reshape(self.view.plan.shard.batch, -1, *rows.shape[1:]).transpose(1, 2)

    # A ring

    def block_of(self, step: int, way: int = 1) -> int:
        """Whose block is there at a step of the forward; with way -1, of the backward."""
        ranks = len(self.key[1])
        return (self.place - step) % ranks if way == 1 else (self.place + 1 + step) % ranks

    def pass_on(self, values: Tensor, way: int) -> Tensor:
        """Send to the next rank (way 1) or the one before it (-1), and return what comes from the other side."""
        ranks = self.key[1]
        to, of = (ranks[(self.place + by) % len(ranks)] for by in (way, -way))
        return self.exchanges.swap(self.key, to, of, values)

    def attend(self, query: Tensor, keys: Tensor, at: Tensor) -> Part:
        """Attention to keys at these positions; of tokens that see none of them nothing."""
        own = self.view.positions
        rows, columns = own >= at.min(), at <= own.max()
        scores = self._scores(query, keys[0], own, at, rows, columns)
        out, lse = torch.zeros_like(query), query.new_full(query.shape[:3], -torch.inf)
        lse[:, :, rows] = scores.logsumexp(dim=-1)
        out[:, :, rows] = (scores - lse[:, :, rows, None]).exp() @ self._repeat(keys[1][:, :, columns])
        return Part(out, lse)

    def _scores(self, query: Tensor, k: Tensor, own: Tensor, at: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        scores = query[:, :, rows] @ self._repeat(k[:, :, columns]).transpose(-1, -2) * self.heads.size**-0.5
        later = own[rows, None] < at[None, columns]
        return scores.masked_fill(later, -torch.inf) if later.any() else scores

    def _repeat(self, keys: Tensor) -> Tensor:
        return keys.repeat_interleave(self.heads.q // self.heads.kv, dim=1)

    def attend_back(
        self, query: Tensor, keys: Tensor, at: Tensor, whole: Part, gradient: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Gradients of the queries and of a block's keys and values; `whole` is attention to all keys together."""
        own = self.view.positions
        rows, columns = own >= at.min(), at <= own.max()
        chance = (self._scores(query, keys[0], own, at, rows, columns) - whole.lse[:, :, rows, None]).exp()
        of_out, q = gradient[:, :, rows], query[:, :, rows]
        k, v = (self._repeat(each[:, :, columns]) for each in keys)
        delta = (of_out * whole.out[:, :, rows]).sum(dim=-1, keepdim=True)
        of_scores = chance * (of_out @ v.transpose(-1, -2) - delta) * self.heads.size**-0.5
        of_query, of_keys = torch.zeros_like(query), torch.zeros_like(keys)
        of_query[:, :, rows] = of_scores @ k
        found = torch.stack((of_scores.transpose(-1, -2) @ q, chance.transpose(-1, -2) @ of_out))
        of_keys[:, :, :, columns] = found.unflatten(2, (self.heads.kv, -1)).sum(dim=3)
        return of_query, of_keys

    def rows_of_gradients(self, of_query: Tensor, of_keys: Tensor) -> Tensor:
        """Gradients of queries, and of keys and values, as rows of q, k and v."""
        return join_heads(self.rows(of_query), self.rows(of_keys[0]), self.rows(of_keys[1]))

    # A gather

    def gather_keys(self, qkv: Tensor) -> Tensor:
        """Keys and values of all ranks, in the order of ranks."""
        own = self.keys(qkv).movedim(3, 0).contiguous()
        return self.exchanges.gather(self.key, own).movedim(0, 3)

    def scatter_keys(self, gradients: Tensor) -> Tensor:
        """The sum of all ranks' gradients of this rank's keys and values."""
        own = self.exchanges.reduce_scatter(self.key, gradients.movedim(3, 0).contiguous())
        return own.movedim(0, 3)

    # All-to-alls

    def spread_heads(self, rows: Tensor, heads: tuple[int, ...]) -> Tensor:
        """Rows of some tokens of all heads as rows of all tokens of some heads, whole sequences in order.

        `heads` are the numbers of heads that lie one after another in a row: of q, k and v, or of outputs.
        """
        ranks, batch = len(self.key[1]), self.view.plan.shard.batch
        parts = rows.view(batch, -1, sum(heads), self.heads.size).split(heads, dim=2)
        sent = [torch.cat([part.chunk(ranks, dim=2)[to] for part in parts], dim=2) for to in range(ranks)]
        came = self._exchange(torch.stack(sent))
        whole = came.movedim(0, 1).flatten(1, 2)  # [sequences, tokens, heads, size], by rank
        return whole[:, self.everywhere.argsort()].flatten(0, 1).flatten(1)

    def collect_heads(self, rows: Tensor, heads: tuple[int, ...]) -> Tensor:
        """The reverse of `spread_heads`."""
        ranks, batch = len(self.key[1]), self.view.plan.shard.batch
        whole = rows.view(batch, -1, sum(heads) // ranks, self.heads.size)[:, self.everywhere]
        came = self._exchange(torch.stack(whole.chunk(ranks, dim=1)))
        own = tuple(each // ranks for each in heads)
        parts = [came[of].split(own, dim=2) for of in range(ranks)]
        joined = [torch.cat([parts[of][each] for of in range(ranks)], dim=2) for each in range(len(heads))]
        return torch.cat(joined, dim=2).flatten(0, 1).flatten(1)

    def _exchange(self, parts: Tensor) -> Tensor:
        ranks = [1] * len(parts)
        return self.exchanges.exchange(self.key, parts, ranks, ranks)


def join(one: Part, other: Part) -> Part:
    """Attention to two sets of keys together."""
    lse = torch.logaddexp(one.lse, other.lse)
    weights = ((part.lse - lse).exp()[..., None] for part in (one, other))
    return Part(sum(part.out * weight for part, weight in zip((one, other), weights, strict=True)), lse)
