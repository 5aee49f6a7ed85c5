"""TensorFlow and JAX behind one interface: set-up, differentiation, compiled functions, optimizers.

The networks and the learner call `backend.py` alone. A process uses one framework and never imports the other. What
both frameworks compute alike is written in `keras.ops` and belongs elsewhere.
"""
