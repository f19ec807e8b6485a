"""`python -m runcast.calibrate.execute SCENARIO ...` is `runcast execute SCENARIO ...`, for launchers of modules."""

import sys

from ...simulator.cli import main

main(["execute", *sys.argv[1:]])
