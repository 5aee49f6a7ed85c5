"""Parts of networks: layers, schemes, embedders, middlewares, normalisation, and the trunk of all of them.

`network.py` builds a copy of a network from them by the section `network`. A part knows its arrays and nothing of
actions, losses or algorithms. What a network ends in is in `networks/heads/`.
"""
