"""Preprocessing: what lies between an environment and the policy; `pipeline.py` puts the steps of the others together.

Actors apply it before a policy sees an observation or an unroll a reward. A step is a class here with a section in
`config/preprocessing.py`. Nothing here imports gymnasium, so that a policy can be served from raw observations wherever
its bundle is.
"""
