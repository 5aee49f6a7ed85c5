import hashlib
import logging

import keras
import numpy as np
import onnx
import pytest

from distrl.actors.policy import Policy
from distrl.config.network import Activation, EmbedderParameters, MiddlewareParameters, NetworkParameters
from distrl.errors import DistrlError, MissingExtraError
from distrl.networks import bundle
from distrl.networks.architecture import Architecture
from distrl.networks.description import BundleDescription, CategoricalSpec, WeightSpec
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec, PolicyBundle, Weights

SPEC = EnvSpec("Vector-v0", {"observation": ArraySpec((4,), "float32")}, DiscreteSpec(2))


def build(spec=SPEC, seed=1, units=(8,), **parameters):
    middleware = MiddlewareParameters(units=units, **parameters)
    return Architecture(NetworkParameters(middleware_parameters=middleware), spec, ("policy", "value"), "main", seed)


def randomised(model, seed):
    """Other weights than those at export, biases and running statistics included."""
    rng = np.random.default_rng(seed)
    for variable in model.weights:
        variable.assign(
            rng.uniform(0.2, 1.0, variable.shape) * (1.0 if not variable.trainable else rng.choice([-1, 1]))
        )


@pytest.mark.parametrize("activation", Activation.__args__)
def test_every_activation_computes_the_same(activation):
    model = build(activation=activation).model
    bundle.verify_graph(bundle.export_graph(model), model)


def test_the_policy_computes_what_the_network_computes_after_training(tmp_path):
    spec = EnvSpec(
        "Two-v0", {"left/camera": ArraySpec((2, 2), "uint8"), "speed": ArraySpec((), "float64")}, DiscreteSpec(3)
    )
    parameters = NetworkParameters(
        input_embedders_parameters={"left/camera": EmbedderParameters(units=(6,), input_rescaling=255.0)}
    )
    network = Architecture(parameters, spec, ("policy", "value"), "main", 1)
    policy = Policy(bundle.export_bundle(network, spec, cache_dir=tmp_path))
    rng = np.random.default_rng(0)
    for seed, batch in enumerate((1, 7, 64)):
        randomised(network.model, seed)
        policy.set_weights(Weights(seed + 1, network.named_weights()))
        inputs = {"left/camera": rng.integers(0, 256, (batch, 2, 2)).astype(np.uint8), "speed": rng.random(batch)}
        logits, value = network.predict(inputs)
        output = policy.step(inputs, {})
        np.testing.assert_allclose(output.logits, logits, atol=1e-5)
        np.testing.assert_allclose(output.value, value, atol=1e-5)


def test_weights_swap_on_convolution_bias_and_batch_normalisation():
    """Weights that an optimiser folded into others at export would stay behind: nothing may be folded."""
    image = keras.Input((6, 6, 3), name="image")
    x = keras.layers.Conv2D(4, 3, name="convolution")(image)
    x = keras.layers.BatchNormalization(name="normalisation")(x)
    x = keras.layers.Flatten()(keras.layers.ReLU()(x))
    model = keras.Model({"image": image}, {"logits": keras.layers.Dense(2, name="head")(x)})
    graph = bundle.export_graph(model)
    bundle.verify_graph(graph, model)
    description = BundleDescription(
        inputs={"image": ArraySpec((6, 6, 3), "float32")},
        recurrent_state={},
        outputs={"logits": (2,)},
        action_distribution=CategoricalSpec(2),
        environment=SPEC,
        weights=tuple(
            WeightSpec(variable.path, tuple(variable.shape), "float32", variable.trainable)
            for variable in model.weights
        ),
        libraries={},
        sha256=hashlib.sha256(graph).hexdigest(),
    )
    assert [weight.mixed for weight in description.weights] == [True, True, True, True, False, False, True, True]
    policy = Policy(PolicyBundle(graph, description.to_json()))
    images = np.random.default_rng(0).standard_normal((5, 6, 6, 3)).astype(np.float32)
    seen = []
    for version in (1, 2, 3):
        randomised(model, version)
        policy.set_weights(Weights(version, {variable.path: np.asarray(variable) for variable in model.weights}))
        output = policy.step({"image": images}, {})
        np.testing.assert_allclose(
            output.logits, np.asarray(model({"image": images}, training=False)["logits"]), atol=1e-4
        )
        assert output.value is None
        seen.append(output.logits)
    assert np.abs(seen[0] - seen[1]).max() > 0.1


def test_weights_are_external_initializers_under_their_paths():
    network = build()
    graph = onnx.load_from_string(bundle.export_graph(network.model)).graph
    assert {tensor.name for tensor in graph.initializer if tensor.external_data} == set(network.named_weights())
    assert [tensor.name for tensor in graph.input] == ["observation"]
    assert graph.input[0].type.tensor_type.shape.dim[0].dim_value == 0  # the batch axis is free
    assert not any(tensor.raw_data for tensor in graph.initializer if tensor.external_data)


def test_description_holds_what_an_actor_needs(tmp_path):
    network = build()
    exported = bundle.export_bundle(network, SPEC, cache_dir=tmp_path)
    description = BundleDescription.from_json(exported.description)
    assert description.inputs == SPEC.observations
    assert description.outputs == {"logits": (2,), "value": ()}
    assert description.action_distribution == CategoricalSpec(2)
    assert description.environment == SPEC
    assert [(weight.name, weight.shape, weight.dtype, weight.mixed) for weight in description.weights] == [
        (path, array.shape, "float32", True) for path, array in network.named_weights().items()
    ]
    assert description.sha256 == hashlib.sha256(exported.graph).hexdigest()
    assert {"tensorflow", "keras", "onnx", "tf2onnx"} == description.libraries.keys()


def test_a_wrong_graph_is_refused_and_the_output_named():
    right, wrong = build(), build(activation="relu")
    with pytest.raises(DistrlError, match=r"output '(logits|value)' differs from the network by"):
        bundle.verify_graph(bundle.export_graph(wrong.model), right.model)


class Exports:
    """Counts real exports."""

    def __init__(self, monkeypatch):
        self.count = 0
        self._export = bundle.export_graph
        monkeypatch.setattr(bundle, "export_graph", self)

    def __call__(self, model):
        self.count += 1
        return self._export(model)


def test_cache_is_keyed_by_structure_and_not_by_weights(tmp_path, monkeypatch):
    exports = Exports(monkeypatch)
    first = bundle.export_bundle(build(seed=1), SPEC, cache_dir=tmp_path)
    assert bundle.export_bundle(build(seed=2), SPEC, cache_dir=tmp_path) == first
    assert exports.count == 1
    assert bundle.export_bundle(build(units=(9,)), SPEC, cache_dir=tmp_path) != first
    other_spec = EnvSpec("Vector-v0", SPEC.observations, DiscreteSpec(3))
    bundle.export_bundle(build(other_spec), other_spec, cache_dir=tmp_path)
    assert exports.count == 3
    assert [path.suffix for path in tmp_path.iterdir()] == [".onnx"] * 3


@pytest.mark.parametrize("damage", [b"", b"garbage", "another network"])
def test_a_damaged_cache_entry_is_replaced(tmp_path, monkeypatch, caplog, damage):
    exports = Exports(monkeypatch)
    good = bundle.export_bundle(build(), SPEC, cache_dir=tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_bytes(damage if isinstance(damage, bytes) else bundle.export_graph(build(activation="relu").model))
    exported_before = exports.count
    with caplog.at_level(logging.WARNING):
        again = bundle.export_bundle(build(), SPEC, cache_dir=tmp_path)
    assert exports.count == exported_before + 1
    assert path.read_bytes() == again.graph
    assert (
        BundleDescription.from_json(again.description).weights == BundleDescription.from_json(good.description).weights
    )
    assert "is not usable and is exported again" in caplog.text


def test_default_cache_follows_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    bundle.export_bundle(build(), SPEC)
    assert len(list((tmp_path / "xdg" / "distrl" / "bundles").iterdir())) == 1
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    bundle.export_bundle(build(), SPEC)
    assert len(list((tmp_path / "home" / ".cache" / "distrl" / "bundles").iterdir())) == 1


def test_a_cache_that_cannot_be_written_costs_a_warning_only(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING):
        exported = bundle.export_bundle(build(), SPEC, cache_dir=tmp_path / "file")
    assert Policy(exported).spec == SPEC
    assert "policy graph is not cached" in caplog.text


def test_a_missing_converter_names_the_extra(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"tf2onnx.*pip install 'distrl\[cpu\]'"):
        bundle.export_graph(build().model)
