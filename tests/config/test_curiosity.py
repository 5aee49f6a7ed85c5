"""The section `algorithm.curiosity`: its defaults, who has it, and what is refused in one line."""

import pytest

from distrl.config.algorithms import ALGORITHMS
from distrl.config.load import load
from distrl.errors import ConfigError

LSTM = "network.middleware_parameters={kind: lstm}"
NEEDS = {"r2d2": [LSTM], "trpo": ["network.use_separate_networks_per_head=true"]}
RND = "algorithm.curiosity={kind: rnd}"


def section(*sets):
    return load(sets=[*sets]).config.algorithm.curiosity


def test_the_defaults():
    rnd, icm = section(RND), section("algorithm.curiosity={kind: icm}")
    assert (rnd.kind, rnd.weight, rnd.clip, rnd.learning_rate) == ("rnd", 0.1, 5.0, 1e-4)
    assert (rnd.epochs, rnd.minibatches) == (1, 1)
    assert (icm.kind, icm.beta) == ("icm", 0.2)
    assert section() is None


@pytest.mark.row("D175")
@pytest.mark.parametrize(
    "name", [name for name, given in ALGORITHMS.items() if given.ships == "unrolls" and name != "bc"]
)
def test_every_algorithm_that_ships_unrolls_has_it(name):
    assert section(f"algorithm.name={name}", RND, *NEEDS.get(name, [])).kind == "rnd"


@pytest.mark.parametrize(
    ("sets", "reason"),
    [
        (
            ["algorithm.name=a3c"],
            "algorithm.curiosity: actors of a3c differentiate their own unrolls, and the networks of curiosity are in "
            "the learner; leave it out, or use ppo or impala",
        ),
        (["algorithm.name=a2c"], "algorithm.curiosity: actors of a2c differentiate their own unrolls"),
        (
            ["algorithm.curiosity.minibatches=3", "actors.environments=8", "actors.unroll_length_steps=20"],
            "algorithm.curiosity.minibatches: 3 equal parts cannot be made of the 640 steps of a batch; choose a "
            "divisor",
        ),
        (
            ["algorithm.name=dqn", "algorithm.curiosity.minibatches=3"],
            "algorithm.curiosity.minibatches: 3 equal parts cannot be made of the 32 steps of a batch",
        ),
        (
            ["algorithm.name=r2d2", LSTM, "actors.unroll_length_steps=5", "algorithm.curiosity.minibatches=3"],
            "algorithm.curiosity.minibatches: 3 equal parts cannot be made of the 320 steps of a batch",
        ),
        (
            ["algorithm.name=dqn", "algorithm.curiosity.minibatches=32", "learner={replicas: 2, backend: jax}"],
            "learner.replicas: 2 devices cannot share 1 steps evenly, a minibatch of algorithm.curiosity",
        ),
        (["algorithm.curiosity.weight=-1"], "algorithm.curiosity.weight: "),
        (["algorithm.curiosity.kind=count"], "algorithm.curiosity: "),
        (
            ["algorithm.curiosity.beta=0.5"],
            "unknown key algorithm.curiosity.beta (from flag --set); only kind icm has it",
        ),
        (["algorithm.curiosity.beta=2", "algorithm.curiosity.kind=icm"], "algorithm.curiosity.beta: "),
    ],
)
def test_what_cannot_be_is_refused(sets, reason):
    with pytest.raises(ConfigError) as refused:
        load(sets=[RND, *sets])
    assert str(refused.value).startswith(reason)
    assert "\n" not in str(refused.value)
