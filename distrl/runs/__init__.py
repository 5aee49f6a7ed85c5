"""Run directories: what a training writes beside its checkpoints, and all that reads it back.

The launch writes a run here; lists, comparisons, plots, reports, the dashboard and `distrl.load_run` read it. A file of
a run is input that somebody else may have written: it is read within bounds. Nothing here asks Redis or changes a live
run.
"""
