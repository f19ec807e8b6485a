"""Values and bands of an axis as a reader says them: `64 KiB to 1 MiB`, `1.2 TFLOP`."""

from ...base.units import format_bytes, format_rate

_SI = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def band_name(axis: str, low: float, high: float | None) -> str:
    """A band of sizes from `low` up to `high`, or without an end."""
    if high is None:
        return f"from {quantity(axis, low)}" if low else "all sizes"
    return f"{quantity(axis, low)} to {quantity(axis, high)}" if low else f"below {quantity(axis, high)}"


def quantity(axis: str, value: float) -> str:
    """A value of an axis as a reader says it."""
    if axis == "bytes":
        return format_bytes(value)
    if axis.endswith("bytes_per_s"):
        return format_rate(value)
    if axis != "flop":
        return f"{value:,g}" if value < 1e6 else f"{value:,.0f}"
    return next((f"{value / scale:.3g} {unit}FLOP" for scale, unit in _SI if value >= scale), f"{value:.3g} FLOP")
