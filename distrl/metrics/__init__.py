"""Metrics of a run: snapshots, the files that they are written to, and progress."""
