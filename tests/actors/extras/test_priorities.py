from types import SimpleNamespace

import numpy as np
import pytest

from distrl.actors.acting import PolicyOutput
from distrl.actors.actor import Actor
from distrl.actors.extras.priorities import FirstPriorities, n_step_targets, rescaled, unscaled
from distrl.actors.outbox import Outbox
from distrl.actors.policy import Policy
from distrl.algorithms import make_algorithm
from distrl.algorithms.maths import td_targets
from distrl.algorithms.maths.returns import n_step, step_discounts
from distrl.config import RunConfig
from distrl.config.algorithms import Declared, DqnParameters, ExternalAlgorithmParameters
from distrl.config.schedules import Progress
from distrl.environments.vector import VectorEnvironment
from distrl.errors import ConfigError
from distrl.memory_backend.backend import connect
from distrl.memory_backend.codec import decode_unroll, encode_weights
from distrl.memory_backend.stream import QueueCaps
from distrl.networks.actions.categorical import CategoricalSpec
from distrl.networks.actions.values import MultiValuesSpec, ValuesSpec
from distrl.networks.policy.bundle import export_bundle
from distrl.types import Unroll, UnrollHeader, Weights
from distrl.unroll_schema import UnrollSchema

VALUES = {"action": ValuesSpec(2, "q/q")}


def make_unroll(rewards, actions, **fields):
    rewards = np.array(rewards, np.float32)
    off = np.zeros(rewards.shape, bool)
    given = {
        "header": UnrollHeader(0, 1, 0, 1, rewards.size),
        "observations": {},
        "actions": actions,
        "rewards": rewards,
        "terminated": off,
        "truncated": off,
        "valid": ~off,
        "behaviour_log_probabilities": np.zeros(rewards.shape, np.float32),
        "recurrent_state": {},
        "episode_returns": np.zeros(0, np.float32),
        "episode_lengths_steps": np.zeros(0, np.int32),
    }
    return Unroll(**(given | fields))


STEP = SimpleNamespace(observations={}, valid=np.ones(1, bool))


class Known:
    """A policy with these distributions, and these outputs for whatever comes last."""

    def __init__(self, distributions, last=None):
        self.distributions, self.last = distributions, last

    def step(self, observations, recurrent_state):
        return PolicyOutput(self.last, {})


def with_priorities(unroll, rows, specs=VALUES, **parameters):
    """Priorities of an unroll whose rows have these values, [T+1, B, A] by output."""
    policy = Known(specs, {output: values[-1] for output, values in rows.items()})
    priorities = FirstPriorities(DqnParameters.model_validate(parameters), policy)
    priorities.begin(None, None)
    for t in range(len(unroll.rewards)):
        priorities.add(PolicyOutput({output: values[t] for output, values in rows.items()}, {}), STEP)
    return priorities.close(unroll).extras["priorities"]


def column(*values):
    return np.array(values, np.float32)[:, None]


@pytest.mark.row("O06", "G16")
def test_three_steps_ahead_and_what_is_left_at_the_end():
    """gamma .5, n 3, max Q = 4 everywhere, Q(o, a) = 1: r + .5 r' + .25 r'' + .125 x 4, then two and one steps."""
    q = np.tile(np.array([1.0, 4.0], np.float32), (6, 1, 1))  # [T+1, 1, 2]
    unroll = make_unroll(column(1, 2, 3, 4, 5), {"action": np.zeros((5, 1), np.int32)})
    found = with_priorities(unroll, {"q/q": q}, discount=0.5, replay={"item": {"n_step": 3}})
    assert found.dtype == np.float32
    expected = [1 + 1 + 0.75 + 0.5, 2 + 1.5 + 1 + 0.5, 3 + 2 + 1.25 + 0.5, 4 + 2.5 + 1.0, 5 + 2.0]
    np.testing.assert_allclose(found[:, 0], np.array(expected) - 1.0, rtol=1e-6)


def test_episodes_end_and_what_follows_does_not_count():
    """Terminated after row 0: y = 1. Row 1 is not valid. Truncated after row 2: y = 3 + .5 x 4 from the final row."""
    q = np.tile(np.array([1.0, 4.0], np.float32), (5, 1, 1))
    no, yes = False, True
    unroll = make_unroll(
        column(1, 0, 3, 0),
        {"action": np.array([[1], [0], [0], [0]], np.int32)},
        terminated=np.array([[yes], [no], [no], [no]]),
        truncated=np.array([[no], [no], [yes], [no]]),
        valid=np.array([[yes], [no], [yes], [no]]),
    )
    found = with_priorities(unroll, {"q/q": q}, discount=0.5, replay={"item": {"n_step": 3}})
    np.testing.assert_allclose(found[:, 0], [3.0, 0.0, 4.0, 0.0])


def test_several_choices_share_their_target_and_average_their_errors():
    """Best values 3 and 1: y = .1 x 10 + .5 x 2 = 2, off by +1 and -1 from Q = 1 and 3; actions drawn count not."""
    specs = {"both": MultiValuesSpec((2, 2), "q/q/both"), "drawn": CategoricalSpec(2)}
    rows = np.array([[[1.0, 0.0, 0.0, 3.0]], [[3.0, 2.0, 0.0, 1.0]]], np.float32)
    unroll = make_unroll([[10.0]], {"both": np.array([[[0, 1]]], np.int32), "drawn": np.zeros((1, 1), np.int32)})
    found = with_priorities(unroll, {"q/q/both": rows}, specs, discount=0.5, reward_scale=0.1)
    np.testing.assert_allclose(found, [[1.0]])


def test_each_unroll_tells_of_its_own_rows():
    priorities = FirstPriorities(DqnParameters(discount=0.0), Known(VALUES, {"q/q": np.ones((1, 2))}))
    priorities.begin(None, None)
    priorities.add(PolicyOutput({"q/q": np.full((1, 2), 50.0, np.float32)}, {}), STEP)  # of one that is abandoned
    for reward in (1.0, 3.0):
        unroll = make_unroll([[reward]], {"action": np.zeros((1, 1), np.int32)})
        priorities.begin(None, None)
        priorities.add(PolicyOutput({"q/q": np.zeros((1, 2), np.float32)}, {}), STEP)
        np.testing.assert_allclose(priorities.close(unroll).extras["priorities"], [[reward]])


@pytest.mark.parametrize("seed", range(5))
def test_targets_are_the_learners(seed):
    rng = np.random.default_rng(seed)
    shape = (6, 3)
    values = rng.standard_normal((7, 3)).astype(np.float32)
    rewards = rng.standard_normal(shape).astype(np.float32)
    terminated, valid = rng.random(shape) < 0.2, rng.random(shape) < 0.8
    for steps in (1, 3, 9):
        learners = n_step(
            values=values,
            rewards=rewards,
            discounts=step_discounts(terminated, 0.9),
            valid=valid,
            steps=steps,
        )
        ours = n_step_targets(values, rewards, 0.9 * (1.0 - terminated), valid, steps)
        np.testing.assert_allclose(ours, np.asarray(learners.value_targets), rtol=1e-4, atol=1e-5)


def test_values_are_rescaled_as_the_learner_does():
    values = np.float32([-1e5, -300.0, -1.0, -1e-2, 0.0, 1e-2, 0.5, 20.0, 4000.0])
    np.testing.assert_allclose(rescaled(values), np.asarray(td_targets.rescaled(values)), rtol=1e-5)
    np.testing.assert_allclose(unscaled(values), np.asarray(td_targets.unscaled(values)), rtol=1e-3, atol=1e-5)


def test_of_rescaled_values_by_hand():
    """The network says h(3) = 1.003 of the best choice after: y = 1 + .5 x 3 = 2.5, h(y) = sqrt 3.5 - 1 + .0025."""
    rows = np.array([[[0.5, 0.0]], [[1.003, -1.0]]], np.float32)
    unroll = make_unroll([[1.0]], {"action": np.zeros((1, 1), np.int32)})
    found = with_priorities(unroll, {"q/q": rows}, discount=0.5, value_rescaling=True)
    np.testing.assert_allclose(found, [[np.sqrt(3.5) - 1.0 + 0.0025 - 0.5]], rtol=1e-4)


@pytest.mark.row("O06", "G16")
def test_an_actor_tells_the_temporal_differences_of_its_own_network(tmp_path):
    """Against the Keras network whose weights it acted with, row by row."""
    config = RunConfig.model_validate(
        {
            "environment": {"id": "distrl.environments.worlds.toy:Identity", "kwargs": {"n": 3, "length_steps": 4}},
            "algorithm": {"name": "apex", "discount": 0.5},
            "network": {"middleware_parameters": {"scheme": [4]}},
            "actors": {"environments": 2, "unroll_length_steps": 7},
        }
    )
    environment = VectorEnvironment(config.environment, 2)
    network = make_algorithm(config).build(environment.spec)["main"].online
    backend = connect("local:", "actors", QueueCaps(100, 2**24), name="test", give_up_s=1.0)
    backend.create("{}")
    weights = encode_weights(Weights(1, network.policy_weights()))
    backend.become_learner().weights.publish(1, weights, Progress())
    policy = Policy(export_bundle(network, cache_dir=tmp_path))
    producer = (0, backend.registry.register_actor(0))
    actor = Actor(config, policy, environment, Outbox(config, backend, producer, lambda: False))
    actor.reset(0)
    for _ in range(2):
        actor.step(backend.unrolls.admission())
    schema = UnrollSchema.of(environment.spec, 7, 2, {}, extras=["priorities"])
    entries = backend.unrolls.take(2, 0.0)
    environment.close()
    for unroll in (decode_unroll(entry.header, entry.payload, schema) for entry in entries):
        rows = unroll.observations["observation"].reshape(16, -1)  # [T+1, B, n] -> [(T+1)*B, n]
        q = network.predict({"observation": rows}, ["dueling_q/q"]).reshape(8, 2, 3)
        targets = n_step_targets(q.max(axis=-1), unroll.rewards, 0.5 * ~unroll.terminated, unroll.valid, 3)
        chosen = np.take_along_axis(q[:-1], unroll.actions["action"][..., None], axis=-1)[..., 0]
        expected = np.where(unroll.valid, np.abs(targets - chosen), 0.0)
        np.testing.assert_allclose(unroll.extras["priorities"], expected, rtol=1e-4, atol=1e-5)
        assert not unroll.valid.all()


def test_priorities_that_nobody_could_tell_are_refused():
    parameters = ExternalAlgorithmParameters(
        name="mine:Own", declared={"unroll_extras": ["priorities"], "replay": {}, "learns_from": "anybody"}
    )
    with pytest.raises(ConfigError) as caught:
        FirstPriorities(parameters, Known({"action": CategoricalSpec(2)}))
    assert str(caught.value) == (
        "algorithm mine:Own: priorities need values of choices, as of a q head, and no action of action has them"
    )
    with pytest.raises(ConfigError, match=r"mine:Own: priorities are for a replay memory, and it has none"):
        FirstPriorities(parameters.model_copy(update={"declared": Declared()}), Known(VALUES))
