"""Tasks of bsuite, and its own agents beside distrl's: `python -m benchmarks.behaviour --help`."""
