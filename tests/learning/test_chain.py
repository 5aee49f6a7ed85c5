"""Values of the same chain with a time limit and with an end: what is learned is exactly what the flag says."""

import numpy as np
import pytest

GAMMA = 0.99
REWARDS = np.array([1.0, 0.0, 2.0, 0.0, 4.0])
NEXT = np.array([1, 2, 3, 4, 2])
SCALE = 0.01

pytestmark = pytest.mark.slow


def endless_values():
    """(I - γ P) V = r."""
    return np.linalg.solve(np.eye(5) - GAMMA * np.eye(5)[NEXT], REWARDS)


def finite_values():
    """Sums of what is still to come within the episode of five steps."""
    return np.array([sum(GAMMA ** (k - s) * REWARDS[k] for k in range(s, 5)) for s in range(5)])


def learned_values(train_here, *sets: str) -> np.ndarray:
    """Asks the policy's files, as an actor would, what each state is worth."""
    # One weight per state and a bias. 16 steps do not fit the 6 rows of an episode: unrolls end anywhere within one.
    network = ["network.middleware_parameters={kind: fc, scheme: Empty}", f"algorithm.reward_scale={SCALE}"]
    rate = ["network.learning_rate=0.1", "network.learning_rate_decay_rate=0.5", "network.learning_rate_decay_steps=40"]
    size = ["actors.environments=4", "actors.unroll_length_steps=16", "learner.batch_size=1", "stop.updates=200"]
    policy = train_here("environment.id=distrl.environments.worlds.chains:Chain", *network, *rate, *size, *sets)
    return policy.step({"observation": np.arange(5, dtype=np.uint8)[:, None]}, {}).outputs["value"].ravel() / SCALE


@pytest.mark.row("T17")
def test_with_a_time_limit_values_are_those_of_the_endless_chain(train_here):
    found = learned_values(train_here, "environment.kwargs={end: time_limit}")
    np.testing.assert_allclose(found, endless_values(), rtol=0.02)


@pytest.mark.long
def test_with_a_termination_values_are_those_of_the_five_steps(train_here):
    found = learned_values(train_here, "environment.kwargs={end: termination}")
    np.testing.assert_allclose(found, finite_values(), rtol=0.02)


@pytest.mark.long
def test_a_time_limit_that_no_state_tells_changes_nothing(train_here):
    """Twelve steps: states 2, 3 and 4 are seen several times, with different numbers of steps left."""
    found = learned_values(train_here, "environment.kwargs={end: time_limit, steps: 12}")
    np.testing.assert_allclose(found, endless_values(), rtol=0.02)
