"""The actor role: joins a run, waits for the policy bundle, and runs the actor's loop until asked to stop.

Gradient actors import the numeric framework, on the CPU and on one thread; all others carry none. A GPU is there for
the environment alone.
"""

import os
import threading
from contextlib import ExitStack, suppress
from dataclasses import replace

from distrl.actors.acting import Acting
from distrl.actors.actor import Actor
from distrl.actors.admission import FOR_THE_LEARNER, ActorProgress
from distrl.actors.outbox import Outbox
from distrl.actors.shipping import Shipper, UnrollShipper
from distrl.config import RunConfig
from distrl.environments.vector import VectorEnvironment
from distrl.errors import ConfigError
from distrl.inference.client import ServerGoneError, SharedPolicy
from distrl.inference.place import host_directory
from distrl.memory_backend.records import RoleStatus
from distrl.roles.description import INFERENCE_VARIABLE, RunAddress
from distrl.roles.framework import import_framework
from distrl.roles.join import MAKING, JoinedRole, await_bundle, await_weights, log, make_environment
from distrl.roles.plan import Role
from distrl.types import PolicyBundle


class ActorRole(JoinedRole):
    """One actor of a run; its incarnation comes from the registry."""

    first_state = MAKING

    def __init__(self, role: Role, address: RunAddress, stop: threading.Event) -> None:
        super().__init__(role, address, stop)
        if self._run.config.learns_from_data:
            raise ConfigError(f"run {address.run_id} learns from data: nothing acts in it")
        self._incarnation = self._backend.registry.register_actor(role.id)
        self._steering = threading.Lock()
        self._actor: Actor | None = None
        self._rate_from = (self._entered_at, 0)

    def _work(self, cleanup: ExitStack) -> None:
        config = self._run.config
        environment = make_environment(config.environment, config.actors.environments, self._incarnation)
        cleanup.callback(environment.close)
        shipper = self._make_shipper(environment)
        self._enter("waiting: policy")
        bundle = await_bundle(self._backend, self._stop)
        if bundle is None:
            return
        if environment.spec.adjustable and not await_weights(self._backend, self._stop):
            return
        self._enter("starting")
        progress = ActorProgress()
        acting = self._make_acting(bundle, environment.rows, progress, cleanup)
        actor = self._prepare(acting, environment, shipper, progress)
        with self._steering:
            self._actor = actor
            actor.steer(self._steered)  # requests that have arrived meanwhile
        log.info("incarnation %d acts in %d rows", self._incarnation, environment.rows)
        with suppress(ServerGoneError):
            actor.run()

    def status(self) -> RoleStatus:
        """The heartbeat; while the environment is made and reset, its age counts as that of a step."""
        now = self._awake.look()
        if self._actor is None:
            age_s = self._awake.age_s(self._entered_at) if self._state in ("starting", MAKING) else 0.0
            return replace(self._identity(), last_step_age_s=age_s)
        progress, waits = self._actor.outbox.progress, self._actor.outbox.waits.shares()
        since, steps = self._rate_from
        self._rate_from = (now, progress.env_steps)
        return replace(
            self._identity(),
            state=progress.state,
            env_steps=progress.env_steps,
            env_steps_per_s=(progress.env_steps - steps) / max(now - since, 1e-9),
            weights_version=self._actor.weights_version,
            last_step_age_s=self._awake.age_s(progress.last_step_at) if progress.state == "acting" else 0.0,
            blocked_share=sum(waits.get(name, 0.0) for name in FOR_THE_LEARNER),
            waits=waits,
        )

    def _steer(self, config: RunConfig) -> None:
        with self._steering:
            super()._steer(config)
            if self._actor is not None:
                self._actor.steer(config)

    def _make_shipper(self, environment: VectorEnvironment) -> Shipper:
        """Make what sends unrolls, or gradients; the latter import the framework."""
        config = self._run.config
        if config.algorithm.ships == "unrolls":
            return UnrollShipper(config)
        self._enter("starting: importing the framework")
        import_framework(config.learner.backend)
        # Imported here: they bring the framework, which takes seconds, and which no other actor may load.
        from distrl.actors.gradient_actor import make_shipper
        from distrl.networks.framework import backend as numeric_backend

        self._enter("starting: building the network")
        numeric_backend.configure(device="cpu", threads=1, deterministic=False, seed=config.seed)
        return make_shipper(config, environment.spec)

    def _make_acting(self, bundle: PolicyBundle, rows: int, progress: ActorProgress, cleanup: ExitStack) -> Acting:
        """Make what decides: a policy in this process, or one that asks the inference server of this host."""
        run, config = self._run, self._run.config
        if INFERENCE_VARIABLE not in os.environ:
            # Imported here: with a server, an actor does not carry ONNX Runtime.
            from distrl.actors.policy import Policy

            return Policy(bundle)
        directory = cleanup.enter_context(host_directory(run.description.launch))
        bounded = config.algorithm.max_staleness_updates is not None
        made = SharedPolicy(bundle.description, rows, directory, self._stop.is_set, progress, newest=bounded)
        cleanup.callback(made.close)
        return made

    def _prepare(
        self, policy: Acting, environment: VectorEnvironment, shipper: Shipper, progress: ActorProgress
    ) -> Actor:
        """Make the actor and reset its environments."""
        if policy.spec != environment.spec:
            raise ConfigError(f"the policy was made for {policy.spec}, here the environment is {environment.spec}")
        config = self._run.config
        producer = self._role.id, self._incarnation
        outbox = Outbox(config, self._backend, producer, self._stop.is_set, shipper, progress)
        actor = Actor(config, policy, environment, outbox)
        if environment.spec.adjustable:  # its first episodes begin with the values in force
            with self._steering:
                self._steered = self._in_force()
            actor.steer(self._steered)
        actor.reset(self._run.description.start.update)
        return actor
