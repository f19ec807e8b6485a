"""The search: enumerate, refuse, bound, and simulate what is left, best bound first.

space ─rules─> points ─screen─> plans with bounds ─best first─> simulated ─> Pareto set, best ones
         cuts          refused,                    beaten
                       too large
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from ...base.errors import UserError, fault
from ...base.files import read_toml
from ...base.memo import Memo
from ...base.processes import cores
from ...hardware import cluster
from ...scenario import changed, parsed
from .asking import SUBJECTS, predicted, screen
from .bound import bounded
from .found import LEFT, REFUSED, SIMULATED, UNSEEN, Found, Measured, Progress, Row, Watch, pareto, value
from .space import Space
from .subject import Asked
from .tpe import has_optuna, sampled
from .wanted import Wanted
from .workers import Workers, hired

TRIES = 2_000
"""Simulations of a search that is given no budget."""
_NO_OPTUNA = "only the best bounds were simulated: pip install 'runcast[search]' for Optuna, which proposes others"
MOST = 20_000
"""Plans that are all looked at, of a search that is not told how many; of larger spaces so many are drawn."""


def search_file(path: Path | str, changes: Sequence[str] = (), **options: Any) -> Found:
    """`search` of a scenario file with `key=value` changes.

    Raises:
        UserError: as `search`, or the file cannot be read.
    """
    table = changed(read_toml(Path(path)), parsed(changes), str(path))
    return search(table, where=str(path), **options)


def search(
    table: Mapping[str, Any],
    gpus: int | None = None,
    objective: str | None = None,
    budget: int = TRIES,
    wanted: Wanted | None = None,
    *,
    headroom: float = 0.0,
    check: int = 3,
    workers: int | None = None,
    seed: int = 0,
    where: str = "scenario",
    most: int = MOST,
    watch: Watch = lambda progress: None,
) -> Found:
    """The best plans of a scenario, given as a table, on `gpus` GPUs (default: its own).

    Every plan that the space holds is refused, proved too large or beaten, or simulated; where more are left than
    `budget`, a seeded sampler chooses which are simulated, or without Optuna their bounds do. Of a space of more than
    `most` plans, so many are drawn and screened, and those that the sampler proposes. `watch` is told of progress; what
    was found before Ctrl-C is returned as `stopped`. A plan may take all of a device's memory but `headroom`.
    The best plans of a training step are predicted kernel by kernel besides, until `check` of them fit.

    Raises:
        UserError: the scenario or an option says what is not allowed.
    """
    for flag, given, least in _ranges(budget=budget, check=check, workers=workers, seed=seed, screen=most):
        if given < least:
            raise UserError(fault(flag, "", given, f"expected at least {least}"))
    asked, space = question(table, gpus, objective, wanted or Wanted(), headroom, where)
    points, cuts = space.points()
    rows, stopped, notes = [Row(point, UNSEEN) for point in points], False, tuple[str, ...]()
    with hired(asked, workers or cores(), len(points)) as hands:
        try:
            _screen(rows, hands, _some(len(points), most, seed), watch)
            if len(points) > most or sum(row.status == LEFT for row in rows) > budget:
                notes = () if has_optuna() else (_NO_OPTUNA,)
                sampled(space, rows, hands, budget, seed, watch)
            else:
                bounded(rows, hands, watch)
        except KeyboardInterrupt:
            stopped = True
    best, checked = _best(rows, asked.objective), dict[int, Measured]()
    if asked.levels and not stopped:
        try:
            _check(checked, rows, best, asked, check, watch)
        except KeyboardInterrupt:
            stopped = True
    if all(row.status == REFUSED for row in rows):
        raise UserError(_refused(rows, cuts, space, where))
    proved = not any(row.status in (LEFT, UNSEEN) for row in rows)
    device = asked.memory_bytes / (1 - headroom)
    return Found(
        asked.objective, _gpus(asked), space, tuple(rows), cuts, pareto(rows), best, device, headroom, asked.table,
        where, proved, checked, notes, stopped,
    )  # fmt: skip


def _ranges(budget: int, check: int, workers: int | None, seed: int, screen: int) -> Iterator[tuple[str, int, int]]:
    """Flags with numbers, what they say and the least that they may."""
    yield from (("--budget", budget, 1), ("--check", check, 0), ("--seed", seed, 0), ("--screen", screen, 1))
    if workers is not None:
        yield "--workers", workers, 1


def _refused(rows: Sequence[Row], cuts: Counter[str], space: Space, where: str) -> str:
    """Why there is no plan at all: the most frequent reason."""
    reasons = Counter(row.reason for row in rows) or cuts
    (reason, _), *others = reasons.most_common()
    more = f" (and {len(others)} other reasons)" if others else ""
    return f"{where}: every one of {space.size:,} plans is refused: {reason}{more}"


def _some(count: int, most: int, seed: int) -> Sequence[int]:
    """Which plans are screened at first: all, or a seeded draw, in their order as neighbours share work."""
    return range(count) if count <= most else sorted(Random(seed).sample(range(count), most))


def _screen(rows: list[Row], hands: Workers, numbers: Sequence[int], watch: Watch) -> None:
    """Screen these rows in place."""
    done = 0
    watch(Progress("screening", 0, len(numbers)))
    for part in hands.parts(screen, [rows[number].changes for number in numbers]):
        for row in part:
            rows[numbers[done]] = row
            done += 1
        watch(Progress("screening", done, len(numbers)))


def _check(
    checked: dict[int, Measured], rows: Sequence[Row], best: Sequence[int], asked: Asked, most: int, watch: Watch
) -> None:
    """Predict the best rows kernel by kernel, best first, until `most` fit or none is left; into `checked`."""
    for number in best:
        fits = sum(one.fits for one in checked.values())
        if fits >= most:
            return
        watch(Progress("checking", fits, most, rows[number]))
        checked[number] = predicted(asked, rows[number].changes, Memo(), finest=True)


def _best(rows: Sequence[Row], objective: str) -> tuple[int, ...]:
    simulated = [(number, row.measured) for number, row in enumerate(rows) if row.status == SIMULATED]
    return tuple(number for _, number in sorted((value(objective, one), number) for number, one in simulated if one))


def question(
    table: Mapping[str, Any], gpus: int | None, objective: str | None, wanted: Wanted, headroom: float, where: str
) -> tuple[Asked, Space]:
    """What is asked of each plan, and the space of plans.

    Raises:
        UserError: the scenario or an option says what is not allowed.
    """
    kind = table.get("kind", "weight_update")
    if kind not in SUBJECTS:
        raise UserError(fault(where, "kind", kind, f"a search is of {' or '.join(SUBJECTS)}"))
    subject = SUBJECTS[kind]
    goal = objective or subject.objectives[0]
    if goal not in subject.objectives:
        raise UserError(fault("--objective", "", goal, f"of a {kind}: {', '.join(subject.objectives)}"))
    if not 0 <= headroom < 1:  # nor is NaN
        raise UserError(fault("--memory-headroom", "", headroom, "expected a share from 0 to below 1, such as 5%"))
    base = _freed(table if gpus is None else _on(table, gpus, where), where)
    asked = Asked(base, where, goal, 0.0, subject.levels)
    resolved = subject.resolve(asked.scenario({}), where)
    space = subject.space(asked.table, resolved, wanted)
    if goal == "cost" and any(device.price_usd_per_hour is None for device in resolved.devices):
        names = ", ".join(device.name for device in resolved.devices)
        allowed = f"no price is known of {names}: --set cluster.device.price_usd_per_hour=2"
        raise UserError(fault("--objective", "", goal, allowed))
    return replace(asked, memory_bytes=resolved.memory_bytes * (1 - headroom)), space


def _on(table: Mapping[str, Any], gpus: int, where: str) -> dict[str, Any]:
    """The scenario on as many nodes as hold so many GPUs."""
    each = cluster(table.get("cluster", ""), 1, where).n_gpus
    if gpus < 1 or gpus % each:
        raise UserError(fault("--gpus", "", gpus, f"a node has {each}: a multiple of that"))
    return changed(table, {"nodes": gpus // each}, where)


def _freed(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Without what follows from a plan: dp, and the largest bucket where buckets have a size."""
    base = changed(table, {}, where)
    for part, key in (("parallel", "dp"), ("update", "max_bucket")):
        if isinstance(base.get(part), dict):
            base[part].pop(key, None)
    return base


def _gpus(asked: Asked) -> int:
    return cluster(asked.table["cluster"], asked.table.get("nodes", 1), asked.where).n_gpus
