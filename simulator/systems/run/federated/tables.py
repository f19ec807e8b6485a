"""The keys of federated rounds, and the numbers of clients that follow from them."""

from math import ceil
from typing import Annotated

from pydantic import Field, PositiveInt, model_validator

from ...tables import Rate, Seconds, Size, Table, Time
from ..spread import Spread
from .secure import Secure


class Silo(Table):
    """An organisation that trains in each round (cross-silo), or several that are alike."""

    name: str = Field("", description="what reports call it")
    count: Annotated[int, Field(gt=0, le=100_000)] = Field(1, description="organisations like this one")
    epoch_time: Time = Field(description="time of one epoch on its own data")
    up: Rate = Field(description="its link towards the server")
    down: Rate = Field(description="its link from the server")


_OF_CLIENTS = ("clients", "sampled", "epoch_time", "up", "down")
MOST_UPDATES = 50_000_000
"""Updates of clients in all rounds: half a minute to simulate."""
_NOT_OF_SILOS = (*_OF_CLIENTS, "over", "compute", "links")


class Federated(Table):
    """Clients that train in rounds: a sample of many devices, or all of a few organisations."""

    rounds: Annotated[int, Field(gt=0, le=1_000_000)] = Field(description="rounds that must succeed")
    clients: Annotated[int, Field(gt=0, le=10_000_000)] | None = Field(None, description="clients that there are")
    sampled: Annotated[int, Field(gt=0, le=1_000_000)] | None = Field(
        None, description="clients whose updates make a round"
    )
    over: Annotated[float, Field(ge=1, le=10)] = Field(
        1.0, description="clients selected per client needed, such as 1.3: the first to answer count"
    )
    epochs: PositiveInt = Field(1, description="local epochs of a client in a round")
    epoch_time: Time | None = Field(None, description="time of one local epoch on a usual client")
    compute: Spread = Field(Spread(), description="how much longer epochs of some clients take, in all rounds")
    jitter: Spread = Field(Spread(), description="how much longer they take in some rounds")
    up: Rate | None = Field(None, description="a usual client's link towards the server")
    down: Rate | None = Field(None, description="a usual client's link from the server")
    links: Spread = Field(Spread(), description="how much longer transfers of some clients take, in all rounds")
    latency: Seconds = Field(0.0, description="what each message takes besides its bytes")
    bytes: Size | None = Field(None, description="bytes of the model, each way (default: those of [model])")
    dropout: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0, description="share of clients that drop out of a round, at any time of it"
    )
    deadline: Time | None = Field(None, description="when a round ends with those that have answered (default: never)")
    minimum: PositiveInt = Field(1, description="fewest updates of a round; with fewer it is lost and repeated")
    select: Seconds = Field(0.0, description="time to choose the clients of a round")
    server: Rate | None = Field(
        None, description="the server's link in each direction, shared by all clients (default: no limit)"
    )
    aggregators: Annotated[int, Field(gt=0, le=100_000)] = Field(
        1, description="servers below a root, each with such a link and an equal part of the clients"
    )
    aggregator_link: Rate | None = Field(None, description="link between each aggregator and the root")
    secure: bool | Secure = Field(False, description="secure aggregation: whether, or a table of its sizes")
    silos: tuple[Silo, ...] = Field((), description="organisations, all of them in each round, instead of clients")

    @model_validator(mode="after")
    def _goes_together(self) -> "Federated":
        extra = [key for key in _NOT_OF_SILOS if getattr(self, key) != type(self).model_fields[key].default]
        missing = [key for key in _OF_CLIENTS if getattr(self, key) is None]
        if self.silos and extra:
            raise ValueError(f"silos have their own times and links, and all take part: leave {', '.join(extra)} out")
        if not self.silos and missing:
            raise ValueError(f"give {', '.join(_OF_CLIENTS)}, or silos (missing: {', '.join(missing)})")
        self._refuse_numbers()
        return self

    def _refuse_numbers(self) -> None:
        if self.selected > self.population:
            raise ValueError(f"over x sampled = {self.selected} is more than clients = {self.population}")
        if (updates := self.rounds * self.selected) > MOST_UPDATES:
            raise ValueError(f"{self.rounds:,} rounds of {self.selected:,} clients are {updates:,} updates; at most "
                             f"{MOST_UPDATES:,}: fewer rounds say as much")  # fmt: skip
        if self.minimum > self.wanted:
            raise ValueError(f"minimum is at most the clients of a round, {self.wanted}")
        if self.aggregators > self.selected:
            raise ValueError(f"aggregators are at most the clients of a round, {self.selected}")
        if self.aggregator_link is not None and self.aggregators == 1:
            raise ValueError("aggregator_link goes with aggregators above 1")
        if self.masks and self.masks.needed(self.selected) > self.wanted:
            raise ValueError(
                f"secure.threshold needs {self.masks.needed(self.selected)} updates of {self.selected} clients, "
                f"but a round takes {self.wanted}: lower over or the threshold"
            )

    @property
    def population(self) -> int:
        """Clients that there are."""
        return self.clients or sum(silo.count for silo in self.silos)

    @property
    def wanted(self) -> int:
        """Updates that end a round."""
        return self.sampled or self.population

    @property
    def selected(self) -> int:
        """Clients that begin a round."""
        return ceil(round(self.over * self.wanted, 6))

    @property
    def group(self) -> int:
        """Clients of one aggregator; secure aggregation is within them (arXiv 1902.01046, section 6)."""
        return ceil(self.selected / self.aggregators)

    @property
    def masks(self) -> Secure | None:
        """Secure aggregation, if it is used."""
        if isinstance(self.secure, Secure):
            return self.secure
        return Secure() if self.secure else None
