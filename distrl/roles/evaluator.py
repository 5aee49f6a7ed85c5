"""The evaluator role: joins a run, and plays greedy episodes with its newest weights at intervals."""

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from distrl.actors.filming import Films
from distrl.actors.other_environments import make_others
from distrl.actors.policy import Policy
from distrl.actors.published_evaluator import Estimating, PublishedEvaluator
from distrl.config.environment import EnvironmentConfig
from distrl.data.off_policy.beside import estimating
from distrl.environments.vector import VectorEnvironment
from distrl.errors import ConfigError, DistrlError, FencedError
from distrl.memory_backend.records import Estimate, RoleStatus
from distrl.roles.description import RunAddress
from distrl.roles.join import MAKING, JoinedRole, await_bundle, log, make_environment
from distrl.roles.plan import Role

POLL_S = 0.1


class EvaluatorRole(JoinedRole):
    """The evaluator of a run; an evaluation that has not ended when the role is stopped is dropped.

    A run has one evaluator, the newest. An earlier one ends when it notices; its results do not count. One whose run
    has no keys any more ends too: they may be removed before a heartbeat reads that the run ends.
    """

    first_state = MAKING

    def __init__(self, role: Role, address: RunAddress, stop: threading.Event) -> None:
        super().__init__(role, address, stop)
        if self._run.config.evaluation.every_env_steps is None:
            raise ConfigError(f"run {address.run_id} has no evaluation.every_env_steps: nothing to evaluate")
        self._incarnation = self._backend.registry.register(role.name)
        self._evaluator: PublishedEvaluator | None = None
        self._notice = ""

    def _work(self, cleanup: ExitStack) -> None:
        """Evaluate until stopped, or until another evaluator has taken over."""
        config = self._run.config
        environment = self._make(config.environment, config.evaluation.environments_used)
        cleanup.callback(environment.close)
        others = make_others(config, environment.spec, self._make, cleanup)
        films = self._films(cleanup)
        self._enter("waiting: policy")
        bundle = await_bundle(self._backend, self._stop)
        if bundle is None:
            return
        policy = Policy(bundle)
        if policy.spec != environment.spec:
            raise ConfigError(f"the policy was made for {policy.spec}, here the environment is {environment.spec}")
        after = self._backend.registry.evaluated_env_steps()  # the learner sets it before the policy
        incarnation, estimate = self._incarnation, self._estimating(policy)
        self._evaluator = PublishedEvaluator(
            config, self._backend, policy, environment, after, incarnation, films, others, estimate
        )
        log.info("incarnation %d evaluates in %d rows", self._incarnation, environment.rows)
        try:
            self._evaluate(self._evaluator)
        except FencedError as error:
            self._backend.check_launch()  # raises if the run was launched again, which is no other evaluator
            log.warning("%s; this one ends", error)

    def _make(self, environment: EnvironmentConfig, count: int) -> VectorEnvironment:
        self._enter(MAKING)  # each may take as long as the only one of an actor
        return make_environment(environment, count, self._incarnation)

    def _films(self, cleanup: ExitStack) -> Films | None:
        """Return the films of the run on this host; None if there are to be none, or if they cannot be made here."""
        config = self._run.config
        if not config.evaluation.films.used:
            return None
        directory = Path(self._run.description.run_dir) / "films"
        try:
            films = Films(config.evaluation, config.environment, directory, self._report)
        except (DistrlError, OSError) as error:
            self._report(f"no films: {error}")
            return None
        cleanup.callback(films.close)
        return films

    def _estimating(self, policy: Policy) -> Estimating:
        """Return what estimates. A fit is one long computation, which is no environment step: only a beat is due."""
        make = estimating(self._run.config, policy)

        def estimate(stop: Callable[[], bool]) -> Sequence[Estimate] | None:
            self._enter("estimating")
            found = make(stop)
            self._enter("evaluating")
            return found

        return estimate

    def _report(self, problem: str) -> None:
        """Put a problem with which the role goes on into its heartbeat; "" ends it."""
        self._notice = problem
        if problem:
            log.warning("%s", problem)

    def _evaluate(self, evaluator: PublishedEvaluator) -> None:
        self._enter("waiting: weights")
        while not self._stop.wait(POLL_S):
            self._backend.check_launch()
            self._backend.registry.check_evaluator(self._incarnation)
            if not evaluator.due:
                continue
            self._enter("evaluating")
            if self._run.description.spec.adjustable:
                evaluator.environment_config = self._in_force().environment
            evaluator.evaluate(self._stop.is_set)
            self._enter("waiting: weights")

    def status(self) -> RoleStatus:
        """The heartbeat; while the environment is made and stepped, the age of its last step counts."""
        self._awake.look()
        state, since, evaluator = self._state, self._entered_at, self._evaluator
        if evaluator is not None and state == "evaluating":
            since = max(since, evaluator.last_step_at)
        busy = state in ("starting", MAKING, "evaluating")
        return replace(
            self._identity(),
            env_steps=0 if evaluator is None else evaluator.env_steps,
            weights_version=0 if evaluator is None else evaluator.weights_version,
            last_step_age_s=self._awake.age_s(since) if busy else 0.0,
            notice=self._notice,
        )
