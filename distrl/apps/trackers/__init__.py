"""Trackers: the numbers of a run, in other places than its directory.

The supervisor hands every row of metrics to `tracking.py`, which passes it to a process for each tracker. A class of
the user's has the three methods of `tracker.py`. Only this package knows W&B and MLflow, and none of them can slow a
training down or end it.
"""
