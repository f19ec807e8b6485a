"""Sweeps that a page can open: what they are called, where their points are read, and what is said of a point."""

from pathlib import Path
from typing import TYPE_CHECKING

from ...simulator.answers.sweep.results import MAIN
from ...simulator.base.errors import UserError, unknown
from ..figures.sweep import axes, cell_text
from ..library import REPORT, Library
from ..page import Here
from . import parts, points, run
from .points import Source, Table

if TYPE_CHECKING:
    from dash.development.base_component import Component

_CHANGED_SINCE = "The page asks something else than the report: its sweep has changed since."


class SweepFolders:
    """Sweeps that can be opened: those of the data folder, and those that were started here, in `home`."""

    def __init__(self, here: Here, home: Path):
        self.here, self.home = here, home

    def folders(self) -> dict[str, Path]:
        """The folders of all sweeps by name, at last those that have points and no report."""
        reported = {**self.here.library.sweeps(), **Library(self.home).sweeps()}
        others = {place.parent.name: place.parent for place in sorted(self.home.glob("*/state.sqlite"))}
        begun = {name: folder for name, folder in others.items() if name not in reported and self._done(name)}
        return {**reported, **begun}

    def _done(self, name: str) -> int:
        far = run.progress_of(self.home, name)
        return 0 if far is None else far.done

    def source(self, name: str) -> Source:
        """The sweep of this name; a small one is read from its store while its report lacks what is done."""
        far = run.progress_of(self.home, name)
        if far is None or far.total > run.MOST_POINTS:
            return {"name": name}
        is_whole = not far.at_work and (self.home / name / REPORT).is_file()
        return {"name": name} if is_whole else {"name": name, "done": str(far.done)}

    def table(self, source: Source) -> Table:
        """The points of what is open.

        Raises:
            UserError: it is gone, or cannot be read.
        """
        if "text" in source:
            return points.read_csv(source["text"], source["file"])
        known = self.folders()
        if source["name"] not in known:
            raise unknown("address", "sweep", source["name"], known)
        folder = known[source["name"]]
        so_far = points.read_store(folder) if "done" in source else None
        return points.read_folder(folder) if so_far is None else so_far

    def point(self, table: Table, number: int, base: str | None, name: str | None) -> "Component":
        """A point and the link to its page; `base` is the scenario that it changes, None for that of its sweep.

        Raises:
            UserError: there is no such point.
        """
        row = table.row(number)
        metrics = [MAIN[table.kind][0], "peak_memory_bytes"] if table.kind else []
        shown = ["point", *axes(table.frame), "status", *(["reason"] if row["reason"] else []), *metrics]
        cells = {column: cell_text(column, row[column]) for column in shown if column in row}
        folder = self.folders().get(name) if name is not None else None
        sweep = points.origin(folder) if folder is not None else None
        try:
            found = points.open_point(self.here, table, number, base, sweep)
        except UserError as error:
            return parts.point(cells, "", error.faults)
        notes = [_CHANGED_SINCE] if found.same is False else []
        return parts.point(cells, found.page + found.question.query(), notes)
