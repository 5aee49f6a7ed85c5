"""Size of a replay memory, whether it fits, and its file beside the checkpoint."""

import hashlib
import logging
import os

import numpy as np
import pytest

from distrl.algorithms.algorithm import Bootstrap
from distrl.config import RunConfig
from distrl.config.replay import ReplayParameters
from distrl.config.schedules import Progress
from distrl.data_store import checkpoints
from distrl.data_store.checkpoints import Recorded, save
from distrl.errors import CheckpointError, ConfigError
from distrl.learner import replay_set_up
from distrl.learner.replay_set_up import (
    available_bytes,
    empty_replay_note,
    fitting_replay,
    make_replay,
    remove_older,
    restore_replay,
    save_replay,
    unroll_schema,
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
    parameters, schema = config.algorithm.replay_parameters, unroll_schema(config, SPEC, {})
    monkeypatch.setattr(replay_set_up, "available_bytes", lambda: 2_000_000_000)
    expected = (
        r"the replay memory takes 3\.4 GB for 80,000,000 steps, available are 2\.0 GB; "
        r"lower algorithm\.replay\.capacity_steps: 80000000"
    )
    with pytest.raises(ConfigError, match=expected):
        make_replay(config, SPEC, {}, 0)
    assert fitting_replay(parameters, schema, 32, check=False) == "replay: 80,000,000 steps, 3.4 GB"
    monkeypatch.setattr(replay_set_up, "available_bytes", lambda: None)  # nothing tells
    assert fitting_replay(parameters, schema, 32) == "replay: 80,000,000 steps, 3.4 GB"


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


def saved_with(folder, replay, state):
    """Save a memory and its checkpoint."""
    recorded = save_replay(folder, replay, state)
    save(folder, state.updates, {}, state.to_meta(), keep=5, replays={"replay": recorded})


def test_the_file_is_of_one_checkpoint_and_the_newest_alone_is_kept(tmp_path):
    state, replay = LearnerState(run_id="r", updates=5, trained_steps=16), replay_of(1, 2)
    save_replay(tmp_path, replay, state)
    save_replay(tmp_path, replay, state, "replay-data")
    state.updates, state.trained_steps = 9, 24
    replay.insert(unroll(3))
    recorded = save_replay(tmp_path, replay, state)
    save_replay(tmp_path, replay, state, "replay-data")
    # Until the checkpoint of update 9 is there, that of update 5 is the newest.
    files = ["replay-000000000009-data.npz", "replay-000000000009.npz"]
    earlier = ["replay-000000000005-data.npz", "replay-000000000005.npz"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [*earlier, *files]
    content = (tmp_path / files[1]).read_bytes()
    assert recorded == Recorded(len(content), hashlib.sha256(content).hexdigest())
    save(tmp_path, 9, {}, state.to_meta(), keep=5, replays={"replay": recorded})
    remove_older(tmp_path, 9)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ckpt-000000000009", *files]
    restored = replay_of(7, 8, 9, 10)
    assert restore_replay(tmp_path, restored, state) is None
    assert (rewards(restored), restored.size_steps) == ({1, 2, 3}, 24)


def test_without_a_memory_it_begins_empty(tmp_path, caplog):
    state = LearnerState(run_id="r", updates=6, trained_steps=16)
    save(tmp_path, 6, {}, {}, keep=5)
    assert restore_replay(tmp_path, replay_of(), state) is None
    assert caplog.messages == ["no replay-000000000006.npz: the replay memory begins empty"]


def test_a_memory_of_another_moment_is_not_taken(tmp_path):
    """As after a crash between the memory's file and its checkpoint of the same update."""
    state = LearnerState(run_id="r", updates=5, trained_steps=16)
    saved_with(tmp_path, replay_of(1, 2), state)
    save_replay(tmp_path, replay_of(1, 2, 3), state)
    fresh = replay_of()
    assert restore_replay(tmp_path, fresh, state) == (
        f"begins with an empty replay memory: {tmp_path}/replay-000000000005.npz is not the one that the checkpoint's "
        "manifest names (replay-000000000005.npz)"
    )
    assert fresh.size_steps == 0


@pytest.mark.parametrize("damage", ["cut", "flipped", "link", "pipe", "unnamed"])
def test_a_damaged_file_is_not_used(tmp_path, damage):
    state = LearnerState(run_id="r", updates=5, trained_steps=16)
    saved_with(tmp_path, replay_of(1, 2), state)
    path = tmp_path / "replay-000000000005.npz"
    content = bytearray(path.read_bytes())
    path.unlink()
    if damage == "cut":
        path.write_bytes(content[:-100])
    elif damage == "flipped":  # one bit of an observation
        content[content.index(np.full(8, 2.0, np.float32).tobytes())] ^= 1
        path.write_bytes(content)
    elif damage == "link":
        (tmp_path / "elsewhere").write_bytes(content)
        path.symlink_to("elsewhere")
    elif damage == "pipe":
        os.mkfifo(path)
    else:
        path.write_bytes(content)
        save(tmp_path, 5, {}, {}, keep=5)
    fresh = replay_of()
    told = restore_replay(tmp_path, fresh, state)
    why = {"link": "it is a link", "pipe": "it is not a regular file"}.get(damage, "is not the one that the checkpoint")
    assert told.startswith("begins with an empty replay memory: ")
    assert why in told
    assert fresh.size_steps == 0


FORGERIES = {
    "a choice beyond the space": ("ring/actions/0", lambda array: array.__setitem__((0, 0, 0), 7), "allowed are 0…"),
    "an observation that is not finite": (
        "ring/observations/0",
        lambda array: array.__setitem__((1, 0, 0), np.nan),
        "observations/0 is not finite",
    ),
    "a reward that is not finite": (
        "ring/rewards",
        lambda array: array.__setitem__((1, 0, 0), np.inf),
        "rewards is not finite",
    ),
    "steps out of the unroll": (
        "ring/bootstrap_steps",
        lambda array: array.__setitem__((0, 3, 0), 9),
        "bootstrap_steps lead out of their unroll",
    ),
    "counts below 0": ("counts", lambda array: array.__setitem__(0, -1), "counts -1 unrolls"),
    "another generator": ("generator", lambda array: array.__setitem__(0, ord("[")), "Expecting"),
}


@pytest.mark.parametrize("forged", FORGERIES)
def test_contents_are_checked_as_unrolls_from_a_wire_are(tmp_path, forged):
    """The manifest names the forged file, too: who can write the one can write the other."""
    name, forge, said = FORGERIES[forged]
    state, replay = LearnerState(run_id="r", updates=5, trained_steps=16), replay_of(1, 2)
    arrays = {key: array.copy() for key, array in replay.state_arrays().items()}
    forge(arrays[name])
    recorded = checkpoints.save_replay(tmp_path, 5, arrays | {"trained_steps": np.array(16, np.int64)})
    save(tmp_path, 5, {}, {}, keep=5, replays={"replay": recorded})
    assert said in restore_replay(tmp_path, replay_of(), state)


@pytest.mark.parametrize(
    ("kind", "name", "at", "value", "said"),
    [
        ("prioritized", "sampler/weights", 0, np.nan, "priorities must be finite"),
        ("prioritized", "sampler/highest", (), -1.0, "priorities must be finite"),
        ("prioritized", "sampler/weights", 40, 1.0, "items that do not exist have priorities"),
        ("prioritized", "sampler/new/queue", 0, 99, "the queue of new items begins at 99"),
        ("balanced", "sampler/places", 0, 1, "the places of the items with choice 0"),
        ("balanced", "sampler/labels", 40, 0, "the places of the items with choice 0"),
    ],
)
def test_what_a_sampler_holds_is_checked(tmp_path, kind, name, at, value, said):
    sampler = {"kind": kind} | ({"new_items_first": True} if kind == "prioritized" else {})
    state, replay = LearnerState(run_id="r", updates=5, trained_steps=16), replay_of(1, 2, sampler=sampler)
    arrays = {key: array.copy() for key, array in replay.state_arrays().items()}
    arrays[name][at] = value
    recorded = checkpoints.save_replay(tmp_path, 5, arrays | {"trained_steps": np.array(16, np.int64)})
    save(tmp_path, 5, {}, {}, keep=5, replays={"replay": recorded})
    assert said in restore_replay(tmp_path, replay_of(sampler=sampler), state)


def test_a_memory_of_another_size_is_refused(tmp_path):
    state = LearnerState(run_id="r", updates=5, trained_steps=16)
    saved_with(tmp_path, replay_of(1, 2), state)
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
