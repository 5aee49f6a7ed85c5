"""A seat is an ordinary actor: its unrolls are those of an actor that steps the same environment."""

import threading
from dataclasses import replace

import gymnasium
import numpy as np
import pytest

from distrl.actors.actor import Actor
from distrl.actors.outbox import Outbox
from distrl.actors.policy import Policy
from distrl.apps.agents.common_policy import CommonPolicy, LoopPolicy
from distrl.apps.serve.messages import StepResult
from distrl.apps.serve.seats import Published, Run, Seat
from distrl.config.load import config_of_run
from distrl.config.schedules import Progress
from distrl.environments.given import spaces_of_named
from distrl.environments.vector import VectorEnvironment, environment_seeds
from distrl.learner.policy_files import NEWEST, read_policy
from distrl.memory_backend.backend import connect
from distrl.memory_backend.stream import Admission

T = 6


class World:
    """A published policy, an ordinary actor, and seats; what seats push is in `unrolls`."""

    def __init__(self, run_dir):
        saved, config = read_policy(run_dir, NEWEST), config_of_run(run_dir)
        actors = config.actors.model_copy(update={"environments": 1, "unroll_length_steps": T, "count": 1})
        self.config = config.model_copy(update={"actors": actors})
        self.bundle, self.published = saved.bundle, Published(saved.weights, Progress())
        self.unrolls, self.dropped, self.admits = [], 0, True
        self.backend = connect("local:", "seats", name="test", give_up_s=1.0)
        given = config.environment.model_copy(update={"spaces": spaces_of_named(config.environment)})
        self.run = Run(
            self.config,
            given,
            0,
            self.backend,
            CommonPolicy(saved.bundle),
            threading.Event(),
            lambda: self.published,
            lambda seat: self.admits,
            lambda seat, unroll: self.unrolls.append(unroll),
            self._drop,
        )

    def _drop(self, steps):
        self.dropped += steps

    def ordinary(self, count):
        """Return unrolls of an actor that steps CartPole itself."""
        outbox = Outbox(self.config, self.backend, (7, 1), lambda: False)
        outbox.published_progress = Progress
        outbox.fetch = lambda rate: self.published
        environment = VectorEnvironment(self.config.environment, 1)
        actor = Actor(self.config, Policy(self.bundle), environment, outbox)
        actor.reset(0)
        unrolls = []
        for _ in range(count):
            actor.begin(Admission(True, self.published.weights.version, False, False))
            while not actor.full:
                chosen = actor.choose()
                actor.add(chosen, environment.step(chosen.actions))
            unrolls.append(actor.close())
        return unrolls


@pytest.fixture(params=["mlp", "lstm"])
def world(request, trained):
    return World(trained(request.param))


def seed_of(world):
    outbox = Outbox(world.config, world.backend, (7, 1), lambda: False)
    outbox.published_progress = Progress
    return outbox.reset(world.config.seed, 0)[0]


def drive(seat, environment, seed, more):
    """Step an environment as a client does, while `more()`."""
    observation, _ = environment.reset(seed=seed)
    while more():
        seat.see(observation)
        observation, reward, terminated, truncated, _ = environment.step(seat.choose())
        seat.observe(StepResult(float(reward), terminated, truncated, {}, None), observation)
        if terminated or truncated:
            observation, _ = environment.reset()


def test_its_unrolls_are_those_of_an_actor(world):
    ordinary = world.ordinary(8)
    seat = Seat(world.run, (7, 1))
    environment = gymnasium.make("CartPole-v1")

    drive(seat, environment, int(environment_seeds(seed_of(world), 1)[0]), lambda: len(world.unrolls) < 8)
    for one, other in zip(ordinary, world.unrolls, strict=True):
        assert replace(one.header, sequence=0) == replace(other.header, sequence=0)
        for name in ("rewards", "terminated", "truncated", "valid", "behaviour_log_probabilities", "episode_returns"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
        for group in ("observations", "actions", "recurrent_state"):
            for name, array in getattr(one, group).items():
                np.testing.assert_array_equal(array, getattr(other, group)[name], err_msg=name)


def test_rows_before_an_admission_are_left_out_and_the_episode_goes_on(world):
    """The return of an episode that began before is whole, and the recurrent state is the current one."""
    world.admits = False
    seat = Seat(world.run, (7, 1))
    rng = np.random.default_rng(0)

    def step(**ends):
        seat.see(rng.normal(size=4).astype(np.float32))
        state = {name: array.copy() for name, array in seat.row[1].items()}
        seat.choose()
        seat.observe(StepResult(1.0, ends.get("terminated", False), False, {}, None), None)
        return state

    for _ in range(T + 2):
        step()
    assert (world.unrolls, seat.records, world.dropped) == ([], False, T + 2)
    world.admits = True
    first = step()
    for _ in range(T - 2):
        step()
    step(terminated=True)
    (unroll,) = world.unrolls
    assert (unroll.episode_returns.tolist(), unroll.episode_lengths_steps.tolist()) == ([2 * T + 2], [2 * T + 2])
    assert (unroll.header.env_steps, world.dropped) == (T, T + 2)
    for name, array in first.items():
        np.testing.assert_array_equal(unroll.recurrent_state[name][0], array, err_msg=name)


def test_an_unroll_that_is_given_up_is_counted_and_the_episode_goes_on(world):
    """As where a client has gone, with an algorithm whose update waits for it."""
    seat = Seat(world.run, (7, 1))
    rng = np.random.default_rng(0)

    def step():
        seat.see(rng.normal(size=4).astype(np.float32))
        seat.choose()
        seat.observe(StepResult(1.0, False, False, {}, None), None)

    for _ in range(3):
        step()
    assert not seat.give_up(since=0.0)  # it was stepped since then
    assert seat.give_up()
    assert (world.dropped, seat.give_up()) == (3, False)
    for _ in range(T):
        step()
    assert world.unrolls == []  # its last row is complete with the next observation
    step()
    (unroll,) = world.unrolls
    assert (unroll.header.env_steps, world.dropped) == (T, 3)


def test_rows_that_are_computed_together_are_those_of_each(world):
    seats = [Seat(world.run, (number, 1)) for number in range(3)]
    rng = np.random.default_rng(0)
    for seat in seats:
        seat.see(rng.normal(size=4).astype(np.float32))
    alone = [world.run.shared.policy.step(*seat.row) for seat in seats]
    world.run.shared.prepare([seat.row for seat in seats])
    for seat, expected in zip(seats, alone, strict=True):
        found = world.run.shared.step(*seat.row)
        for name, array in expected.outputs.items():
            np.testing.assert_allclose(found.outputs[name], array, rtol=1e-5, atol=1e-6)
        for name, array in expected.recurrent_state.items():
            np.testing.assert_allclose(found.recurrent_state[name], array, rtol=1e-5, atol=1e-6)


def test_each_loop_follows_every_version_and_its_progress(world):
    """Exploration of each follows schedules; the weights are fetched once."""
    common, fetched = CommonPolicy(world.bundle), []

    def fetch():
        fetched.append(1)
        return world.published.weights, Progress(updates=7)

    version = world.published.weights.version
    for loop in (LoopPolicy(common), LoopPolicy(common)):
        loop.forget_weights()
        assert loop.version == 0
        assert loop.follow(version, fetch, 1.0).updates == 7
        assert loop.version == version
    assert fetched == [1]
