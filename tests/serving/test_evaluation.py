"""`play`: a subject in its environment, exactly so many episodes, films included; without a run, a baseline."""

import dataclasses
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from distrl.config import RunConfig
from distrl.config.environment import EnvironmentConfig
from distrl.environments.vector import VectorEnvironment
from distrl.errors import ConfigError
from distrl.networks.actions.categorical import CategoricalSpec
from distrl.serving import evaluation
from distrl.serving.evaluation import Subject, Video, baseline, play, saved_policy
from distrl.types import EnvSpec

IDENTITY = RunConfig(environment=EnvironmentConfig(id="distrl.environments.worlds.toy:Identity"))


def totals(subject, **changes):
    arguments = {"episodes": 7, "environments": 3, "seed": 0, **changes}
    return [episode.total for episode in play(subject, **arguments)]


def test_the_seed_settles_everything():
    for kind, values in (("random", {}), ("constant", {None: 1})):
        subject = baseline(kind, IDENTITY, values)
        assert len(totals(subject)) == 7
        assert totals(subject) == totals(subject)
        assert totals(subject) != totals(subject, seed=1)


def test_no_more_environments_than_episodes(monkeypatch):
    made = []
    monkeypatch.setattr(evaluation, "VectorEnvironment", lambda config, count: made.append(count) or pytest.skip())
    for episodes in (3, None):
        with pytest.raises(pytest.skip.Exception):
            totals(baseline("random", IDENTITY, {}), episodes=episodes, environments=10)
    assert made == [3, 10]


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        ("greedy", {}, "--baseline greedy is none of random, constant, module:function"),
        ("random", {None: 1}, "--action is of --baseline constant; random chooses its own"),
        (
            "nowhere:policy",
            {},
            "--baseline nowhere:policy: module 'nowhere' cannot be imported: ModuleNotFoundError: "
            "No module named 'nowhere'",
        ),
        ("constant", {}, "constant policy: action action has no value; each of action needs one"),
        ("constant", {None: 4}, "constant policy: action action takes 0 … 3, not 4"),
    ],
)
def test_baselines_that_cannot_be(kind, values, message):
    with pytest.raises(ConfigError) as caught:
        totals(baseline(kind, IDENTITY, values))
    assert str(caught.value) == message


def test_several_actions_are_named():
    mixed = RunConfig(environment=EnvironmentConfig(id="distrl.environments.worlds.toy:Mixed"))
    with pytest.raises(ConfigError, match="--action: name the action, NAME=VALUE; there are bounded, choices, free,"):
        totals(baseline("constant", mixed, {None: 1}))
    values = {"bounded": [0, 0], "choices": [0, 0], "free": [0, 0], "switches": [0, 0], "symbol": 0}
    assert len(totals(baseline("constant", mixed, values), episodes=1)) == 1


def test_a_policy_of_another_environment_is_refused(monkeypatch, tmp_path):
    (tmp_path / "config.yaml").write_text("environment: {id: 'distrl.environments.worlds.toy:Bandit'}\n")
    weights = SimpleNamespace(version=3)
    monkeypatch.setattr(
        evaluation,
        "read_policy",
        lambda run_dir, checkpoint: SimpleNamespace(bundle=None, weights=weights, env_steps=70),
    )
    policy = SimpleNamespace(spec=EnvSpec("Another-v0", {}, {}), set_weights=lambda given: None)
    monkeypatch.setattr(evaluation, "Policy", lambda bundle: policy)
    subject = saved_policy(tmp_path, "best")
    assert (subject.env_steps, subject.weights_version) == (70, 3)
    with pytest.raises(ConfigError, match=r"was made for EnvSpec\(id='Another-v0'.*, here the environment is EnvSpec"):
        totals(subject)


@pytest.mark.parametrize("shown", ["as they travel", "one-hot", "one-hot, without their numbers"])
def test_a_policy_of_an_earlier_version_gets_categories_one_hot(monkeypatch, tmp_path, shown):
    (tmp_path / "config.yaml").write_text("environment: {id: 'distrl.environments.worlds.toy:Identity'}\n")
    spec = VectorEnvironment(IDENTITY.environment, 1).spec
    best = round(spec.reward_threshold / 0.95)
    (array,) = spec.observations.values()
    if shown != "as they travel":
        row = array.expanded if "without" in shown else replace(array.expanded, one_hot=array.one_hot)
        spec = replace(spec, observations={"observation": row})
    given = []

    def step(observations, recurrent_state):
        given.append(observations["observation"])
        numbers = given[-1] if shown == "as they travel" else given[-1].argmax(axis=-1, keepdims=True)
        return SimpleNamespace(
            outputs={"policy/action": np.eye(4, dtype=np.float32)[numbers[:, 0]]}, recurrent_state={}
        )

    policy = SimpleNamespace(
        spec=spec,
        set_weights=lambda weights: None,
        initial_state=lambda batch: {},
        distributions={"action": CategoricalSpec(4)},
        step=step,
    )
    saved = SimpleNamespace(bundle=None, weights=SimpleNamespace(version=3), env_steps=70)
    monkeypatch.setattr(evaluation, "read_policy", lambda run_dir, checkpoint: saved)
    monkeypatch.setattr(evaluation, "Policy", lambda bundle: policy)
    assert totals(saved_policy(tmp_path, "newest")) == [best] * 7
    assert given[0].dtype == spec.observations["observation"].dtype
    assert max(totals(saved_policy(tmp_path, "newest", epsilon=1.0))) < best  # random actions


def test_the_filmed_environment_must_play_as_many_as_are_filmed(tmp_path):
    subject = baseline("random", IDENTITY, {})
    with pytest.raises(ConfigError, match="--video-episodes 4: the environment that is filmed plays 3 of 7 episodes"):
        totals(subject, video=Video(tmp_path / "film.mp4", 4))
    with pytest.raises(ConfigError, match=r"--video: environment .*Identity cannot be made with kwargs .*render_mode"):
        totals(subject, video=Video(tmp_path / "film.mp4", 3))


def test_environments_are_closed_when_the_iterator_is(monkeypatch):
    closed = []
    monkeypatch.setattr(evaluation.VectorEnvironment, "close", lambda self: closed.append(self.rows))

    class Fails:
        def initial_state(self, batch):
            return {}

        def choose(self, observations, recurrent_state):
            return {"action": np.zeros(len(observations["observation"]), np.int32)}, {}

    playing = play(
        Subject("it", IDENTITY.environment, lambda spec, rng: Fails()), episodes=None, environments=2, seed=0
    )
    next(playing)
    assert closed == []
    playing.close()
    assert closed == [2]
    refuses = dataclasses.replace(baseline("constant", IDENTITY, {}))
    with pytest.raises(ConfigError):
        totals(refuses)
    assert closed == [2, 3]
