"""Shared inference: one server per host evaluates the policy for all actors of that host (`actors.inference: host`).

`roles/actor.py` makes the client, `roles/inference.py` runs the server. Observations and outputs are in memory that
both map (`layout.py`); a socket of the host carries fixed messages alone (`messages.py`). Nothing of the network's
code, nothing of environments.
"""
