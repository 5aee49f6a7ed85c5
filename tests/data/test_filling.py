"""A run that learns from data: what is in its memory, what it counts, how it goes on after a checkpoint."""

from types import SimpleNamespace

import numpy as np
import pytest

from distrl.config.load import LoadedConfig
from distrl.data.episodes import DataError
from distrl.data.playing import Playing
from distrl.data_store.checkpoints import load_newest
from distrl.data_store.start_plan import StartPlan
from distrl.environments.vector import VectorEnvironment
from distrl.launch.deterministic import run_deterministic
from distrl.launch.recorded_data import fitted
from distrl.learner.recorded_batches import Pausing
from distrl.memory_backend.backend import connect
from distrl.memory_backend.stream import QueueCaps
from distrl.roles.description import RunDescription

SMALL = {"middleware_parameters": {"scheme": [4]}, "learning_rate": 0.01}


def train(config, run_dir, updates):
    """Train in this process, from the newest checkpoint on, and return the last snapshot and the backend."""
    config = config.model_copy(update={"stop": config.stop.model_copy(update={"updates": updates})})
    environment = VectorEnvironment(config.environment, 1)
    environment.close()
    config = fitted(LoadedConfig.of(config), environment.spec)[0].config
    newest = load_newest(run_dir / "checkpoints") if run_dir.exists() else None
    update = 0 if newest is None else newest.step
    backend = connect("local:", "r", QueueCaps.of(config), name="test", give_up_s=1.0)
    start = StartPlan(update=update)
    description = RunDescription(
        run_id=f"r{update}", run_dir=str(run_dir), start=start, config=config, spec=environment.spec
    )
    backend.create(description.model_dump_json())
    snapshots = []
    assert run_deterministic(description, backend, snapshots.append, lambda: False, print) == "updates"
    return snapshots[-1], backend


def arrays(run_dir):
    found = load_newest(run_dir / "checkpoints")
    return {(group, name): array for group, arrays in found.arrays.items() for name, array in arrays.items()}


@pytest.mark.row("G12")
def test_a_resumed_run_draws_what_one_that_went_on_draws(recorded, config, tmp_path):
    logged = recorded()
    run = config(
        network=SMALL,
        checkpoint={"every_s": None, "every_updates": 3},
        learner={"batch_size": 5},
        launch={"mode": "here"},
        evaluation={"every_env_steps": 10, "episodes": 2},
    )
    snapshot, backend = train(run, tmp_path / "whole", 8)
    steps = sum(len(log.rewards) for log in logged)
    assert (snapshot["replay_steps"], snapshot["replay_episodes"]) == (steps, 7)  # all of it, and nothing else
    # Steps that updates have used; no episode of the recording counts as one of this training.
    assert (snapshot["env_steps"], snapshot["trained_steps"], snapshot["episodes"]) == (40, 40, 0)
    assert backend.ledger.counts().produced == 0
    assert [found.env_steps for _, found in backend.registry.evaluations("0")] == [15, 30, 40]
    train(run, tmp_path / "twice", 4)
    resumed, _ = train(run, tmp_path / "twice", 8)
    assert resumed["env_steps"] == 40
    one, other = arrays(tmp_path / "whole"), arrays(tmp_path / "twice")
    assert one.keys() == other.keys()
    # Both draw anew after update 3; the resumed run also after update 4.
    assert not all(np.array_equal(array, other[name]) for name, array in one.items())
    train(run, tmp_path / "again", 3)
    train(run, tmp_path / "again", 8)
    again = arrays(tmp_path / "again")
    assert all(np.array_equal(array, again[name]) for name, array in one.items())


def test_a_run_of_data_alone_goes_on_with_actors(recorded, config, tmp_path):
    """Its optimizer and counters go on, without further first updates; from then on actors' steps are counted."""
    recorded()
    given = {"network": SMALL, "learner": {"batch_size": 5}, "launch": {"mode": "here"}}
    train(config(**given), tmp_path, 4)
    optimizer = "main.optimizer", "optimizer/iteration"
    assert arrays(tmp_path)[optimizer] == 4
    replay = {"capacity_steps": 48, "min_size_steps": 12, "samples_per_insert": 4.0}
    online = {"algorithm": {"name": "dqn", "replay": replay}, "data": {"sets": "test/random", "share": 0.5}}
    online["data"]["pretrain_updates"] = 4
    snapshot, backend = train(config(**given | online), tmp_path, 6)
    assert arrays(tmp_path)[optimizer] == 6
    ledger = backend.ledger.counts()
    assert (ledger.imbalance, ledger.stored) == (0, ledger.produced)
    assert snapshot["env_steps"] - snapshot["replay_steps"] == 4 * 5  # recorded steps that updates have used


@pytest.mark.row("G12", "G32")
def test_a_run_with_actors_resumes_exactly_and_counts_their_steps_alone(recorded, config, tmp_path):
    """Two updates of demonstrations, then heat-up, then both; the memory of the actors' steps is in the checkpoint."""
    recorded()
    run = config(
        algorithm={
            "name": "dqfd",
            "n_step_weight": 0.0,
            "replay": {
                "capacity_steps": 48,
                "min_size_steps": 20,
                "samples_per_insert": 4.0,
                "item": {"kind": "transition"},
                "sampler": {"kind": "uniform"},
            },
        },
        data={"sets": "test/random", "share": 0.5, "pretrain_updates": 2},
        network=SMALL,
        checkpoint={"every_s": None, "every_updates": 3},
        learner={"batch_size": 5},
    )
    snapshot, backend = train(run, tmp_path / "whole", 8)
    ledger = backend.ledger.counts()
    assert (ledger.imbalance, ledger.dropped["stale"], ledger.stored, ledger.in_flight) == (0, 0, ledger.produced, 0)
    # 30 sampled steps of six live batches are due from 7.5 steps over 20 on; an unroll has at most 12.
    assert 20 < snapshot["env_steps"] == snapshot["trained_steps"] <= 39
    assert (snapshot["sampled_steps"], snapshot["updates"]) == (30, 8)
    assert snapshot["margin_loss"] > 0.0
    for first in (2, 3):  # in the middle of the heat-up, and after a live batch
        train(run, tmp_path / f"from{first}", first)
        train(run, tmp_path / f"from{first}", 8)
    one, other, early = (arrays(tmp_path / name) for name in ("whole", "from3", "from2"))
    assert one.keys() == other.keys() == early.keys()
    assert all(np.array_equal(array, other[name]) for name, array in one.items())


def test_a_paused_run_waits(recorded, config, tmp_path):
    recorded()
    asked = iter([True, True, False])
    registry = SimpleNamespace(control=lambda: SimpleNamespace(paused=next(asked)))
    Pausing(registry, lambda: False).attend(None)
    assert next(asked, None) is None  # it has looked until it was not paused any more


def test_recorded_steps_are_demonstrations(recorded, config, tmp_path):
    recorded()
    margin = {"name": "dqfd", "replay": {"item": {"kind": "sequence"}}}
    snapshot, _ = train(config(algorithm=margin, network=SMALL, launch={"mode": "here"}), tmp_path, 2)
    assert snapshot["margin_loss"] > 0.0


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"name": "test/none"}, "no data set test/none: neither a folder with Minari's metadata.json nor in"),
        ({"kind": "image"}, r"data set test/random does not fit .*'observation' has .*, that of the env"),
    ],
)
def test_data_that_does_not_fit_costs_one_line(recorded, config, changes, line):
    recorded()
    run = config(**changes)
    environment = VectorEnvironment(run.environment, 1)
    environment.close()
    with pytest.raises(DataError, match=line) as refused:
        Playing(run, environment.spec)
    assert "\n" not in str(refused.value)


def test_every_set_of_several_is_compared(recorded, config):
    recorded()
    recorded("test/image", kind="image")
    run = config(data={"sets": ["test/random", "test/image"]})
    environment = VectorEnvironment(run.environment, 1)
    environment.close()
    with pytest.raises(DataError, match="data set test/image does not fit"):
        Playing(run, environment.spec)


def test_a_damaged_file_costs_one_line(recorded, config, tmp_path):
    recorded()
    data = tmp_path / "minari" / "test" / "random-v0" / "data" / "main_data.hdf5"
    data.write_bytes(data.read_bytes()[:1000])
    run = config()
    environment = VectorEnvironment(run.environment, 1)
    environment.close()
    with pytest.raises(DataError, match=r"data set test/random: .* cannot be read: ") as refused:
        Playing(run, environment.spec)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("sections", "line"),
    [
        ({"actors": {"count": 2}}, "data: nothing acts in a run that learns from data; set actors.count: 0, not 2"),
        ({"algorithm": {"name": "impala"}}, "data: algorithm impala learns from unrolls of its own policy; choose one"),
        ({"algorithm": {"name": "acer"}}, "data: algorithm acer learns from actions whose probabilities it knows"),
        (
            {"launch": {"mode": "here"}, "data": None, "actors": {"count": 1}},
            "launch.mode: here has an actor of its own",
        ),
        ({"launch": {"mode": "processes"}, "data": None}, "launch.mode: processes needs actors.count >= 1, or data"),
        ({"data": {"sets": [{"name": "a", "columns": "coach"}]}}, "columns are of a table, FILE.csv or FILE.parquet"),
        (
            {"data": {"sets": "a", "share": 0.01}, "learner": {"batch_size": 32}},
            r"data.share: 0.01 beside 32 items of actors \(learner.batch_size\) is less than one .* at least 0.0303",
        ),
        ({"data": {"sets": "a", "share": 1.0}}, "less than 1"),
        (
            {"data": {"sets": "a", "pretrain_updates": 5}},
            "pretrain_updates: 5 come before items of actors, and without",
        ),
        ({"algorithm": {"name": "impala"}, "data": {"sets": "a", "share": 0.5}}, "data: algorithm impala learns from"),
        (
            {"algorithm": {"name": "bc"}, "data": {"sets": "a", "share": 0.5}},
            "algorithm.name: bc imitates recorded actions, and would imitate itself; learn from data alone: --data",
        ),
        ({"algorithm": {"name": "bc"}, "data": None}, "algorithm.name: bc imitates recorded actions"),
    ],
)
def test_settings_that_contradict_data(config, sections, line):
    with pytest.raises(ValueError, match=line):
        config(**{"algorithm": {"name": "dqn"}, **sections})


def test_a_run_that_learns_from_data_is_processes_unless_it_is_here(config):
    assert not config().deterministic
    assert config(launch={"mode": "here"}).deterministic
    assert config(data=None).deterministic
    assert config().started_actors == 0
    beside = {"sets": "test/random", "share": 0.5}
    assert config(data=beside).deterministic  # with an actor of its own
    run = config(data=beside, actors={"count": 2}, learner={"batch_size": 8})
    assert (run.deterministic, run.learns_from_data, run.started_actors) == (False, False, 2)
    assert (run.batch_size, run.sequences_per_batch, run.algorithm_context.sequences_per_batch) == (8, 16, 16)
