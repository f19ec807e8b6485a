"""From a Program to Costs: every op is priced by the function of its kind's form, in every system.

Ops are priced *one by one* if a rank represents all ranks that act alike, as in a training step: each distinct op is
priced once, on the slowest of the machines that it represents, and then scaled by the software's factors. Ops are
priced *as arrays* if each rank has its own ops, as in an update: one call prices all ops of a kind.

The system names the algorithm by which ranks exchange: one of `collectives`, or streams round NCCL's ring.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..base.memo import Memo
from ..base.op_kinds import ATTENTION, COPY, EXCHANGE, EXPERTS, HOST_WORK, KINDS, MEMORY, PASS, PRODUCT, op_kind
from ..collectives import CURVES, STREAMS, Choice, Price, longest
from ..hardware import Cluster
from ..profile import Profile
from ..program import Place, Program, Ragged
from . import ring, train, transfer, update
from .costs import Costs
from .phases import PHASES, phase_of_op
from .pricing import Pricing, Store
from .sheet import Ops, Prices
from .software import by_software

_OneByOne = Mapping[str, Callable[[Pricing, int, int], Price]]
_AsArrays = Mapping[str, Callable[[Pricing, Ops], None]]


@dataclass(frozen=True)
class _Forms:
    """Price functions by form: for one op on one rank, and for all ops of a kind at once."""

    one_by_one: _OneByOne = field(default_factory=dict)
    as_arrays: _AsArrays = field(default_factory=dict)


_STREAMS = _Forms(as_arrays={EXCHANGE: ring.broadcasts, COPY: update.host_copy})
"""Price functions of exchanges in updates: streams round NCCL's ring, link by link."""

_WHOLE = _Forms(one_by_one={EXCHANGE: train.exchange, COPY: train.copy})
"""Price functions of exchanges seen from one rank, by an algorithm of `collectives`."""

_FORMS = _Forms(
    one_by_one={
        **dict.fromkeys((PRODUCT, ATTENTION, EXPERTS, MEMORY, "issue"), train.kernel),
        "idle": train.idle,
        "host_adam": train.step_on_host,
        "cycle": train.cycle,
    },
    as_arrays={
        "actions": train.actions,
        HOST_WORK: update.host_work,
        "gather_metas": update.gather_metas,
        "allocate": update.allocate,
        "register": update.register,
        "read": update.read,
        "device copy": update.device_copy,
        "agree": update.agree,
        "reload": update.reload,
        "post_hook": update.post_hook,
        "gather": transfer.gather,
        "replicate": transfer.replicate,
        "write": transfer.write,
        "forward": transfer.forward,
        "pairs": transfer.pairs,
        "stage_in": transfer.stage_in,
        PASS: transfer.elementwise,
        "fs_write": partial(transfer.cross_store, False),
        "fs_read": partial(transfer.cross_store, True),
    },
)


def cost(
    program: Program,
    cluster: Cluster,
    profile: Profile,
    exchanges: Choice | Literal["streams"],
    *,
    store: Store | None = None,
    memo: Memo | None = None,
    actions: Prices | None = None,
    places: Sequence[Place] | None = None,
    named: Choice = CURVES,
) -> Costs:
    """The time of each op of a Program without contention, and its rates on links. Rank r runs on GPU r of the cluster.

    `exchanges` are the algorithms that are named, by default none (`CURVES`), or `STREAMS`. `profile` holds the
    numbers of device and software. `store` is the file system of an update through files. `actions` are the prices of
    whole actions, by number, at the coarser level of a step. The ranks of one of `places` (default: the Program's
    places) act alike at the same time. Of exchanges that are streams, `named` are those that follow an algorithm.

    Raises:
        UserError: the profile has no model for an op, or the cluster has no route for it.
        KeyError: a kind of op is unknown, or its form has no price function.
    """
    places = program.places if places is None else places
    choice = named if isinstance(exchanges, str) else exchanges
    pricing = Pricing(program, cluster, profile, store, memo or Memo(), actions, places, choice)
    forms = _STREAMS if exchanges == STREAMS else _WHOLE
    one_by_one = {**_FORMS.one_by_one, **forms.one_by_one}
    as_arrays = {**_FORMS.as_arrays, **forms.as_arrays}
    for kind in sorted(map(op_kind, program.kinds), key=list(KINDS.values()).index):
        if kind.form not in one_by_one and kind.form not in as_arrays:
            raise KeyError(f"nothing prices {kind.name!r}: give its form a function in simulator/costs/forms.py")
        if kind.form in as_arrays and len(ops := np.flatnonzero(program.is_kind(kind.name))):
            as_arrays[kind.form](pricing, ops)
    return pricing.costs(_enter_distinct(pricing, one_by_one))


def _enter_distinct(pricing: Pricing, forms: _OneByOne) -> Ops | slice:
    """Price one op of each set of equal ops. Returns for every op the one whose price it gets."""
    program = pricing.program
    own = np.array([op_kind(kind).form in forms for kind in program.kinds], bool)
    if not own.any():
        return slice(None)
    phase = phase_of_op(program)
    first, which = _distinct(program, phase, pricing.machines.kinds_of(program.places))
    ops = first[own[program.kind[first]]]
    known: dict[object, tuple[int, Price]] = {}
    pricing.sheet.enter(ops, [_moved(pricing, op, PHASES[phase[op]], forms, known) for op in ops.tolist()])
    return np.where(own[program.kind], first[which], np.arange(len(program)))


def _moved(pricing: Pricing, op: int, phase: str, forms: _OneByOne, known: dict[object, tuple[int, Price]]) -> Price:
    """The price of an op. An exchange whole periods of the cluster after a known one gets its price, on moved links."""
    if pricing.kind_of(op).form != EXCHANGE or not (period := pricing.cluster.period):
        return _by_software(pricing, op, phase, _alone(pricing, op, forms))
    program, first = pricing.program, pricing.group(op)[0]
    size, shape = int(program.bytes[op]), tuple(program.shape[op].tolist())
    key = program.kind[op], phase, size, shape, first % period, *pricing.surroundings(op)
    if key not in known:
        known[key] = first, _by_software(pricing, op, phase, _alone(pricing, op, forms))
    its_first, found = known[key]
    by = pricing.cluster.links_moved(first - its_first)
    assert not by or max(found.demand, default=0) < pricing.cluster.node_links, "the network is there once"
    return replace(found, demand={link + by: rate for link, rate in found.demand.items()}) if by else found


def _alone(pricing: Pricing, op: int, forms: _OneByOne) -> Price:
    """The price of an op on the slowest of the machines that it represents, before the software's factors."""
    price, machines = forms[pricing.kind_of(op).form], pricing.machines
    ranks = machines.one_of_each(pricing.ranks(op))
    return longest(price(pricing, op, rank) for rank in ranks)


def _by_software(pricing: Pricing, op: int, phase: str, found: Price) -> Price:
    far = phase == "tp" and pricing.machines.islands(pricing.group(op)) > 1
    return by_software(found, phase, pricing.machines, far=far, besides=pricing.kind_of(op).besides)


_BLOCK = 1 << 14


def _distinct(
    program: Program, phase: NDArray[np.int64], kind_of_place: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Group equal ops: (one op of each group, the group of each op)."""
    small = [program.kind, phase, program.dtype, np.diff(program.shape.start)]
    if kind_of_place.any():
        places = np.array([lane.place for lane in program.lanes], np.int64)
        small.append(kind_of_place[places[program.lanes_of.values[program.lanes_of.start[:-1]]]])
    code = np.ravel_multi_index(small, [int(column.max(initial=0)) + 1 for column in small])
    columns = [code, program.group, program.bytes]
    _, first, which = np.unique(_hashes(columns, program.shape), return_index=True, return_inverse=True)
    like = first[which]
    its, _ = program.shape.positions(like)
    alike = all(np.array_equal(column, column[like]) for column in columns)
    if alike and np.array_equal(program.shape.values, program.shape.values[its]):
        return first, which
    return _distinct_rows([tuple(row) for row in zip(*(c.tolist() for c in columns), strict=True)], program.shape)


def _distinct_rows(rows: Sequence[tuple[int, ...]], shape: Ragged) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Group equal rows one by one; the slow path of `_distinct` for different rows with equal hashes."""
    number: dict[object, int] = {}
    which = [number.setdefault((row, *of.tolist()), len(number)) for row, of in zip(rows, shape, strict=True)]
    _, first = np.unique(which, return_index=True)
    return first, np.array(which, np.int64)


def _hashes(columns: Sequence[NDArray[np.int64]], shape: Ragged) -> NDArray[np.uint64]:
    """A hash of each row of the columns and its shape, made in blocks that stay in the processor's cache."""
    found = np.zeros(len(shape), np.uint64)
    for first in range(0, len(found), _BLOCK):
        rows = slice(first, first + _BLOCK)
        hashed, start = found[rows], shape.start[first : first + _BLOCK + 1]
        for column in columns:
            hashed = _mixed(hashed, column[rows].astype(np.uint64))
        shapes = Ragged(start - start[0], shape.values[start[0] : start[-1]])
        found[rows] = _mixed(hashed, _hash_of_shapes(shapes))
    return found


def _hash_of_shapes(shape: Ragged) -> NDArray[np.uint64]:
    row = shape.row_of_value()
    position = np.arange(len(row)) - shape.start[row]
    terms = _mixed(position.astype(np.uint64), shape.values.astype(np.uint64))
    sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)))
    return sums[shape.start[1:]] - sums[shape.start[:-1]]


def _mixed(hashed: NDArray[np.uint64], value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix a value into a hash: a multiply-xorshift step with splitmix64's constants."""
    mixed = (hashed + np.uint64(0x9E3779B97F4A7C15)) ^ (value * np.uint64(0xBF58476D1CE4E5B9))
    mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(29))
