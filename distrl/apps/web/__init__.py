"""Shared by the servers of HTTP: tokens, limits of failures and of connections, listening sockets, records of servers.

The dashboard and `distrl serve` use it. Pages and their sign-in are the dashboard's.
"""
