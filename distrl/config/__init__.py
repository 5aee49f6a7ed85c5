"""Configuration: frozen models, and loading them from presets, files and flags.

Every package takes its settings from `RunConfig`; applications add sections of their own in `apps/config/`. A section
refuses by itself what cannot work, in one line that names the setting. Only the foundation modules are imported here:
no gymnasium, no Keras, no Redis.
"""

from distrl.config.run import RunConfig

__all__ = ["RunConfig"]
