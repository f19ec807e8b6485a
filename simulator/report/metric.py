"""A metric: one number of a report, or numbers by name, with its unit, its definition, and which way is better.

Each system lists its metrics once. JSON reports, the columns of sweeps, what `compare` sets side by side and
docs/reports.md are made from those lists.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal

Better = Literal["", "lower", "higher"]
Role = Literal["result", "input", "time", "again"]


@dataclass(frozen=True)
class Metric:
    """One metric of a report.

    `unit` is SI, "USD", "1" for counts and shares, or "" for words. `role` says what it is beside other reports: a
    result, an input that results are of, a part of the time that is compared, or what another metric says again.
    `names` are those of numbers by name, of which a `sparse` metric leaves out what is nothing; `by_rank` is a list, or
    lists, of a number for each pipeline rank, and `inner` the kind of a report inside the report. `of` takes it from a
    report: by default the attribute of its name.
    """

    name: str
    unit: str
    meaning: str
    better: Better = ""
    role: Role = "result"
    names: tuple[str, ...] = ()
    sparse: bool = False
    by_rank: bool = False
    inner: str | None = None
    of: Callable[[Any], Any] | None = None

    def value(self, report: Any) -> Any:
        """As JSON has it: a number, words, a list, or a table."""
        found = (self.of or attrgetter(self.name))(report)
        return dict(found) if isinstance(found, Mapping) else list(found) if isinstance(found, tuple) else found


def spending(of: str, when: str, suffix: str = "", gpus: str = "all GPUs") -> tuple[Metric, ...]:
    """Money and energy: the amounts of the attribute `of`, a Spending; the names end in `suffix`."""
    return (
        Metric(f"cost_usd{suffix}", "USD", f"what {gpus} cost {when}", "lower", of=attrgetter(f"{of}.cost_usd")),
        Metric(
            f"energy_j{suffix}", "J", f"the most that {gpus} and their servers draw {when}", "lower",
            "result" if suffix == "_total" else "again", of=attrgetter(f"{of}.energy_j"),
        ),
        Metric(
            f"energy_kwh{suffix}", "kWh", "the same in kilowatt-hours", "lower",
            of=attrgetter(f"{of}.energy_kwh"),
        ),
    )  # fmt: skip


PRICE = Metric(
    "price_usd_per_gpu_hour", "USD/h", "mean price of a GPU", role="input", of=attrgetter("rates.usd_per_gpu_hour")
)
