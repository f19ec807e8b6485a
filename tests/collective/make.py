"""Scenarios of kind collective for tests, from a table or a file."""

from typing import Any

from runcast.simulator.base.memo import Memo
from runcast.simulator.predict import predict
from runcast.simulator.scenario import change, check_question, resolve

MEMO = Memo()
"""Clusters, profiles and their hashes are made once."""


def table(
    op: str = "all_reduce", sizes: Any = "64 MiB", *, nodes: int = 2, cluster: Any = "dgx-h100", **keys: Any
) -> dict:
    """The table of a scenario."""
    keys = {"op": op, "sizes": sizes, **keys}
    return {"kind": "collective", "cluster": cluster, "nodes": nodes, "collective": keys}


def collective(*arguments: Any, **keys: Any) -> Any:
    """The resolved scenario of such a table."""
    return resolve(check_question(table(*arguments, **keys), "a.toml"), "a.toml", MEMO)


def predicted(*arguments: Any, **keys: Any) -> Any:
    """Its report."""
    return predict(collective(*arguments, **keys)).report


def seconds(*arguments: Any, **keys: Any) -> dict[str, float]:
    """Seconds by algorithm of one size."""
    return {row.algorithm: row.seconds for row in predicted(*arguments, **keys).rows}


def changed(changes: dict[str, Any], **keys: Any) -> Any:
    """The resolved scenario of a table with changes, as `--set` makes them."""
    return resolve(check_question(change(table(**keys), changes, "a.toml"), "a.toml"), "a.toml", MEMO)
