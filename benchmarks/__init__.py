"""Measurements of learning and speed; from a checkout: `python -m benchmarks.learning`."""
