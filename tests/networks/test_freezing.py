"""Frozen weights keep their values bit by bit, and count nowhere as trained. Runs on TensorFlow and JAX."""

import numpy as np
import pytest
from keras import ops

from distrl.coach.architecture import Architecture
from distrl.config.heads import ValueHeadParameters
from distrl.errors import CheckpointError, ConfigError
from distrl.networks.contributions import GradientStep, apply_contributions, contribution_shapes
from distrl.networks.freezing import require_matches
from distrl.networks.objective import regularization
from distrl.networks.weights import is_mixed
from distrl.types import ArraySpec, Contribution, DiscreteSpec, EnvSpec, UnrollHeader

FROZEN = ["*/middleware_*"]
SGD = {"optimizer_type": "SGD", "learning_rate": 0.1}
NORMALIZE = {"input_embedders_parameters": {"observation": {"normalize": True}}}
VALUE = (ValueHeadParameters(),)
BATCH_NORM = {"scheme": [8], "batchnorm": True}
BATCH_RENORM = {"scheme": [8, {"kind": "batch_renorm", "warm_up_updates": 1}]}


def loss(outputs, batch):
    del batch
    return {"value": ops.mean(ops.square(outputs["value"] - 3.0))}, {}


def changed(before, after):
    """Names of the weights that have changed, if only in one bit."""
    return {name for name, array in before.items() if array.tobytes() != after[name].tobytes()}


def test_weights_are_named_by_network_layer_and_weight(build):
    network = build(frozen=["main/middleware_dense_0/*", "*/bias"])
    plain = build()
    heads = ["main/policy_head_action", "main/value_head"]
    assert network.frozen == {
        "main/middleware_dense_0/kernel", "main/middleware_dense_0/bias", *(f"{head}/bias" for head in heads)
    }  # fmt: skip
    assert network.names_of(network.model.trainable_variables) == [f"{head}/kernel" for head in heads]
    assert network.weight_names == plain.weight_names
    assert list(network.policy_variables) == list(plain.policy_variables)
    assert {name for name, weight in network.variables.items() if is_mixed(weight)} == {f"{h}/kernel" for h in heads}
    assert network.moving_averages == {}
    assert plain.frozen == frozenset()


def test_a_layer_within_a_layer_is_frozen(build):
    words = EnvSpec("Words", {"words": ArraySpec((3, 2), "float32")}, {"action": DiscreteSpec(2)})
    embedder = {"words": {"kind": "tensor", "scheme": [{"kind": "lstm", "units": 2, "return_sequences": True}]}}
    network = build(words, input_embedders_parameters=embedder, frozen=["*/embedder_words_*"])
    assert len(network.frozen) == 3
    assert not any("embedder" in weight.path for weight in network.model.trainable_variables)


@pytest.mark.parametrize("optimizer", ["AdamW", pytest.param("LBFGS", marks=pytest.mark.long)])
def test_an_update_moves_all_other_weights(wrap, batch_for, optimizer):
    decay = {"weight_decay": 0.5} if optimizer == "AdamW" else {}
    network = wrap(heads=VALUE, frozen=FROZEN, optimizer_type=optimizer, **decay)
    before = network.online.named_weights()
    assert network.train_step(loss)(batch_for(network.online))["finite"]
    assert changed(before, network.online.named_weights()) == {"main/value_head/kernel", "main/value_head/bias"}


def test_the_global_norm_is_of_the_trained_gradients_alone(wrap, batch_for):
    """The value is w . f(o) + b with f fixed, so of its mean the gradient is (mean f(o), 1)."""
    network = wrap(heads=VALUE, frozen=FROZEN, clip_gradients=0.5, **SGD)
    online, batch = network.online, batch_for(network.online)
    weights = online.named_weights()
    hidden = batch.observations["observation"].reshape(-1, 4) @ weights["main/middleware_dense_0/kernel"]
    slope = np.maximum(hidden, 0.0).mean(axis=0)
    norm = np.sqrt(np.square(slope).sum() + 1.0)
    assert norm > 0.5

    def mean_value(outputs, _):
        return {"value": ops.mean(outputs["value"])}, {}

    told = network.train_step(mean_value)(batch)
    assert told["gradient_norm"] == pytest.approx(norm, rel=1e-5)
    after = online.named_weights()
    factor = 0.1 * 0.5 / norm
    np.testing.assert_allclose(
        weights["main/value_head/kernel"][:, 0] - after["main/value_head/kernel"][:, 0], factor * slope, atol=1e-6
    )
    np.testing.assert_allclose(weights["main/value_head/bias"] - after["main/value_head/bias"], [factor], rtol=1e-4)


def test_regularisation_is_of_the_trained_weights_alone(build):
    scheme = [{"kind": "dense", "units": 3, "l2": 0.5}, {"kind": "dense", "units": 2, "l2": 0.25}]
    network = build(
        heads=VALUE, middleware_parameters={"scheme": scheme}, l2_regularization=0.1, frozen=["*/middleware_dense_0/*"]
    )
    squares = {name: float(np.square(array).sum()) for name, array in network.named_weights().items()}
    trained = sum(value for name, value in squares.items() if "dense_0" not in name)
    found = [float(ops.convert_to_numpy(term)) for term in regularization(network)]
    assert found == pytest.approx([0.05 * trained, 0.125 * squares["main/middleware_dense_1/kernel"]], rel=1e-5)


@pytest.mark.parametrize("middleware", [BATCH_NORM, BATCH_RENORM], ids=["batch_norm", "batch_renorm"])
def test_batch_normalisation_computes_by_its_averages_which_stay(build, batch_for, disturb, middleware):
    for frozen in ([], FROZEN):
        network = build(heads=VALUE, middleware_parameters=middleware, frozen=frozen)
        disturb(network, 3)
        batch, before = batch_for(network), network.named_weights()
        inference, training = (
            ops.convert_to_numpy(network.unroll(batch.observations, {}, batch.valid, training=training)["value"])
            for training in (False, True)
        )
        assert np.array_equal(inference, training) == bool(frozen)
        moved = changed(before, network.named_weights())
        assert moved == set() if frozen else {name.rpartition("/")[2] for name in moved} >= {"moving_mean"}


def test_of_a_layer_that_is_frozen_in_part_the_averages_move(wrap, batch_for):
    network = wrap(heads=VALUE, middleware_parameters=BATCH_NORM, frozen=["*/gamma", "*/moving_mean"])
    assert network.online.frozen == {"main/middleware_dense_0_batch_norm/gamma"}
    before = network.online.named_weights()
    network.train_step(loss)(batch_for(network.online))
    after = network.online.named_weights()
    assert changed(before, after) == before.keys() - network.online.frozen


def test_statistics_of_observations_stay_if_their_layer_matches(wrap, batch_for):
    network = wrap(heads=VALUE, frozen=["*/normalization_*"], **NORMALIZE)
    moving = wrap(heads=VALUE, **NORMALIZE)
    given = {name: np.full_like(array, 2.0) for name, array in network.online.named_weights().items()}
    batch = batch_for(network.online)
    for each in (network, moving):
        each.take(given, lambda _: 50.0)
        each.statistics.observe(batch)
    mean = "main/normalization_observation/mean"
    assert set(network.online.named_weights()[mean]) == {2.0}
    assert set(moving.online.named_weights()[mean]) != {2.0}
    assert (network.online.normalized_inputs, moving.online.normalized_inputs) == ({}, {"observation": (4,)})
    # Another warm start from its checkpoint weighs them as before.
    saved = network.state_arrays()
    assert float(saved["statistics"]["observation/count"]) == 50.0
    again = wrap(heads=VALUE, frozen=["*/normalization_*"], **NORMALIZE)
    again.restore(saved)
    assert set(again.online.named_weights()[mean]) == {2.0}
    assert again.statistics.moments["observation"].count == 50.0


def test_with_networks_per_head_one_trunk_can_keep_its_statistics(wrap, batch_for):
    network = wrap(frozen=["*/value_normalization_*"], use_separate_networks_per_head=True, **NORMALIZE)
    before = network.online.named_weights()
    network.statistics.observe(batch_for(network.online))
    assert changed(before, network.online.named_weights()) == {
        "main/policy_normalization_observation/mean", "main/policy_normalization_observation/variance"
    }  # fmt: skip


def test_copies_follow_with_their_frozen_weights(wrap, batch_for):
    network = wrap(has_target=True, heads=VALUE, frozen=FROZEN)
    given = [np.full_like(array, 2.0) for array in network.online.get_weights()]
    network.online.set_weights(given, rate=0.5)
    assert set(network.online.named_weights()["main/middleware_dense_0/kernel"].flat) == {2.0}
    network.update_target_network(0.5)
    assert set(network.target.named_weights()["main/middleware_dense_0/kernel"].flat) == {2.0}
    online, target = network.online.named_weights(), network.target.named_weights()
    assert changed(online, target) == {"main/value_head/kernel", "main/value_head/bias"}
    assert network.published_weights().keys() == online.keys()


def test_published_weights_are_adopted_with_the_frozen_ones(wrap):
    one, other = wrap(heads=VALUE, frozen=FROZEN, seed=1), wrap(heads=VALUE, frozen=FROZEN, seed=2)
    published = one.online.policy_weights()
    other.adopt(published, rows=0)
    assert changed(published, other.online.named_weights()) == set()
    with pytest.raises(CheckpointError, match="main/middleware_dense_0/bias is in only one"):
        other.adopt({name: array for name, array in published.items() if "middleware" not in name}, rows=0)


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "own"])
def test_gradient_actors_ship_nothing_of_them(wrap, batch_for, shared):
    network = wrap(
        has_global=True,
        heads=VALUE,
        middleware_parameters=BATCH_NORM,
        frozen=[*FROZEN, "*/normalization_*"],
        shared_optimizer=shared,
        **NORMALIZE,
    )
    step = GradientStep(network.online, loss)
    before = network.global_.named_weights()
    heads = {"main/value_head/kernel", "main/value_head/bias"}
    shapes = contribution_shapes(network.online)
    assert [set(each) for each in shapes] == [heads, set(), set()]
    given = []
    for worker in range(3):
        found = step(batch_for(network.online, seed=worker))
        assert (found.gradients.keys(), found.averages, found.moments) == (heads, {}, {})
        given.append(Contribution(UnrollHeader(worker, 1, 0, 1, 4), found, np.zeros(0), np.zeros(0)))
    assert apply_contributions(network, tuple(given), mean=True)["finite"]
    for copy in network.by_name.values():
        assert changed(before, copy.named_weights()) == heads
    # The same by Coach's methods.
    accumulated = Architecture(network.online).accumulated_gradients
    assert [array.shape for array in accumulated] == [(8, 1), (1,)]


def test_a_checkpoint_needs_the_same_frozen_layers(wrap, batch_for, same_state):
    network = wrap(heads=VALUE, frozen=FROZEN)
    step = network.train_step(loss)
    step(batch_for(network.online))
    saved = network.state_arrays()
    assert saved["online"].keys() == wrap(heads=VALUE).state_arrays()["online"].keys()
    again = wrap(heads=VALUE, frozen=FROZEN, seed=2)
    again.restore(saved)
    for each in (network, again):
        each.train_step(loss)(batch_for(network.online, seed=1))
    same_state(network.state_arrays(), again.state_arrays())
    with pytest.raises(CheckpointError, match=r"written by another network structure, network\.frozen or optimizer\?"):
        wrap(heads=VALUE).restore(saved)


def test_nothing_to_train_is_refused(build):
    for frozen in (["*"], ["main/*"], [*FROZEN, "*head*"]):
        with pytest.raises(ConfigError, match=r"network\.frozen leaves no weight of network main to train; leave a"):
            build(frozen=frozen)
    network = build(frozen=["*/policy_*"], use_separate_networks_per_head=True)
    assert network.trainable_variables_of("value")
    with pytest.raises(ConfigError, match=r"network\.frozen leaves no weight of head policy to train"):
        network.trainable_variables_of("policy")


def test_a_pattern_that_matches_nothing_is_refused_with_the_nearest_layers():
    names = [
        f"main/{layer}/{weight}" for layer in ("value_head", "middleware_dense_0") for weight in ("kernel", "bias")
    ]
    require_matches(["*/bias"], names[-1:], names)
    with pytest.raises(ConfigError) as refused:
        require_matches(["*/bias", "main/midleware_0/*"], names[-1:], names)
    assert str(refused.value) == (
        "network.frozen: 'main/midleware_0/*' matches no weight that training changes; there are "
        "main/middleware_dense_0/*, main/value_head/*; distrl network show prints all layers"
    )
    many = [f"main/middleware_dense_{index}/kernel" for index in range(20)]
    with pytest.raises(ConfigError, match=r"main/middleware_dense_7/\*, .* and 14 more; distrl network show"):
        require_matches(["main/middleware_dense_7"], [], many)
