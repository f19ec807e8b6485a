"""What becomes of a run that misses nodes: it waits, goes on with fewer workers, or with smaller ones."""

from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from ...tables import Seconds, Table


class Elastic(Table):
    """A run that goes on when nodes are missing and no spare is left."""

    mode: Literal["drop", "shrink"] = Field(
        "drop",
        description="the worker that misses a node leaves until it has one again; or it goes on with the others, as a "
        "pipeline of fewer stages (Oobleck)",
    )
    batch: Literal["fixed", "shrinks"] = Field(
        "fixed", description="drop: whether the others train on the samples of those that left"
    )
    resize: Seconds = Field(0.0, description="how long training stands when a worker leaves or returns")
    least: PositiveInt = Field(1, description="drop: fewest workers; with fewer the run waits")
    loss: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0, description="shrink: share of its speed that a smaller worker loses beyond that of the missing node"
    )
