"""What came of a step on one rank, held against the same step in one process: its gradients and its new weights."""

from collections.abc import Iterator, Mapping, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from ..measured import Checked
from .binding import Binder
from .reference import gradients, parameters, updated
from .states import Piece, Where, each_unit
from .view import SEED, RankView, batch_of
from .weights import owner, whole_shape

CLOSE = 1e-4
"""Of the largest gradient of a parameter: how far single precision may take two orders of the same sums apart."""

_ROUNDING = 1e-6
"""Of a weight: how far single precision may take two ways to compute the same step apart."""


def check_step(view: RankView, step: Binder) -> Checked:
    """Compare what a rank holds after a step with what one process has; all ranks call it."""
    pieces, new = _on_host(step.gradients.pieces()), _on_host(step.new_weights)
    whole = _on_host([Piece(where, 0, values) for where, values in step.weights.new.items()])
    found = _Expected(view, step)
    wrong = [
        *(f"unit {view.units[stage][number].number} of stage {stage}, reduced too early"
          for stage, number, _ in step.gradients.left()),
        *found.wrong_gradients(pieces), *found.wrong_weights([*new, *whole]),
    ]  # fmt: skip
    checked = [*pieces, *new, *whole]
    tensors = sum(len(list(found.parameters(piece))) for piece in checked)
    return Checked(tensors, sum(piece.values.nbytes for piece in checked), list(dict.fromkeys(wrong)))


class _Expected:
    """What each vector of a rank must have learnt, and how far it may be off."""

    def __init__(self, view: RankView, step: Binder):
        self._view, self._before = view, {where: flat.cpu() for where, flat in step.weights.flats.items()}
        self._gradients = _expected_gradients(view)
        self._close = {where: self._tolerance(where) for where in self._gradients}

    def _tolerance(self, where: Where) -> Tensor:
        values = self._gradients[where]
        found = torch.zeros_like(values)
        for place in self._layout(where).values():
            found[place] = CLOSE * values[place].abs().max() + 1e-9
        return found

    def _layout(self, where: Where) -> Mapping[str, slice]:
        stage, number, part = where
        return self._view.units[stage][number].layouts[part].places

    def parameters(self, piece: Piece) -> Iterator[tuple[str, slice]]:
        """The parameters of which a piece has values, by name, and the place of these in the piece."""
        for name, place in self._layout(piece.where).items():
            first, last = max(place.start, piece.start), min(place.stop, piece.start + len(piece.values))
            if first < last:
                yield name, slice(first - piece.start, last - piece.start)

    def _name(self, piece: Piece, name: str) -> str:
        stage, number, _ = piece.where
        return f"{name} of stage {stage}, unit {self._view.units[stage][number].number}"

    def _wrong(self, piece: Piece, is_right: Tensor) -> Iterator[str]:
        for name, place in self.parameters(piece):
            if not is_right[place].all():
                yield self._name(piece, name)

    def wrong_gradients(self, pieces: Sequence[Piece]) -> Iterator[str]:
        """The parameters of which this rank holds another gradient, by name."""
        for piece in pieces:
            right, close = (_range(whole[piece.where], piece) for whole in (self._gradients, self._close))
            yield from self._wrong(piece, (piece.values - right).abs() <= close)

    def wrong_weights(self, pieces: Sequence[Piece]) -> Iterator[str]:
        """Those whose new weights are not between those of the largest and of the smallest gradient that are right."""
        for piece in pieces:
            right, close = (_range(whole[piece.where], piece) for whole in (self._gradients, self._close))
            before = _range(self._before[piece.where], piece)
            low, high = (updated(before, gradient) for gradient in (right + close, right - close))
            off = _ROUNDING * before.abs() + 1e-9
            for name in self._wrong(piece, (piece.values >= low - off) & (piece.values <= high + off)):
                yield f"new {name}"


def _on_host(pieces: Sequence[Piece]) -> list[Piece]:
    return [piece._replace(values=piece.values.cpu()) for piece in pieces]


def _range(whole: Tensor, piece: Piece) -> Tensor:
    return whole[piece.start :][: len(piece.values)]


def _expected_gradients(view: RankView) -> dict[Where, Tensor]:
    """Each of this rank's vectors of gradients: rank 0 computes all of them, and keeps its own after it has told."""
    plan = view.plan
    mine = {(owner(each, unit.number), each.name) for _, _, unit in each_unit(view) for each in unit.table}
    own: dict[tuple[int, str], Tensor] = {}
    whole = gradients(plan, SEED, batch_of(view.resolved)) if dist.get_rank() == 0 else {}
    for key, parameter in sorted(parameters(plan).items()):
        values = whole.pop(key).contiguous() if whole else torch.empty(whole_shape(parameter))
        dist.broadcast(values, 0)
        if key in mine:
            own[key] = values
    found = {}
    for stage, number, unit in each_unit(view):
        named = {each.name: own[owner(each, unit.number), each.name] for each in unit.table}
        for part, layout in unit.layouts.items():
            found[stage, number, part] = layout.flatten(named, view.at)
    return found
