"""FlashAttention's kernels: by what a profile has measured of them, or as so many times the device's own.

On Hopper the device's own are cuDNN's or FlashAttention-3's. What `torch` calls its flash backend is FlashAttention-2.
"""

from ...profile import SERVING, Profile

FLASH2 = "attention.flash2_factor"
"""The parameter of profiles that have not measured FlashAttention-2: its time over that of the device's own kernels."""

FLASH1 = "attention.flash1_factor"
"""The time of FlashAttention's first kernels, of CUDA or Triton, over that of FlashAttention-2's."""

FLASH2_KERNELS = "torch flash", "attention.forward", "attention.backward"
"""The library by which the suite measures FlashAttention-2's, and its cost classes."""


def measures_flash2(profile: Profile) -> bool:
    """Whether a profile has models of FlashAttention-2's kernels, forward and backward."""
    return profile.has(*FLASH2_KERNELS)


def slower_by(attention: str, profile: Profile) -> tuple[str, ...]:
    """The parameters of a profile whose product is the time of a step's attention over that of its models.

    Software that may choose takes FlashAttention-2's kernels where the profile knows slower ones of serving alone.
    """
    second = () if measures_flash2(profile) else (FLASH2,)
    if attention == "flash":
        of_serving = next(iter(profile.models.get("attention.forward", {})), "").startswith(SERVING)
        return second if of_serving and profile.value_or(FLASH2, 1.0) < 1.0 else ()
    return {"flash-2": second, "flash-1": (*second, FLASH1)}.get(attention, ())
