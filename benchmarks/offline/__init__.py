"""Offline learning from recorded steps of MuJoCo, beside d3rlpy: `python -m benchmarks.offline --help`."""
