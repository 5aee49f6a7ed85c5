"""The replay memory: a ring of unrolls, the items that are sampled from it, samplers, and the rate limiter.

The learner holds it in its own process, behind the stream; nothing else uses it. A kind of item is a class in
`items.py` and a section in `config/replay.py`; samplers and the limiter know none. Nothing is sampled over a network.
"""
