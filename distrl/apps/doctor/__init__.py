"""`distrl doctor`: problems of this machine, of a Redis, or of a run.

Only the command line uses it. It observes a run from outside and changes nothing of it. A check that a training needs
to be correct belongs to the training.
"""
