"""Deterministic mode's feed: the actor acts exactly when the learner wants a batch. Whole runs: tests/failures."""

from types import SimpleNamespace

import numpy as np
import pytest

from distrl.algorithms.dqn import Dqn
from distrl.config import RunConfig
from distrl.data_store.checkpoints import load_newest
from distrl.data_store.start_plan import StartPlan
from distrl.environments.vector import VectorEnvironment
from distrl.environments.worlds.toy import Identity, StepCounter
from distrl.errors import NonFiniteError, StalledError
from distrl.launch.deterministic import InlineActor, InlineSource, run_deterministic
from distrl.learner.policy_files import kept_best
from distrl.memory_backend.backend import connect
from distrl.memory_backend.stream import QueueCaps
from distrl.roles.description import RunDescription


def inline_feed(collect, stall_timeout_s=60.0):
    """An InlineSource over a scripted feed: `collect(act)` is what the feed does with what it may ask."""
    acted = []
    actor = SimpleNamespace(step=acted.append, reset=lambda update: None)
    backend = connect("local:", "r", QueueCaps(10, 2**20), name="test", give_up_s=1.0)
    backend.create("{}")
    acting = InlineActor(actor, backend, 0, stall_timeout_s)
    feed = InlineSource(acting.act, lambda act: SimpleNamespace(collect=lambda: collect(act)))
    return feed, acted


def test_the_actor_acts_whenever_the_feed_has_nothing_to_take():
    feed, acted = inline_feed(lambda act: [act() for _ in range(3)])
    feed.collect()
    assert len(acted) == 3  # two for a batch, say, and one in place of an unroll that was rejected


def test_a_feed_that_never_fills_a_batch_is_a_stall():
    feed, acted = inline_feed(lambda act: act(), stall_timeout_s=-1.0)
    with pytest.raises(StalledError, match="no batch for 0 s"):
        feed.collect()
    assert acted == []


class Training:
    """Runs in one process, on the toy `Identity`."""

    def __init__(self, tmp_path, name, algorithm, rate=1.0, exploration=None, **network):
        self.config = {
            "environment": {"id": "distrl.environments.worlds.toy:Identity", "kwargs": {"n": 2, "length_steps": 3}},
            "exploration": exploration,
            "algorithm": {
                "name": algorithm,
                "reward_normalization": network.pop("rewards", None),
                **network.pop("parameters", {}),
            },
            "network": {"middleware_parameters": {"scheme": [4], **network.pop("middleware", {})}, **network},
            "actors": {"count": 0, "environments": 2, "unroll_length_steps": 4, "weight_mixing_rate": rate},
            "checkpoint": {"every_s": None, "every_updates": 3},
        }
        self.run_dir = tmp_path / name
        self.backend = None
        self.stop = {}

    def train(self, updates):
        config = RunConfig.model_validate({**self.config, "stop": {"updates": updates, **self.stop}})
        environment = VectorEnvironment(config.environment, 1)
        environment.close()
        newest = load_newest(self.run_dir / "checkpoints") if self.run_dir.exists() else None
        update = 0 if newest is None else newest.step
        self.backend = connect("local:", "r", QueueCaps.of(config), name="test", give_up_s=1.0)
        description = RunDescription(
            run_id=f"r{update}",
            run_dir=str(self.run_dir),
            start=StartPlan(update=update),
            config=config,
            spec=environment.spec,
        )
        self.backend.create(description.model_dump_json())
        self.snapshots = []
        reason = run_deterministic(description, self.backend, self.snapshots.append, lambda: False, print)
        return reason, self.snapshots[-1]

    @property
    def arrays(self):
        found = load_newest(self.run_dir / "checkpoints")
        return {(group, name): array for group, arrays in found.arrays.items() for name, array in arrays.items()}


@pytest.mark.parametrize("algorithm", ["a3c", "a2c"])
def test_gradient_actors_train_in_one_process_and_every_gradient_is_accounted_for(tmp_path, algorithm):
    run = Training(tmp_path, "run", algorithm, learning_rate=0.05)
    reason, snapshot = run.train(20)
    assert (reason, snapshot["updates"], snapshot["policy_lag_max"]) == ("updates", 20, 0)
    # 20 unrolls of 4 rows in 2 environments; every fourth row is padding after an episode of 3 steps.
    assert (snapshot["env_steps"], snapshot["trained_steps"], snapshot["episodes"]) == (120, 120, 40)
    assert (snapshot["mean_length_100_steps"], snapshot["weights_version"]) == (3.0, 21)
    assert {"loss", "policy_loss", "value_loss", "entropy", "gradient_norm", "learning_rate"} <= snapshot.keys()
    ledger = run.backend.ledger.counts()
    assert (ledger.trained, ledger.produced, ledger.imbalance) == (20, 20, 0)


@pytest.mark.row("D21")
def test_a_training_stops_after_so_many_episodes(tmp_path):
    """Every unroll, and so every update, ends an episode of each of the two environments."""
    run = Training(tmp_path, "run", "a3c")
    run.stop = {"episodes": 7}
    reason, snapshot = run.train(100)
    assert (reason, snapshot["updates"], snapshot["episodes"]) == ("episodes", 4, 8)
    assert snapshot["stop_reason"] == "episodes"


@pytest.mark.row("D21")
@pytest.mark.parametrize(
    ("counts", "each"),
    [("episodes", 2), *(pytest.param(*each, marks=pytest.mark.long) for each in (("env_steps", 6), ("updates", 1)))],
)
def test_schedules_move_by_what_they_count(tmp_path, counts, each):
    """Every update has so many of them; the level of the curriculum is their number.

    The last row of an unroll begins an episode. The first unroll, and that after the checkpoint, begin with an episode.
    """
    run = Training(tmp_path, "run", "impala")
    run.config["learner"] = {"batch_size": 1}
    run.config["evaluation"] = {"every_env_steps": 6, "episodes": 1}
    epsilon = {"kind": "linear", "start": 1.0, "end": 0.0, "steps": 8 * each, "counts": counts}
    run.config["exploration"] = {"kind": "epsilon_greedy", "epsilon": epsilon}
    run.config["environment"] = {
        "id": "tests.faults.leveled:Leveled",
        "kwargs": {"level": 0, "length_steps": 3, "highest": 60},
        "curriculum": {"level": {"kind": "linear", "start": 0, "end": 60, "steps": 60, "counts": counts}},
        "metrics": {"reached": "last"},
    }
    _, snapshot = run.train(5)
    assert (snapshot[counts], snapshot["curriculum_level"]) == (5 * each, 5 * each)
    assert snapshot["exploration_strength"] == 0.375
    reached = load_newest(run.run_dir / "checkpoints").meta["recent_metrics"]["reached"]
    assert reached == [each * update for update in (0, 0, 1, 3, 3) for _ in range(2)]
    evaluated = [found.metrics["reached"] for _, found in run.backend.registry.evaluations("0")]
    assert evaluated == [each * update for update in (1, 2, 3, 4, 5)]


def test_episodes_that_end_with_the_last_row_before_a_checkpoint_count(tmp_path):
    """A checkpoint abandons open episodes, and those of 3 steps are never open after an unroll of 3."""
    run = Training(tmp_path, "run", "impala")
    run.config["actors"]["unroll_length_steps"] = 3
    run.config["learner"] = {"batch_size": 1}
    run.config["checkpoint"]["every_updates"] = 1
    _, snapshot = run.train(10)
    assert (snapshot["env_steps"], snapshot["episodes"], snapshot["mean_length_100_steps"]) == (60, 20, 3.0)


def assert_that_halves_make_a_whole(tmp_path, *arguments, **options):
    """Six updates and a checkpoint after three of them, against a run that was resumed from it; returns the arrays."""
    return compare(*(Training(tmp_path, name, *arguments, **options) for name in ("whole", "halves")))


def compare(whole, halves):
    whole.train(6)
    halves.train(3)
    halves.train(6)
    one, two = whole.arrays, halves.arrays
    assert one.keys() == two.keys()
    for key, array in one.items():
        assert array.tobytes() == two[key].tobytes(), key
    return one


@pytest.mark.row("Q03")
@pytest.mark.parametrize(
    ("algorithm", "rate"), [("a3c", 0.3), *(pytest.param(name, 1.0, marks=pytest.mark.long) for name in ("a3c", "a2c"))]
)
def test_a_resumed_run_of_gradient_actors_goes_on_bit_by_bit(tmp_path, algorithm, rate):
    """Dropout draws in the actor, averages move there, statistics and optimizers live in the learner."""
    options = {
        "middleware": {"dropout_rate": 0.3, "batchnorm": True},
        "input_embedders_parameters": {"observation": {"normalize": True}},
        "shared_optimizer": False,
        "rewards": {"kind": "reward"},
    }
    arrays = assert_that_halves_make_a_whole(tmp_path, algorithm, rate, **options)
    groups = {"main.global", "main.online", "main.optimizer_0", "main.statistics", "main.rewards"}
    assert {group for group, _ in arrays} >= groups


@pytest.mark.long
def test_normalised_rewards_go_on_bit_by_bit_in_a_resumed_run(tmp_path):
    """With unrolls on their way; of gradients the test above says it."""
    arrays = assert_that_halves_make_a_whole(tmp_path, "impala", 1.0, rewards={})
    assert arrays["main.rewards", "count"] > 0


@pytest.mark.row("Q03", "D165")
def test_a_resumed_run_of_several_epochs_goes_on_bit_by_bit(tmp_path):
    """Orders of minibatches and the penalty's coefficient go on where they were."""
    settings = {"epochs": 2, "minibatches": 4, "kl_penalty": {"target": 1e-9}}
    arrays = assert_that_halves_make_a_whole(tmp_path, "ppo", parameters=settings, learning_rate=0.01)
    assert arrays["main.online", "main/policy_head_kl_coefficient"] == np.float32(1.5**6)
    assert arrays["main.optimizer", "optimizer/iteration"] == 6 * 8


@pytest.mark.long
@pytest.mark.row("Q03")
def test_a_resumed_run_whose_actor_mixes_weights_goes_on_bit_by_bit(tmp_path):
    """No checkpoint holds the actor's mixed weights: both runs begin anew with the learner's weights."""
    assert_that_halves_make_a_whole(tmp_path, "impala", 0.3, learning_rate=0.05)


@pytest.mark.long
@pytest.mark.row("Q03")
@pytest.mark.parametrize(
    ("exploration", "dense_layer"),
    [
        ({"kind": "epsilon_greedy", "epsilon": {"kind": "linear", "steps": 60}, "random_steps": 20}, "dense"),
        ({"kind": "noisy_network"}, "noisy_dense"),
    ],
    ids=["epsilon_greedy", "noisy_network"],
)
def test_a_resumed_run_explores_on_bit_by_bit(tmp_path, exploration, dense_layer):
    """The schedule goes on by the steps in the checkpoint, and noise by the seed of the checkpoint's update."""
    options = {"middleware": {"dense_layer": dense_layer}, "exploration": exploration, "learning_rate": 0.05}
    assert_that_halves_make_a_whole(tmp_path, "impala", 1.0, **options)


@pytest.mark.row("Q03", "D175")
@pytest.mark.parametrize("kind", ["icm", pytest.param("rnd", marks=pytest.mark.long)])
def test_a_resumed_run_with_curiosity_goes_on_bit_by_bit(tmp_path, kind):
    """Predictors, their optimizers, statistics of observations and the scale of intrinsic rewards."""
    parameters = {"epochs": 2, "minibatches": 4, "curiosity": {"kind": kind, "epochs": 2, "minibatches": 2}}
    arrays = assert_that_halves_make_a_whole(tmp_path, "ppo", parameters=parameters, learning_rate=0.01)
    assert arrays["curiosity.optimizer", "optimizer/iteration"] == 6 * 4
    assert arrays["curiosity.rewards", "squares"] > 0.0
    assert arrays["curiosity.rewards", "count"] == arrays["curiosity.statistics", "observation/count"] > 0.0


@pytest.mark.row("Q03")
def test_a_resumed_sac_goes_on_bit_by_bit(tmp_path):
    """Several networks, the temperature, the noise that actions are drawn from, and what is in the replay memory.

    Which checkpoints hold here unless they are told not to.
    """
    runs = [Training(tmp_path, name, "sac") for name in ("whole", "halves")]
    replay = {"capacity_steps": 64, "min_size_steps": 8, "samples_per_insert": 4.0}
    for run in runs:
        run.config |= {
            "environment": {"id": "distrl.environments.worlds.toy:Reach"},
            "algorithm": {"name": "sac", "replay": replay},
            "exploration": {"kind": "policy", "random_steps": 12},
            "learner": {"batch_size": 8},
        }
    arrays = compare(*runs)
    groups = {"main.online", "main.optimizer", "main.temperature", "main.noise", "critic.target", "critic.optimizer"}
    assert {group for group, _ in arrays} == groups | {"critic.online"}
    assert arrays["main.temperature", "log_temperature"] != 0.0


@pytest.mark.parametrize("algorithm", ["a2c"])
def test_a_round_of_nothing_finite_ends_the_run(tmp_path, monkeypatch, algorithm):
    from distrl.actors.gradient_actor import GradientShipper

    contribution = GradientShipper.contribution

    def broken(self, unroll):
        made = contribution(self, unroll)
        for gradient in made.differentiated.gradients.values():
            gradient.fill(np.nan)
        return made

    monkeypatch.setattr(GradientShipper, "contribution", broken)
    with pytest.raises(NonFiniteError, match="no gradient of version 1 could be used: nonfinite"):
        Training(tmp_path, "run", algorithm).train(3)


def test_with_a_replay_memory_the_actor_acts_when_asked_what_is_there():
    feed, acted = inline_feed(lambda act: [act() for _ in range(2)])
    feed.poll()
    assert len(acted) == 2


# -------------------------------------------------------------------------------------------------------- evaluations


class Phased(StepCounter):
    """Episodes of 5 steps. The first that is made is the training's, the second the evaluation's."""

    made = updates = 0
    phases = ()  # (H, T or E, environment steps), in order
    stored = None  # () -> unrolls that came into the memory so far
    stored_while_evaluating = ()

    def __init__(self):
        super().__init__(terminate_at_steps=5)
        Phased.made += 1
        self._evaluates = Phased.made == 2

    def step(self, action):
        phase = "E" if self._evaluates else "T" if Phased.updates else "H"
        before = Phased.phases[-1] if Phased.phases else ("", 0)
        if before[0] == phase:
            Phased.phases = (*Phased.phases[:-1], (phase, before[1] + 1))
        else:
            Phased.phases = (*Phased.phases, (phase, 1))
        if self._evaluates:
            Phased.stored_while_evaluating = (*Phased.stored_while_evaluating, Phased.stored())
        return super().step(action)


@pytest.mark.row("D20", "D22")
def test_phases_follow_each_other_in_exact_environment_steps(tmp_path, monkeypatch):
    """Heat-up 10, between evaluations 20, evaluation 5, improve 40: H10, T20, E5, T20, E5."""
    update = Dqn.update

    def counted(self, networks, batch):
        Phased.updates += 1
        return update(self, networks, batch)

    monkeypatch.setattr(Dqn, "update", counted)
    monkeypatch.setattr(Phased, "made", -1)  # `train` makes one to see its spec
    for name in ("updates", "phases", "stored_while_evaluating"):
        monkeypatch.setattr(Phased, name, 0 if name == "updates" else ())
    run = Training(tmp_path, "run", "dqn")
    replay = {"capacity_steps": 60, "min_size_steps": 10, "samples_per_insert": None}
    run.config |= {
        "environment": {"id": f"{__name__}:Phased", "vectorization": "sync"},
        "algorithm": {"name": "dqn", "replay": replay},
        # An unroll is an episode and the row of its reset: 5 environment steps.
        "actors": {"count": 0, "environments": 1, "unroll_length_steps": 6},
        "learner": {"batch_size": 4},
        "checkpoint": {"every_s": None},
        "evaluation": {"every_env_steps": 20, "episodes": 1},
    }
    run.stop = {"env_steps": 50}
    monkeypatch.setattr(Phased, "stored", lambda: run.backend.ledger.counts().stored)
    reason, snapshot = run.train(1000)
    assert Phased.phases == (("H", 10), ("T", 20), ("E", 5), ("T", 20), ("E", 5))
    assert Phased.stored_while_evaluating == (6,) * 5 + (10,) * 5  # constant meanwhile: 30 and 50 steps
    assert (reason, snapshot["env_steps"], snapshot["episodes"]) == ("env_steps", 50, 10)
    assert (snapshot["evaluation_mean_return"], snapshot["evaluation_env_steps"]) == (15.0, 50)
    assert [one.env_steps for _, one in run.backend.registry.evaluations("0")] == [30, 50]
    assert run.backend.ledger.counts().imbalance == 0


class Shown(Identity):
    """Can be filmed."""

    def __init__(self, n, length_steps, render_mode=None):
        super().__init__(n, length_steps)

    def render(self):
        return np.zeros((32, 48, 3), np.uint8)


@pytest.mark.row("Q03")
def test_an_evaluation_changes_no_bit_of_the_training_and_goes_on_in_a_resumed_run(tmp_path):
    plain, evaluated, halves = (Training(tmp_path, name, "impala", learning_rate=0.05) for name in ("a", "b", "c"))
    for run in (evaluated, halves):
        run.config["evaluation"] = {"every_env_steps": 20, "episodes": 3, "environments": 2}
    for run in (plain, evaluated, halves):
        run.config["environment"]["id"] = f"{__name__}:Shown"
    evaluated.config["evaluation"]["films"] = {"every": 1, "best": True}
    plain.train(6)
    evaluated.train(6)
    halves.train(3)
    first = halves.backend.registry.evaluations("0")
    halves.train(6)
    wanted, *others = (run.arrays for run in (plain, evaluated, halves))
    for other in others:
        assert {key: array.tobytes() for key, array in other.items()} == {
            key: array.tobytes() for key, array in wanted.items()
        }
    told, resumed = evaluated.backend.registry.evaluations("0"), first + halves.backend.registry.evaluations("0")
    assert len(told) >= 3
    for run in (evaluated, halves):  # whichever half it was in
        assert kept_best(run.run_dir / "policy").score == max(one.mean_return for _, one in told)
    assert [(one.env_steps, one.mean_return) for _, one in told] == [
        (one.env_steps, one.mean_return) for _, one in resumed
    ]
    films = sorted(path.name for path in (evaluated.run_dir / "films").iterdir())
    assert films == ["best.webm", *(f"steps-{one.env_steps:09d}.webm" for _, one in told)]


@pytest.mark.row("D50")
def test_an_evaluation_that_is_good_enough_ends_the_run_at_its_update(tmp_path):
    run = Training(tmp_path, "run", "impala")
    run.config["environment"]["id"] = "distrl.environments.worlds.toy:StepCounter"
    run.config["environment"]["kwargs"] = {}
    run.config |= {"learner": {"batch_size": 1}, "evaluation": {"every_env_steps": 30, "episodes": 2}}
    run.stop = {"evaluation_return": 15.0}
    reason, snapshot = run.train(100)
    assert (reason, snapshot["stop_reason"]) == ("evaluation_return", "evaluation_return")
    assert 30 <= snapshot["env_steps"] < 38  # an update is of 4 rows of 2 environments, less padding
    assert snapshot["evaluation_env_steps"] == snapshot["env_steps"]


@pytest.mark.row("Q03")
@pytest.mark.parametrize(
    "rule",
    [
        {"kind": "by_metric", "values": [0, 3, 5, 7], "metric": "success", "above": 0.5, "episodes": 3},
        pytest.param({"kind": "stages", "values": [0, 3, 5, 7], "at_env_steps": [8, 16, 24]}, marks=pytest.mark.long),
    ],
    ids=["by_metric", "stages"],
)
def test_a_resumed_run_with_a_curriculum_goes_on_bit_by_bit(tmp_path, rule):
    """Observations show the level: episodes after the resumption begin with the same one, and go on to the next."""
    runs = [Training(tmp_path, name, "impala", learning_rate=0.05) for name in ("whole", "halves")]
    for run in runs:
        kwargs = {"level": 0, "length_steps": 3}
        run.config["environment"] = {
            "id": "tests.faults.leveled:Leveled",
            "kwargs": kwargs,
            "curriculum": {"level": rule},
        }
        run.config["learner"] = {"batch_size": 1}
        run.config["evaluation"] = {"every_env_steps": 4, "episodes": 1}
    compare(*runs)
    levels = [run.snapshots[-1]["curriculum_level"] for run in runs]
    assert levels[0] == levels[1] >= 5
    (evaluations, _) = ([found for _, found in run.backend.registry.evaluations("0")] for run in runs)
    assert [found.mean_return for found in evaluations] == [3.0] * len(evaluations)
