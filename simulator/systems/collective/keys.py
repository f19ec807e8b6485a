"""How keys of a collective depend on each other."""

from ..keys import Need, Pin, Rivals, goes_with

_ROOTED = ("broadcast", "reduce", "gather", "scatter")

NEEDS: tuple[Need, ...] = (
    Need(
        "collective.root",
        lambda values: values["collective.op"] in _ROOTED,
        lambda values: f"is for {', '.join(_ROOTED)} (op = {values['collective.op']!r})",
    ),
    goes_with("collective.every_rank", "collective.level", "chunks"),
    Need(
        "collective.placement",
        lambda values: values["collective.groups"] != 1 or values["collective.placement"] == "interleaved",
        lambda _: "is for groups of 2 or more",
    ),
)
RIVALS: Rivals = ()
PINS: tuple[Pin, ...] = ()
