"""Requests to the learner, applied between two updates: settings, checkpoints, other networks.

They come from operators, and from the curriculum, whose next stages are settings that the learner itself changes.
"""

import json
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from distrl.algorithms import context_of
from distrl.config import RunConfig
from distrl.config.live_settings import Value, stage_path, steerable, steered_so_far
from distrl.data_store.checkpoints import load
from distrl.errors import CheckpointError
from distrl.learner.checkpointing import Checkpointer
from distrl.learner.curriculum import next_stage
from distrl.learner.origin import restore
from distrl.learner.preparation import Prepared
from distrl.memory_backend.records import Demand, Request

log = logging.getLogger(__name__)
LOOK_S = 0.5
"""Seconds between two reads of the requests, each a round trip to Redis."""


class OperatorRequests:
    """Applies changed settings, and has requested checkpoints written.

    Args:
        steer: Called with the configuration in force: at the beginning, and whenever settings change.
    """

    def __init__(
        self, prepared: Prepared, checkpointer: Checkpointer, steer: Callable[[RunConfig], None] = lambda _: None
    ) -> None:
        self._steer = steer
        self._in_force = prepared.config
        self._prepared, self._config, self._state = prepared, prepared.config, prepared.state
        self._registry = prepared.backend.registry
        self._checkpointer = checkpointer
        self._settings: Mapping[str, Value] = {}
        self._checkpoint: tuple[int, int] | None = None  # updates that it must hold, and the demand that it is for
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

    def attend(self) -> None:
        """Read requests every `LOOK_S`; called between updates, and while the learner waits for unrolls."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + LOOK_S
        control = self._registry.control()
        if control.settings != self._settings:
            self._follow({**self._settings, **control.settings})
        if control.networks.pending:
            self._take_networks(control.networks, control.networks_from)
        self._see_to_checkpoint(control.checkpoint)

    def advance(self) -> None:
        """Change the parameters whose rule by a metric is fulfilled, as an operator would."""
        for name, episodes in self._state.stages.items():
            if self._next_stage(name) is None:
                continue
            # Read, as operators may have changed something since the last look; theirs comes first.
            if (settings := self._registry.control().settings) != self._settings:
                self._follow({**self._settings, **settings})
            if (stage := self._next_stage(name)) is None:
                continue
            rule = self._in_force.environment.metric_rules[name]
            why = f"mean {rule.metric} {episodes.mean:.4g} over {rule.episodes} episodes"
            what = f"{stage_path(name)} {stage}: {name} is {json.dumps(rule.values[stage])} after {why}"
            self._registry.add_request(Request("curriculum", what))
            self._registry.set_control(settings={stage_path(name): stage})
            self._follow({**self._settings, stage_path(name): stage})

    def _next_stage(self, name: str) -> int | None:
        """Return the stage that the rule of this parameter now goes on to, if any."""
        rule = self._in_force.environment.metric_rules.get(name)
        return None if rule is None else next_stage(rule, self._state.stages[name])

    def end(self) -> None:
        """Mark requested checkpoints as written, as the last one was."""
        demand = self._registry.control().checkpoint
        if demand.pending:
            self._registry.fulfil("checkpoint", demand.asked)

    def _follow(self, settings: Mapping[str, Value]) -> None:
        """Apply settings and store them.

        Settings are never withdrawn: those that the registry lacks come from an earlier launch, or Redis has lost them.
        They are written there for actors and the dashboard.
        """
        before = {path: value for path, (_, value) in self._state.settings.items()}
        adjustable = self._prepared.spec.adjustable
        config, held, problems = steered_so_far(self._config, settings, before, adjustable)
        for problem in problems:  # only for requests that bypass distrl, or contradict each other
            log.error("not taken over: %s", problem)
        known = self._registry.control().settings
        if missing := {path: value for path, value in held.items() if path not in known}:
            self._registry.set_control(settings=missing)
        configured = self._configured()
        self._state.settings = {path: (configured[path], value) for path, value in held.items()}
        self._settings = {**known, **missing}
        if held:
            self._prepared.algorithm.steer(self._prepared.networks, context_of(config))
            self._prepared.staleness.updates = config.algorithm.max_staleness_updates
            log.info("from now on: %s", ", ".join(f"{path} {value}" for path, value in held.items()))
        self._in_force = config
        for name, episodes in self._state.stages.items():
            rule = config.environment.metric_rules.get(name)
            episodes.enter(None if rule is None else rule.stage)
        self._steer(config)

    def _configured(self) -> dict[str, Value]:
        adjustable = self._prepared.spec.adjustable
        return {parameter.path: parameter.value for parameter in steerable(self._config, adjustable)}

    def _take_networks(self, demand: Demand, checkpoint: str) -> None:
        """Go on with the networks of a checkpoint, or with the present ones if these do not fit; counters stay."""
        networks, refused = self._prepared.networks, ""
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

    def _see_to_checkpoint(self, demand: Demand) -> None:
        """Have a requested checkpoint of the updates so far written, then mark the request as done."""
        checkpointer = self._checkpointer
        if self._checkpoint is None and demand.pending:
            self._checkpoint = (self._state.updates, demand.asked)
            checkpointer.wanted = self._state.updates
        if self._checkpoint is not None and checkpointer.holds(self._checkpoint[0]):
            self._registry.fulfil("checkpoint", self._checkpoint[1])
            self._checkpoint = checkpointer.wanted = None
