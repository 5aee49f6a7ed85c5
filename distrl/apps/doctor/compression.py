"""`distrl doctor`, finding about `memory.compression`: whether it would pay over a connection of a measured speed."""

from distrl.apps.doctor.findings import Finding

SHARE = 0.021
"""Share of their bytes that images keep with `zstd`: frames of River Raid, by `python -m benchmarks.compression`."""
CODEC_BYTES_PER_S = 1.9e9
"""Speed of one core that compresses and decompresses them."""
WORTH_SAVING = 0.2
"""Share of the time on the way from which the setting is worth naming."""


def saved(bytes_per_s: float) -> float:
    """Return the share of the images' time on the way that compression saves; below 0: the way takes longer."""
    return 1.0 - SHARE - bytes_per_s / CODEC_BYTES_PER_S


def compression(bytes_per_s: float) -> Finding:
    """Report whether unrolls of images would arrive sooner if they were compressed.

    Args:
        bytes_per_s: Measured speed of one connection to Redis, for messages of an unroll's size.
    """
    speed = f"at {bytes_per_s / 1e6:,.0f} MB/s"
    gain = saved(bytes_per_s)
    if gain < WORTH_SAVING:
        return Finding("ok", "compression", f"{speed} it would hardly pay")
    advice = "memory.compression: zstd where observations are images; vectors gain little"
    return Finding("ok", "compression", f"{speed} it would save images {gain:.0%} of their time on the way", advice)
