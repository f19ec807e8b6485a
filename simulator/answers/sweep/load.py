"""From a sweep file to a checked Sweep; every fault is one line with file, key and value."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field, model_validator

from ...base.errors import UserError, fault, unknown
from ...base.files import find_beside, path_beside, read_toml
from ...base.schema import validate, wrong_keys
from ...base.shipped import find_shipped
from ...hardware import cluster_inputs
from ...scenario import (
    SYSTEMS,
    Changes,
    Given,
    multiplies,
    open_table,
    plain_values,
    read_changes,
    retitle,
    what_ifs,
    with_plan,
)
from ...scenario.load import WhatIfTable
from ...systems.tables import FOR_PEOPLE, Table, tuples
from .columns import columns_of, nearest_columns
from .constraints import Constraint, check_key, check_unit, column_dimension, is_key, key_dimension, read_constraint
from .grid import Axis, Grid, Step, find_replaced, spread
from .plan import Sweep

MOST_POINTS = 10_000_000
_Values = Annotated[list[Any], Field(min_length=1)]


class AxisTable(Table):
    """An axis, in one of four forms: key with values, key with a range, zip, what_if."""

    key: str | None = Field(None, description="the key of the scenario that the axis changes")
    values: _Values | None = Field(None, description="its values, in order")
    start: int | float | str | None = Field(None, alias="from", description="the first value of a range")
    to: int | float | str | None = Field(None, description="the last value of a range, if steps meet it")
    step: int | float | str | None = Field(None, description="what is added from one value to the next")
    factor: int | float | None = Field(None, description="what one value is multiplied by for the next")
    steps: int | None = Field(None, description="how many values there are, both ends included, evenly spaced")
    zip: dict[str, _Values] | None = Field(None, description="keys that vary together, each with its values")
    what_if: _Values | None = Field(None, description='names of what-ifs; "as is" changes nothing')

    @model_validator(mode="after")
    def _one_form(self) -> "AxisTable":
        given = {"from" if name == "start" else name for name in self.model_fields_set}
        ranges = [{"key", "from", "to", by} for by in ("step", "factor", "steps")]
        if given not in [{"key", "values"}, {"zip"}, {"what_if"}, *ranges]:
            forms = "key and values; key, from, to and one of step, factor, steps; zip; or what_if"
            raise ValueError(f"expected {forms} (given: {', '.join(sorted(given)) or 'none'})")
        if self.zip is not None and len({len(values) for values in self.zip.values()}) != 1:
            raise ValueError("keys of zip need lists of one length")
        return self


class Repeats(Table):
    """Every point again, with other seeds."""

    seeds: Annotated[list[int], Field(min_length=1)] = Field(description="values of the key seed")


class EngineTable(Table):
    """Options of engines."""

    slurm: dict[str, Any] = Field(default_factory=dict, description="arguments of dask-jobqueue's SLURMCluster")


class SweepTable(Table):
    """The schema of a sweep file."""

    name: str = Field("unnamed", description="a title for people")
    base: str | dict[str, Any] = Field(description="a scenario file, or a table that says a scenario")
    axes: Annotated[list[AxisTable], Field(min_length=1)] | None = Field(
        None, description="what varies, all crossed; the last axis varies fastest"
    )
    points: Annotated[list[dict[str, Any]], Field(min_length=1)] | None = Field(
        None, description="instead of axes: a list of tables of key = value"
    )
    repeats: Repeats | None = Field(None, description="every point again, with other seeds")
    constraints: list[str] = Field(default_factory=list, description="what a point must meet")
    what_if: dict[str, WhatIfTable] = Field(default_factory=dict, description="what-ifs of its own, by name")
    table: list[str] = Field(default_factory=list, description="columns that are printed of a small sweep's points")
    engine: EngineTable = Field(default=EngineTable(), description="options of engines")

    @model_validator(mode="after")
    def _axes_or_points(self) -> "SweepTable":
        if (self.axes is None) == (self.points is None):
            raise ValueError("give either axes or points")
        return self


def load_sweep(sweep: Given, changes: Sequence[str] | Changes = ()) -> Sweep:
    """Read a sweep: a file, a shipped name, or a table. Changes are made to its base, and hold at every point.

    A UserError if the file or its base cannot be read, or says something that is not allowed, or an axis varies what a
    change sets.
    """
    path = None if isinstance(sweep, Mapping) else find_shipped(sweep, "sweeps")
    where, given = ("sweep", plain_values(sweep)) if path is None else (str(path), read_toml(path))
    said = validate(SweepTable, given, where)
    if isinstance(said.base, dict):
        base, base_where = open_table(said.base, changes)[0], where
    else:
        is_file = said.base.endswith(".toml") or path_beside(said.base, where).exists()
        base, base_where = open_table(find_beside(said.base, where, "base") if is_file else said.base, changes)
    kind = base.get("kind", "weight_update")
    if kind not in tuple(SYSTEMS):
        raise UserError(fault(base_where, "kind", kind, f"expected one of {', '.join(SYSTEMS)}"))
    constraints = [read_constraint(text, where, f"constraints.{i}") for i, text in enumerate(said.constraints)]
    limits = tuple(one for one in constraints if _is_limit(one, kind, where))
    demands = tuple(one for one in constraints if one not in limits)
    made = with_plan(base, read_changes(changes), where)
    grid = _hold(_grid(said, kind, where), made)
    _check_base(base, kind, base_where, grid)
    for limit in limits:
        check_unit(limit, [key_dimension(kind, name, base, base_where) for name in limit.names], where)
    for demand in demands:
        _check_demand(demand, kind, where)
    others = ("point", *grid.columns, "reason", "scenario_hash")
    for name in said.table:
        if name not in others and name not in columns_of(kind):
            raise UserError(fault(where, "table", name, f"unknown; {nearest_columns(kind, name, others)}"))
    name = retitle({"name": said.name}, changes)["name"]
    return Sweep(name, where, base, base_where, grid, limits, demands, tuple(said.table), said.engine.slurm)


def _is_limit(constraint: Constraint, kind: str, where: str) -> bool:
    """Whether a constraint is on keys of the scenario, and not on columns of the report."""
    of_scenario = {is_key(kind, name) for name in constraint.names}
    if len(of_scenario) > 1:
        key, report = (next(n for n in constraint.names if is_key(kind, n) is is_it) for is_it in (True, False))
        allowed = f"{key} is a key of the scenario and {report} is none; a constraint is on either"
        raise UserError(fault(where, "constraints", constraint.text, allowed))
    if of_scenario == {False} and any("." in name for name in constraint.names):
        check_key(kind, next(name for name in constraint.names if "." in name), where, "constraints")
    return of_scenario == {True}


def _check_demand(demand: Constraint, kind: str, where: str) -> None:
    """A UserError unless reports have such columns, which hold numbers, and a unit is that of the column."""
    columns = columns_of(kind)
    for name in demand.names:
        if name not in columns:
            nearest = nearest_columns(kind, name, SYSTEMS[kind].schema.model_fields)
            raise UserError(fault(where, "constraints", demand.text, f"{name} is no key and no column; {nearest}"))
        if not columns[name].unit:
            raise UserError(fault(where, "constraints", demand.text, f"{name} is text, no number"))
    check_unit(demand, [column_dimension(name) for name in demand.names], where)


def _grid(said: SweepTable, kind: str, where: str) -> Grid:
    if said.points is not None:
        axes = [Axis.of_points(said.points)]
    else:
        shipped = {name: one.changes for name, one in what_ifs().items()}
        own = {name: one.changes for name, one in said.what_if.items()}
        named = {"as is": {}, **shipped, **own}
        axes = [_axis(axis, named, where, f"axes.{i}") for i, axis in enumerate(said.axes or ())]
    if said.repeats is not None:
        axes.append(Axis.of("seed", said.repeats.seeds))
    for key in (column for axis in axes for column in axis.columns if column != "what_if"):
        check_key(kind, key, where, "axes.key")
        if key in ("kind", *FOR_PEOPLE):
            raise UserError(fault(where, "axes.key", key, "is the same for all points of a sweep"))
    if (found := find_replaced(axes)) is not None:
        later, key, first, other = found
        allowed = f"would replace {other} of axes.{first}; put it before that axis, or leave one out"
        raise UserError(fault(where, f"axes.{later}", key, allowed))
    grid = Grid(tuple(axes))
    if len(grid) > MOST_POINTS:
        raise UserError(fault(where, "axes", len(grid), f"at most {MOST_POINTS:,} points"))
    return grid


def _hold(grid: Grid, made: Changes) -> Grid:
    """The grid whose steps repeat changes to the base below what they replace: a price, whatever the cluster."""
    return Grid(tuple(replace(axis, steps=tuple(_keep(step, made) for step in axis.steps)) for axis in grid.axes))


def _keep(step: Step, made: Changes) -> Step:
    replaced = [key for key, value in step.changes.items() if not multiplies(value)]
    if varied := [key for key in made if key in replaced]:
        raise UserError(f"--set {varied[0]}: the sweep varies it; leave it out, or change the sweep")
    below = {key: value for key, value in made.items() if any(key.startswith(f"{one}.") for one in replaced)}
    return replace(step, changes={**step.changes, **below}) if below else step


def _check_base(base: Mapping[str, Any], kind: str, where: str, grid: Grid) -> None:
    """A UserError where a base says what no point can: at keys that no axis changes, replaces or stands below."""
    varied = {key for axis in grid.axes for step in axis.steps for key in step.changes}

    def is_varied(key: str) -> bool:
        return any(not key or f"{key}.".startswith(f"{one}.") or one.startswith(f"{key}.") for one in varied)

    if wrong := [line for key, line in wrong_keys(SYSTEMS[kind].schema, tuples(base), where) if not is_varied(key)]:
        raise UserError(*wrong)
    if "cluster" in base and not is_varied("cluster") and not is_varied("nodes"):
        cluster_inputs(base["cluster"], base.get("nodes", 1), where)


def _axis(axis: AxisTable, what_ifs: Mapping[str, Changes], where: str, place: str) -> Axis:
    if axis.zip is not None:
        return Axis.of_points([dict(zip(axis.zip, row, strict=True)) for row in zip(*axis.zip.values(), strict=True)])
    if axis.what_if is not None:
        for name in axis.what_if:
            if not isinstance(name, str) or name not in what_ifs:
                raise unknown(where, f"{place}.what_if", name, what_ifs)
        return Axis(("what_if",), tuple(Step((name,), what_ifs[name]) for name in axis.what_if))
    assert axis.key is not None
    if axis.values is not None:
        return Axis.of(axis.key, axis.values)
    try:
        return Axis.of(axis.key, spread(axis.start, axis.to, axis.step, axis.factor, axis.steps))
    except ValueError as error:
        raise UserError(f"{where}: {place}: {error}") from None
