"""Plays CartPole from the file of `distrl export`, without distrl.

ORT_DISABLE_TELEMETRY=1 python examples/onnx_policy.py policy.onnx
"""

import sys

import gymnasium
import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession(sys.argv[1])
environment = gymnasium.make("CartPole-v1")
observation, _ = environment.reset(seed=0)
episode_return, ended = 0.0, False
while not ended:
    (logits,) = session.run(["policy/action"], {"observation": np.asarray(observation, np.float32)[np.newaxis]})
    observation, reward, terminated, truncated, _ = environment.step(int(logits.argmax()))
    episode_return, ended = episode_return + float(reward), terminated or truncated
print(f"return {episode_return:g}")
