"""Acting with noise on weights: what is acted with changes, what is stored does not."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from pydantic import TypeAdapter

from distrl.actors.exploring import Exploration
from distrl.actors.exploring.explorers import ActorRows
from distrl.actors.exploring.weight_noise import factorised, independent
from distrl.actors.policy import Policy
from distrl.config.exploration import ExplorationParameters, NoisyNetworkParameters, PolicySamplingParameters
from distrl.config.heads import PolicyHeadParameters, ValueHeadParameters
from distrl.config.network import NetworkParameters
from distrl.config.schedules import Progress
from distrl.errors import ConfigError, DistrlError
from distrl.networks.actions.categorical import CategoricalSpec
from distrl.networks.network import Network
from distrl.networks.policy.bundle import export_bundle
from distrl.networks.policy.description import BundleDescription
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec, Weights

SPEC = EnvSpec("Vector-v0", {"observation": ArraySpec((4,), "float32")}, {"action": DiscreteSpec(2)})
OBSERVATIONS = {"observation": np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)}
HEADS = (PolicyHeadParameters(), ValueHeadParameters())
KERNEL, SIGMA = "main/middleware_noisy_dense_0/kernel", "main/middleware_noisy_dense_0/kernel_sigma"


def build(dense_layer, cache, exploration=None):
    parameters = NetworkParameters(middleware_parameters={"scheme": [3], "dense_layer": dense_layer})
    network = Network(parameters, SPEC, HEADS, "main", 1)
    return network, export_bundle(network, exploration=exploration, cache_dir=cache)


@pytest.fixture(scope="module")
def noisy(tmp_path_factory):
    """(network, bundle, its description) with one noisy layer of four inputs."""
    network, bundle = build("noisy_dense", tmp_path_factory.mktemp("bundles"), NoisyNetworkParameters())
    return network, bundle, BundleDescription.from_json(bundle.description)


def published(network, version=1, noise=True):
    return Weights(version, network.policy_weights() | (network.noise_weights() if noise else {}))


def logits(policy):
    return policy.step(OBSERVATIONS, {}).outputs["policy/action"]


def independent_noise(stddev):
    return lambda rng, description, arrays: independent(rng, stddev, description, arrays)


def perturb(policy, noise, rng):
    policy.perturb(partial(noise, rng))


@pytest.mark.row("D88")
def test_the_bundle_says_what_noise_belongs_to_which_weights(noisy):
    network, _, description = noisy
    (layer,) = description.noisy
    assert (layer.kernel, layer.kernel_sigma) == (KERNEL, SIGMA)
    assert {*description.sigmas} == {*network.noise_weights()} == {SIGMA, layer.bias_sigma}
    assert description.sigmas[SIGMA].shape == (4, 3)
    assert not description.sigmas.keys() & {spec.name for spec in description.weights}  # the graph reads none of it
    for sigma in network.noise_weights().values():
        np.testing.assert_array_equal(sigma, np.float32(0.25))  # 0.5 / sqrt(4)


@pytest.mark.row("D88")
def test_without_noise_a_policy_acts_by_the_mean_weights(noisy):
    network, bundle, _ = noisy
    policy = Policy(bundle)
    policy.set_weights(published(network))
    np.testing.assert_allclose(logits(policy), network.predict(OBSERVATIONS)[0], atol=1e-5)
    without = Policy(bundle)
    without.set_weights(published(network, noise=False))  # as saved beside a run
    np.testing.assert_array_equal(logits(without), logits(policy))


@pytest.mark.row("D88")
def test_noise_in_noisy_layers_is_factorised_and_as_strong_as_it_was_published(noisy):
    _, _, description = noisy
    (layer,) = description.noisy
    rng = np.random.default_rng(0)
    arrays = {
        layer.kernel: np.ones((4, 3), np.float32),
        layer.kernel_sigma: np.full((4, 3), 0.25, np.float32),
        layer.bias: np.zeros(3, np.float32),
        layer.bias_sigma: np.full(3, 0.5, np.float32),
    }
    kernels, biases = [], []
    for _ in range(4000):
        made = factorised(rng, description, arrays)
        assert made[layer.kernel].dtype == made[layer.bias].dtype == np.float32
        kernels.append((made[layer.kernel] - 1.0) / 0.25)
        biases.append(made[layer.bias] / 0.5)
    # f(x) f(y) with f(x) = sgn(x) sqrt|x|: mean 0, variance E|x| E|y| = 2 / pi; f alone: E|x|.
    assert np.mean(kernels) == pytest.approx(0.0, abs=0.02)
    assert np.var(kernels) == pytest.approx(2 / np.pi, rel=0.05)
    assert np.var(biases) == pytest.approx(np.sqrt(2 / np.pi), rel=0.05)
    # One factor for a unit, in its kernel and in its bias alike.
    rank = [np.linalg.matrix_rank(kernel, tol=1e-5) for kernel in kernels[:50]]
    assert rank == [1] * 50
    np.testing.assert_allclose(kernels[0][0] / kernels[0][0, 0], biases[0] / biases[0][0], rtol=1e-4)


@pytest.mark.row("D88", "G25")
@pytest.mark.parametrize("noise", [factorised, independent_noise(0.01)])
def test_actions_vary_and_stored_weights_stay(noisy, noise):
    network, bundle, _ = noisy
    policy, rng = Policy(bundle), np.random.default_rng(0)
    policy.set_weights(published(network))
    means = logits(policy)
    seen = []
    for _ in range(3):
        perturb(policy, noise, rng)
        seen.append(logits(policy))
        np.testing.assert_array_equal(logits(policy), seen[-1])  # the same until it is drawn again
    assert min(np.abs(one - other).max() for one, other in zip([*seen, means], [means, *seen], strict=True)) > 1e-6
    policy.perturb(lambda _, arrays: arrays)
    np.testing.assert_array_equal(logits(policy), means)
    perturb(policy, noise, np.random.default_rng(0))
    np.testing.assert_array_equal(logits(policy), seen[0])


@pytest.mark.row("G25")
def test_noise_on_all_trained_weights_has_the_strength_of_its_schedule(noisy):
    _, _, description = noisy
    arrays = {spec.name: np.ones((300, 300), np.float32) for spec in description.weights}
    schedule = {"kind": "linear", "start": 0.0, "end": 0.2, "steps": 10, "counts": "episodes"}
    parameters = TypeAdapter(ExplorationParameters).validate_python({"kind": "parameter_noise", "stddev": schedule})
    exploration = Exploration(parameters, {"action": CategoricalSpec(2)}, SPEC.actions, ActorRows(0, 1, 5))
    acting = []
    policy = SimpleNamespace(perturb=lambda perturb: acting.append(perturb(description, arrays)))
    exploration.perturb(policy, np.random.default_rng(0))
    exploration.move_to(Progress(10**6, 5))
    exploration.perturb(policy, np.random.default_rng(0))
    for name, array in acting[0].items():
        np.testing.assert_array_equal(array, arrays[name])
    for array in acting[1].values():
        assert array.dtype == np.float32
        assert (array - 1.0).std() == pytest.approx(0.1, rel=0.02)


@pytest.mark.row("G25")
def test_no_noise_is_no_change(noisy):
    network, bundle, _ = noisy
    policy = Policy(bundle)
    policy.set_weights(published(network))
    before = logits(policy)
    perturb(policy, independent_noise(0.0), np.random.default_rng(0))
    np.testing.assert_array_equal(logits(policy), before)


def test_noise_that_was_not_published_is_missed(noisy):
    network, bundle, _ = noisy
    policy = Policy(bundle)
    policy.set_weights(published(network, noise=False))
    with pytest.raises(DistrlError, match=f"noisy_network: {SIGMA} did not come with the weights"):
        perturb(policy, factorised, np.random.default_rng(0))


def test_a_network_without_noisy_layers_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="noisy_network needs a network with noisy layers"):
        build("dense", tmp_path, NoisyNetworkParameters())


@pytest.mark.parametrize("parameters", [None, PolicySamplingParameters()])
def test_other_explorations_leave_weights_alone(parameters):
    exploration = Exploration(parameters, {"action": CategoricalSpec(2)}, SPEC.actions, ActorRows(0, 1, 5))
    exploration.perturb(None, np.random.default_rng(0))  # no policy is reached
