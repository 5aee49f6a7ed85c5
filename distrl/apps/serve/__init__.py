"""`distrl serve`: a policy behind HTTP and WebSocket, for programs that own their loop.

Clients send observations and get actions. The server batches them over clients, keeps a recurrent state for each
session, and changes to newer versions while it serves. It trains nothing.
"""
