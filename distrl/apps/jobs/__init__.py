"""Jobs: runs that were submitted to a target, and the verbs that work on each of them.

A target (this machine, Ray, Slurm, Kubernetes) is one class of `target.py`'s Protocol; the commands and `experiments/`
use it. A job is `distrl train` with public settings, nothing that could not be typed. No daemon knows jobs: `job.json`
in the run's directory does.
"""
