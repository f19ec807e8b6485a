"""How keys of a collective depend on each other."""

from ..keys import Need, Pin, Rivals, Values, goes_with

_ROOTED = ("broadcast", "reduce", "gather", "scatter")

_CHOICES = "libraries are priced by level formula; gloo and mpi also by chunks (level = {!r})"


_OF_JOBS = "does not go with jobs, each of which says its own bytes, algorithm and ranks"


def _can_choose(values: Values) -> bool:
    level, backend = values["collective.level"], values["collective.backend"]
    return backend is None or level == "formula" or (level == "chunks" and backend != "nccl")


NEEDS: tuple[Need, ...] = (
    Need(
        "collective.loads",
        lambda values: values["collective.op"] == "all_to_all_v",
        lambda values: f"is for all_to_all_v (op = {values['collective.op']!r})",
    ),
    Need(
        "collective.root",
        lambda values: values["collective.op"] in _ROOTED,
        lambda values: f"is for {', '.join(_ROOTED)} (op = {values['collective.op']!r})",
    ),
    Need("collective.backend", _can_choose, lambda values: _CHOICES.format(values["collective.level"])),
    *(
        Need(
            f"collective.{key}", lambda values: values["collective.backend"] == "nccl", lambda _: "is for backend nccl"
        )
        for key in ("protocol", "channels")
    ),
    *(
        Need(f"collective.{key}", lambda values: not values["collective.jobs"], lambda _: _OF_JOBS)
        for key in ("sizes", "algorithm", "backend", "gpus", "groups", "root", "loads", "pieces", "seeds", "every_rank")
    ),
    goes_with("collective.every_rank", "collective.level", "chunks"),
    Need(
        "collective.placement",
        lambda values: (
            values["collective.groups"] != 1
            or bool(values["collective.jobs"])
            or values["collective.placement"] == "interleaved"
        ),
        lambda _: "is for groups of 2 or more",
    ),
)
RIVALS: Rivals = ()
PINS: tuple[Pin, ...] = ()
