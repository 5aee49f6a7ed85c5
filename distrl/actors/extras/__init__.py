"""Extras: the arrays that an unroll carries beside its steps, one module each.

`extra.py` states what the actor calls. The algorithm asks by name for those of `unroll_schema.STEP_EXTRAS`, which the
learner checks by the same table; the others depend on the environment and on the normalisation of rewards.
"""

from collections.abc import Callable
from importlib import import_module

from distrl.actors.acting import Acting
from distrl.actors.extras.curriculum import Curriculum
from distrl.actors.extras.episode_infos import EpisodeInfos
from distrl.actors.extras.extra import Extra
from distrl.actors.extras.reward_moments import RewardMoments
from distrl.config import RunConfig
from distrl.config.algorithms import AlgorithmSection
from distrl.environments.vector import VectorEnvironment
from distrl.unroll_schema import StepExtra, step_extras


def make_extras(config: RunConfig, policy: Acting, environment: VectorEnvironment) -> tuple[Extra, ...]:
    """Make the extras of a run's unrolls, in the order in which they travel.

    Raises:
        ConfigError: The algorithm asks for one that is not there, or that this policy cannot give.
    """
    algorithm, discount = config.algorithm, config.algorithm.reward_moments_discount
    asked = (_collector(extra)(algorithm, policy) for extra in step_extras(algorithm.unroll_extras))
    moments = () if discount is None else (RewardMoments(discount, environment.rows),)
    curriculum = (Curriculum(config.environment, environment),) if environment.spec.adjustable else ()
    return (*moments, *asked, EpisodeInfos(environment), *curriculum)


def _collector(extra: StepExtra) -> Callable[[AlgorithmSection, Acting], Extra]:
    module, _, name = extra.collector.partition(":")
    collector: Callable[[AlgorithmSection, Acting], Extra] = getattr(import_module(module), name)
    return collector
