"""Colours of pictures, for light and for dark paper."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Palette:
    """Colours of everything; lines take theirs in turn."""

    paper: str
    ink: str
    dim: str
    grid: str
    lines: tuple[str, ...]


LIGHT = Palette(
    "#ffffff",
    "#1c2733",
    "#5c6b7a",
    "#e3e8ee",
    ("#1f6fb4", "#d1661c", "#2e8b57", "#b23a6f", "#7156a8", "#8a6d1f", "#0f8a94", "#c23b3b", "#5b6b7a", "#5f8a14"),
)
DARK = Palette(
    "#0f1419",
    "#e6edf3",
    "#9aa7b4",
    "#27313b",
    ("#6cb6ff", "#ffa657", "#7ee0a1", "#ff8fbf", "#bda6ff", "#e3c567", "#5ad4de", "#ff7b72", "#aab6c2", "#b5e06b"),
)
