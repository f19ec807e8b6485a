"""The pages, one file each, in the order of the menu."""

from . import calibration, compare, explain, sweeps, training, update, validation
from .home import home

_ASKING = (update.PAGE, training.PAGE, explain.PAGE, compare.PAGE, sweeps.PAGE, calibration.PAGE, validation.PAGE)
PAGES = (home(_ASKING), *_ASKING)
