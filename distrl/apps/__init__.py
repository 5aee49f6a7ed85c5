"""Applications around the core: what people use beside a training, and the command line over all of it.

The core trains, stores and resumes without any of them, and `tests/test_architecture.py` fails if it imports one. An
application uses the core's packages, and another application only where that test's table says so.
"""
