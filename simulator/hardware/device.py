"""What one accelerator is: its data-sheet limits. How close kernels come to them belongs to profiles, not here."""

from dataclasses import dataclass, field

DTYPES = ("fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8")


@dataclass(frozen=True)
class Device:
    """One GPU model.

    `peak_flop_per_s` is dense (no sparsity) FLOP/s by dtype; a missing dtype has no fast path on this device. `like` is
    the device with the same chip, or the one that this one was changed from, whose profile serves both. `power_w` is
    what its board draws at most, `price_usd_per_hour` what it costs with its share of a server; None: not known.
    """

    name: str
    aliases: tuple[str, ...]
    peak_flop_per_s: dict[str, float] = field(hash=False)
    memory_bytes: float
    memory_bytes_per_s: float
    sms: int
    l2_bytes: float
    copy_engines: int
    power_w: float
    price_usd_per_hour: float | None = None
    like: str | None = None

    @property
    def measured_as(self) -> str:
        """The device in whose name profiles are made."""
        return self.like or self.name
