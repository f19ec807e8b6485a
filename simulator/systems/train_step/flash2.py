"""FlashAttention-2's kernels: by what a profile has measured of them, or as so many times the device's own.

On Hopper the device's own are cuDNN's or FlashAttention-3's. What `torch` calls its flash backend is FlashAttention-2.
"""

from ...profile import Profile

FLASH2 = "attention.flash2_factor"
"""The parameter of profiles that have not measured them: their time over that of the device's own kernels."""

FLASH2_KERNELS = "torch flash", "attention.forward", "attention.backward"
"""The library by which the suite measures them, and its cost classes."""


def measures_flash2(profile: Profile) -> bool:
    """Whether a profile has models of these kernels, forward and backward."""
    return profile.has(*FLASH2_KERNELS)
