"""Coach's methods on networks, for those who come from Intel RL Coach and train from Python.

`Architecture` is one copy of a network, `NetworkWrapper` all of its copies. Method names and meanings are Coach's. Each
holds the class of `networks/` that training uses (`Network`, `Copies`) and works on the same variables; nothing in
distrl imports this package.
"""
