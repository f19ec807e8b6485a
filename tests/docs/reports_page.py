"""What docs/reports.md lists: every metric of every report. Printed: python tests/docs/reports_page.py."""

from collections.abc import Iterator

from runcast.simulator.report.report import Metric
from runcast.simulator.systems.registry import SYSTEMS

UNITS = {"1": "", "": "words"}


def tables() -> Iterator[str]:
    """A heading and a table for each system."""
    for system in SYSTEMS.values():
        yield f"## `{system.kind}`: {system.title}"
        head = ["| key | unit | better | what it is |", "|---|---|---|---|"]
        yield "\n".join([*head, *map(_row, system.report.metrics)])


def _row(metric: Metric) -> str:
    by = " by name" if metric.names else " by pipeline rank" if metric.by_rank else ""
    return f"| `{metric.name}` | {UNITS.get(metric.unit, metric.unit)}{by} | {metric.better} | {metric.meaning} |"


if __name__ == "__main__":
    print("\n\n".join(tables()))
