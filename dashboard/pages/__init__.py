"""The pages, one file each, in the order of the menu; the first one leads to them."""

from . import (
    calibration,
    cluster,
    collective,
    compare,
    cycle,
    explain,
    run,
    search,
    start,
    sweeps,
    training,
    update,
    validation,
)

_PAGES = (
    training.PAGE, search.PAGE, update.PAGE, cycle.PAGE, run.PAGE, collective.PAGE, cluster.PAGE, explain.PAGE,
    compare.PAGE, sweeps.PAGE, calibration.PAGE, validation.PAGE,
)  # fmt: skip
PAGES = (start.make_page(_PAGES), *_PAGES)
