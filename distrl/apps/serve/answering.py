"""A batch: actions of one policy for observations of several requests, and their replies.

Pure functions of a policy, which may run beside the event loop.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from distrl.apps.serve.messages import ActRequest, RefusedError, error_reply, named
from distrl.errors import DistrlError
from distrl.networks.actions import FamilySpec
from distrl.serving.exported_policy import ExportedPolicy, PolicyState
from distrl.serving.served_values import batched_arrays, stacked_arrays
from distrl.types import Array, FloatArray

VALUE = "value"


@dataclass(slots=True, eq=False)
class Asked:
    """A request with what it needs: the state of its session, whether it is greedy, and its learning episode."""

    request: ActRequest
    state: PolicyState | None
    greedy: bool
    learns_in: object = None


@dataclass(slots=True, eq=False)
class Answered:
    """A reply, and the next state of its session.

    Attributes:
        failed: It is an error, and the state is what it was.
        is_over: The episode is.
    """

    reply: dict[str, Any]
    state: PolicyState | None
    failed: bool = False
    is_over: bool = False


class Answerer(Protocol):
    """Answers batches of questions, in any thread, but one batch at a time."""

    def answers(self, questions: Sequence[Asked], rng: np.random.Generator) -> list[Answered]:
        """Return an answer for each question, in their order."""


def answers(
    policy: ExportedPolicy, names: Mapping[str, Any], questions: Sequence[Asked], rng: np.random.Generator
) -> list[Answered]:
    """Answer questions in one batch. One whose observation does not fit costs no other one its answer.

    Args:
        names: Fields of every reply.
    """
    acting = [question for question in questions if not question.request.ends]
    acted = iter(_acted(policy, names, acting, rng) if acting else ())
    return [
        Answered({**names, **named(question.request)}, None, is_over=True) if question.request.ends else next(acted)
        for question in questions
    ]


def _acted(
    policy: ExportedPolicy, names: Mapping[str, Any], questions: Sequence[Asked], rng: np.random.Generator
) -> list[Answered]:
    try:
        return _answered(policy, names, questions, rng)
    except DistrlError as error:
        if len(questions) > 1:
            return _apart(policy, names, questions, rng)
        return [_refused(policy, questions[0], error)]


def _apart(
    policy: ExportedPolicy, names: Mapping[str, Any], questions: Sequence[Asked], rng: np.random.Generator
) -> list[Answered]:
    """Answer questions of which some do not fit: all others in one batch, and each alone if all fit."""
    found: dict[int, Answered] = {}
    for number, question in enumerate(questions):
        try:
            stacked_arrays(question.request.observations, policy.spec.observations)
        except DistrlError as error:
            found[number] = _refused(policy, question, error)
    fit = [number for number in range(len(questions)) if number not in found]
    together = [fit] if found else [[number] for number in fit]
    for group in filter(None, together):
        found |= dict(zip(group, _acted(policy, names, [questions[number] for number in group], rng), strict=True))
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


def _answered(
    policy: ExportedPolicy, names: Mapping[str, Any], questions: Sequence[Asked], rng: np.random.Generator
) -> list[Answered]:
    observations = [one for question in questions for one in question.request.observations]
    raw = stacked_arrays(observations, policy.spec.observations)
    counts = [len(question.request.observations) for question in questions]
    greedy = np.repeat([question.greedy for question in questions], counts)
    before = policy.joined([question.state for question in questions for _ in question.request.observations])
    choice = policy.decide(raw, before, greedy, rng)
    actions = plain_rows(policy.written(choice.actions), len(observations))
    wanted = {name for question in questions for name in question.request.want}
    columns = columns_of(wanted, policy.distributions, choice.outputs, partial(policy.log_probabilities, choice))
    found, begin = [], 0
    for question, count in zip(questions, counts, strict=True):
        rows = slice(begin, begin + count)
        reply = reply_of(
            names, question.request, actions[rows], {name: column[rows] for name, column in columns.items()}
        )
        state = policy.row(choice.state, begin) if question.request.single else None
        found.append(Answered(reply, state))
        begin += count
    return found


def reply_of(
    names: Mapping[str, Any], request: ActRequest, actions: list[Any], columns: Mapping[str, list[Any]]
) -> dict[str, Any]:
    """Return the reply to a request.

    Args:
        names: Fields of every reply.
        actions: One for each observation, in plain numbers.
        columns: What is wanted -> its value for each observation.
    """
    many = not request.single
    reply: dict[str, Any] = {"actions": actions} if many else {"action": actions[0]}
    reply.update(names)
    for name in request.want:
        reply[name] = columns[name] if many else columns[name][0]
    return reply | named(request)


def plain_rows(tree: Any, count: int) -> list[Any]:
    """Turn a tree of arrays [B, ...] into B trees of plain numbers."""
    if isinstance(tree, np.ndarray):
        return _finite(tree)
    if isinstance(tree, Mapping):
        below = {name: plain_rows(part, count) for name, part in tree.items()}
        return [{name: part[row] for name, part in below.items()} for row in range(count)]
    parts = [plain_rows(part, count) for part in tree]
    return [[part[row] for part in parts] for row in range(count)]


def _finite(array: Array) -> list[Any]:
    """Return an array's rows as plain numbers, None in place of what JSON has no number for."""
    if array.dtype.kind != "f" or np.isfinite(array).all():
        rows: list[Any] = array.tolist()
        return rows
    flat = [number if math.isfinite(number) else None for number in array.reshape(-1).tolist()]
    nested: list[Any] = np.array(flat, object).reshape(array.shape).tolist()
    return nested


def columns_of(
    wanted: Collection[str],
    distributions: Mapping[str, FamilySpec],
    outputs: Mapping[str, FloatArray],
    log_probabilities: Callable[[], FloatArray],
) -> dict[str, list[Any]]:
    """Return members of `WANTS` -> their values for each of B rows.

    Args:
        distributions: Action -> how the outputs are read.
        outputs: name -> [B, ...]. What the policy's heads put out.
        log_probabilities: Computes those of the actions, [B].
    """
    made: Mapping[str, Callable[[], list[Any]]] = {
        "log_probability": lambda: _finite(log_probabilities()),
        "value": lambda: _values(outputs),
        "distribution": lambda: _distributions(distributions, outputs),
    }
    return {name: made[name]() for name in sorted(wanted)}


def _values(outputs: Mapping[str, FloatArray]) -> list[Any]:
    count = len(next(iter(outputs.values())))
    value = outputs.get(VALUE)
    return [None] * count if value is None else _finite(value.reshape(count, -1)[:, 0])


def _distributions(distributions: Mapping[str, FamilySpec], outputs: Mapping[str, FloatArray]) -> list[Any]:
    """For each row: action -> family and parameters, and the probabilities of choices drawn by their logits."""
    rows: list[dict[str, Any]] = [{} for _ in next(iter(outputs.values()))]
    for action, family in distributions.items():
        parameters = outputs[family.output_of(action)]
        columns = {"parameters": _finite(parameters)}
        if family.is_tempered and family.is_one_choice:
            powers = np.exp(parameters - parameters.max(axis=-1, keepdims=True))
            columns["probabilities"] = _finite(powers / powers.sum(axis=-1, keepdims=True))
        for row, found in enumerate(rows):
            found[action] = {"family": family.kind, **{name: column[row] for name, column in columns.items()}}
    return rows
