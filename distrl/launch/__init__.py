"""A training from its command to its exit code: checks, run directory, roles, supervision, summary.

`distrl train` and `distrl.train` call `training.py`; `distrl actors` starts and follows the actors of one host. Only
this package starts processes or Ray actors for roles. What a role does once it runs belongs to `roles/`, `actors/` and
`learner/`.
"""
