"""Metrics of a run: snapshots, TensorBoard's event files, and progress.

The learner makes snapshots, and the launch hands them to the observers; the terminal and the dashboard show the same
fields under the same titles. Each metric is named once, here. Nothing here reads Redis or decides anything about a run.
"""
