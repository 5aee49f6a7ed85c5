"""Off-policy evaluation: the return of a policy, estimated from the episodes that another one has acted.

    estimators   importance sampling, direct and doubly robust estimates, intervals: pure functions of arrays
    fitted_q     values of the policy, fitted to the recorded steps: a table, or a linear model
    features     inputs of the linear models, made of observations and actions
    target       the probabilities of actions under the policy that is evaluated
    behaviour    the probabilities under the policy that acted, fitted where they are not recorded
    reading      recorded steps as the policy sees them
    evaluating   all of it together, for one policy and its data
    beside       the same at every evaluation of a training

It computes with NumPy, and needs no numeric framework. Nothing here acts or trains a policy.
"""
