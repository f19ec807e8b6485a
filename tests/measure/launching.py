"""Starting the suite as users do: in an environment that no launcher of the tests has touched."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
CALIBRATE = [sys.executable, "-m", "runcast.calibrate"]
_LAUNCHED = ("RANK", "WORLD_SIZE", "LOCAL_", "GROUP_RANK", "MASTER_", "TORCHELASTIC", "SLURM_")


def environment(**more):
    """Without launchers' variables, and with the cases of this folder to be had by `--cases`."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(_LAUNCHED)}
    return clean | {"PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1"} | more
