"""The policy as one ONNX graph and a description: exported, checked against Keras, saved, read back.

The learner exports it once per network structure; actors and `distrl export` use the result. What actors and servers
read (`description.py`, `exported_model.py`, `protobuf.py`) imports no numeric framework. Actions are drawn in NumPy, by
`networks/actions/`, never in the graph.
"""
