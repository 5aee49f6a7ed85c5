"""The inference role: evaluates the policy for all actors of its host, until they or its successor need it no more."""

import socket
import threading
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from distrl.actors.policy import ON_CPU, providers_of_gpus
from distrl.errors import ConfigError
from distrl.inference.place import held_alone, host_directory, waiting_for_place
from distrl.inference.server import InferenceServer
from distrl.inference.states import SERVING
from distrl.inference.versions import Versions
from distrl.machine import allowed_cores
from distrl.memory_backend.records import RoleStatus
from distrl.networks.policy.description import BundleDescription
from distrl.roles.description import RunAddress
from distrl.roles.join import JoinedRole, await_bundle, log
from distrl.roles.plan import LEARNER, Role

POLL_S = 0.1


class InferenceRole(JoinedRole):
    """The inference server of a host. Where the host has one already, it waits, and follows it."""

    def __init__(self, role: Role, address: RunAddress, stop: threading.Event) -> None:
        super().__init__(role, address, stop)
        if self._run.config.actors.inference != "host":
            raise ConfigError(f"run {address.run_id} has actors.inference: own: no actor asks a server")
        self._incarnation = self._backend.registry.register(role.name)
        self._versions: Versions | None = None

    def _work(self, cleanup: ExitStack) -> None:
        self._enter("waiting: policy")
        bundle = await_bundle(self._backend, self._stop)
        if bundle is None:
            return
        config = self._run.config
        directory = cleanup.enter_context(host_directory(self._run.description.launch))
        self._enter("waiting: the server of this host")
        if not self._await_place(directory, cleanup):
            return
        self._enter("starting")
        providers = ON_CPU if config.device == "cpu" else (*providers_of_gpus(), *ON_CPU)
        fetch = self._backend.weights.fetch
        threads = self._threads()
        self._versions = Versions(bundle, fetch, directory, threads, providers)
        description = BundleDescription.from_json(bundle.description)
        server = InferenceServer(description, self._versions, directory, self._enter)
        log.info(
            "incarnation %d serves the actors of this host with %s, threads: %d",
            *(self._incarnation, self._versions.provider, threads),
        )
        server.serve(self._stop.is_set)
        rows = server.batched_rows / max(server.batches, 1)
        log.info("%d batches of %.1f rows on average", server.batches, rows)

    def _threads(self) -> int:
        """Return one for each core that the learner leaves here: the actors of this host wait while it computes."""
        learners = self._backend.registry.heartbeats([LEARNER.key])
        here = any(learner.host == socket.gethostname() for learner in learners)
        return max(int(allowed_cores()) - here * self._run.threads(LEARNER), 1)

    def _await_place(self, directory: Path, cleanup: ExitStack) -> bool:
        """Wait until no other process is the server of this host; return False when stopped."""
        with waiting_for_place(directory):
            while True:
                with ExitStack() as attempt:
                    if attempt.enter_context(held_alone(directory)):
                        cleanup.push(attempt.pop_all())
                        return True
                if self._stop.wait(POLL_S):
                    break
        # The server before it may have left its actors to this one, although this one is stopped too.
        return cleanup.enter_context(held_alone(directory))

    def status(self) -> RoleStatus:
        """The heartbeat; while it computes, the age of that counts as that of a step."""
        self._awake.look()
        state, since, versions = self._state, self._entered_at, self._versions
        return replace(
            self._identity(),
            weights_version=0 if versions is None else versions.newest,
            last_step_age_s=self._awake.age_s(since) if state in ("starting", SERVING) else 0.0,
        )
