"""distrl's losses, targets, gradients and whole updates beside those of rlax, Stable-Baselines3 and others.

    make references                        100 s of CPU time; prints the table
    make references ARGS=--publish         also writes benchmarks/results/references.json

Every comparison is a test, in the modules `test_*.py` of this folder. It runs distrl's own algorithm, and the library's
own `train()` or function, from the same weights on the same data, and compares all numbers that come out. Where the
library follows another convention, it is set to distrl's in the test, and the table says so. The libraries are in an
environment of their own, build/references, from requirements/references.lock.
"""
