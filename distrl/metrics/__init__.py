"""Metrics of a run: snapshots, the files that they are written to, and progress.

The launch makes snapshots and hands them to the sinks; the terminal and the dashboard show the same fields under the
same titles. Each metric is named once, here. Nothing here reads Redis or decides anything about a run.
"""
