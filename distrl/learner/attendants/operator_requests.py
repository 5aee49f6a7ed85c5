"""Requests to the learner, applied between two updates: settings, checkpoints, other networks.

They come from operators, and from the curriculum, whose next stages are settings that the learner itself changes.
"""

import json
import logging
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from distrl.algorithms import context_of
from distrl.algorithms.algorithm import Algorithm, Networks
from distrl.config import RunConfig
from distrl.config.live_settings import Value, stage_path, steerable, steered_so_far
from distrl.data_store.checkpoints import load
from distrl.errors import CheckpointError
from distrl.learner.attendants.attendant import Attendant
from distrl.learner.attendants.saver import Saver
from distrl.learner.batches import Trained
from distrl.learner.curriculum import next_stage
from distrl.learner.origin import restore
from distrl.learner.publisher import StalenessBound
from distrl.learner.state import LearnerState
from distrl.memory_backend.records import Demand, Request
from distrl.memory_backend.registry import Registry

log = logging.getLogger(__name__)
LOOK_S = 0.5
"""Seconds between two reads of the requests, each a round trip to Redis."""


class OperatorRequests(Attendant):
    """Applies changed settings, has requested checkpoints written, and takes networks of other checkpoints.

    Args:
        adjustable: Parameters of the environment that may change between episodes.
        steer: Called with the configuration in force: at the beginning, and whenever settings change.

    Attributes:
        in_force: The configuration in force.
    """

    def __init__(
        self,
        config: RunConfig,
        adjustable: Collection[str],
        state: LearnerState,
        registry: Registry,
        algorithm: Algorithm,
        networks: Networks,
        staleness: StalenessBound,
        saver: Saver,
        steer: Callable[[RunConfig], None],
    ) -> None:
        self._config, self._adjustable, self._state, self._registry = config, adjustable, state, registry
        self._algorithm, self._networks, self._staleness, self._saver = algorithm, networks, staleness, saver
        self._steer = steer
        self.in_force = config
        self._settings: Mapping[str, Value] = {}
        self._look_at = 0.0

    def begin(self) -> None:
        """Apply the settings that operators changed in earlier launches.

        A setting whose configured value has changed since then keeps the configured one, as the operator chose it when
        resuming.
        """
        configured = self._configured()
        kept = {
            path: value
            for path, (then, value) in self._state.settings.items()
            if path in configured and configured[path] == then
        }
        self._follow({**kept, **self._registry.control().settings})

    def attend(self, trained: Trained | None) -> None:
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + LOOK_S
        control = self._registry.control()
        self._take_settings(control.settings)
        if control.networks.pending:
            self._take_networks(control.networks, control.networks_from)
        self._saver.want(control.checkpoint)

    def look_at_settings(self) -> None:
        """Apply what has changed since the last look."""
        self._take_settings(self._registry.control().settings)

    def set(self, path: str, value: Value) -> None:
        """Change a setting, as an operator would."""
        self._registry.set_control(settings={path: value})
        self._follow({**self._settings, path: value})

    def _take_settings(self, settings: Mapping[str, Value]) -> None:
        if settings != self._settings:
            self._follow({**self._settings, **settings})

    def _follow(self, settings: Mapping[str, Value]) -> None:
        """Apply settings and store them.

        Settings are never withdrawn: those that the registry lacks come from an earlier launch, or Redis has lost them.
        They are written there for actors and the dashboard.
        """
        before = {path: value for path, (_, value) in self._state.settings.items()}
        config, held, problems = steered_so_far(self._config, settings, before, self._adjustable)
        for problem in problems:  # only for requests that bypass distrl, or contradict each other
            log.error("not taken over: %s", problem)
        known = self._registry.control().settings
        if missing := {path: value for path, value in held.items() if path not in known}:
            self._registry.set_control(settings=missing)
        configured = self._configured()
        self._state.settings = {path: (configured[path], value) for path, value in held.items()}
        self._settings = {**known, **missing}
        if held:
            self._algorithm.steer(self._networks, context_of(config))
            self._staleness.updates = config.algorithm.max_staleness_updates
            log.info("from now on: %s", ", ".join(f"{path} {value}" for path, value in held.items()))
        self.in_force = config
        for name, episodes in self._state.stages.items():
            rule = config.environment.metric_rules.get(name)
            episodes.enter(None if rule is None else rule.stage)
        self._steer(config)

    def _configured(self) -> dict[str, Value]:
        return {parameter.path: parameter.value for parameter in steerable(self._config, self._adjustable)}

    def _take_networks(self, demand: Demand, checkpoint: str) -> None:
        """Go on with the networks of a checkpoint, or with the present ones if these do not fit; counters stay."""
        networks, refused = self._networks, ""
        before = {name: network.state_arrays() for name, network in networks.items()}
        try:
            restore(load(Path(checkpoint)), networks)
            log.info("goes on with the networks of %s", checkpoint)
        except CheckpointError as error:
            for name, network in networks.items():
                network.restore(before[name])
            refused = f"networks not taken: {error}"
            log.error(refused)
        self._registry.fulfil("networks", demand.asked, refused)


class CurriculumRules(Attendant):
    """Changes the parameters whose rule by a metric is fulfilled, as an operator would."""

    def __init__(self, requests: OperatorRequests, state: LearnerState, registry: Registry) -> None:
        self._requests, self._state, self._registry = requests, state, registry

    def attend(self, trained: Trained | None) -> None:
        if trained is None:
            return
        for name, episodes in self._state.stages.items():
            if self._next_stage(name) is None:
                continue
            self._requests.look_at_settings()  # operators may have changed something; theirs comes first
            if (stage := self._next_stage(name)) is None:
                continue
            rule = self._requests.in_force.environment.metric_rules[name]
            why = f"mean {rule.metric} {episodes.mean:.4g} over {rule.episodes} episodes"
            what = f"{stage_path(name)} {stage}: {name} is {json.dumps(rule.values[stage])} after {why}"
            self._registry.add_request(Request("curriculum", what))
            self._requests.set(stage_path(name), stage)

    def _next_stage(self, name: str) -> int | None:
        """Return the stage that the rule of this parameter now goes on to, if any."""
        rule = self._requests.in_force.environment.metric_rules.get(name)
        return None if rule is None else next_stage(rule, self._state.stages[name])
