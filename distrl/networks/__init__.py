"""Networks: copies of layers and weights, the compiled update, and the policy that actors run.

Algorithms declare heads and losses and get networks from here; the learner publishes their weights. Only `framework/`
and `policy/` know TensorFlow or JAX; all else is written once in Keras. No loss of an algorithm belongs here.
"""
