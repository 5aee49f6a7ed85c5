"""Estimates beside a training, `evaluation.off_policy`: of its newest weights, at every evaluation."""

from collections.abc import Callable, Sequence

from distrl.actors.policy import Policy
from distrl.actors.published_evaluator import Estimating, no_estimates
from distrl.config import RunConfig
from distrl.data.episodes import DataError, Episodes, Spaces
from distrl.data.off_policy.evaluating import OffPolicy, Wanted
from distrl.data.off_policy.target import sizes
from distrl.data.opening import all_opened
from distrl.data.playing import check_spec, spaces_of
from distrl.memory_backend.records import Estimate
from distrl.types import EnvSpec


def estimating(config: RunConfig, policy: Policy) -> Estimating:
    """Return what makes the estimates of a run's evaluations; the policy's weights may change from one to the next.

    Raises:
        ConfigError, DataError: The data cannot be read, or policy and data do not fit each other.
    """
    off_policy = config.evaluation.off_policy
    if not off_policy.estimators:
        return no_estimates
    episodes, spaces = _opened(config)
    fits_behaviour = off_policy.behaviour is not None
    wanted = Wanted(
        off_policy.estimators,
        greedy=True,  # as evaluations play, beside which the estimates stand
        fits_behaviour=fits_behaviour,
        interval=True,
        seed=config.seed,
        needs_all=False,
    )
    OffPolicy(policy, config, episodes, spaces, wanted)  # refuses now what it would refuse at the first evaluation

    def estimate(stop: Callable[[], bool]) -> Sequence[Estimate] | None:
        made, found = OffPolicy(policy, config, episodes, spaces, wanted), list[Estimate]()
        try:
            if any(stop() for _ in made.play()):
                return None
            for each in made.estimates():
                found.append(each)
                if stop():
                    return None
        except DataError as error:  # of a file that has gone, say: the training does not need them
            return [Estimate(name, problem=str(error)) for name in off_policy.estimators]
        return found

    return estimate


def check(config: RunConfig, spec: EnvSpec) -> None:
    """Refuse data from which the estimators of a run cannot be calculated, whatever its policy.

    Raises:
        ConfigError, DataError: The data cannot be read, does not fit the environment, or lacks what they need.
    """
    check_spec(spec)
    off_policy = config.evaluation.off_policy
    if off_policy.weighted and sizes(spec.actions) is None:
        names = ", ".join(off_policy.weighted)
        raise DataError(
            f"evaluation.off_policy: {names}: evaluations take the best action, which has no probability among real "
            "numbers; set estimators: [fqe], [dm] or both"
        )
    episodes, _ = _opened(config)
    if len(episodes.lengths) == 1:
        raise DataError(f"evaluation.off_policy: {episodes.name} has one episode, and an interval needs two")
    if off_policy.weighted and off_policy.behaviour is None:
        everything = episodes.read(range(len(episodes.lengths)))
        if any(episode.log_probabilities is None for episode in everything):
            lacks = f"{', '.join(off_policy.weighted)}: {episodes.name} lacks the probabilities of its actions"
            raise DataError(f"evaluation.off_policy: {lacks}; set behaviour: bc, or estimators: [fqe]")


def _opened(config: RunConfig) -> tuple[Episodes, Spaces]:
    spaces, data = spaces_of(config.environment), config.evaluation.off_policy.data(config.data)
    return all_opened(data, config.environment.id, spaces), spaces
