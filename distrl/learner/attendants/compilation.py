"""Compilation of the update while actors start, from a batch of the form that all batches will have."""

import logging
import time
from collections.abc import Mapping

import numpy as np

from distrl.algorithms.algorithm import Algorithm, Bootstrap
from distrl.config import RunConfig
from distrl.config.schedules import Progress
from distrl.errors import one_line
from distrl.learner.attendants.attendant import Attendant
from distrl.learner.preparation import Parts
from distrl.learner.recorded_batches import marked
from distrl.memory_backend.joining import stack
from distrl.networks.framework import backend as numeric_backend
from distrl.replay.masks import BootstrapMasks
from distrl.replay.memory import Replay
from distrl.types import PRIORITIES, Array, Batch, Form, Unroll, UnrollHeader, step_arguments
from distrl.unroll_schema import UnrollSchema

log = logging.getLogger(__name__)


class Compilation(Attendant):
    """Compiles the update as soon as the first weights are published, and counts it as part of the first update.

    Shipped gradients are applied as they come: there is nothing to compile. Nor is there for an algorithm of the user's
    without `compile`, or in a run that is resumed at its end.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def started(self) -> None:
        parts = self._parts
        schema = parts.schema()
        if not isinstance(schema, UnrollSchema) or type(parts.algorithm).compile is Algorithm.compile:
            return
        if parts.conditions.reached() is not None:
            return
        began = time.monotonic()
        try:
            with parts.waits.measure("update"):
                parts.algorithm.compile(parts.networks, blank_batch(parts.config, schema, parts.algorithm.bootstrap))
        except (Exception, SystemExit) as error:  # of a user's loss, or of a compiler: the first update raises it again
            log.info("the first update will compile itself: %s", one_line(error))
        else:
            log.info("the update has been %s in %.1f s", numeric_backend.COMPILED, time.monotonic() - began)


def blank_batch(config: RunConfig, schema: UnrollSchema, bootstrap: Bootstrap | None) -> Batch:
    """Return a batch of blank unrolls, of the keys, dtypes and shapes that all batches of a run have.

    Args:
        bootstrap: The algorithm's ensemble, for whose members a replay memory makes masks.
    """
    unroll, parameters = _blank_unroll(schema), config.algorithm.replay_parameters
    if parameters is None:
        return stack([unroll] * config.unrolls_at_once, schema.frames)
    steps = schema.unroll_length_steps * schema.environments
    # Hindsight changes values only.
    small = parameters.model_copy(update={"capacity_steps": steps, "hindsight": None})
    seeds = np.random.SeedSequence(0)
    masks = None if bootstrap is None else BootstrapMasks(*bootstrap, seeds)
    replay = Replay(small, schema, discount=1.0, seeds=seeds, masks=masks)
    replay.insert(unroll)
    batch = replay.sample(config.sequences_per_batch, Progress()).batch
    return marked(batch, 0.0) if config.data.sets else batch


def _blank_unroll(schema: UnrollSchema) -> Unroll:
    """Return zeros without an episode's end, all valid and of priority 1."""

    def arrays(forms: Mapping[str, Form]) -> dict[str, Array]:
        return {name: np.zeros(shape, dtype) for name, (dtype, shape) in forms.items()}

    steps = arrays(schema.steps)
    for name in steps.keys() & {"valid", PRIORITIES}:
        steps[name][:] = 1
    none: dict[str, Array] = {name: np.zeros((0, *shape), dtype) for name, (dtype, shape) in schema.episodes.items()}
    of_steps = step_arguments(lambda name: (steps | none)[name], schema.extras)
    return Unroll(
        header=UnrollHeader(actor=0, incarnation=1, sequence=0, weights_version=1, env_steps=0),
        observations=arrays(schema.observations),
        actions=arrays(schema.actions),
        recurrent_state=arrays(schema.recurrent_state),
        episode_returns=none["episode_returns"],
        episode_lengths_steps=none["episode_lengths_steps"],
        reward_moments=arrays(schema.reward_moments),
        **of_steps,
    )
