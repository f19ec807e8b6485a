"""How fast an engine decodes: at a pace that a scenario gives, or by roofline over what its steps read and compute."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, sqrt


@dataclass(frozen=True)
class Pace:
    """Seconds per token of an engine with `running` requests: `token_s + request_s * running`.

    After a change of weights each token that a running request has takes `recompute_s`. Nothing else takes time, or
    room.
    """

    token_s: float
    request_s: float = 0.0
    recompute_s: float = 0.0

    capacity = admits = inf
    replicas = 1
    shares_prompts = True

    def seconds(self, running: int) -> float:
        """Seconds in which every running request gets one token."""
        return self.token_s + self.request_s * running

    def span_s(self, running: int, cached: float, tokens: float) -> float:
        """Seconds in which every running request gets so many tokens."""
        return tokens * self.seconds(running)

    def tokens(self, running: int, cached: float, seconds: float) -> float:
        """Tokens that every running request gets in so many seconds."""
        return seconds / self.seconds(running)

    def prefill_s(self, running: int, prompts: Sequence[float]) -> float:
        """Seconds to prefill prompts."""
        return 0.0

    @property
    def redoes(self) -> bool:
        """Whether running requests compute their part of a KV cache again under new weights."""
        return self.recompute_s > 0

    def redo_s(self, tokens: float, cached: Sequence[float]) -> float:
        """Seconds to compute it again, for requests that have made so many tokens."""
        return tokens * self.recompute_s


@dataclass(frozen=True)
class Curve:
    """Seconds at some sizes, linear between them, and beyond the last one as from the one before."""

    sizes: tuple[int, ...]
    seconds: tuple[float, ...]

    def at(self, size: float) -> float:
        """Seconds at a size."""
        if len(self.sizes) == 1:
            return self.seconds[0]
        right = min(max(bisect_left(self.sizes, size), 1), len(self.sizes) - 1)
        low, high = self.sizes[right - 1], self.sizes[right]
        share = (max(size, self.sizes[0]) - low) / (high - low)
        return self.seconds[right - 1] + share * (self.seconds[right] - self.seconds[right - 1])


@dataclass(frozen=True)
class _Line:
    """The next `tokens` steps: `first_s` seconds, and `more_s` more for each step that came before."""

    tokens: float
    first_s: float
    more_s: float

    def span_s(self, tokens: float) -> float:
        """Seconds of so many steps."""
        return tokens * (self.first_s + self.more_s * tokens / 2)

    def raise_to(self, least_s: float) -> Iterator["_Line"]:
        """The same steps, of which each takes at least so long."""
        short = 0.0
        if self.first_s < least_s:
            short = min((least_s - self.first_s) / self.more_s if self.more_s else inf, self.tokens)
            yield _Line(short, least_s, 0.0)
        if short < self.tokens:
            yield _Line(self.tokens - short, self.first_s + self.more_s * short, self.more_s)

    def in_seconds(self, seconds: float) -> float:
        """The steps in so many seconds: the inverse of `span_s`."""
        return 2 * seconds / (self.first_s + sqrt(self.first_s**2 + 2 * self.more_s * seconds))


@dataclass(frozen=True)
class Roofline:
    """An engine of `replicas` that step together, to which requests are dealt in turn: a step is that of the busiest.

    A step with r requests on a replica, and c tokens in its KV cache, takes
    `step_s + request_s * r + layers(r) + head(r) + cached_s * c` seconds, and `windowed_s` for each token of a
    request up to `window`. A prompt adds what its tokens make layers longer, `chunk` of them at most in a step, and
    `attention(p)` for each of its p tokens. The cache of the engine holds `capacity` tokens; up to `admits` requests
    may start. `redoes`: running requests compute their part of it again under new weights. With more than
    `graph_batch` requests on a replica a step is no CUDA graph, and takes at least the `issue_s` in which the host
    issues its kernels.
    """

    layers: Curve
    head: Curve
    attention: Curve
    cached_s: float
    capacity: float
    admits: float
    windowed_s: float = 0.0
    window: int = 0
    replicas: int = 1
    chunk: int = 8192
    step_s: float = 0.0
    request_s: float = 0.0
    shares_prompts: bool = True
    redoes: bool = False
    issue_s: float = 0.0
    graph_batch: float = inf

    def _busiest(self, running: int) -> int:
        """The requests on the replica that has most of them."""
        return -(-running // self.replicas)

    def seconds(self, running: int) -> float:
        """Seconds of a step that no token of a KV cache adds to."""
        each = self._busiest(running)
        return self.step_s + self.request_s * each + self.layers.at(max(each, 1)) + self.head.at(max(each, 1))

    def _lines(self, running: int, cached: float) -> tuple["_Line", ...]:
        """How long steps become, up to where requests fill the window, and beyond: a request has the mean context."""
        each = self._busiest(running)
        held, within = cached * each / running, max(self.window - cached / running, 0.0)
        now_s, then_s = (self.seconds(running) + self.cached_s * tokens for tokens in (held, held + each * within))
        window_s, slope = self.windowed_s, self.cached_s * each
        beyond = _Line(inf, then_s + window_s * each * self.window, slope)
        lines = (_Line(within, now_s + window_s * held, slope + window_s * each), beyond) if within else (beyond,)
        return tuple(part for line in lines for part in line.raise_to(self._least_s(each)))

    def _least_s(self, each: int) -> float:
        """Seconds that a step takes at least: in which the host issues its kernels, where these are no CUDA graph."""
        return self.issue_s + self.step_s + self.request_s * each if each > self.graph_batch else 0.0

    def span_s(self, running: int, cached: float, tokens: float) -> float:
        """Seconds in which every running request gets so many tokens, each of which joins the cache."""
        total = 0.0
        for line in self._lines(running, cached):
            part = min(tokens, line.tokens)
            total += line.span_s(part)
            tokens -= part
        return total

    def tokens(self, running: int, cached: float, seconds: float) -> float:
        """Tokens that every running request gets in so many seconds: the inverse of `span_s`."""
        made = 0.0
        for line in self._lines(running, cached):
            part = min(line.in_seconds(seconds), line.tokens)
            made += part
            seconds -= line.span_s(part)
        return made

    def prefill_s(self, running: int, prompts: Sequence[float]) -> float:
        """Seconds that prompts add to the steps of an engine in which so many requests run, these included.

        The step that ends a prompt makes the first token of its answer, as other steps do: only what it takes beyond
        them is added. Of a prompt that is known its last token is computed again, as in vLLM.
        """
        if not prompts:
            return 0.0
        dealt = [prompts[replica :: self.replicas] for replica in range(self.replicas)]
        most = max(sum(max(each, 1) for each in own) for own in dealt)
        beside = self._busiest(max(running - len(prompts), 0))
        before, last = divmod(most - 1, self.chunk)
        steps_s = before * (self._layers_s(beside + self.chunk) - self._layers_s(beside))
        steps_s += self._layers_s(beside + last + 1) - self._layers_s(self._busiest(running))
        return steps_s + max(sum(each * self.attention.at(each) for each in own if each) for own in dealt)

    def _layers_s(self, tokens: float) -> float:
        return self.layers.at(tokens) if tokens else 0.0

    def redo_s(self, tokens: float, cached: Sequence[float]) -> float:
        """Seconds to compute the KV cache again, of which each running request had so many tokens."""
        return self.prefill_s(0, cached)
