"""Environments behind a socket: the server of `distrl serve-env`, the client, and the protocol between them.

An environment named `tcp://host:port` is made by the client. Messages go through `wire.py`, so that nothing is
unpickled; what an environment means is not interpreted here.
"""
