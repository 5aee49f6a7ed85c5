"""Several runs that belong together: sweeps over settings and seeds, searches, populations.

`distrl sweep`, `distrl tune` and `distrl report` use it. Each of its runs is an ordinary training or job that would run
alone, and what a killed command needs to continue is in files. No training knows that it belongs to an experiment.
"""
