"""Run directories: what a training writes beside its checkpoints, and all that reads it back.

The launch writes a run here; lists, comparisons, plots, reports, the dashboard and `distrl.load_run` read it. Other
programs may have written a file of a run: it is read within bounds. `directories.Run` and `reading` alone ask Redis.
"""
