"""A run that learns from data: what is in its memory, what it counts, how it goes on after a checkpoint."""

import os
import shutil
from itertools import islice
from types import SimpleNamespace

import h5py
import numpy as np
import pytest

from distrl.config.environment import EnvironmentConfig
from distrl.data.episodes import DataError
from distrl.data.playing import Playing, spaces_of
from distrl.data_store.checkpoints import load_newest
from distrl.environments.vector import VectorEnvironment
from distrl.errors import ConfigError
from distrl.launch.recorded_data import fitted
from distrl.learner import replay_set_up
from distrl.learner.recorded_batches import Pausing
from distrl.learner.replay_set_up import check_memories, unroll_schema
from distrl.metrics.snapshot import estimate_columns
from distrl.replay.memory import replay_bytes
from distrl.runs.recorded_data import read_data
from tests.data.logged_env import LoggedEnv
from tests.data.test_playing import spec_of
from tests.data.trained_here import train

SMALL = {"middleware_parameters": {"scheme": [4]}, "learning_rate": 0.01}


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
        algorithm={"name": "dqn", "discount": 0.5},
        evaluation={"every_env_steps": 10, "episodes": 2, "off_policy": {"estimators": ["fqe"]}},
    )
    snapshot, backend = train(run, tmp_path / "whole", 8)
    steps = sum(len(log.rewards) for log in logged)
    assert (snapshot["replay_steps"], snapshot["replay_episodes"]) == (steps, 7)  # all of it, and nothing else
    data = read_data(tmp_path / "whole" / "data.json")
    assert (data.episodes, data.steps, sum(data.return_histogram.counts)) == (7, steps, 7)
    assert data.returns["max"] == max(sum(log.rewards) for log in logged)
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
    at_end, _ = train(run, tmp_path / "again", 8)
    estimated = ("evaluation_mean_discounted_return", *estimate_columns("fqe"))
    assert [at_end[name] for name in estimated] == [snapshot[name] for name in estimated]
    assert snapshot[estimated[2]] < snapshot[estimated[1]] < snapshot[estimated[3]]
    again = arrays(tmp_path / "again")
    assert all(np.array_equal(array, again[name]) for name, array in one.items())


@pytest.mark.parametrize(
    ("memory_steps", "sampler"), [(None, "uniform"), (12, "uniform"), (None, "balanced"), (12, "prioritized")]
)
def test_a_killed_run_ends_with_the_weights_of_one_that_went_on(recorded, config, tmp_path, memory_steps, sampler):
    recorded()
    run = config(
        rows=1,
        algorithm={"name": "dqn", "replay": {"sampler": {"kind": sampler}}},
        network=SMALL,
        data={"sets": "test/random"}
        | ({"memory_steps": memory_steps, "samples_per_insert": 1.0} if memory_steps else {}),
        checkpoint={"every_s": None, "every_updates": 2, "keep": 9},
        learner={"batch_size": 5},
        launch={"mode": "here"},
    )
    snapshot, _ = train(run, tmp_path / "whole", 9)
    whole = arrays(tmp_path / "whole")
    if memory_steps is not None:
        assert snapshot["replay_steps"] <= memory_steps
    for killed_after in (2, 4, 8) if sampler == "uniform" else (6,):
        after = tmp_path / f"after {killed_after}"
        if sampler == "uniform":  # killed between two checkpoints: the disk has those before
            shutil.copytree(tmp_path / "whole", after)
            for checkpoint in (after / "checkpoints").glob("ckpt-*"):
                if int(checkpoint.name.removeprefix("ckpt-")) > killed_after:
                    shutil.rmtree(checkpoint)
        else:  # of the states of other samplers the newest alone is kept
            train(run, after, killed_after)
        assert load_newest(after / "checkpoints").step == killed_after
        train(run, after, 9)
        found = arrays(after)
        assert all(np.array_equal(array, found[name]) for name, array in whole.items())


def test_a_run_of_data_alone_goes_on_with_actors(recorded, config, tmp_path, caplog):
    """Optimizer, counters and priorities go on, without further first updates; then actors' steps are counted.

    The settings of `algorithm.replay` and `actors.environments` are of the actors from the beginning.
    """
    recorded()
    replay = {"capacity_steps": 48, "min_size_steps": 12, "samples_per_insert": 4.0, "sampler": {"kind": "prioritized"}}
    given = {"network": SMALL, "learner": {"batch_size": 5}, "launch": {"mode": "here"}}
    given["algorithm"] = {"name": "dqn", "replay": replay}
    run = config(**given)
    assert "steps of test/random" in fitted(run, spec_of(run))[1]
    train(run, tmp_path, 4)
    optimizer = "main.optimizer", "optimizer/iteration"
    assert arrays(tmp_path)[optimizer] == 4
    online = given | {"data": {"sets": "test/random", "share": 0.5, "pretrain_updates": 4}}
    with caplog.at_level("INFO", replay_set_up.__name__):
        snapshot, backend = train(config(**online), tmp_path, 6)
    assert "restored replay-000000000004-data.npz" in caplog.messages
    assert arrays(tmp_path)[optimizer] == 6
    ledger = backend.ledger.counts()
    assert (ledger.imbalance, ledger.stored) == (0, ledger.produced)
    assert snapshot["env_steps"] - snapshot["replay_steps"] == 4 * 5  # recorded steps that updates have used


def test_a_checkpoint_of_an_earlier_version_has_the_memory_under_the_only_name(recorded, config, tmp_path):
    recorded()
    run = config(
        network=SMALL,
        algorithm={"name": "dqn", "replay": {"sampler": {"kind": "prioritized"}}},
        checkpoint={"every_s": None, "every_updates": 3},
        launch={"mode": "here"},
    )
    train(run, tmp_path / "whole", 6)
    train(run, tmp_path / "earlier", 3)
    folder = tmp_path / "earlier" / "checkpoints"
    (folder / "replay-000000000003-data.npz").rename(folder / "replay-000000000003.npz")
    manifest = folder / "ckpt-000000000003" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"replay-data"', '"replay"'))
    train(run, tmp_path / "earlier", 6)
    one, other = arrays(tmp_path / "whole"), arrays(tmp_path / "earlier")
    assert all(np.array_equal(array, other[name]) for name, array in one.items())


@pytest.mark.row("G12", "G32")
@pytest.mark.parametrize("sampler", ["uniform", "prioritized"])
def test_a_run_with_actors_resumes_exactly_and_counts_their_steps_alone(recorded, config, tmp_path, sampler):
    """Two updates of demonstrations, then heat-up, then both; the memory of the actors' steps is in the checkpoint.

    So are the priorities of recorded steps.
    """
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
                "sampler": {"kind": sampler},
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
    Pausing(registry, lambda: True, lambda: False).attend(None)
    assert next(asked, None) is None  # it has looked until it was not paused any more
    Pausing(None, lambda: False, lambda: False).attend(None)  # its actors wait


def test_two_memories_that_do_not_fit_together_are_refused(recorded, config, tmp_path, monkeypatch):
    """Each of them alone does."""
    recorded()
    beside = {"sets": "test/random", "share": 0.5}
    run = config(
        algorithm={"name": "dqn", "replay": {"capacity_steps": 480, "min_size_steps": 20}}, data=beside, network=SMALL
    )
    spec = spec_of(run)
    playing = Playing(run, spec)
    sizes = [
        replay_bytes(each.algorithm.replay_parameters, unroll_schema(each, spec, {}))
        for each in (run, playing.with_replay)
    ]
    monkeypatch.setattr(replay_set_up, "available_bytes", lambda: sum(sizes))
    check_memories((run, playing.with_replay), spec, {})
    monkeypatch.setattr(replay_set_up, "available_bytes", lambda: sum(sizes) - 1)
    with pytest.raises(ConfigError, match=r"lower algorithm.replay.capacity_steps, or take fewer episodes of the data"):
        check_memories((run, playing.with_replay), spec, {})


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


def streamed(config):
    """Play a recording round after round for a while."""
    run = config(rows=1, data={"sets": "test/random", "memory_steps": 8})
    environment = VectorEnvironment(run.environment, 1)
    environment.close()
    return islice(Playing(run, environment.spec).rounds({}, 0), 60)


def test_damage_in_the_middle_is_found_when_it_is_read(recorded, config, tmp_path):
    recorded()
    data = tmp_path / "minari" / "test" / "random-v0" / "data" / "main_data.hdf5"
    with h5py.File(data) as file:
        damaged = h5py.h5o.get_info(file["episode_5/rewards"].id).addr
    with data.open("r+b") as file:
        file.seek(damaged)
        file.write(bytes(16))
    unrolls = streamed(config)
    assert next(unrolls).valid.any()
    with pytest.raises(DataError, match="data set test/random: episode 5 cannot be read: ") as refused:
        list(unrolls)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            lambda data: os.utime(data, (1, 1)),
            r"data set test/random has changed since it was opened \(.*hdf5\); resume",
        ),
        (lambda data: data.unlink(), r"data set test/random cannot be read: .*No such file"),
    ],
)
def test_data_that_changes_or_goes_while_it_is_read_costs_one_line(recorded, config, tmp_path, change, line):
    recorded()
    unrolls = streamed(config)
    next(unrolls)
    change(tmp_path / "minari" / "test" / "random-v0" / "data" / "main_data.hdf5")
    with pytest.raises(DataError, match=line) as refused:
        list(unrolls)
    assert (refused.value.exit_code, str(refused.value).count("\n")) == (2, 0)


def test_a_memory_that_holds_no_unroll_is_refused(recorded, config):
    recorded()
    run = config(data={"sets": "test/random", "memory_steps": 3})
    environment = VectorEnvironment(run.environment, 1)
    environment.close()
    with pytest.raises(
        ConfigError, match=r"data.memory_steps: 3 holds no unroll of 4 steps; raise it, or lower actors"
    ):
        fitted(run, environment.spec)


def test_a_memory_for_more_than_the_data_holds_all_of_it(recorded, config):
    recorded()
    run = config(data={"sets": "test/random", "memory_steps": 1_000})
    environment = VectorEnvironment(run.environment, 1)
    environment.close()
    assert Playing(run, environment.spec).memory_steps is None


MADE_WITH = []


class Devices(LoggedEnv):
    """Remembers with which devices it was made."""

    def __init__(self):
        super().__init__()
        MADE_WITH.append(os.environ.get("CUDA_VISIBLE_DEVICES"))


def test_the_environment_that_reads_data_is_made_with_its_own_devices(config, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    environment = {"id": "tests.data.test_filling:Devices", "kwargs": {}, "vectorization": "sync"}
    spaces_of(EnvironmentConfig.model_validate({**environment, "devices": "1"}))
    assert (MADE_WITH[-1], os.environ.get("CUDA_VISIBLE_DEVICES")) == ("1", None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    spaces_of(EnvironmentConfig.model_validate({**environment, "devices": ""}))
    assert (MADE_WITH[-1], os.environ["CUDA_VISIBLE_DEVICES"]) == ("", "0")


@pytest.mark.parametrize(
    ("sections", "line"),
    [
        ({"actors": {"count": 2}}, "data: nothing acts in a run that learns from data; set actors.count: 0, not 2"),
        ({"algorithm": {"name": "impala"}}, "data: algorithm impala learns from unrolls of its own policy; choose one"),
        ({"algorithm": {"name": "acer"}}, "data: algorithm acer learns from actions whose probabilities it knows"),
        (
            {"launch": {"mode": "here"}, "data": {}, "actors": {"count": 1}},
            "launch.mode: here has an actor of its own",
        ),
        ({"launch": {"mode": "processes"}, "data": {}}, "launch.mode: processes needs actors.count >= 1, or data"),
        ({"data": {"sets": [{"name": "a", "columns": "coach"}]}}, "columns are of a table, FILE.csv or FILE.parquet"),
        (
            {"data": {"sets": "a", "share": 0.01}, "learner": {"batch_size": 32}},
            r"data.share: 0.01 beside 32 items of actors \(learner.batch_size\) is less than one .* at least 0.0304",
        ),
        ({"data": {"sets": "a", "share": 1.0}}, "less than 1"),
        (
            {"data": {"sets": "a", "pretrain_updates": 5}},
            "pretrain_updates: 5 come before items of actors, and without",
        ),
        (
            {"data": {"sets": "a", "share": 0.5, "pretrain_updates": 5}, "stop": {"updates": 4}},
            "data.pretrain_updates: 5, but the run ends after 4 updates",
        ),
        ({"algorithm": {"name": "impala"}, "data": {"sets": "a", "share": 0.5}}, "data: algorithm impala learns from"),
        (
            {"algorithm": {"name": "bc"}, "data": {"sets": "a", "share": 0.5}},
            "algorithm.name: bc imitates recorded actions, and would imitate itself; learn from data alone: --data",
        ),
        ({"algorithm": {"name": "bc"}, "data": {}}, "algorithm.name: bc imitates recorded actions"),
    ],
)
def test_settings_that_contradict_data(config, sections, line):
    with pytest.raises(ValueError, match=line):
        config(**{"algorithm": {"name": "dqn"}, **sections})


def test_a_run_that_learns_from_data_is_processes_unless_it_is_here(config):
    assert not config().deterministic
    assert config(launch={"mode": "here"}).deterministic
    assert config(data={}).deterministic
    assert config().started_actors == 0
    beside = {"sets": "test/random", "share": 0.5}
    assert config(data=beside).deterministic  # with an actor of its own
    run = config(data=beside, actors={"count": 2}, learner={"batch_size": 8})
    assert (run.deterministic, run.learns_from_data, run.started_actors) == (False, False, 2)
    assert (run.batch_size, run.sequences_per_batch, run.algorithm_context.sequences_per_batch) == (8, 16, 16)
