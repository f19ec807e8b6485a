"""Distributions of lengths in tokens: of answers that are decoded, and of documents that are packed."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import erf, exp, inf, log, sqrt

import numpy as np

_Z99 = 2.3263478740408408  # 99 % of a normal distribution
LARGEST_TAIL = exp(_Z99**2 / 2)  # a lognormal's 99th percentile is at most this many times its mean


def check_lognormal(mean: float, p99: float) -> None:
    """Raise a ValueError where no lognormal has this mean and 99th percentile."""
    if not mean < p99 <= mean * LARGEST_TAIL:
        allowed = f"expected more than mean = {mean:.12g}, and at most {LARGEST_TAIL:.2f} times that"
        raise ValueError(f"p99 = {p99:.12g}: {allowed}")


@dataclass(frozen=True)
class Lengths:
    """The distribution of tokens per request, sampled batch by batch from one seed.

    Lognormal with `mu` and `sigma` of the logarithm, or one of `tokens`, each with its probability.
    """

    mu: float = 0.0
    sigma: float = 0.0
    tokens: tuple[int, ...] = ()
    probability: tuple[float, ...] = ()
    most: int | None = None

    @classmethod
    def constant(cls, tokens: int) -> "Lengths":
        """Equal lengths for all requests."""
        return cls(tokens=(tokens,), probability=(1.0,))

    @classmethod
    def lognormal(cls, mean: float, p99: float, most: int | None = None) -> "Lengths":
        """A lognormal of this mean and 99th percentile, cut off at `most`.

        sigma is the smaller solution of ln(p99 / mean) = z sigma - sigma^2 / 2.
        """
        assert mean < p99 <= mean * LARGEST_TAIL
        sigma = _Z99 - sqrt(max(_Z99**2 - 2 * log(p99 / mean), 0.0))
        return cls(mu=log(mean) - sigma**2 / 2, sigma=sigma, most=most)

    @classmethod
    def histogram(cls, tokens: Sequence[int], weights: Sequence[float], most: int | None = None) -> "Lengths":
        """These lengths, each as often as its weight says."""
        total = float(sum(weights))
        return cls(tokens=tuple(tokens), probability=tuple(weight / total for weight in weights), most=most)

    def moment(self, power: int) -> float:
        """The mean of the lengths to this power, those beyond `most` cut off at it.

        Of a lognormal: the partial expectation of its `power`-th moment up to the cut, and the cut for the rest.
        """
        if self.tokens:
            cut = np.minimum(self.tokens, self.most or np.inf)
            return float((cut**power * np.array(self.probability)).sum())
        whole = exp(power * self.mu + (power * self.sigma) ** 2 / 2)
        if self.most is None or not self.sigma:
            return min(whole, float(self.most or inf) ** power)
        at = (log(self.most) - self.mu) / self.sigma
        return whole * _below(at - power * self.sigma) + self.most**power * _below(-at)

    def draw(self, requests: int, seed: int, batch: int, stream: int = 0) -> list[int]:
        """The tokens of each request of a batch; they depend on seed, batch and stream only."""
        random = np.random.default_rng((seed, batch, stream) if stream else (seed, batch))
        if self.tokens:
            drawn = random.choice(np.array(self.tokens), requests, p=np.array(self.probability))
        else:
            drawn = np.rint(random.lognormal(self.mu, self.sigma, requests))
        return [int(tokens) for tokens in np.clip(drawn, 1, self.most)]


def _below(deviations: float) -> float:
    """The share of a normal distribution below so many standard deviations."""
    return (1 + erf(deviations / sqrt(2))) / 2
