"""What arrays of numbers are called in signatures; shapes are said where they matter."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
