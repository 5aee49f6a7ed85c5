"""The roles of a run, actor, learner and evaluator, as programs: join, heartbeat, trust, end.

`launch/` starts them as processes or Ray actors, and `distrl actor`, `learner` and `evaluator` start them by hand. A
role is a plain class and does not know how it was started. The work that an actor or the learner does between joining
and ending belongs to `actors/` and `learner/`.
"""
