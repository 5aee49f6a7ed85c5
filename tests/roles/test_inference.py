"""The inference servers of one host: one serves, another waits and takes over; each says what it computes with."""

import socket
import threading
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest

from distrl.actors.admission import ActorProgress
from distrl.config.schedules import Progress
from distrl.errors import ConfigError
from distrl.inference.client import SharedPolicy
from distrl.inference.place import held_alone, host_directory
from distrl.inference.states import IDLE
from distrl.memory_backend.records import RoleStatus
from distrl.roles import inference
from distrl.roles.description import RunAddress, RunDescription
from distrl.roles.inference import InferenceRole
from distrl.roles.plan import Role
from distrl.roles.trust import Trust
from distrl.types import PolicyBundle
from tests.waiting import wait_until

pytestmark = pytest.mark.redis

POLICY = Path(__file__).parents[1] / "earlier" / "cartpole" / "policy"
TASK = {"environment": {"id": "distrl.environments.worlds.toy:StepCounter"}}
SHARED = {**TASK, "actors": {"inference": "host"}, "learner": {"threads": 2}}


class Joined:
    """An inference server on a thread of its own."""

    def __init__(self, redis_url, run_id, run_key, number):
        self.stop = threading.Event()
        address = RunAddress(redis_url, run_id, Trust(run_key))
        self.role = InferenceRole(Role("inference", number), address, self.stop)
        self.thread = threading.Thread(target=self.role.run, daemon=True)
        self.thread.start()

    @property
    def state(self):
        return self.role.status().state

    def has_ended(self):
        self.thread.join(timeout=60)
        return not self.thread.is_alive()


@pytest.fixture
def published(described_run):
    """A run with a policy and its weights."""
    backend = described_run(**SHARED)
    backend.weights.put_bundle(
        PolicyBundle((POLICY / "graph.onnx").read_bytes(), (POLICY / "description.json").read_text())
    )
    backend.become_learner().weights.publish(1, (POLICY / "weights.msgpack").read_bytes(), Progress(1, 1, 1))
    return backend


def acts(policy, rows=2):
    """Let an actor step once; return the shape of its outputs."""
    output = policy.step({"observation": np.zeros((rows, 4), np.float32)}, policy.initial_state(rows))
    return output.outputs["policy/action"].shape


def test_a_server_that_is_stopped_hands_its_actors_over_to_the_one_that_waits(published, redis_url, run_key, tmp_path):
    """As where a scheduler ends one of two tasks on a host: the actors of the other one step on."""
    launch = RunDescription.model_validate_json(published.config_json()).launch
    first = Joined(redis_url, tmp_path.name, run_key, 0)
    wait_until(lambda: first.state == IDLE)
    second = Joined(redis_url, tmp_path.name, run_key, 1)
    wait_until(lambda: second.state == "waiting: the server of this host")
    description = published.weights.get_bundle().description
    with host_directory(launch) as directory:
        policy = SharedPolicy(description, 2, directory, lambda: False, ActorProgress())
        with closing(policy):
            policy.follow(1, published.weights.fetch, 1.0)
            assert acts(policy) == (2, 2)
            first.stop.set()
            assert first.has_ended()
            assert acts(policy) == (2, 2)
            assert second.role.status().weights_version == 0  # it has the version of the unroll from the first one
            second.stop.set()
            assert acts(policy) == (2, 2)  # nobody waits: its unroll comes to its end
        assert second.has_ended()


@pytest.mark.parametrize("leaves", [True, False])
def test_a_stopped_server_serves_if_the_one_before_it_has_left_its_actors_to_it(
    described_run, redis_url, run_key, tmp_path, leaves
):
    described_run(**SHARED)
    with ExitStack() as before, ExitStack() as own:
        assert before.enter_context(held_alone(tmp_path))

        class Stop(threading.Event):
            def wait(self, timeout=None):
                if leaves:
                    before.close()
                return True

        role = InferenceRole(Role("inference"), RunAddress(redis_url, tmp_path.name, Trust(run_key)), Stop())
        assert role._await_place(tmp_path, own) == leaves
        with held_alone(tmp_path) as is_free:
            assert not is_free


def test_a_server_takes_the_cores_that_the_learner_leaves(published, redis_url, run_key, tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO")
    here = socket.gethostname()
    cases = ((here, 16.0, 14), ("elsewhere", 16.0, 16), (here, 2.0, 1), ("elsewhere", 1.5, 1))
    for incarnation, (host, cores, threads) in enumerate(cases, start=1):
        monkeypatch.setattr(inference, "allowed_cores", lambda cores=cores: cores)
        published.registry.beat(RoleStatus("learner", 0, 1, host, 1, "training", beat=1))
        joined = Joined(redis_url, tmp_path.name, run_key, 0)
        wait_until(lambda joined=joined: joined.state == IDLE)
        joined.stop.set()
        assert joined.has_ended()
        with_what = f"CPUExecutionProvider, threads: {threads}"
        assert f"incarnation {incarnation} serves the actors of this host with {with_what}" in caplog.messages


def test_a_run_whose_actors_have_policies_of_their_own_needs_no_server(described_run, redis_url, run_key, tmp_path):
    described_run(**TASK)
    with pytest.raises(ConfigError, match=f"run {tmp_path.name} has actors.inference: own: no actor asks a server"):
        InferenceRole(Role("inference"), RunAddress(redis_url, tmp_path.name, Trust(run_key)), threading.Event())
