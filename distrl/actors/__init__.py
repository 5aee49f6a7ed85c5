"""Actors and the evaluator: an actor steps environments, acts by the policy bundle, and ships unrolls or gradients.

`roles/` runs them as processes or on Ray, and `serving/` plays with their parts outside a training. An actor that ships
unrolls imports no numeric framework; nothing here imports the learner.
"""
