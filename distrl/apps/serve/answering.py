"""A batch: actions of one version for observations of several requests, and their replies.

Pure functions of a version, which may run beside the event loop.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from distrl.apps.serve.messages import ActRequest, RefusedError, error_reply, named
from distrl.apps.serve.versions import CANARY, Version
from distrl.errors import DistrlError
from distrl.serving.exported_policy import Choice, ExportedPolicy, PolicyState
from distrl.serving.served_values import batched_arrays, stacked_arrays
from distrl.types import Array

VALUE = "value"


@dataclass(slots=True, eq=False)
class Asked:
    """A request with what it needs: the state of its session, and whether it is greedy."""

    request: ActRequest
    state: PolicyState | None
    greedy: bool


@dataclass(slots=True, eq=False)
class Answered:
    """A reply, and the next state of its session; `failed`: it is an error, and the state is what it was."""

    reply: dict[str, Any]
    state: PolicyState | None
    failed: bool = False


def answers(version: Version, questions: Sequence[Asked], rng: np.random.Generator) -> list[Answered]:
    """Answer questions in one batch. One whose observation does not fit costs no other one its answer."""
    try:
        return _answered(version, questions, rng)
    except DistrlError as error:
        if len(questions) > 1:
            return _apart(version, questions, rng)
        return [_refused(version.policy, questions[0], error)]


def _apart(version: Version, questions: Sequence[Asked], rng: np.random.Generator) -> list[Answered]:
    """Answer questions of which some do not fit: all others in one batch, and each alone if all fit."""
    found: dict[int, Answered] = {}
    for number, question in enumerate(questions):
        try:
            stacked_arrays(question.request.observations, version.policy.spec.observations)
        except DistrlError as error:
            found[number] = _refused(version.policy, question, error)
    fit = [number for number in range(len(questions)) if number not in found]
    together = [fit] if found else [[number] for number in fit]
    for group in filter(None, together):
        found |= dict(zip(group, answers(version, [questions[number] for number in group], rng), strict=True))
    return [found[number] for number in range(len(questions))]


def _refused(policy: ExportedPolicy, question: Asked, error: DistrlError) -> Answered:
    refused = RefusedError(400, _reason(policy, question, error))
    return Answered(error_reply(refused, question.request), question.state, failed=True)


def _reason(policy: ExportedPolicy, question: Asked, error: DistrlError) -> str:
    """Return the message for the first observation that does not fit by itself, else the batch's."""
    for observation in question.request.observations:
        try:
            _, single = batched_arrays(observation, policy.spec.observations)
        except DistrlError as first:
            return str(first)
        if not single:
            return "the observation has a batch axis; send several as observations"
    return str(error)


def _answered(version: Version, questions: Sequence[Asked], rng: np.random.Generator) -> list[Answered]:
    policy = version.policy
    observations = [one for question in questions for one in question.request.observations]
    raw = stacked_arrays(observations, policy.spec.observations)
    counts = [len(question.request.observations) for question in questions]
    greedy = np.repeat([question.greedy for question in questions], counts)
    before = policy.joined([question.state for question in questions for _ in question.request.observations])
    choice = policy.decide(raw, before, greedy, rng)
    actions = _rows(policy.written(choice.actions), len(observations))
    wanted = {name for question in questions for name in question.request.want}
    columns = {name: _COLUMNS[name](policy, choice) for name in sorted(wanted)}
    found, begin = [], 0
    for question, count in zip(questions, counts, strict=True):
        rows = slice(begin, begin + count)
        reply = _reply(
            version, question.request, actions[rows], {name: column[rows] for name, column in columns.items()}
        )
        state = policy.row(choice.state, begin) if question.request.single else None
        found.append(Answered(reply, state))
        begin += count
    return found


def _reply(
    version: Version, request: ActRequest, actions: list[Any], columns: Mapping[str, list[Any]]
) -> dict[str, Any]:
    many = not request.single
    reply: dict[str, Any] = {"actions": actions} if many else {"action": actions[0]}
    reply["version"] = version.number
    if version.track == CANARY:
        reply["policy"] = CANARY
    for name in request.want:
        reply[name] = columns[name] if many else columns[name][0]
    return reply | named(request)


def _rows(tree: Any, count: int) -> list[Any]:
    """Turn a tree of arrays [B, ...] into B trees of plain numbers."""
    if isinstance(tree, np.ndarray):
        return _finite(tree)
    if isinstance(tree, Mapping):
        below = {name: _rows(part, count) for name, part in tree.items()}
        return [{name: part[row] for name, part in below.items()} for row in range(count)]
    parts = [_rows(part, count) for part in tree]
    return [[part[row] for part in parts] for row in range(count)]


def _finite(array: Array) -> list[Any]:
    """Return an array's rows as plain numbers, None in place of what JSON has no number for."""
    if array.dtype.kind != "f" or np.isfinite(array).all():
        rows: list[Any] = array.tolist()
        return rows
    flat = [number if math.isfinite(number) else None for number in array.reshape(-1).tolist()]
    nested: list[Any] = np.array(flat, object).reshape(array.shape).tolist()
    return nested


def _log_probabilities(policy: ExportedPolicy, choice: Choice) -> list[Any]:
    return _finite(policy.log_probabilities(choice))


def _values(policy: ExportedPolicy, choice: Choice) -> list[Any]:
    count = len(choice.state.begins)
    value = choice.outputs.get(VALUE)
    return [None] * count if value is None else _finite(value.reshape(count, -1)[:, 0])


def _distributions(policy: ExportedPolicy, choice: Choice) -> list[Any]:
    """For each row: action -> family and parameters, and the probabilities of choices drawn by their logits."""
    count = len(choice.state.begins)
    rows: list[dict[str, Any]] = [{} for _ in range(count)]
    for action, family in policy.distributions.items():
        parameters = choice.outputs[family.output_of(action)]
        columns = {"parameters": _finite(parameters)}
        if family.is_tempered and family.is_one_choice:
            powers = np.exp(parameters - parameters.max(axis=-1, keepdims=True))
            columns["probabilities"] = _finite(powers / powers.sum(axis=-1, keepdims=True))
        for row in range(count):
            rows[row][action] = {"family": family.kind, **{name: column[row] for name, column in columns.items()}}
    return rows


_COLUMNS = {"log_probability": _log_probabilities, "value": _values, "distribution": _distributions}
