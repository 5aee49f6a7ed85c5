"""The mathematics of algorithms: returns, losses, targets and natural gradients as pure functions over arrays.

The algorithms use them, and the NumPy twins in the tests look like the papers. No function here holds state, reads a
configuration or knows a network; formulas use `keras.ops`, so that both frameworks compute them.
"""
