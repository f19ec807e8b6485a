"""One page about a Profile: measured against fitted, residuals, what is extrapolated, environment."""

from pathlib import Path

from ..simulator.profile import Profile
from ..simulator.samples import Samples


def write_report(profile: Profile, samples: Samples | None, out: Path) -> None:
    """Write the page.

    Raises:
        UserError: the file cannot be written.
    """
    raise NotImplementedError
