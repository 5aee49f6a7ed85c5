"""R2D2's burn-in against a run from the start of each episode, one step at a time.

An actor stores recurrent states, the replay memory hands them on, and the learner's network burns them in.
"""

import numpy as np
import pytest

from distrl.actors.actor import Actor
from distrl.actors.outbox import Outbox
from distrl.actors.policy import Policy
from distrl.algorithms import make_algorithm
from distrl.config import RunConfig
from distrl.config.schedules import Progress
from distrl.environments.vector import VectorEnvironment
from distrl.learner.replay_set_up import make_replay
from distrl.memory_backend.backend import connect
from distrl.memory_backend.codec import decode_unroll, encode_weights
from distrl.memory_backend.stream import QueueCaps
from distrl.networks.policy.bundle import export_bundle
from distrl.types import Weights
from distrl.unroll_schema import UnrollSchema

T, B, LENGTH, BURN_IN = 32, 4, 14, 8
CONFIG = {
    "environment": {"id": "distrl.environments.worlds.random_env:RandomEnv", "kwargs": {"terminal_prob": 0.03}},
    "algorithm": {
        "name": "r2d2",
        "replay": {
            "item": {"length_steps": LENGTH, "overlap_steps": LENGTH - 2, "burn_in_steps": BURN_IN},
            "min_size_steps": 1,
            "capacity_steps": 4 * T * B,
        },
    },
    "network": {"middleware_parameters": {"kind": "lstm", "number_of_lstm_cells": 16}},
    "actors": {"environments": B, "unroll_length_steps": T},
}


class Stored:
    """Three unrolls of an actor, in a replay memory.

    Attributes:
        main: The learner's network, with the weights that the actor acted with.
        batch: Many sequences of the memory.
    """

    def __init__(self, seed, folder):
        config = RunConfig.model_validate(CONFIG | {"seed": seed})
        environment = VectorEnvironment(config.environment, B)
        self.main = make_algorithm(config).build(environment.spec)["main"]
        online = self.main.online
        backend = connect("local:", "burn-in", QueueCaps(100, 2**24), name="test", give_up_s=1.0)
        backend.create("{}")
        backend.become_learner().weights.publish(1, encode_weights(Weights(1, online.policy_weights())), Progress())
        policy = Policy(export_bundle(online, cache_dir=folder, exploration=config.exploring))
        producer = (0, backend.registry.register_actor(0))
        actor = Actor(config, policy, environment, Outbox(config, backend, producer, lambda: False))
        actor.reset(0)
        for _ in range(3):
            actor.step(backend.unrolls.admission())
        environment.close()
        states = online.recurrent_state
        schema = UnrollSchema.of(environment.spec, T, B, states, extras=["priorities"], states=len(config.state_rows))
        self.unrolls = [decode_unroll(entry.header, entry.payload, schema) for entry in backend.unrolls.take(3, 0.0)]
        replay = make_replay(config, environment.spec, states, 0)
        for unroll in self.unrolls:
            replay.insert(unroll)
        self.batch = replay.sample(60, Progress()).batch

    def fresh(self):
        """Return observation -> (state before it, values), by single steps from the start of each episode."""
        online, names = self.main.online, [*self.main.online.recurrent_state]
        state = {name: np.zeros((B, *spec.shape), np.float32) for name, spec in online.recurrent_state.items()}
        found = {}
        for unroll in self.unrolls:
            for t in range(T + 1):
                rows = unroll.observations["observation"][t]
                *following, q = online.predict(
                    {"observation": rows, **state}, [*(f"next_{name}" for name in names), "dueling_q/q"]
                )
                before = np.concatenate([state[name] for name in names], axis=-1)
                found |= {row.tobytes(): each for row, each in zip(rows, zip(before, q, strict=True), strict=True)}
                if t < T:  # the last row is the next unroll's first
                    lives = unroll.valid[t][:, None]
                    state = {name: np.where(lives, each, 0.0) for name, each in zip(names, following, strict=True)}
        return found

    def at(self, found, row):
        """Return the states of `fresh` before a row of the batch, [N, width]."""
        return np.stack([found[each.tobytes()][0] for each in self.batch.observations["observation"][row]])

    def burnt_in(self):
        """Return the states that the trained rows begin with, [N, width]."""
        first = {name: rows[:BURN_IN] for name, rows in self.batch.observations.items()}
        after = self.main.online.state_after(first, self.batch.recurrent_state, self.batch.valid[:BURN_IN])
        return joined(after)

    def values(self):
        """Return the values that the loss sees, of both copies, [rows + 1, N, choices]."""
        seen = {}

        def loss(outputs, batch):
            seen.update(outputs, rows=batch.observations["observation"])
            return {"dueling_q": np.float32(0.0)}, {}

        self.main.objective(loss).function(self.batch)
        np.testing.assert_array_equal(seen["rows"], self.batch.observations["observation"][BURN_IN:])
        return np.asarray(seen["dueling_q/q"]), np.asarray(seen["target/dueling_q/q"])


def joined(states):
    return np.concatenate([np.asarray(state) for state in states.values()], axis=-1)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    made = {}

    def get(seed):
        if seed not in made:
            made[seed] = Stored(seed, tmp_path_factory.mktemp("bundles"))
        return made[seed]

    return get


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_with_the_weights_that_acted_it_leads_to_the_state_and_the_values_of_the_whole_episode(stored, seed):
    run = stored(seed)
    fresh = run.fresh()
    starts = run.at(fresh, 0)
    assert set((starts == 0.0).all(axis=-1)) == {False, True}  # within an episode, and at the start of one
    assert not run.batch.valid[:BURN_IN].all()  # some episodes begin within the burn-in
    np.testing.assert_allclose(joined(run.batch.recurrent_state), starts, atol=1e-5)
    np.testing.assert_allclose(run.burnt_in(), run.at(fresh, BURN_IN), atol=1e-5)
    rows = run.batch.observations["observation"][BURN_IN:]
    expected = np.array([[fresh[each.tobytes()][1] for each in row] for row in rows])
    for values in run.values():
        np.testing.assert_allclose(values, expected, atol=1e-5)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 4))])
def test_with_other_weights_it_leads_nearer_to_the_state_of_the_whole_episode_than_the_stored_one(stored, seed):
    """Both are states before the first trained row: burn-in makes one, the actor had the other there."""
    run = stored(seed)
    online, before = run.main.online, run.main.online.get_weights()
    old = run.at(run.fresh(), BURN_IN)
    rng = np.random.default_rng(seed)
    online.set_weights([w + 0.2 * rng.standard_normal(w.shape).astype(w.dtype) for w in before])
    fresh = run.at(run.fresh(), BURN_IN)
    burnt_in = run.burnt_in()
    online.set_weights(before)
    # Sequences within an episode that began before them: elsewhere the stored state is zero, which is right.
    within = run.batch.valid[:BURN_IN].all(axis=0) & (joined(run.batch.recurrent_state) != 0.0).any(axis=-1)
    far = np.linalg.norm(old - fresh, axis=-1)[within]
    near = np.linalg.norm(burnt_in - fresh, axis=-1)[within]
    assert len(far) > 30
    assert (near < far).all()
    assert near.mean() < 0.6 * far.mean()
