"""Gradients encoded and decoded, by every method of `runcast.kernels.compress`, and the sum cleared that messages join.

What a method takes depends on the gradient's bytes (float32), or on the message's where only what is sent is touched.
Sparse methods send a hundredth of the values, `low_rank` factors of rank 4 of matrices of at most 4096 x 4096.
"""

from collections.abc import Iterator
from functools import partial
from math import isqrt
from statistics import NormalDist
from typing import Any

import torch

from ....kernels.compress import METHODS
from ..case import Case, Facts
from ..device import Act
from ..timing import Bench, Checked, cold
from .exact import count_differences

_SIZES = {"cpu": (20, 22, 24, 26), "cuda": (20, 22, 24, 26, 28, 30)}
_QUICK = {"cpu": (20, 22), "cuda": (22, 26)}
"""Bytes of a gradient, as powers of two; even ones, so that it makes square matrices."""

_VALUE, _INDEX = 4, 4  # bytes
_DENSITY, _RANK, _SIDE, _SEED = 0.01, 4, 4096, 7
_LIMIT = NormalDist().inv_cdf(1 - _DENSITY / 2)
"""Magnitude that a hundredth of normal values exceed."""

_SETTINGS: dict[str, dict[str, float]] = {
    "top_k": {"density": _DENSITY},
    "threshold": {"limit": _LIMIT},
    "random": {"density": _DENSITY, "seed": _SEED},
    "block": {"density": _DENSITY, "seed": _SEED},
}
_MESSAGES = {"top_k": _VALUE + _INDEX, "threshold": _VALUE + _INDEX, "random": _VALUE, "block": _VALUE}
"""Bytes of a message per value that is sent."""

_BY_MESSAGE = ("top_k_decode", "threshold_decode", "random_decode", "block_encode", "block_decode")
"""Parts whose time depends on the message: whoever decodes touches what was sent, and a block is copied as it is."""


def cases(facts: Facts) -> Iterator[Case]:
    """Both parts of every method, and clearing."""
    for power in _SIZES[facts.kind]:
        quick = power in _QUICK[facts.kind]
        for method in METHODS:
            yield _case(method, "encode", 1 << power, quick)
            yield _case(method, "decode", 1 << power, quick)
        yield _named("clear", 1 << power, {}, cold(_clear, 1 << power), 1 << power, quick)


def _case(method: str, part: str, size: int, quick: bool) -> Case:
    share: dict[str, float] = {"density": _DENSITY} if method in _MESSAGES else {}
    share |= {"rank": _RANK} if method == "low_rank" else {}
    name = f"{method}_{part}"
    message = _DENSITY * size / _VALUE * _MESSAGES.get(method, 0)
    measure = cold(_encode if part == "encode" else _decode, method, size)
    return _named(name, size, share, measure, message if name in _BY_MESSAGE else size, quick)


def _named(name: str, size: int, share: dict[str, float], measure: Any, counted: float, quick: bool) -> Case:
    """`counted` are the bytes that its time depends on."""
    return Case(
        "compress",
        name,
        {"bytes": size, "dtype": "fp32", **share},
        measure,
        cost_class=f"compress.{name}",
        features={"bytes": float(counted)},
        together=str(size),
        bytes=counted,
        footprint_bytes=6.0 * size,  # a permutation alone has 8 bytes per value
        quick=quick,
    )


def _encode(bench: Bench, method: str, size: int) -> Checked:
    gradient, encode = _gradient(bench, method, size)
    of = METHODS[method]

    def wrong() -> int:
        message, total = encode(gradient), torch.zeros_like(gradient)
        of.decode(message, total)
        return count_differences(total, of.restored(gradient, message), _CLOSE)

    return Checked(lambda: encode(gradient), wrong)


def _decode(bench: Bench, method: str, size: int) -> Checked:
    gradient, encode = _gradient(bench, method, size)
    of, message, total = METHODS[method], encode(gradient), torch.zeros_like(gradient)
    act: Act = lambda: of.decode(message, total)  # noqa: E731

    def wrong() -> int:
        total.zero_()
        act()
        return count_differences(total, of.restored(gradient, message), _CLOSE)

    return Checked(act, wrong)


_CLOSE = 1e-3
"""Of values: products of low rank are summed in another order."""


def _gradient(bench: Bench, method: str, size: int) -> tuple[torch.Tensor, Any]:
    """Normal values as the method wants them, and its encoder with its settings."""
    gradient, settings = bench.rand(size // _VALUE, dtype=torch.float32), dict[str, Any](_SETTINGS.get(method, {}))
    if method == "low_rank":
        side = min(isqrt(len(gradient)), _SIDE)
        gradient = gradient.view(-1, side, side)
        settings = {"q": bench.rand(len(gradient), side, _RANK, dtype=torch.float32)}
    return gradient, partial(METHODS[method].encode, **settings)


def _clear(bench: Bench, size: int) -> Act:
    return bench.rand(size // _VALUE, dtype=torch.float32).zero_
