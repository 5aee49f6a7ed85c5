"""Preprocessing: what lies between an environment and the policy; `pipeline.py` puts the steps of the others together.

Free of gymnasium, so that a policy can be served from raw observations wherever its bundle is.
"""
