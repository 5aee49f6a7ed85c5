"""Every algorithm leaves frozen layers as they are and trains the others. Runs on TensorFlow and JAX."""

import numpy as np
import pytest

from distrl.algorithms import built, make_algorithm
from distrl.config.algorithms import ALGORITHMS
from distrl.errors import ConfigError
from distrl.types import BoxSpec, Contribution, EnvSpec, UnrollHeader
from tests.algorithms.curious import VECTOR, actions_taken, configured, make_batch, network_of
from tests.algorithms.one_of_each_kind import others_in_long

FROZEN = {"frozen": ["*middleware*"]}
KEPT = ("impala", "dqn", "sac", "trpo", "a2c")
"""One network from unrolls and from replay, several networks, a natural gradient, shipped gradients."""


def make(name, network=None, curiosity=None, **algorithm):
    made = make_algorithm(configured(name, network_of(name) | FROZEN | (network or {}), curiosity, **algorithm))
    return made, built(made, EnvSpec("x", VECTOR, actions_taken(name)))


def update(made, networks, name, seed):
    batch = make_batch(networks, name, seed)
    if made.parameters.ships == "unrolls":
        return made.update(networks, batch)
    header = UnrollHeader(0, 1, seed, 1, 4)
    found = made.differentiate(networks, batch)
    return made.update(networks, (Contribution(header, found, np.zeros(0), np.zeros(0)),))


@pytest.mark.parametrize("name", others_in_long(ALGORITHMS, KEPT))
def test_frozen_weights_are_bit_equal_after_three_updates_and_all_others_are_not(name):
    made, networks = make(name)
    before = {key: network.online.named_weights() for key, network in networks.items()}
    for seed in range(3):
        assert update(made, networks, name, seed).metrics["finite"]
    for key, network in networks.items():
        frozen = network.online.frozen
        assert frozen
        for copy in network.by_name.values():
            for weight, array in copy.named_weights().items():
                if weight in frozen:
                    assert array.tobytes() == before[key][weight].tobytes(), weight
        after = network.online.named_weights()
        assert [
            weight for weight in after if weight not in frozen and (after[weight] == before[key][weight]).all()
        ] == []


def test_a_pattern_may_match_in_one_network_only_and_not_in_curiosity_alone():
    _, networks = make("sac", {"frozen": ["critic/*middleware*"]})
    assert networks["critic"].online.frozen
    assert not networks["main"].online.frozen
    with pytest.raises(ConfigError, match=r"'curiosity/\*' matches no weight that training changes; there are "):
        make("ppo", {"frozen": ["*middleware*", "curiosity/*"]}, {"kind": "rnd"})


def test_a_number_of_a_loss_cannot_be_frozen_and_a_deviation_can():
    penalty = {"kl_penalty": {}}
    with pytest.raises(ConfigError) as refused:
        make("ppo", {"frozen": ["*kl_coefficient"]}, **penalty)
    assert str(refused.value) == (
        "network.frozen: '*kl_coefficient' matches main/policy_head_kl_coefficient alone, which is a number of a loss "
        "and no weight: it cannot be frozen; leave the pattern out"
    )
    _, networks = make("ppo", {"frozen": ["*policy_head*"]}, **penalty)  # the number is among what matches
    assert networks["main"].online.frozen
    made = make_algorithm(configured("ppo", {"frozen": ["*_log_sigma/*"]}))
    action = {"action": BoxSpec((1,), (-1.0,), (1.0,))}
    (deviation,) = built(made, EnvSpec("x", VECTOR, action))["main"].online.frozen
    assert deviation == "main/policy_head_action_log_sigma/numbers"


def test_trpo_needs_both_parts():
    with pytest.raises(ConfigError, match=r"network\.frozen leaves no weight of head value to train"):
        make("trpo", {"frozen": ["main/value_*"]})
