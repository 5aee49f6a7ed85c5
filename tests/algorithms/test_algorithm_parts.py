"""Each loss moves its own part alone, in every algorithm with several networks or with separate networks per head."""

import numpy as np
import pytest

from distrl.algorithms.algorithm import GradientAlgorithm
from distrl.algorithms.off_policy import OffPolicyActorCritic
from distrl.config.algorithms import ALGORITHMS
from distrl.networks.framework.backend import Gradients
from distrl.networks.objective import outputs_of
from tests.algorithms.arm import assert_each_loss_moves_its_own_variables_alone
from tests.algorithms.curious import make, make_batch
from tests.algorithms.one_of_each_kind import others_in_long

APART = {"use_separate_networks_per_head": True}
OTHERS = {
    "dqn",
    "apex",
    "r2d2",
    "bootstrapped_dqn",
    "c51",
    "qrdqn",
    "rainbow",
    "naf",
    "bc",
    "discrete_cql",
    "discrete_bcq",
    "dqfd",
}
"""Algorithms with one network and one head, whose loss is one."""
ACTOR_CRITICS = ("sac", "discrete_sac", "tqc", "crossq", "ddpg", "td3", "td3_bc", "awac", "iql", "cql")
SEVERAL_HEADS = [name for name in ALGORITHMS if name not in {*OTHERS, *ACTOR_CRITICS}]


# Those of the others are tested with them: test_sac.py, test_td3.py and so on.
@pytest.mark.parametrize("name", others_in_long(ACTOR_CRITICS, kept=("tqc", "crossq", "ddpg")))
def test_each_loss_moves_its_own_network_alone(name):
    algorithm, networks = make(name)
    assert isinstance(algorithm, OffPolicyActorCritic)
    assert_each_loss_moves_its_own_variables_alone(algorithm, make_batch(networks, name))


@pytest.mark.parametrize("name", others_in_long(SEVERAL_HEADS, kept=("ppo", "impala", "vpg", "acer")))
def test_each_term_moves_the_network_of_its_own_head_alone(name):
    algorithm, networks = make(name, network=APART)
    assert isinstance(algorithm, GradientAlgorithm)
    online, target = networks["main"].online, networks["main"].target
    heads = [head.name for head in online.heads]
    assert len(heads) == 2
    variables = {head: online.trainable_variables_of(head) for head in heads}
    trainable = [variable for head in heads for variable in variables[head]]
    owners = np.repeat(heads, [len(variables[head]) for head in heads])
    others = [*online.state_variables, *([] if target is None else target.model.variables)]
    batch = make_batch(networks, name)
    for head in heads:

        def term(given, head=head):
            return algorithm.loss(*outputs_of(online, given, target, training=True)).terms[head], {}

        gradients = Gradients(term, trainable, others)(batch)[2]
        assert [bool(gradient.any()) for gradient in gradients] == [owner == head for owner in owners]


@pytest.mark.parametrize("name", others_in_long(sorted(OTHERS), kept=()))
def test_the_others_have_one_network_and_one_head(name):
    _, networks = make(name)
    assert list(networks) == ["main"]
    assert len(networks["main"].online.heads) == 1


def test_the_forward_and_the_inverse_model_of_curiosity_learn_from_their_own_loss():
    """Features learn from both (Pathak et al. 2017, equation 7)."""
    made, networks = make(curiosity={"kind": "icm"})
    predictor = made._predictor
    rows = predictor.rows(make_batch(networks))
    moved = {}
    for name in ("inverse_loss", "forward_loss"):

        def loss(given, name=name):
            return predictor.loss(given)[1][name], {}

        for part, network in predictor.networks.items():
            trainable = network.online.model.trainable_variables
            read = [variable for variable in predictor.variables if all(variable is not own for own in trainable)]
            gradients = Gradients(loss, trainable, read)(rows)[2]
            moved[name, part] = any(gradient.any() for gradient in gradients)
    assert moved == {
        ("inverse_loss", "curiosity"): True,
        ("inverse_loss", "curiosity_inverse"): True,
        ("inverse_loss", "curiosity_forward"): False,
        ("forward_loss", "curiosity"): True,
        ("forward_loss", "curiosity_inverse"): False,
        ("forward_loss", "curiosity_forward"): True,
    }
