"""Nothing is accepted and ignored: every field of a network, changed, changes something that can be seen."""

import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from pydantic import TypeAdapter, ValidationError

from distrl.algorithms import make_algorithm
from distrl.coach.wrapper import NetworkWrapper
from distrl.config import RunConfig, heads
from distrl.config.network import (
    EmbedderParameters,
    FCMiddlewareParameters,
    GraphBlock,
    GraphMiddlewareParameters,
    GRUMiddlewareParameters,
    LSTMMiddlewareParameters,
    NetworkParameters,
)
from distrl.errors import ConfigError
from distrl.memory_backend.codec import encode_weights
from distrl.networks.copies import Copies
from distrl.networks.heads import HEADS
from distrl.types import ArraySpec, Batch, BoxSpec, DiscreteSpec, EnvSpec, Weights

VECTOR = {"observation": ArraySpec((4,), "float32")}
SPEC = EnvSpec("Vector-v0", VECTOR, {"action": DiscreteSpec(3)})
TWO = EnvSpec("Two-v0", {name: ArraySpec((2,), "float32") for name in "ab"}, {"action": DiscreteSpec(3)})
PICTURE = EnvSpec("Picture-v0", {"camera": ArraySpec((36, 36, 1), "uint8", 0, 255)}, {"action": DiscreteSpec(3)})
MASKED = EnvSpec("Masked-v0", VECTOR | {"allowed": ArraySpec((3,), "int8", 0, 1)}, {"action": DiscreteSpec(3)})
TOKENS = EnvSpec("Tokens-v0", {"mission": ArraySpec((3,), "int32", 0, 4, vocabulary=5)}, {"action": DiscreteSpec(3)})
BOX = EnvSpec("Box-v0", VECTOR, {"action": BoxSpec((2,), (-1.0, -1.0), (1.0, 1.0))})
READ_HEAD = TypeAdapter(heads.HeadParameters).validate_python
ROWS = 4


class Change(NamedTuple):
    """A field's new value, what it shows in, and what else is configured with either value."""

    value: object
    effect: str
    base: Mapping = MappingProxyType({})
    spec: EnvSpec = SPEC


def random_inputs(network):
    rng = np.random.default_rng(0)
    arrays = {}
    for name, tensor in network.model.input.items():
        shape = (ROWS, *tensor.shape[1:])
        floating = np.issubdtype(np.dtype(tensor.dtype), np.floating)
        high = 256 if tensor.dtype == "uint8" else 2
        arrays[name] = (rng.standard_normal(shape) if floating else rng.integers(0, high, shape)).astype(tensor.dtype)
    if "allowed" in arrays:
        arrays["allowed"][:] = [1, 0, 1]
    return arrays


# What each kind of head is to learn in these tests: errors are larger than 1, so that Huber's loss differs.
CHOICES = np.array([0, 1, 2, 1], np.int32)
ADVANTAGES = np.float32([1.0, -2.0, 0.5, 3.0])
ACTIONS = {"action": CHOICES}
LOG_PROBABILITIES = np.log(np.float32([0.2, 0.9, 0.5, 0.1]))
OLD = {"policy/action": np.float32([[1.0, 0.0, -1.0]] * ROWS)}
UNEVEN = np.float32([[0.8, 0.1, 0.1], [0.02, 0.08, 0.9], [0.3, 0.3, 0.4], [0.01, 0.98, 0.01]])
BIG = np.float32([5.0, -4.0, 3.0, 6.0])
SHARES = np.float32([[0.1, 0.2, 0.7]] * ROWS)
REAL = np.float32([[0.1, -0.5]] * ROWS)
TARGETS = {
    "policy": {"actions": ACTIONS, "advantages": ADVANTAGES},
    "ppo": {
        "actions": ACTIONS,
        "advantages": ADVANTAGES,
        "old_log_probabilities": LOG_PROBABILITIES,
        "old_outputs": OLD,
    },
    "acer_policy": {
        "actions": ACTIONS,
        "behaviour_probabilities": UNEVEN,
        "q_values": 3.0 * UNEVEN,
        "retrace": BIG,
        "average_probabilities": UNEVEN[::-1].copy(),
    },
    "value": BIG,
    "q": {"actions": CHOICES, "targets": BIG},
    "dueling_q": {"actions": CHOICES, "targets": BIG},
    "categorical_q": {"actions": CHOICES, "probabilities": SHARES},
    "rainbow_q": {"actions": CHOICES, "probabilities": SHARES},
    "ensemble_q": {"actions": CHOICES, "targets": np.stack([BIG, -BIG], axis=1) / 10},
    "constrained_q": {"actions": CHOICES, "targets": BIG},
    "quantile_q": {"actions": CHOICES, "targets": np.stack([BIG, -BIG], axis=1) / 10},
    "naf": {"actions": REAL, "targets": BIG},
    "q_value": BIG,
    "quantile_q_value": np.stack([BIG, -BIG], axis=1) / 10,
    "twin_q": BIG,
    "deterministic_policy": REAL,
    "classification": CHOICES,
    "embedding": np.stack([BIG] * 3, axis=1),
}


def targets_of(head):
    given = TARGETS[head.parameters.kind]
    if head.parameters.kind == "acer_policy" and head.parameters.trust_region_delta is None:
        return {name: value for name, value in given.items() if name != "average_probabilities"}
    if head.parameters.kind == "value" and head.parameters.clip_range is not None:
        return {"targets": given, "old_values": np.zeros(ROWS, np.float32)}
    return given


def whole_batch_loss(outputs, data):
    del data
    return {"value": ops.mean((outputs["value"] - 3.0) ** 4), "policy": ops.mean(outputs["policy/action"] ** 4)}, {}


class Observed:
    """A network, and what can be seen of it."""

    def __init__(self, parameters, spec, made):
        self.parameters = NetworkParameters(**parameters)
        made = [READ_HEAD(head) for head in made]
        self.wrapper = Copies(self.parameters, spec, made, has_target=False, has_global=False, name="main", seed=1)
        self.network = self.wrapper.online

    def copies(self):
        return list(self.wrapper.by_name)

    def shapes(self):
        return {name: array.shape for name, array in self.network.named_weights().items()}

    def actions(self):
        return self.network.actions

    def initial(self):
        return [array.tolist() for array in self.network.get_weights()]

    def outputs(self):
        """Under weights drawn by name, so that a change of structure is none of values."""
        rng = np.random.default_rng(1)
        drawn = [rng.uniform(0.2, 0.6, array.shape) for array in self.network.get_weights()]
        self.network.set_weights(drawn)
        outputs = self.network.predict(random_inputs(self.network), squeeze_output=False)
        return [array.tolist() for array in outputs]

    def step(self):
        """The weights after two updates by the heads' own losses."""
        inputs = random_inputs(self.network)
        targets = [targets_of(head) for head in self.network.heads]
        trained = NetworkWrapper(self.wrapper)
        for _ in range(2):
            trained.train_and_sync_networks(inputs, targets)
        return [array.tolist() for array in self.network.get_weights()]

    def whole_batch(self):
        """The weights after one update that searches for the batch's minimum."""
        rows = np.ones((1, ROWS), np.float32)
        observations = {"observation": np.random.default_rng(0).standard_normal((2, ROWS, 4)).astype(np.float32)}
        no = np.zeros((1, ROWS), bool)
        batch = Batch(observations, {"action": CHOICES[None]}, rows, no, no, ~no, rows, {})
        self.wrapper.train_step(whole_batch_loss)(batch)
        return [array.tolist() for array in self.network.get_weights()]

    def published(self):
        weights = Weights(1, self.network.policy_weights())
        return encode_weights(weights, dict.fromkeys(weights.arrays, self.parameters.wire_dtype))

    def run(self):
        """Return the network's parameters within a whole configuration."""
        return RunConfig(network=self.parameters).device

    def algorithms_heads(self):
        networks = make_algorithm(RunConfig(network=self.parameters)).build(SPEC)
        return {name: array.shape for name, array in networks["main"].online.named_weights().items()}


SGD = {"optimizer_type": "SGD", "learning_rate": 0.01}
STAIRCASE = {"learning_rate_decay_rate": 0.5, "learning_rate_decay_steps": 1}
LINEAR = {"learning_rate_schedule": "linear", "learning_rate_schedule_updates": 5}
GRADIENT_ACTORS = "refused: network.{} is of gradient actors; those of algorithm impala ship unrolls"
OWN = {"model": "examples.own_network:Attention"}

NETWORK = {
    "optimizer_type": Change("Nadam", "step"),
    "learning_rate": Change(0.01, "step"),
    "learning_rate_decay_rate": Change(0.25, "step", STAIRCASE),
    "learning_rate_decay_steps": Change(2, "step", STAIRCASE),
    "learning_rate_schedule": Change("cosine", "step", LINEAR),
    "learning_rate_schedule_updates": Change(8, "step", LINEAR),
    "learning_rate_final": Change(1e-4, "step", LINEAR),
    "learning_rate_warm_up_updates": Change(2, "step"),
    "optimizer_epsilon": Change(1.0, "step"),
    "adam_optimizer_beta1": Change(0.5, "step"),
    "adam_optimizer_beta2": Change(0.5, "step"),
    "rms_prop_optimizer_decay": Change(0.5, "step", {"optimizer_type": "RMSProp"}),
    "rms_prop_initial_accumulator": Change(1.0, "step", {"optimizer_type": "RMSProp"}),
    "adadelta_rho": Change(0.5, "step", {"optimizer_type": "Adadelta", "learning_rate": 1.0}),
    "momentum": Change(0.9, "step", SGD),
    "nesterov": Change(True, "step", SGD | {"momentum": 0.9}),
    "weight_decay": Change(0.5, "step", {"optimizer_type": "AdamW", "learning_rate": 0.01}),
    "lbfgs_max_iterations": Change(1, "whole_batch", {"optimizer_type": "LBFGS", "lbfgs_max_iterations": 2}),
    "clip_gradients": Change(0.1, "step", SGD),
    "gradients_clipping_method": Change("ClipByValue", "step", SGD | {"clip_gradients": 0.1}),
    "input_embedders_parameters": Change({"observation": {"scheme": [3]}}, "shapes"),
    "embedding_merger_type": Change("Sum", "shapes", spec=TWO),
    "middleware_parameters": Change({"scheme": [7]}, "shapes"),
    "heads_parameters": Change([{"kind": "value", "units": [6]}], "algorithms_heads"),
    "use_separate_networks_per_head": Change(True, "shapes"),
    "create_target_network": Change(True, "copies"),
    "frozen": Change(["*/middleware_*"], "step", SGD),
    "l2_regularization": Change(0.1, "step", SGD),
    "replace_mse_with_huber_loss": Change(True, "step", SGD),
    "softmax_temperature": Change(0.5, "outputs"),
    "force_cpu": Change(True, "run"),
    "async_training": Change(True, GRADIENT_ACTORS.format("async_training")),
    "shared_optimizer": Change(False, GRADIENT_ACTORS.format("shared_optimizer")),
    "scale_down_gradients_by_number_of_workers_for_sync_training": Change(
        False, GRADIENT_ACTORS.format("scale_down_gradients_by_number_of_workers_for_sync_training")
    ),
    "compute_dtype": Change("bfloat16", "outputs"),
    "initial_weights": Change("uniform", "initial"),
    "wire_dtype": Change("float16", "published"),
    "model": Change("examples.own_network:Attention", "shapes", spec=PICTURE),
    "model_arguments": Change({"filters": 4}, "shapes", OWN, PICTURE),
}
LAYERS = {
    "activation": Change("tanh", "outputs", {"scheme": [5]}),
    "batchnorm": Change(True, "shapes", {"scheme": [5]}),
    "dropout_rate": Change(0.5, "step", {"scheme": [64]}),
    "dense_layer": Change("noisy_dense", "shapes", {"scheme": [5]}),
}
BLOCK = LAYERS | {"scheme": Change([3], "shapes")}
CONV = [{"kind": "conv2d", "filters": 2}]
EMBEDDER = BLOCK | {
    "kind": Change("tensor", "outputs", {"scheme": CONV, "kind": "image"}, PICTURE),  # no longer bytes / 255
    "input_rescaling": Change(2.0, "outputs"),
    "input_offset": Change(0.5, "outputs"),
    "input_clipping": Change([-0.1, 0.1], "outputs"),
    "normalize": Change(True, "shapes"),
    "embedding_width": Change(5, "shapes", spec=TOKENS),
    "pooling": Change("none", "shapes", spec=TOKENS),
}
BLOCKS = {"output": {"inputs": ["observation"], "layers": [5]}}
GRAPH = {name: change._replace(base={"kind": "graph", "blocks": BLOCKS}) for name, change in LAYERS.items()} | {
    "dropout_rate": Change(
        0.5, "step", {"kind": "graph", "blocks": {"output": {"inputs": ["observation"], "layers": [64]}}}
    ),
    "blocks": Change(
        {"output": {"inputs": ["observation"], "layers": [3]}}, "shapes", {"kind": "graph", "blocks": BLOCKS}
    ),
}
MIDDLEWARES = {
    FCMiddlewareParameters: BLOCK,
    LSTMMiddlewareParameters: {
        name: change._replace(base=change.base | {"kind": "lstm"}) for name, change in BLOCK.items()
    }
    | {"number_of_lstm_cells": Change(5, "shapes", {"kind": "lstm"})},
    GRUMiddlewareParameters: {
        name: change._replace(base=change.base | {"kind": "gru"}) for name, change in BLOCK.items()
    }
    | {"number_of_gru_cells": Change(5, "shapes", {"kind": "gru"})},
    GraphMiddlewareParameters: GRAPH,
}
GRAPH_BLOCK = {
    "inputs": Change(["a"], "shapes", {"inputs": ["a", "b"]}),
    "merger": Change("Sum", "shapes", {"inputs": ["a", "b"]}),
    "layers": Change([3], "shapes", {"inputs": ["a", "b"]}),
}

HEAD = {
    "loss_weight": Change(0.5, "step"),
    "rescale_gradient_from_head_by_factor": Change(0.5, "step"),
    "num_output_head_copies": Change(2, "shapes"),
    "units": Change([5], "shapes"),
    "activation": Change("tanh", "outputs", {"units": [5]}),
    "dense_layer": Change("noisy_dense", "shapes"),
}
MASK = {"action_mask": Change("allowed", "outputs", spec=MASKED)}
POLICY = {
    "distribution": Change("beta", "shapes", spec=BOX),
    "log_sigma": Change("state_dependent", "shapes", spec=BOX),
    "initial_log_sigma": Change(-1.0, "initial", spec=BOX),
    **MASK,
    "beta_entropy": Change(0.5, "step"),
}
ATOMS = {"atoms": Change(7, "shapes"), "v_min": Change(-2.0, "outputs"), "v_max": Change(2.0, "outputs")}
OWN_FIELDS = {
    "policy": POLICY,
    "ppo": POLICY | {"clip_range": Change(None, "step"), "initial_kl_coefficient": Change(0.5, "step")},
    "acer_policy": MASK
    | {
        "importance_weight_truncation": Change(0.5, "step"),
        "trust_region_delta": Change(None, "step", {"trust_region_delta": 0.01}),
        "beta_entropy": Change(0.5, "step"),
    },
    "value": {"clip_range": Change(0.1, "step")},
    "q": MASK,
    "dueling_q": MASK,
    "ensemble_q": {
        **{"members": Change(3, "shapes"), "decides": Change("mean", "actions"), "prior_scale": Change(2.0, "shapes")},
        **MASK,
    },
    "constrained_q": {"threshold": Change(0.999, "outputs")} | MASK,
    "categorical_q": ATOMS | MASK,
    "rainbow_q": ATOMS | MASK,
    "quantile_q": {"quantiles": Change(3, "shapes"), "huber_kappa": Change(0.1, "step")} | MASK,
    "quantile_q_value": {"quantiles": Change(3, "shapes"), "huber_kappa": Change(0.1, "step")},
    "deterministic_policy": {"batchnorm": Change(True, "shapes")},
    "embedding": {"embedding_size": Change(4, "shapes")},
}
SMALL_HEADS = {
    "ensemble_q": {"members": 2},
    "categorical_q": {"atoms": 3},
    "dueling_q": {"units": [6]},
    "rainbow_q": {"atoms": 3, "units": [6]},
    "quantile_q": {"quantiles": 4},
    "quantile_q_value": {"quantiles": 4},
    "twin_q": {"units": [6]},
    "embedding": {"embedding_size": 3, "units": [6]},
}
SECTIONS = {kind: type(READ_HEAD({"kind": kind})) for kind in HEADS}


@pytest.fixture(autouse=True)
def own_model(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2]))
    yield
    sys.modules.pop("examples.own_network", None)


@pytest.fixture(autouse=True)
def eager():
    """Nothing is compiled, which for two updates takes longer than they do."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


def observe(effect, parameters, spec, made):
    return getattr(Observed(parameters, spec, made), effect)()


SEEN = {}
"""Observed results of configurations with several changed fields."""


def assert_has_an_effect(change, before, after, spec, made=({"kind": "policy"}, {"kind": "value"}), made_after=None):
    key = repr((change.effect, before, spec.id, made))
    if key not in SEEN:
        SEEN[key] = observe(change.effect, before, spec, made)
    assert observe(change.effect, after, spec, made if made_after is None else made_after) != SEEN[key]


@pytest.mark.parametrize(
    "effect", ["shapes", "initial", "outputs", "step", "whole_batch", "published", "copies", "run"]
)
def test_what_is_observed_is_no_noise(effect):
    parameters = {"middleware_parameters": {"scheme": [8]}}
    parameters |= {"optimizer_type": "LBFGS", "lbfgs_max_iterations": 1} if effect == "whole_batch" else {}
    made = ({"kind": "policy"}, {"kind": "value"})
    assert observe(effect, parameters, SPEC, made) == observe(effect, parameters, SPEC, made)


@pytest.mark.parametrize("field", NetworkParameters.model_fields)
def test_every_field_of_a_network(field):
    change = NETWORK[field]
    small = {"middleware_parameters": {"scheme": [8]}}
    before, after = small | change.base, small | change.base | {field: change.value}
    assert NetworkParameters(**after) != NetworkParameters(**before)
    if change.effect.startswith("refused: "):
        with pytest.raises(ValidationError) as raised:
            RunConfig(network=after)
        assert change.effect.removeprefix("refused: ") in str(raised.value)
    else:
        assert_has_an_effect(change, before, after, change.spec)


@pytest.mark.row("D02", "D03")
@pytest.mark.parametrize("field", EmbedderParameters.model_fields)
def test_every_field_of_an_embedder(field):
    change = EMBEDDER[field]
    (name,) = change.spec.observations
    before, after = (
        {"input_embedders_parameters": {name: given}, "middleware_parameters": {"scheme": [6]}}
        for given in (change.base, change.base | {field: change.value})
    )
    assert_has_an_effect(change, before, after, change.spec)


@pytest.mark.row("A12", "D03", "D04")
@pytest.mark.parametrize(
    ("section", "field"),
    [(section, field) for section in MIDDLEWARES for field in section.model_fields if field != "kind"],
)
def test_every_field_of_a_middleware(section, field):
    change = MIDDLEWARES[section][field]
    before, after = (
        {"middleware_parameters": given} for given in (dict(change.base), change.base | {field: change.value})
    )
    assert_has_an_effect(change, before, after, change.spec)


@pytest.mark.parametrize("field", GraphBlock.model_fields)
def test_every_field_of_a_graphs_block(field):
    change = GRAPH_BLOCK[field]
    before, after = (
        {"middleware_parameters": {"kind": "graph", "blocks": {"first": given, "output": {"inputs": ["first", "b"]}}}}
        for given in (change.base, change.base | {field: change.value})
    )
    assert_has_an_effect(change, before, after, TWO)


LAYERED = ("value", "rainbow_q", "twin_q")
"""Heads whose layers are changed in CI."""


def head_fields():
    for kind, section in SECTIONS.items():
        for field in section.model_fields:
            # What every head has is the assembly's to see to; layers are each head's own.
            if field != "kind" and (field not in list(HEAD)[:3] or kind == "value"):
                in_ci = kind in LAYERED or field in OWN_FIELDS.get(kind, {})
                yield pytest.param(kind, field, id=f"{kind}-{field}", marks=() if in_ci else pytest.mark.long)


@pytest.mark.row("D06")
@pytest.mark.parametrize(("kind", "field"), [*head_fields()])
def test_every_field_of_a_head(kind, field):
    change = OWN_FIELDS.get(kind, {}).get(field) or HEAD[field]
    continuous = kind in ("naf", "q_value", "quantile_q_value", "twin_q", "deterministic_policy")
    spec = BOX if continuous else change.spec
    base = {"kind": kind} | SMALL_HEADS.get(kind, {}) | change.base
    network = SGD | {"middleware_parameters": {"scheme": [8]}}
    assert_has_an_effect(change, network, network, spec, [base], [base | {field: change.value}])


@pytest.mark.row("A08", "A15")
def test_defaults_are_coachs():
    parameters = NetworkParameters()
    assert (parameters.optimizer_type, parameters.learning_rate) == ("Adam", 2.5e-4)
    assert parameters.middleware_parameters == FCMiddlewareParameters(scheme="Medium", activation="relu")
    assert (parameters.embedding_merger_type, parameters.heads_parameters) == ("Concat", ())
    assert LSTMMiddlewareParameters().number_of_lstm_cells == GRUMiddlewareParameters().number_of_gru_cells == 256
    off = ("use_separate_networks_per_head", "create_target_network", "replace_mse_with_huber_loss", "force_cpu")
    assert not any(getattr(parameters, name) for name in off)
    assert parameters.shared_optimizer
    assert parameters.scale_down_gradients_by_number_of_workers_for_sync_training
    assert (parameters.l2_regularization, parameters.softmax_temperature) == (0.0, 1.0)


@pytest.mark.row("A12")
@pytest.mark.parametrize(
    ("middleware", "section"),
    [
        ({}, FCMiddlewareParameters),
        ({"kind": "fc"}, FCMiddlewareParameters),
        ({"kind": "lstm"}, LSTMMiddlewareParameters),
        ({"kind": "gru"}, GRUMiddlewareParameters),
        ({"kind": "graph", "blocks": BLOCKS}, GraphMiddlewareParameters),
    ],
)
def test_exactly_one_middleware_of_any_kind(middleware, section):
    assert type(NetworkParameters(middleware_parameters=middleware).middleware_parameters) is section


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        pytest.param({"middleware_parameters": None}, "a network needs a middleware", marks=pytest.mark.row("A12")),
        pytest.param({"clip_gradients": 0.0}, "greater than 0", marks=pytest.mark.row("A05")),
        pytest.param({"lerning_rate": 1.0}, "lerning_rate", marks=pytest.mark.row("A24")),
        ({"softmax_temperature": 0.0}, "softmax_temperature"),
        ({"l2_regularization": -0.1}, "l2_regularization"),
        ({"model": "nonsense"}, "model"),
        ({"model_arguments": {"a": 1}}, "model_arguments are of network.model, which is not set"),
        (OWN | {"input_embedders_parameters": {"camera": {}}}, "takes the place of embedders and merger"),
        (OWN | {"embedding_merger_type": "Sum"}, "takes the place of embedders and merger"),
        (OWN | {"middleware_parameters": {"kind": "graph", "blocks": BLOCKS}}, "a graph middleware has no names"),
        (
            {"embedding_merger_type": "Sum", "middleware_parameters": {"kind": "graph", "blocks": BLOCKS}},
            "a graph middleware merges block by block",
        ),
        (
            {"input_embedders_parameters": {"a": {"input_clipping": [1.0, 1.0]}}},
            "1.0 must be below the upper bound 1.0",
        ),
        ({"input_embedders_parameters": {"a": {"input_rescaling": 0.0}}}, "input_rescaling"),
        (
            {"heads_parameters": [{"kind": "value", "activation": "tanh"}]},
            "tanh is of hidden layers, and units is empty",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(parameters, message):
    with pytest.raises(ValidationError) as raised:
        NetworkParameters(**parameters)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"middleware_parameters": {"kind": "lstm", "activation": "tanh"}},
            r"network\.middleware_parameters\.activation has no effect: the scheme has no layers",
        ),
        (
            {"middleware_parameters": {"scheme": "Empty", "dropout_rate": 0.5}},
            r"network\.middleware_parameters\.dropout_rate has no effect",
        ),
        (
            {"input_embedders_parameters": {"observation": {"batchnorm": True}}},
            r"network\.input_embedders_parameters\.observation\.batchnorm has no effect",
        ),
    ],
)
def test_options_of_layers_that_are_not_there_are_refused(parameters, message):
    with pytest.raises(ConfigError, match=message):
        Observed(parameters, SPEC, [{"kind": "value"}])


@pytest.mark.row("A01")
def test_force_cpu_decides_where_the_learner_computes():
    assert [RunConfig(learner={"device": device}).device for device in ("auto", "gpu", "cpu")] == ["auto", "gpu", "cpu"]
    for device in ("auto", "cpu"):
        assert RunConfig(network={"force_cpu": True}, learner={"device": device}).device == "cpu"
    with pytest.raises(ValidationError, match=r"force_cpu: true contradicts learner\.device: gpu"):
        RunConfig(network={"force_cpu": True}, learner={"device": "gpu"})
