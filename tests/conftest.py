"""Settings for every test, made before anything imports TensorFlow. No global seeds: tests that draw say from what."""

import os

from hypothesis import settings

os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

# Time is never asserted, so examples have no deadline; CI draws the same examples every time.
settings.register_profile("distrl", deadline=None, derandomize="CI" in os.environ)
# What runs once more on another of Keras' backends compiles for every shape anew, and needs no new examples.
settings.register_profile("other backend", settings.get_profile("distrl"), max_examples=8)
settings.load_profile("distrl" if os.environ.get("KERAS_BACKEND", "tensorflow") == "tensorflow" else "other backend")
