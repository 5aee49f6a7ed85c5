"""Which extras the unrolls of a run have, and in which order."""

from types import SimpleNamespace

import pytest

from distrl.actors.extras import make_extras
from distrl.actors.extras.extra import Extra
from distrl.config import RunConfig
from distrl.networks.actions.categorical import CategoricalSpec
from distrl.networks.actions.values import ValuesSpec
from tests.actors.extras.unrolls import EMPTY


def made(algorithm, distribution, *, adjustable=()):
    config = RunConfig.model_validate({"algorithm": algorithm})
    policy = SimpleNamespace(distributions={"action": distribution})
    environment = SimpleNamespace(rows=2, spec=SimpleNamespace(adjustable=adjustable))
    return [type(extra).__name__ for extra in make_extras(config, policy, environment)]


@pytest.mark.parametrize(
    ("algorithm", "distribution", "adjustable", "names"),
    [
        ({"name": "impala"}, CategoricalSpec(2), (), ["EpisodeInfos"]),
        ({"name": "impala"}, CategoricalSpec(2), ("level",), ["EpisodeInfos", "Curriculum"]),
        ({"name": "ppo", "reward_normalization": {}}, CategoricalSpec(2), (), ["RewardMoments", "EpisodeInfos"]),
        ({"name": "acer"}, CategoricalSpec(2), (), ["ChoiceProbabilities", "EpisodeInfos"]),
        ({"name": "apex"}, ValuesSpec(2, "q/q"), (), ["FirstPriorities", "EpisodeInfos"]),
        ({"name": "dqn"}, ValuesSpec(2, "q/q"), (), ["EpisodeInfos"]),
    ],
)
def test_a_run_has_those_that_algorithm_and_environment_ask_for(algorithm, distribution, adjustable, names):
    assert made(algorithm, distribution, adjustable=adjustable) == names


def test_an_extra_leaves_out_what_it_does_not_need():
    class Silent(Extra):
        def close(self, unroll):
            return unroll

    extra = Silent()
    extra.reset(None, None)
    extra.begin(None, None)
    extra.add(None, None)
    assert extra.close(EMPTY) is EMPTY
