"""The learner: takes unrolls or gradients, updates the networks, publishes weights, saves checkpoints.

`learner.py` is one update and `session.py` the loop around it; `roles/learner.py` runs them. Losses belong to
`algorithms/`, layers to `networks/`, and nothing here imports the actors.
"""
