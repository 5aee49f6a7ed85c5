"""Environments that come with distrl: small tasks that show whether an algorithm learns.

Presets, tests and examples train on them by names such as `distrl.environments.worlds.bit_flip:BitFlip`. A world is one
file with a test by numbers. It is a plain `gymnasium.Env`: distrl treats it as it treats a user's class.
"""
