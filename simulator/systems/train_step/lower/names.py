"""Names of many ops, made when asked for: a label, and where the op belongs by its tags."""

from collections.abc import Iterator, Mapping, Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray


class OpNames(Sequence[str]):
    """`qkv L3 s1 m7`: label, layer, stage and micro-batch, as far as an op has them."""

    def __init__(self, labels: tuple[str, ...], label: NDArray[np.int64], tags: Mapping[str, NDArray[np.int64]]):
        self._labels, self._label = labels, label
        self._tags = [(letter, tags[tag]) for letter, tag in (("L", "layer"), ("s", "stage"), ("m", "microbatch"))]

    def __len__(self) -> int:
        return len(self._label)

    @overload
    def __getitem__(self, op: int) -> str: ...
    @overload
    def __getitem__(self, op: slice) -> tuple[str, ...]: ...

    def __getitem__(self, op: int | slice) -> str | tuple[str, ...]:
        if isinstance(op, slice):
            return tuple(self[i] for i in range(*op.indices(len(self))))
        where = [f"{letter}{column[op]}" for letter, column in self._tags if column[op] >= 0]
        return " ".join([self._labels[self._label[op]], *where])

    def __iter__(self) -> Iterator[str]:
        return (self[op] for op in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash((self._labels, len(self)))
