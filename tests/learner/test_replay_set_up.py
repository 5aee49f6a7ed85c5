"""Size of a replay memory, whether it fits, and its file beside the checkpoint."""

import logging

import numpy as np
import pytest

from distrl.algorithms.algorithm import Bootstrap
from distrl.config import RunConfig
from distrl.config.replay import ReplayParameters
from distrl.config.schedules import Progress
from distrl.errors import CheckpointError, ConfigError
from distrl.learner import replay_set_up
from distrl.learner.replay_set_up import (
    available_bytes,
    empty_replay_note,
    fitting_replay,
    make_replay,
    remove_older,
    replay_schema,
    restore_replay,
    save_replay,
)
from distrl.learner.state import LearnerState
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec, Unroll, UnrollHeader

SPEC = EnvSpec("Toy", {"observation": ArraySpec((4,), "float32")}, {"action": DiscreteSpec(2)})


def config_of(**replay):
    """A configuration of an algorithm with a replay memory; validation of the whole has its own tests."""
    config = RunConfig.model_validate({"actors": {"environments": 2, "unroll_length_steps": 4}})

    class WithReplay(type(config.algorithm)):
        replay: ReplayParameters

    parameters = ReplayParameters.model_validate({"capacity_steps": 80, "min_size_steps": 8, **replay})
    return config.model_copy(update={"algorithm": WithReplay(replay=parameters)})


def unroll(number):
    shape = (4, 2)
    return Unroll(
        header=UnrollHeader(0, 1, number, 1, 8),
        observations={"observation": np.full((5, 2, 4), number, np.float32)},
        actions={"action": np.zeros(shape, np.int32)},
        rewards=np.full(shape, number, np.float32),
        terminated=np.zeros(shape, np.bool_),
        truncated=np.zeros(shape, np.bool_),
        valid=np.ones(shape, np.bool_),
        behaviour_log_probabilities=np.zeros(shape, np.float32),
        recurrent_state={},
        episode_returns=np.zeros(0, np.float32),
        episode_lengths_steps=np.zeros(0, np.int32),
    )


def replay_of(*numbers, **parameters):
    replay = make_replay(config_of(**parameters), SPEC, {}, 0)
    for number in numbers:
        replay.insert(unroll(number))
    return replay


def rewards(replay):
    return set(replay.sample(100, Progress()).batch.rewards[0].tolist())


# ------------------------------------------------------------------------------------------------------- does it fit


def test_what_it_takes_is_said_at_the_start(caplog):
    """10 unrolls: 5 x 2 observations of 16 bytes, and per step 4 of action, 15 besides, 1 of the sampler; and 24."""
    with caplog.at_level(logging.INFO):
        replay_of(capacity_steps=87)
    assert caplog.messages == ["replay: 80 steps, 3.4 KB"]  # 10 x (160 + 8 x 20 + 24) = 3,440


def test_what_does_not_fit_is_refused_and_names_the_key(monkeypatch):
    config = config_of(capacity_steps=80_000_000)
    parameters, schema = config.algorithm.replay_parameters, replay_schema(config, SPEC, {})
    monkeypatch.setattr(replay_set_up, "available_bytes", lambda: 2_000_000_000)
    expected = (
        r"the replay memory takes 3\.4 GB for 80,000,000 steps, available are 2\.0 GB; "
        r"lower algorithm\.replay\.capacity_steps: 80000000"
    )
    with pytest.raises(ConfigError, match=expected):
        make_replay(config, SPEC, {}, 0)
    assert fitting_replay(parameters, schema, check=False) == "replay: 80,000,000 steps, 3.4 GB"
    monkeypatch.setattr(replay_set_up, "available_bytes", lambda: None)  # nothing tells
    assert fitting_replay(parameters, schema) == "replay: 80,000,000 steps, 3.4 GB"


HOST = "MemTotal: 10 kB\nMemAvailable:    4 kB\n"


@pytest.mark.parametrize(
    ("meminfo", "limit", "used", "stat", "expected"),
    [
        (HOST, "max\n", "1\n", "inactive_file 7\n", 4096),
        (HOST, "5000\n", "2000\n", None, 3000),
        (HOST, "5000\n", "6000\n", None, 0),
        (None, "5000\n", "2000\n", None, 3000),
        # Of files, what was not used lately is given up: after many checkpoints a container is full of them.
        (HOST, "5000\n", "5000\n", "anon 1000\nfile 4000\ninactive_file 2500\nactive_file 1500\n", 2500),
        (HOST, "5000\n", "2000\n", "anon 2000\n", 3000),
        (HOST, "5000\n", "2000\n", "no number\ninactive_file x\n", 3000),
    ],
)
def test_available_memory_is_the_hosts_and_the_containers(monkeypatch, tmp_path, meminfo, limit, used, stat, expected):
    if stat is not None:
        (tmp_path / "memory.stat").write_text(stat)
    if meminfo is not None:
        (tmp_path / "meminfo").write_text(meminfo)
    (tmp_path / "memory.max").write_text(limit)
    (tmp_path / "memory.current").write_text(used)
    monkeypatch.setattr(replay_set_up, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(replay_set_up, "_CGROUP", tmp_path)
    assert available_bytes() == expected


def test_elsewhere_available_memory_is_all_there_is(monkeypatch, tmp_path):
    monkeypatch.setattr(replay_set_up, "_MEMINFO", tmp_path / "none")
    monkeypatch.setattr(replay_set_up, "_CGROUP", tmp_path)
    monkeypatch.setattr("os.sysconf", lambda name: {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 10}[name])
    assert available_bytes() == 40_960


def test_streams_have_none():
    assert make_replay(RunConfig(), SPEC, {}, 0) is None


def test_what_is_drawn_depends_on_the_seed_and_on_when_the_learner_began():
    def items(updates, seed=1):
        replay = make_replay(config_of().model_copy(update={"seed": seed}), SPEC, {}, updates)
        replay.insert(unroll(1))
        return replay.sample(50, Progress()).items.tolist()

    assert items(0) == items(0)
    assert items(0) != items(1)
    assert items(0) != items(0, seed=2)


def test_masks_depend_on_the_seed_alone_so_that_a_resumed_training_keeps_them():
    def masks(updates, seed=1, probability=0.5):
        config = config_of().model_copy(update={"seed": seed})
        replay = make_replay(config, SPEC, {}, updates, Bootstrap(5, probability))
        replay.insert(unroll(1))
        sample = replay.sample(200, Progress())
        return dict(zip(sample.items.tolist(), sample.batch.extras["bootstrap_masks"][0].tolist(), strict=True))

    assert masks(0) == masks(7)
    assert masks(0) != masks(0, seed=2)
    assert all(mask == [1.0] * 5 for mask in masks(0, probability=1.0).values())


def test_hindsight_without_goals_is_refused():
    with pytest.raises(ConfigError, match=r"hindsight: environment Toy has no observation 'achieved_goal'"):
        make_replay(config_of(hindsight={}), SPEC, {}, 0)


# ---------------------------------------------------------------------------------------------- beside the checkpoint


def test_the_file_is_of_one_checkpoint_and_the_newest_alone_is_kept(tmp_path):
    state, replay = LearnerState(run_id="r", updates=5, trained_steps=16), replay_of(1, 2)
    save_replay(tmp_path, replay, state)
    state.updates, state.trained_steps = 9, 24
    replay.insert(unroll(3))
    save_replay(tmp_path, replay, state)
    # Until the checkpoint of update 9 is there, that of update 5 is the newest.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["replay-000000000005.npz", "replay-000000000009.npz"]
    remove_older(tmp_path, 9)
    assert [path.name for path in tmp_path.iterdir()] == ["replay-000000000009.npz"]
    restored = replay_of(7, 8, 9, 10)
    restore_replay(tmp_path, restored, state)
    assert (rewards(restored), restored.size_steps) == ({1, 2, 3}, 24)


@pytest.mark.parametrize(
    ("updates", "trained_steps", "said"),
    [
        (6, 16, "no replay-000000000006.npz: the replay memory begins empty"),
        (5, 8, "replay-000000000005.npz is not of its checkpoint: the replay memory begins empty"),
    ],
)
def test_a_memory_of_another_moment_is_not_taken(tmp_path, caplog, updates, trained_steps, said):
    """The second as after a crash between the memory's file and its checkpoint: what is in it came in later."""
    save_replay(tmp_path, replay_of(1, 2), LearnerState(run_id="r", updates=5, trained_steps=16))
    fresh = replay_of()
    restore_replay(tmp_path, fresh, LearnerState(run_id="r", updates=updates, trained_steps=trained_steps))
    assert fresh.size_steps == 0
    assert caplog.messages == [said]


@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_a_damaged_file_is_refused(tmp_path, damage):
    state = LearnerState(run_id="r", updates=5, trained_steps=16)
    save_replay(tmp_path, replay_of(1, 2), state)
    path = tmp_path / "replay-000000000005.npz"
    content = bytearray(path.read_bytes())
    if damage == "cut":
        del content[-100:]
    else:  # one bit of an observation
        content[content.index(np.full(8, 2.0, np.float32).tobytes())] ^= 1
    path.write_bytes(content)
    with pytest.raises(
        CheckpointError, match=r"5\.npz: not an archive of arrays: .*; remove the file to fill the memory anew$"
    ):
        restore_replay(tmp_path, replay_of(), state)


def test_a_memory_of_another_size_is_refused(tmp_path):
    state = LearnerState(run_id="r", updates=5, trained_steps=16)
    save_replay(tmp_path, replay_of(1, 2), state)
    with pytest.raises(CheckpointError, match=r"is not of 5 unrolls of 4 x 2 steps"):
        restore_replay(tmp_path, replay_of(capacity_steps=40), state)


@pytest.mark.parametrize(
    ("saved", "there", "updates", "said"),
    [
        (None, False, 5, "checkpoints do not hold it; algorithm.replay.checkpoint=true saves it from now on"),
        (True, False, 5, "there is no replay-000000000005.npz beside the checkpoint"),
        (True, True, 5, None),
        (None, False, 0, None),  # a new run
    ],
)
def test_a_resumed_run_says_that_its_memory_begins_empty(tmp_path, saved, there, updates, said):
    algorithm = {"name": "dqn", "replay": {"checkpoint": saved}}
    if there:
        (tmp_path / "replay-000000000005.npz").write_bytes(b"")
    found = empty_replay_note(RunConfig.model_validate({"algorithm": algorithm}), tmp_path, updates)
    begins = "the replay memory begins empty, and nothing is learned until it has filled again: "
    assert found == (None if said is None else begins + said)
