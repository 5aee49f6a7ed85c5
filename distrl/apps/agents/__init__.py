"""Agents for code that owns its loop: a game, a robot or a notebook calls `act` and `observe`; distrl learns.

Each loop of the caller is an ordinary actor with an environment of one row, which is given instead of stepped: so an
unroll, its header and its way to the learner are those of every run. `distrl.Agent` and `distrl.Runner` are what users
import. A second way through the core must not go in here.
"""
