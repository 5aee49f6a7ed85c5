"""Pong from pixels, the preset: the learner is given the stacks that its actor saw. Learning it takes hours."""

import numpy as np
import pytest

pytest.importorskip("ale_py")

from distrl.config.load import load
from distrl.environments.vector import VectorEnvironment
from distrl.launch.deterministic import run_deterministic
from distrl.learner.feeding import Joining
from distrl.memory_backend.backend import connect
from distrl.memory_backend.stream import QueueCaps
from distrl.roles.description import RunDescription

T, B, UPDATES = 6, 2, 3


@pytest.mark.slow
def test_the_preset_learns_from_the_stacks_that_its_actor_saw(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    small = {"actors.count": 0, "actors.environments": B, "actors.unroll_length_steps": T, "learner.batch_size": 1}
    small["algorithm.minibatches"] = 1
    short = {"environment.atari.max_frames_per_episode": 16, "stop.updates": UPDATES, "checkpoint.every_s": "null"}
    config = load(preset="pong-impala", sets=[f"{path}={value}" for path, value in (small | short).items()]).config
    seen, batches = [], []
    reset, step, finish = VectorEnvironment.reset, VectorEnvironment.step, Joining.finish

    def reset_and_note(self, seed):
        seen.append(reset(self, seed)["observation"])
        return {"observation": seen[-1]}

    def step_and_note(self, actions):
        done = step(self, actions)
        seen.append(done.observations["observation"])
        return done

    def finish_and_note(self):
        batches.append(finish(self))
        return batches[-1]

    monkeypatch.setattr(VectorEnvironment, "reset", reset_and_note)
    monkeypatch.setattr(VectorEnvironment, "step", step_and_note)
    monkeypatch.setattr(Joining, "finish", finish_and_note)
    environment = VectorEnvironment(config.environment, 1)
    environment.close()
    description = RunDescription(run_id="pong", run_dir=str(tmp_path), config=config, spec=environment.spec)
    backend = connect("local:", "pong", QueueCaps.of(config), name="test", give_up_s=1.0)
    backend.create(description.model_dump_json())
    snapshots = []
    assert run_deterministic(description, backend, snapshots.append, lambda: False, print) == "updates"
    assert (snapshots[-1]["updates"], backend.ledger.counts().imbalance) == (UPDATES, 0)
    assert np.isfinite(snapshots[-1]["loss"])
    # Games of four steps and the row of the reset: 1, 1, 1, 1, 0, …
    valid = np.concatenate([batch.valid for batch in batches])
    np.testing.assert_array_equal(valid, np.arange(UPDATES * T)[:, None] % 5 + np.zeros((1, B)) < 4)
    for number, batch in enumerate(batches):
        expected = np.array(seen[number * T : number * T + T + 1])
        assert expected.shape == (T + 1, B, 84, 84, 4)
        np.testing.assert_array_equal(batch.observations["observation"], expected, strict=True)
