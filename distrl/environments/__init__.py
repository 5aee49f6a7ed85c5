"""Environments as distrl uses them: found by name, made, joined to vectors, adapted, checked, filmed.

Actors and evaluations step them; the launch tries one out before a run begins. All that knows gymnasium, the old gym,
ALE, EnvPool or MuJoCo is here and nowhere else. Nothing here knows a network, an algorithm or Redis.
"""
