"""One nested observation and one nested action, under the same names in the same order from the environment to the
exported policy and back, and a policy that learns to do what a text says."""

import json
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import onnxruntime
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple

from distrl.actors.policy import Policy
from distrl.actors.unroll import UnrollBuilder
from distrl.algorithms import make_algorithm
from distrl.config import RunConfig
from distrl.environments.text import token
from distrl.environments.vector import VectorEnvironment
from distrl.memory_backend.codec import decode_unroll, encode_unroll
from distrl.memory_backend.joining import stack
from distrl.networks.actions.joint import ActionSelector
from distrl.networks.policy.bundle import export_bundle, export_whole
from distrl.types import EnvSpec, Unroll, Weights
from distrl.unroll_schema import UnrollSchema

OBSERVATIONS = ["mission", "scene/0", "scene/1/lamps", "scene/1/where", "scene/2"]
ACTIONS = ["hands/0", "hands/1/force", "hands/1/grip", "lamps"]
MISSIONS = ["take the red key", "take the blue key", "put the key down"]
T, B = 8, 16
CONFIG = RunConfig.model_validate(
    {
        "environment": {"id": "Instructed-v0", "vectorization": "sync", "text": {"length_tokens": 6, "vocabulary": 97}},
        "network": {
            "learning_rate": 0.02,
            "middleware_parameters": {"scheme": [32]},
            "input_embedders_parameters": {"mission": {"embedding_width": 8}, "scene/1/where": {"scheme": [4]}},
        },
        "actors": {"environments": B, "unroll_length_steps": T},
        "learner": {"batch_size": 1},
    }
)


class Instructed(gymnasium.Env[dict[str, Any], dict[str, Any]]):
    """Pays 1 for the hand's choice that the text names, and checks that actions are in their space."""

    def __init__(self) -> None:
        where = Dict({"where": MultiDiscrete([2, 3], start=[0, 5]), "lamps": MultiBinary(2)})
        self.observation_space = Dict(
            {"scene": Tuple((Discrete(3, start=-1), where, Box(0, 1, (2,), np.float64))), "mission": Text(20)}
        )
        fingers = Dict({"grip": MultiDiscrete([2, 2]), "force": Box(-1.0, 1.0, (1, 2), np.float64)})
        self.action_space = Dict({"lamps": MultiBinary(2), "hands": Tuple((Discrete(3, start=4), fingers))})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed, options=options)
        if seed is not None:
            self.observation_space.seed(seed)
        self._scene = self.observation_space.sample()["scene"]
        return self._show(), {}

    def step(self, action: dict[str, Any]) -> Any:
        assert self.action_space.contains(action), action
        reward = float(action["hands"][0] - 4 == self._wanted)
        return self._show(), reward, bool(self.np_random.random() < 0.2), False, {}

    def _show(self) -> dict[str, Any]:
        self._wanted = int(self.np_random.integers(len(MISSIONS)))
        return {"scene": self._scene, "mission": MISSIONS[self._wanted]}


@pytest.fixture
def environment() -> Iterator[VectorEnvironment]:
    gymnasium.register("Instructed-v0", Instructed)
    environment = VectorEnvironment(CONFIG.environment, B)
    yield environment
    environment.close()
    del gymnasium.registry["Instructed-v0"]


class Line:
    """Hops 1 to 9, and the weights back to the policy, in one process."""

    def __init__(self, environment: VectorEnvironment) -> None:
        self.environment = environment
        self.algorithm = make_algorithm(CONFIG)
        self.networks = self.algorithm.build(environment.spec)
        self.online = self.networks["main"].online
        self.bundle = export_bundle(self.online)
        self.policy = Policy(self.bundle)
        self.selector = ActionSelector(self.policy.distributions)
        self.random = np.random.default_rng(5)
        self.builder = UnrollBuilder(environment.spec, T, B)
        self.observations = environment.reset(seed=0)
        self.builder.begin(self.observations, {})

    def unroll(self, version: int) -> Unroll:
        """T steps under the weights as they are now, through the codec."""
        self.policy.set_weights(Weights(version, self.online.named_weights()))
        while not self.builder.full:
            outputs = self.policy.step(self.observations, {}).outputs
            actions, log_probabilities = self.selector.sample(outputs, self.random)
            step = self.environment.step(actions)
            self.builder.add(actions, log_probabilities, step, {})
            self.observations = step.observations
        closed = self.builder.close((0, 1), version, version)
        schema = UnrollSchema.of(self.environment.spec, T, B, {})
        return decode_unroll(closed.header, encode_unroll(closed), schema)


def names_in(spec: EnvSpec) -> tuple[list[str], list[str]]:
    return list(spec.observations), list(spec.actions)


@pytest.mark.row("E04", "E22")
def test_names_and_order_are_the_same_from_end_to_end(environment: VectorEnvironment) -> None:
    line = Line(environment)
    names = (OBSERVATIONS, ACTIONS)
    # the actor: what is read, and what the policy draws
    assert names_in(environment.spec) == names
    assert list(line.observations) == OBSERVATIONS
    assert [array.shape[1:] for array in line.observations.values()] == [(6,), (1,), (2,), (2,), (2,)]
    assert set(line.observations["mission"].ravel()) <= {
        0,
        *(token(word, 97) for text in MISSIONS for word in text.split()),
    }
    # the wire
    unroll = line.unroll(1)
    schema = UnrollSchema.of(environment.spec, T, B, {})
    assert (list(schema.observations), list(schema.actions)) == names
    assert (list(unroll.observations), list(unroll.actions)) == names
    np.testing.assert_array_equal(unroll.observations["scene/2"][-1], line.observations["scene/2"])
    # the learner's batch
    batch = stack([unroll, unroll], {})
    assert (list(batch.observations), list(batch.actions)) == names
    assert batch.actions["hands/1/force"].shape == (T, 2 * B, 2)
    # the network
    outputs = [f"policy/{action}" for action in ACTIONS]
    assert list(line.online.model.input) == OBSERVATIONS
    assert [name for name in line.online.model.output if name != "value"] == outputs
    # the bundle: its description, its graph, and the file that `export` writes
    described = json.loads(line.bundle.description)
    assert list(described["inputs"]) == OBSERVATIONS
    assert list(described["action_distributions"]) == ACTIONS
    assert names_in(line.policy.spec) == names
    session = onnxruntime.InferenceSession(export_whole(line.online), providers=["CPUExecutionProvider"])
    assert [given.name for given in session.get_inputs()] == OBSERVATIONS
    assert [given.name for given in session.get_outputs() if given.name != "value"] == outputs
    # and it computes what the network computes
    seen = line.observations
    for name, computed in zip(outputs, session.run(outputs, seen), strict=True):
        np.testing.assert_allclose(computed, line.online.predict(seen, [name]), atol=1e-5)
        np.testing.assert_allclose(computed, line.policy.step(seen, {}).outputs[name], atol=1e-5)


@pytest.mark.slow
@pytest.mark.row("L06")
def test_a_policy_learns_to_do_what_a_text_says(environment: VectorEnvironment) -> None:
    line = Line(environment)
    shares = []
    for version in range(1, 41):
        unroll = line.unroll(version)
        shares.append(unroll.rewards[unroll.valid].mean())
        line.algorithm.update(line.networks, stack([unroll], {}))
    # One choice of three is right. A policy that does not read gets 0.33, with a deviation of 0.015 over ten unrolls.
    assert np.mean(shares[-10:]) > 0.5, shares
