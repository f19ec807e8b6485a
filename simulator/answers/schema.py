"""The JSON Schemas (draft 2020-12) of answers: `runcast schema` prints them, docs/runcast.schema.json has them all.

Those of predictions are made from the metrics of their reports. Objects are open: later releases may add keys within a
version of a form, and what a key means does not change.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from ..base.errors import unknown
from ..report.report import Metric
from ..systems.machines import form_id
from ..systems.registry import SYSTEMS

Schema = dict[str, Any]
_DRAFT = "https://json-schema.org/draft/2020-12/schema"

_TEXT: Schema = {"type": "string"}
_NUMBER: Schema = {"type": "number"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_TRUTH: Schema = {"type": "boolean"}
_OBJECT: Schema = {"type": "object"}
_SHARE: Schema = {"type": "number", "minimum": 0, "maximum": 1}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _named(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _object(properties: Mapping[str, Schema], optional: Iterable[str] = ()) -> Schema:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": [name for name in properties if name not in set(optional)],
    }


_INPUTS = _object({
    "scenario": {"type": "object", "description": "the scenario as a table, in SI units: `runcast simulate` takes it"},
    "files": _list(_object({
        "name": _TEXT, "sha256": {"type": "string", "description": "of what the file holds; empty where there is none"},
    })),
})  # fmt: skip
_HEAD = {"name": _TEXT, "question": _TEXT, "scenario_hash": {"type": "string", "pattern": "^[0-9a-f]+$"}}


def _begun(form: str, properties: Mapping[str, Schema], optional: Iterable[str] = ()) -> Schema:
    """The schema of a form, with what all of them begin with."""
    head: dict[str, Schema] = {"schema": {"const": form_id(form)}, "version": _TEXT}
    return {"$schema": _DRAFT, "$id": form_id(form), **_object({**head, **properties}, optional)}


def _form(form: str, kind: str, properties: Mapping[str, Schema], optional: Iterable[str] = ()) -> Schema:
    """The schema of an answer of this kind."""
    return _begun(form, {"kind": {"const": kind}, **properties}, optional)


# Predictions.


def _prediction(kind: str) -> Schema:
    """Of `simulate`: the report of a system, and its inputs."""
    system = SYSTEMS[kind]
    found = _form(kind, kind, {**_report(kind), "inputs": _INPUTS}, _optional(kind))
    return found | {"title": f"The prediction of {system.title}"}


def _report(kind: str) -> dict[str, Schema]:
    of_metrics = {one.name: _of_metric(one) for one in SYSTEMS[kind].report.metrics}
    return {**_HEAD, **of_metrics, "notes": _list(_TEXT), **_BESIDE}


_BESIDE: dict[str, Schema] = {
    "distance": _list(_TEXT),
    "not_in_interval": _list(_TEXT),
    "errors": {"type": "object", "description": "errors of the time, of which other predictions share a part"},
    "draws": _object({"count": _COUNT, "seed": _COUNT, "low_s": _NUMBER, "median_s": _NUMBER, "high_s": _NUMBER}),
}
"""What some reports have beside their metrics."""


def _optional(kind: str) -> list[str]:
    """Keys that only some reports of a kind have: optional metrics, and what is beside metrics."""
    return [*_BESIDE, *(one.name for one in SYSTEMS[kind].report.optional)]


def _of_metric(one: Metric) -> Schema:
    """The schema of a metric's value: null where it is not known."""
    unit = {"1": "", "": ""}.get(one.unit, one.unit)
    about = {"description": f"{one.meaning}{f'; in {unit}' if unit else ''}"}
    if one.inner is not None:
        return _or_null(_object({"kind": {"const": one.inner}, **_report(one.inner)}, _optional(one.inner))) | about
    if one.by_rank:
        return {"anyOf": [{"type": "array"}, _named({"type": "array"})]} | about
    scalar = {"type": ["string", "null"]} if not one.unit else {"type": ["number", "boolean", "null"]}
    return (_or_null(_named(scalar)) if one.names else dict(scalar)) | about


# Other answers.

_CHANGES = {"type": "object", "description": "values by key of the scenario"}
_REFUSED = _object({"name": _TEXT, "subject": _TEXT, "reason": _TEXT})
_TRIED = _object({"name": _TEXT, "about": _TEXT, "changes": _CHANGES, "gain": _NUMBER})


def _explanation() -> Schema:
    """Of `explain`; which parts there are depends on the kind of scenario."""
    of, interval = {"enum": [*SYSTEMS]}, dict.fromkeys(("interval_low_s", "interval_high_s"), _or_null(_NUMBER))
    properties = {
        "of": of, **_HEAD, "total_s": _NUMBER, **interval, "bound_by": _TEXT, "quick": _TRUTH, "best": _list(_TEXT),
        "what_ifs": _list(_TRIED), "refused": _list(_REFUSED), "inputs": _INPUTS,
    }  # fmt: skip
    return _form("explanation", "explanation", properties)


def _comparison() -> Schema:
    """Of `compare`."""
    null_or_number = _or_null(_NUMBER)
    side = _object({
        "where": _TEXT, "source": _TEXT, "label": _TEXT, "kind": _TEXT, "question": _TEXT,
        "scenario_hash": _or_null(_TEXT), "total_s": _NUMBER, "interval_low_s": null_or_number,
        "interval_high_s": null_or_number, "work": null_or_number, "fits": _TRUTH, "notes": _list(_TEXT),
        "not_in_interval": _list(_TEXT), "inputs": _or_null(_INPUTS),
    })  # fmt: skip
    term = _object({"term": _TEXT, "a_s": _NUMBER, "b_s": _NUMBER, "difference_s": _NUMBER, "share": null_or_number,
                    "error": null_or_number})  # fmt: skip
    return _form("comparison", "comparison", {
        "of": _TEXT, "a": side, "b": side, "difference_s": _NUMBER, "different_work": _TRUTH, "ratio": _NUMBER,
        "error": null_or_number, "within_uncertainty": _or_null(_TRUTH), "ratio_low": null_or_number,
        "ratio_high": null_or_number, "b_faster_probability": _or_null(_SHARE),
        "inputs": _list(_object({"key": _TEXT, "a": {}, "b": {}})),
        "terms": _list(term),
        "metrics": _list(_object({"name": _TEXT, "a": null_or_number, "b": null_or_number})),
    })  # fmt: skip


def _search() -> Schema:
    """Of `search`."""
    plan = _object({
        "changes": _CHANGES, "time_s": _NUMBER, "tokens": _COUNT, "fits": _TRUTH, "fits_probability": _or_null(_SHARE),
        "memory_bytes": _NUMBER, "cost_usd": _or_null(_NUMBER), "tokens_per_s": _or_null(_NUMBER),
        "not_in_interval": _list(_TEXT),
    })  # fmt: skip
    return _form("search", "search", {
        "of": _TEXT, "objective": _TEXT, "gpus": _COUNT, "proved": _TRUTH, "stopped": _TRUTH, "counts": _named(_COUNT),
        "cuts": _named(_COUNT), "winner": _or_null(plan), "own": _or_null(plan), "pareto": _list(plan),
        "notes": _list(_TEXT), "inputs": _INPUTS,
    })  # fmt: skip


def _sweep() -> Schema:
    """Of `sweep`: rows have the columns of report.csv."""
    point = _object({"point": _COUNT, "status": {"enum": ["ok", "infeasible", "memory", "constraint", "failed"]}})
    return _form("sweep", "sweep", {
        "of": _TEXT, "name": _TEXT, "axes": _list(_TEXT), "counts": _named(_COUNT), "complete": _TRUTH,
        "points": _list(point), "inputs": _INPUTS,
    })  # fmt: skip


def _schedules() -> Schema:
    """Of `schedule`; what is of a step is there with one."""
    of_step = {"step_time_s": _NUMBER, "step_bubble_fraction": _SHARE, "memory_bytes": _NUMBER, "fits": _TRUTH}
    one = _object({
        "name": _TEXT, "ranks": _COUNT, "microbatches": _COUNT, "chunks": _COUNT, "bubble_fraction": _SHARE,
        "peak_microbatches": _NUMBER, "sends": _COUNT, **of_step,
    }, optional=of_step)  # fmt: skip
    left = _object({"name": _TEXT, "reason": _TEXT})
    return _form("schedules", "schedules", {"schedules": _list(one), "left_out": _list(left)})


def _validation() -> Schema:
    """Of `validate`: errors of predictions on measured rows, as fractions, in groups that depend on what is scored."""
    inputs = _object({
        "kind": _TEXT, **dict.fromkeys(("profile", "stack", "tolerance"), _or_null(_TEXT)),
        "files": _INPUTS["properties"]["files"],
    })  # fmt: skip
    table: Schema = {"type": "string", "description": "the table of measurements"}
    return _begun("validation", {"file": table, "inputs": inputs})


FORMS: Mapping[str, Callable[[], Schema]] = {
    **{kind: partial(_prediction, kind) for kind in SYSTEMS},
    "explanation": _explanation, "comparison": _comparison, "search": _search, "sweep": _sweep,
    "schedules": _schedules, "validation": _validation,
}  # fmt: skip
"""By name; those of predictions are called as the kind of scenario."""


def schema_of(form: str) -> Schema:
    """The schema of a form, by its name or as reports say it (`runcast/train_step/1`); a UserError if there is none."""
    names = {form_id(name): name for name in FORMS} | {name: name for name in FORMS}
    if form not in names:
        raise unknown("schema", "", form, FORMS)
    return FORMS[names[form]]()


def schema_of_all() -> Schema:
    """One schema of all forms, by their key `schema`."""
    return {"$schema": _DRAFT, "title": "What runcast writes as JSON", "oneOf": [make() for make in FORMS.values()]}
