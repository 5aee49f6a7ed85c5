"""The registry of the in-memory twin."""

import json
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from distrl.memory_backend.in_memory_run import Run, number_of
from distrl.memory_backend.keys import checked_actor
from distrl.memory_backend.registry import newest_evaluator
from distrl.memory_backend.registry_interface import (
    BestEvaluation,
    Control,
    Errand,
    Evaluation,
    Producer,
    Registry,
    Request,
    RoleStatus,
    Setting,
)


class InMemoryRegistry(Registry):
    """Heartbeats, incarnations, control, snapshots and evaluations."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.ignored: Counter[str] = Counter()  # nothing but distrl can write here

    def register_actor(self, actor: int) -> int:
        with self._run.changed:
            self._run.incarnations[checked_actor(actor)] += 1
            return self._run.incarnations[actor]

    def register_evaluator(self) -> int:
        with self._run.changed:
            self._run.evaluator_incarnation += 1
            return self._run.evaluator_incarnation

    def evaluator_incarnation(self) -> int:
        with self._run.changed:
            return self._run.evaluator_incarnation

    def is_registered(self, producer: Producer) -> bool:
        with self._run.changed:
            return 1 <= producer[1] <= self._run.incarnations[producer[0]]

    def beat(self, status: RoleStatus) -> None:
        with self._run.changed:
            self._run.statuses[status.role, status.id] = replace(status, at=self.clock())

    def clock(self) -> float:
        return time.time()

    def roles(self) -> list[RoleStatus]:
        with self._run.changed:
            return [status for _key, status in sorted(self._run.statuses.items())]

    def forget_actor(self, actor: int) -> None:
        with self._run.changed:
            self._run.statuses.pop(("actor", actor), None)

    def control(self) -> Control:
        with self._run.changed:
            return self._run.control

    def set_control(
        self,
        *,
        paused: bool | None = None,
        stop: str | None = None,
        target_actors: int | None = None,
        target_forced: bool | None = None,
        stacks: bool | None = None,
        settings: Mapping[str, Setting] | None = None,
    ) -> None:
        given = {
            "paused": paused,
            "stop": stop,
            "target_actors": target_actors,
            "target_forced": target_forced,
            "stacks": stacks,
        }
        with self._run.changed:
            now = self._run.control
            changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
            self._run.control = replace(now, **changes, settings={**now.settings, **(settings or {})})

    def demand(self, errand: Errand) -> int:
        with self._run.changed:
            before = getattr(self._run.control, errand)
            self._run.control = replace(self._run.control, **{errand: replace(before, asked=before.asked + 1)})
            return int(before.asked) + 1

    def fulfil(self, errand: Errand, number: int) -> None:
        with self._run.changed:
            before = getattr(self._run.control, errand)
            self._run.control = replace(self._run.control, **{errand: replace(before, done=number)})

    def add_request(self, request: Request) -> None:
        with self._run.changed:
            self._run.requests.append((self._run.next_id(), request))

    def requests(self, after: str) -> list[tuple[str, Request]]:
        with self._run.changed:
            return [(f"{number}-0", each) for number, each in self._run.requests if number > number_of(after)]

    def add_snapshot(self, snapshot: Mapping[str, float | int | str | None]) -> None:
        with self._run.changed:
            self._run.snapshots.append((self._run.next_id(), json.dumps(dict(snapshot))))

    def snapshots(self, after: str) -> list[tuple[str, dict[str, float | int | str | None]]]:
        with self._run.changed:
            kept = [item for item in self._run.snapshots if item[0] > number_of(after)]
        return [(f"{number}-0", json.loads(text)) for number, text in kept]

    def add_evaluation(self, evaluation: Evaluation, weights: bytes, incarnation: int) -> None:
        run = self._run
        with run.changed:
            newest_evaluator(incarnation, run.evaluator_incarnation)
            run.evaluations.append((run.next_id(), evaluation))
            run.evaluated_env_steps = evaluation.env_steps
            best = run.best_evaluation
            if best is None or evaluation.mean_return > best.evaluation.mean_return:
                run.best_evaluation = BestEvaluation(evaluation, weights)

    def evaluations(self, after: str) -> list[tuple[str, Evaluation]]:
        with self._run.changed:
            return [(f"{number}-0", each) for number, each in self._run.evaluations if number > number_of(after)]

    def best_evaluation(self) -> BestEvaluation | None:
        with self._run.changed:
            return self._run.best_evaluation

    def restore_evaluated(self, env_steps: int) -> None:
        with self._run.changed:
            self._run.evaluated_env_steps = max(self._run.evaluated_env_steps, env_steps)

    def evaluated_env_steps(self) -> int:
        with self._run.changed:
            return self._run.evaluated_env_steps
