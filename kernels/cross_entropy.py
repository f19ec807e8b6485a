"""The loss over a vocabulary and its gradient in one launch, as training frameworks fuse them."""

import torch
from torch import Tensor

from .dispatch import check_dense, launch, runs_triton


def cross_entropy(logits: Tensor, labels: Tensor, into: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The loss of every row, and the gradient of their mean: (softmax - one-hot of the label) / T, in fp32.

    logits   [T, V] floating; V need not be a power of two. An odd V loads slowly: rows start at odd addresses.
    labels   [T] int32 or int64 in 0 .. V-1, not checked; all of them count
    into     [T, V] where the gradient goes: a new tensor, or `logits` itself to save the memory
    returns  losses [T] fp32, and the gradient [T, V] like logits

    The maximum and the sum of exponentials are found together in one reading (online softmax: arXiv 1805.02867), the
    gradient in another: reads 2 T V elements, writes T V. The second reading is of a row that was just read; memory
    sees T V reads as far as L2 holds the rows under way.
    """
    gradient = torch.empty_like(logits) if into is None else into
    check_dense(logits=logits, labels=labels, into=gradient)
    if not runs_triton(logits):
        losses, computed = cross_entropy_reference(logits, labels)
        return losses, gradient.copy_(computed)
    from . import compiled

    rows, vocabulary = logits.shape
    losses = logits.new_empty(rows, dtype=torch.float32)
    tensors = logits, labels, losses, gradient
    arguments = *tensors, vocabulary, 1 / max(rows, 1)
    launch(compiled.cross_entropy, (rows,), *arguments, block=8192, num_warps=16)
    return losses, gradient


def cross_entropy_reference(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """`cross_entropy` in torch, in fp32."""
    wide, label = logits.float(), labels.long()[:, None]
    losses = wide.logsumexp(1) - wide.gather(1, label)[:, 0]
    gradient = torch.softmax(wide, 1).scatter_add(1, label, -torch.ones_like(label, dtype=torch.float32))
    return losses, (gradient / max(len(logits), 1)).to(logits.dtype)
