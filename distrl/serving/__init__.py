"""A policy outside a training: played by `distrl evaluate`, written by `distrl export`, loaded by `distrl.load_policy`.

The command line and users' programs use it. It acts with NumPy and ONNX Runtime, so that a server needs no numeric
framework. Nothing here trains.
"""
