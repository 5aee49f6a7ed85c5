"""Configuration: frozen models, and loading them from presets, files and flags."""

from distrl.config.run import RunConfig

__all__ = ["RunConfig"]
