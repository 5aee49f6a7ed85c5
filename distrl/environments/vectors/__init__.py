"""Vector environments: several environments, or several agents of some, that step at once.

`vectorizations.py` chooses the kind that `environment.vectorization` names. Every kind runs in gymnasium's NEXT_STEP
autoreset or is refused. Preprocessing and exploration do not belong here: a vector returns what its environments
return.
"""
