"""The search: enumerate, refuse, bound, and simulate what is left, best bound first.

space ─rules─> points ─screen─> plans with bounds ─best first─> simulated ─> Pareto set, best ones
         cuts          refused,                    beaten
                       too large
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from ...base.errors import UserError, fault
from ...base.memo import Memo
from ...base.units import format_count
from ...hardware import cluster
from ...runner import InProcess, Processes, cores
from ...scenario import Changes, Given, change, open_table, retitle
from .cycles import CYCLES
from .explore import Exploration, has_optuna, predict
from .records import ANY, LEFT, MEMORY, REFUSED, Progress, Question, Row, SearchResult, Subject, Watch
from .space import Space, Wanted
from .steps import STEPS
from .updates import UPDATES

SUBJECTS: Mapping[str, Subject] = {"train_step": STEPS, "weight_update": UPDATES, "rl_cycle": CYCLES}
"""By kind of scenario."""
TRIES = 2_000
"""Simulations of a search that is given no budget."""
_NO_OPTUNA = "only the best bounds were simulated: pip install 'runcast[search]' for Optuna, which proposes others"
MOST = 40_000
"""Plans that are all looked at, of a search that is not told how many; of larger spaces so many are drawn."""
_PER_CORE = 8  # processes beyond which more of them only take memory
_FEW = 64  # plans below which other processes cost more than they save


def search_file(scenario: Given, changes: Sequence[str] | Changes = (), **options: Any) -> SearchResult:
    """`search` of a scenario that is a file, a shipped name or a table, with changes; a UserError as `open_table`."""
    table, where = open_table(scenario, changes)
    return search(table, where=where, **options)


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
) -> SearchResult:
    """The best plans of a scenario, given as a table, on `gpus` GPUs (default: its own).

    Every plan that the space holds is refused, proved too large or beaten, or simulated; where more are left than
    `budget`, a seeded sampler chooses which are simulated, or without Optuna their bounds do. Of a space of more than
    `most` plans, so many are drawn and screened, and those that the sampler proposes. `watch` is called with the
    progress; what was found before Ctrl-C is returned as `stopped`. A plan may take all of a device's memory but
    `headroom`. The best plans of a training step are predicted kernel by kernel besides, until `check` of them fit. A
    UserError if the scenario or an option says what is not allowed.
    """
    least = {"--budget": (budget, 1), "--check": (check, 0), "--seed": (seed, 0), "--screen": (most, 1),
             "--workers": (cores() if workers is None else workers, 1)}  # fmt: skip
    for flag, (given, lowest) in least.items():
        if given < lowest:
            raise UserError(fault(flag, "", given, f"expected at least {lowest}"))
    question, space = make_question(table, gpus, objective, wanted or Wanted(), headroom, where)
    points, cuts = space.points()
    own = _own_point(question, space, wanted or Wanted())
    if own is not None and own not in points:
        points.append(own)
    rows = [Row(question.subject.complete(question.target, point)) for point in points]
    number = None if own is None else points.index(own)
    found = SearchResult(question, space, rows, cuts, headroom, notes=space.notes, own=number)
    count = min(workers or cores(), _PER_CORE * cores(), len(points)) if len(points) >= _FEW else 1
    with InProcess() if count == 1 else Processes(count) as runner:
        exploration = Exploration(question, list(found.rows), runner, count, watch)
        try:
            every = range(len(points))  # those that are drawn stay in their order, as neighbours share work
            exploration.screen(every if len(points) <= most else sorted(Random(seed).sample(every, most)))
            if number is not None:
                exploration.simulate(number)
            if len(points) > most or sum(row.status == LEFT for row in exploration.rows) > budget:
                found = replace(found, notes=space.notes if has_optuna() else (*space.notes, _NO_OPTUNA))
                exploration.sample(space, budget, seed)
            else:
                exploration.simulate_left()
        except KeyboardInterrupt:
            found = replace(found, stopped=True)
    found = _refuse_untold(_with_untold(replace(found, rows=exploration.rows)))
    if not found.stopped and question.subject.level(question.table, {}, True):
        found = _check(found, check, watch)
    if all(row.status == REFUSED for row in found.rows):
        (reason, _), *others = (Counter(row.reason for row in found.rows) or cuts).most_common()
        more = f" (and {format_count(len(others), 'other reason')})" if others else ""
        raise UserError(f"{where}: every one of {space.size:,} plans is refused: {reason}{more}")
    return found


def _own_point(question: Question, space: Space, wanted: Wanted) -> dict[str, Any] | None:
    """What the scenario itself says on each axis; None where it says nothing, or a user asks for other values."""
    asked = {*(wanted.vary or {}), *(wanted.fix or {})}
    try:
        resolved = question.subject.resolve(question.scenario({}), question.where)
        point = {axis.key: question.subject.own(resolved, axis.key) for axis in space.axes}
    except UserError:
        return None  # it has no plan that is allowed
    outside = [axis.key for axis in space.axes if point[axis.key] not in axis.values]
    return None if any(key in asked or point[key] is None for key in outside) else point


def _with_untold(found: SearchResult) -> SearchResult:
    """With a prediction of the scenario's own plan where the tool that is to run a plan cannot be told it."""
    own = None if found.own is None else found.rows[found.own]
    if own is None or own.status != REFUSED or found.question.target == ANY:
        return found
    try:
        return replace(found, own_untold=predict(found.question, own.changes, Memo()))
    except UserError:
        return found  # its reason stands in its row


def _refuse_untold(found: SearchResult) -> SearchResult:
    """With plans that are too large refused, if the tool that is to run one can be told none of them."""
    if any(row.measured for row in found.rows):
        return found
    refused = dict[int, Row]()
    for number, row in enumerate(found.rows):
        if row.status == MEMORY:
            try:
                found.question.check_target(row.changes)
            except UserError as error:
                refused[number] = replace(row, status=REFUSED, reason=error.reasons(found.question.where)[0])
            else:
                return found
    return replace(found, rows=[refused.get(number, row) for number, row in enumerate(found.rows)])


def _check(found: SearchResult, most: int, watch: Watch) -> SearchResult:
    """Predict the best rows kernel by kernel, best first, until `most` fit or none is left."""
    checked, stopped = dict(found.checked), False
    try:
        for number in found.best:
            if (fits := sum(one.fits for one in checked.values())) >= most:
                break
            watch(Progress("checking", fits, most, found.rows[number]))
            checked[number] = predict(found.question, found.rows[number].changes, Memo(), finest=True)
    except KeyboardInterrupt:
        stopped = True
    return replace(found, checked=checked, stopped=stopped)


def make_question(
    table: Mapping[str, Any], gpus: int | None, objective: str | None, wanted: Wanted, headroom: float, where: str
) -> tuple[Question, Space]:
    """The question of a search (what each plan is evaluated for) and its space of plans.

    A UserError if the scenario or an option says what is not allowed.
    """
    kind = table.get("kind", "weight_update")
    if kind not in SUBJECTS:
        instead = "; write its step as kind = 'train_step' and search that" if kind == "run" else ""
        raise UserError(fault(where, "kind", kind, f"a search is of {' or '.join(SUBJECTS)}{instead}"))
    subject = SUBJECTS[kind]
    goal = objective or subject.objectives[0]
    if goal not in subject.objectives:
        raise UserError(fault("--objective", "", goal, f"of a {kind}: {', '.join(subject.objectives)}"))
    if not 0 <= headroom < 1:  # nor is NaN
        raise UserError(fault("--memory-headroom", "", headroom, "expected a share from 0 to below 1, such as 5%"))
    question = Question(subject, _freed(table, gpus, where), where, goal)
    resolved = subject.resolve(question.scenario({}), where)
    space = subject.space(question.table, resolved, wanted)
    if goal == "cost" and any(device.price_usd_per_hour is None for device in resolved.devices):
        names = ", ".join(device.name for device in resolved.devices)
        allowed = f"no price is known of {names}: --set cluster.device.price_usd_per_hour=2"
        raise UserError(fault("--objective", "", goal, allowed))
    question = replace(question, memory_bytes=resolved.memory_bytes * (1 - headroom), target=wanted.target)
    return question, space


def _freed(table: Mapping[str, Any], gpus: int | None, where: str) -> dict[str, Any]:
    """On as many nodes as hold so many GPUs, and without what follows from a plan: dp, and the largest bucket where
    buckets have a size.
    """
    nodes = {}
    if gpus is not None:
        each = cluster(table.get("cluster", ""), 1, where).n_gpus
        if gpus < 1 or gpus % each:
            raise UserError(fault("--gpus", "", gpus, f"must be a multiple of the {each} GPUs of a node"))
        nodes = {"nodes": gpus // each}
    base = retitle(change(table, nodes, where), nodes if nodes.get("nodes") != table.get("nodes", 1) else {})
    for part, key in (("parallel", "dp"), ("update", "max_bucket")):
        if isinstance(base.get(part), dict):
            base[part].pop(key, None)
    return base
