"""How long answers are: a distribution of tokens per request, drawn batch by batch from one seed."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, sqrt

import numpy as np

_Z99 = 2.3263478740408408  # 99 % of a normal distribution
LARGEST_TAIL = exp(_Z99**2 / 2)  # a lognormal's 99th percentile is at most this many times its mean


@dataclass(frozen=True)
class Lengths:
    """Lognormal with `mu` and `sigma` of the logarithm, or (with `tokens`) one of the tokens with its probability."""

    mu: float = 0.0
    sigma: float = 0.0
    tokens: tuple[int, ...] = ()
    probability: tuple[float, ...] = ()
    most: int | None = None

    @classmethod
    def fixed(cls, tokens: int) -> "Lengths":
        """Every request needs as many tokens."""
        return cls(tokens=(tokens,), probability=(1.0,))

    @classmethod
    def lognormal(cls, mean: float, p99: float, most: int | None = None) -> "Lengths":
        """By its mean and 99th percentile, cut off at `most`.

        ln(p99 / mean) = z sigma - sigma^2 / 2, of whose two solutions the smaller one is meant.
        """
        assert mean < p99 <= mean * LARGEST_TAIL
        sigma = _Z99 - sqrt(max(_Z99**2 - 2 * log(p99 / mean), 0.0))
        return cls(mu=log(mean) - sigma**2 / 2, sigma=sigma, most=most)

    @classmethod
    def histogram(cls, tokens: Sequence[int], weights: Sequence[float], most: int | None = None) -> "Lengths":
        """Each of the lengths as often as its weight says."""
        total = float(sum(weights))
        return cls(tokens=tuple(tokens), probability=tuple(weight / total for weight in weights), most=most)

    def draw(self, requests: int, seed: int, batch: int) -> list[int]:
        """The tokens of each request of a batch: the same for the same seed and batch, whatever happens when."""
        random = np.random.default_rng((seed, batch))
        if self.tokens:
            drawn = random.choice(np.array(self.tokens), requests, p=np.array(self.probability))
        else:
            drawn = np.rint(random.lognormal(self.mu, self.sigma, requests))
        return [int(tokens) for tokens in np.clip(drawn, 1, self.most)]
