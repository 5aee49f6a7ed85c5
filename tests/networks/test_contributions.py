"""Workers' gradients become one step: mean or sum, one optimizer or each its own, statistics of all."""

from dataclasses import replace

import numpy as np
import pytest

from distrl.config.algorithms import RewardNormalizationParameters
from distrl.config.heads import ValueHeadParameters
from distrl.config.network import NetworkParameters
from distrl.errors import CheckpointError
from distrl.networks.contributions import apply_contributions, contribution_shapes
from distrl.networks.copies import Copies
from distrl.types import ArraySpec, Contribution, Differentiated, DiscreteSpec, EnvSpec, UnrollHeader

SPEC = EnvSpec("Vector-v0", {"observation": ArraySpec((2,), "float32")}, {"action": DiscreteSpec(2)})
SGD = {"optimizer_type": "SGD", "learning_rate": 0.1}


def wrap(middleware=None, rewards=None, **parameters):
    tree = {"middleware_parameters": {"scheme": [3], **(middleware or {})}, **(parameters or SGD)}
    network = NetworkParameters.model_validate(tree)
    heads = [ValueHeadParameters()]
    return Copies(
        network,
        SPEC,
        heads,
        has_target=False,
        has_global=True,
        name="main",
        seed=3,
        reward_normalization=rewards,
    )


def contribute(network, worker, value, averages=None, moments=None, **metrics):
    """A contribution whose every gradient is `value`."""
    shapes, of_averages, _ = contribution_shapes(network.online)
    gradients = {name: np.full(shape, value, np.float32) for name, shape in shapes.items()}
    moved = {name: np.full(shape, averages, np.float32) for name, shape in of_averages.items()}
    return Contribution(
        header=UnrollHeader(worker, 1, 0, 1, 4),
        differentiated=Differentiated(gradients, moved, {"loss": 1.0, **metrics}, moments or {}),
        episode_returns=np.zeros(0, np.float32),
        episode_lengths_steps=np.zeros(0, np.int32),
    )


def moved(network, before):
    """By how much every weight has moved: the same for all."""
    after = network.global_.named_weights()
    changes = np.concatenate([(after[name] - before[name]).ravel() for name in before])
    np.testing.assert_allclose(changes, changes[0], atol=1e-6)
    return float(changes[0])


@pytest.mark.row("A04")
@pytest.mark.parametrize(("mean", "expected", "norm"), [(True, -0.2, 2.0), (False, -0.4, 4.0)])
def test_the_mean_or_the_sum_is_applied(mean, expected, norm):
    network = wrap()
    before = network.global_.named_weights()
    given = (contribute(network, 0, 1.0, loss=3.0), contribute(network, 1, 3.0, loss=5.0, entropy=1.0))
    metrics = apply_contributions(network, given, mean=mean)
    assert moved(network, before) == pytest.approx(expected)
    count = sum(array.size for array in before.values())
    assert metrics == {
        "loss": 4.0,
        "gradient_norm": pytest.approx(norm * np.sqrt(count)),
        "learning_rate": pytest.approx(0.1),
        "finite": True,
    }
    for copy in network.by_name.values():  # what is published is the global copy
        np.testing.assert_array_equal(copy.get_weights()[0], network.global_.get_weights()[0])


@pytest.mark.row("A03", "C06")
def test_with_one_optimizer_for_all_a_round_is_one_iteration():
    network = wrap(optimizer_type="Adam")
    apply_contributions(network, (contribute(network, 0, 1.0), contribute(network, 1, 3.0)), mean=True)
    assert int(network.optimizer.iterations) == 1
    for worker in (0, 1):  # and one after the other are two
        apply_contributions(network, (contribute(network, worker, 1.0),), mean=True)
    assert int(network.optimizer.iterations) == 3
    assert [group for group in network.state_arrays() if "optimizer" in group] == ["optimizer"]


@pytest.mark.row("A03", "C06")
def test_with_own_optimizers_every_worker_has_moments_of_its_own():
    network = wrap(optimizer_type="Adam", shared_optimizer=False)
    for worker in (0, 1):
        apply_contributions(network, (contribute(network, worker, 1.0 + 2.0 * worker),), mean=True)
    assert [int(network.optimizer_of(worker).iterations) for worker in (0, 1)] == [1, 1]
    momenta = [float(np.asarray(network.optimizer_of(worker).variables[2]).ravel()[0]) for worker in (0, 1)]
    np.testing.assert_allclose(momenta, [0.1, 0.3], rtol=1e-6)  # (1 - beta1) x gradient


@pytest.mark.row("A03", "A04")
@pytest.mark.parametrize(("mean", "expected"), [(True, -0.2), (False, -0.4)])
def test_own_optimizers_share_a_round_by_their_number(mean, expected):
    network = wrap(**SGD, shared_optimizer=False)
    before = network.global_.named_weights()
    apply_contributions(network, (contribute(network, 0, 1.0), contribute(network, 1, 3.0)), mean=mean)
    assert moved(network, before) == pytest.approx(expected)


def test_own_optimizers_are_part_of_the_state_also_of_workers_that_came_later():
    network, other = (wrap(optimizer_type="Adam", shared_optimizer=False) for _ in range(2))
    for worker in (0, 5, 0):
        apply_contributions(network, (contribute(network, worker, 1.0),), mean=True)
    state = network.state_arrays()
    assert sorted(state) == ["global", "online", "optimizer_0", "optimizer_5", "statistics"]
    other.restore(state)
    assert [int(other.optimizer_of(worker).iterations) for worker in (0, 5)] == [2, 1]
    for each in (network, other):  # training goes on bit by bit as it would have
        apply_contributions(each, (contribute(each, 5, -2.0), contribute(each, 7, 1.0)), mean=True)
    one, two = network.state_arrays(), other.state_arrays()
    assert sorted(one) == sorted(two)
    for group, arrays in one.items():
        for name, array in arrays.items():
            np.testing.assert_array_equal(two[group][name], array, err_msg=f"{group} {name}")
    with pytest.raises(CheckpointError, match="optimizer_5"):
        wrap(optimizer_type="Adam").restore(state)


def test_statistics_of_normalised_inputs_come_from_all_workers():
    network = wrap(**SGD, input_embedders_parameters={"observation": {"normalize": True}})
    rng = np.random.default_rng(0)
    rows = rng.normal([1.0, -2.0], [3.0, 0.5], (20, 2))
    given = []
    for worker, part in enumerate((rows[:5], rows[5:])):
        mean = part.mean(axis=0)
        moments = {"count": np.array(float(len(part))), "mean": mean, "squares": np.square(part - mean).sum(axis=0)}
        given.append(contribute(network, worker, 0.0, moments={"observation": moments}))
    apply_contributions(network, tuple(given), mean=True)
    for copy in network.by_name.values():
        ((_, layer),) = copy.normalizations
        np.testing.assert_allclose(np.asarray(layer.mean), rows.mean(axis=0), rtol=1e-5)
        np.testing.assert_allclose(np.asarray(layer.variance), rows.var(axis=0), rtol=1e-5)


def test_moments_of_rewards_come_from_all_workers():
    """Two workers' returns, 1 and 3 and then 5 and 7, have the deviation of all four."""
    network = wrap(rewards=RewardNormalizationParameters())
    told = [{"count": np.array(2.0), "mean": np.array(mean), "squares": np.array(2.0)} for mean in (2.0, 6.0)]
    given = [replace(contribute(network, i, 0.0), reward_moments=moments) for i, moments in enumerate(told)]
    apply_contributions(network, tuple(given), mean=True)
    assert (network.rewards.moments.count, network.rewards.moments.mean) == (4.0, 4.0)
    assert network.rewards.deviation == pytest.approx(np.sqrt(5.0))


def test_averages_become_the_mean_of_the_workers():
    network = wrap({"batchnorm": True})
    given = (contribute(network, 0, 0.0, averages=1.0), contribute(network, 1, 0.0, averages=4.0))
    apply_contributions(network, given, mean=False)
    _, averages, _ = contribution_shapes(network.online)
    assert len(averages) == 2
    for copy in network.by_name.values():
        for name in averages:
            np.testing.assert_array_equal(copy.named_weights()[name], 2.5)


def test_gradients_whose_norm_overflows_are_not_applied():
    network = wrap()
    before = network.state_arrays()
    given = (contribute(network, 0, 3e38), contribute(network, 1, 3e38))
    metrics = apply_contributions(network, given, mean=True)
    assert metrics["finite"] is False
    assert metrics["gradient_norm"] == np.inf
    for group, arrays in network.state_arrays().items():
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, before[group][name])
