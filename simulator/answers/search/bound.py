"""Branch and bound: what is left is simulated, best bound first, until what was simulated beats every bound.

A plan is beaten when one that was simulated is no worse in every amount than the plan's lower bounds are. What it would
turn out to be is then no better, so the values of the Pareto set and the best value are those of all plans.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf

from .asking import measure
from .found import BEATEN, LEFT, SIMULATED, Amounts, Progress, Row, Watch, pareto, value
from .workers import Workers


def bounded(known: list[Row], hands: Workers, watch: Watch, most: int | None = None) -> None:
    """Each of the rows that was left becomes simulated or beaten, in place: who stops this has what is known so far.

    Where only so many may be simulated, those with the best bounds are; the rest stays left, if it is not beaten.
    """
    left = by_bound(known, hands.asked.objective)
    total, spent = len(left), 0
    while left:
        settle(known, left)
        left = [number for number in left if known[number].status == LEFT]
        watch(Progress("simulating", total - len(left), total, best_yet(known, hands.asked.objective)))
        now = left[: hands.batch if most is None else min(hands.batch, most - spent)]
        if not now:
            return
        simulated(known, now, hands)
        left, spent = left[len(now) :], spent + len(now)
    watch(Progress("simulating", total, total, best_yet(known, hands.asked.objective)))


def simulated(known: list[Row], numbers: Sequence[int], hands: Workers) -> None:
    """Simulate these rows, in place."""
    for number, row in zip(numbers, hands.over(measure, [known[number] for number in numbers]), strict=True):
        known[number] = row


def settle(known: list[Row], numbers: Iterable[int]) -> None:
    """Of these rows those that are left become beaten, in place, where one that was simulated beats their bounds."""
    front = [row.measured.amounts for row in (known[number] for number in pareto(known)) if row.measured]
    for number in numbers:
        known[number] = _settled(known[number], front)


def best_yet(rows: Sequence[Row], objective: str) -> Row | None:
    """The best of those that were simulated."""
    known = [row for row in rows if row.status == SIMULATED]
    return min(known, key=lambda row: value(objective, row.measured) if row.measured else (inf,), default=None)


def by_bound(rows: Sequence[Row], objective: str) -> list[int]:
    """The rows that are left, best bound first."""
    floors = [(number, row.floor) for number, row in enumerate(rows) if row.status == LEFT]
    return [number for _, number in sorted((value(objective, floor), number) for number, floor in floors if floor)]


def _settled(row: Row, front: Sequence[Amounts]) -> Row:
    if row.status != LEFT or row.floor is None or not any(row.floor.no_better_than(one) for one in front):
        return row
    return replace(row, status=BEATEN)
