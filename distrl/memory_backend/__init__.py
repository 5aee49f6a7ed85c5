"""The memory backend: what actors, learner and operators share through Redis, as five nouns.

Stream, weights, tickets, ledger and registry are each written once over the primitives of an engine: Redis, or an
imitation in this process. Every role and every reader of live runs uses them. Only three modules import redis, and no
module here knows an algorithm, a network or an environment.
"""
