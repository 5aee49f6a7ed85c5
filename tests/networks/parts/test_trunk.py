import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distrl.actors.policy import Policy
from distrl.actors.unroll import restarted
from distrl.errors import ConfigError
from distrl.networks.policy.bundle import export_bundle
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec, Weights

TWO = EnvSpec(
    "Two-v0",
    {"camera": ArraySpec((2, 2), "uint8", 0, 255), "speed": ArraySpec((), "float32")},
    {"action": DiscreteSpec(3)},
)
MEMORIES = {
    "lstm": {"kind": "lstm", "number_of_lstm_cells": 5, "scheme": [6]},
    "gru": {"kind": "gru", "number_of_gru_cells": 5},
}


def test_inputs_are_scaled_embedded_and_merged_by_name(build):
    network = build(TWO, input_embedders_parameters={"camera": {"input_rescaling": 255.0}})
    weights = network.named_weights()
    kernel, bias = (weights[f"main/middleware_dense_0/{part}"] for part in ("kernel", "bias"))
    camera = np.array([[[0, 255], [51, 102]]], np.uint8)
    merged = np.array([[0.0, 1.0, 0.2, 0.4, -2.0]], np.float32)
    logits = network.predict({"camera": camera, "speed": np.array([-2.0], np.float32)}, outputs=["policy/action"])
    expected = np.maximum(merged @ kernel + bias, 0.0) @ weights["main/policy_head_action/kernel"]
    np.testing.assert_allclose(logits, expected, atol=1e-6)


@pytest.mark.parametrize(("high", "divisor"), [(1.0, 1.0), (255.0, 255.0), (None, 255.0)])
def test_images_of_bytes_are_divided_by_their_spaces_bound(build, high, divisor):
    planes = EnvSpec("Planes-v0", {"observation": ArraySpec((1, 2, 2), "uint8", 0, high)}, {"action": DiscreteSpec(2)})
    network = build(
        planes,
        input_embedders_parameters={"observation": {"scheme": "Empty"}},
        middleware_parameters={"scheme": "Empty"},
    )
    logits = network.predict({"observation": np.uint8([[[[0, 1], [1, 1]]]])}, outputs=["policy/action"])
    kernel = network.named_weights()["main/policy_head_action/kernel"]
    np.testing.assert_allclose(logits, np.float32([[0, 1, 1, 1]]) @ kernel / divisor, rtol=1e-5)


@pytest.mark.row("A10")
def test_what_is_left_out_changes_nothing(build):
    network = build(TWO, input_embedders_parameters={"camera": None})
    assert network.named_weights()["main/middleware_dense_0/kernel"].shape[0] == 1
    speed, dark = np.float32([0.5]), np.zeros((1, 2, 2), np.uint8)
    seen = [network.predict({"camera": camera, "speed": speed}) for camera in (dark, dark + 255)]
    assert all(map(np.array_equal, *seen))


@pytest.mark.parametrize(
    ("left_out", "reason"),
    [
        (("camera", "speed"), r"network\.input_embedders_parameters: null leaves out every observation; keep at least"),
        (("action",), r"network\.input_embedders_parameters: 'action', but no head takes the action"),
        (("other",), r"network\.input_embedders_parameters: no input 'other'; there are camera, speed"),
    ],
)
def test_what_cannot_be_left_out_is_refused(build, left_out, reason):
    with pytest.raises(ConfigError, match=reason):
        build(TWO, input_embedders_parameters=dict.fromkeys(left_out))


@pytest.mark.row("A11")
@pytest.mark.parametrize(("merger", "expected"), [("Concat", [1, 2, 3, 4]), ("Sum", [4, 6])])
def test_embeddings_are_merged_as_configured(build, merger, expected):
    spec = EnvSpec("Two-v0", {name: ArraySpec((2,), "float32") for name in "ba"}, {"action": DiscreteSpec(2)})
    network = build(spec, embedding_merger_type=merger, middleware_parameters={"scheme": "Empty"})
    (trunk,) = network._trunks.values()
    given = {"a": np.float32([[1, 2]]), "b": np.float32([[3, 4]])}
    np.testing.assert_array_equal(
        np.asarray(trunk.unroll(given, {}, np.ones((0, 1), bool), training=False)), [expected]
    )


@pytest.mark.row("A11")
def test_a_sum_of_unequal_widths_names_its_place(build):
    with pytest.raises(ConfigError, match=r"^network\.embedding_merger_type: merger Sum .*: camera 4, speed 1$"):
        build(TWO, embedding_merger_type="Sum")


def test_heads_take_one_vector(build):
    reshape = {"kind": "custom", "layer": "keras.layers:Reshape", "arguments": {"target_shape": [4, 2]}}
    with pytest.raises(ConfigError, match=r"network\.middleware_parameters: ends in \[4, 2\], but heads take one"):
        build(middleware_parameters={"scheme": [8, reshape]})


class Acting:
    """A network and its exported policy, under the same weights."""

    def __init__(self, network, directory):
        self.network = network
        self.policy = Policy(export_bundle(network, cache_dir=directory))
        self.policy.set_weights(Weights(1, network.policy_weights()))

    def step_by_step(self, observations, state, valid):
        """Compute row by row, as an actor does: outputs of all T+1 rows by name."""
        steps = []
        for row in range(len(valid) + 1):
            output = self.policy.step({name: rows[row] for name, rows in observations.items()}, state)
            steps.append(output.outputs)
            if row < len(valid):
                state = restarted(output.recurrent_state, valid[row])
        return {name: np.stack([step[name] for step in steps]) for name in steps[0]}


@pytest.fixture(scope="module")
def acting():
    return {}


@pytest.mark.row("D05", "L05", "L13")
@pytest.mark.parametrize("separate", [False, True], ids=["shared", "separate"])
@pytest.mark.parametrize("kind", MEMORIES)
@given(data=st.data(), steps=st.integers(1, 6), share=st.floats(0.0, 1.0), fresh=st.booleans())
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_learner_unrolls_what_actors_computed_step_by_step(
    build, disturb, batch_for, acting, tmp_path_factory, kind, separate, data, steps, share, fresh
):
    """Restarts anywhere, at the first and the last row too, and any state before row 0: both sides agree to 1e-5."""
    if (kind, separate) not in acting:
        network = build(TWO, middleware_parameters=MEMORIES[kind], use_separate_networks_per_head=separate)
        disturb(network, 3)
        acting[kind, separate] = Acting(network, tmp_path_factory.mktemp("bundles"))
    both = acting[kind, separate]
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1), label="seed"))
    batch = batch_for(both.network, steps, 3, int(rng.integers(2**32)))
    valid = rng.random((steps, 3)) < share
    state = both.policy.initial_state(3) if fresh else batch.recurrent_state
    outputs = both.network.unroll(batch.observations, state, valid)
    expected = both.step_by_step(batch.observations, state, valid)
    assert list(outputs) == list(expected) == ["policy/action", "value"]
    for name in expected:
        np.testing.assert_allclose(np.asarray(outputs[name]), expected[name], atol=1e-5, err_msg=name)


@pytest.mark.row("L13")
def test_a_restart_forgets_and_nothing_else_does(build, disturb, batch_for):
    """Rows after a restart depend on nothing before it; without one they do."""
    network = build(middleware_parameters=MEMORIES["lstm"])
    disturb(network, 1)
    batch = batch_for(network, 4, 1)
    other = {name: rows.copy() for name, rows in batch.observations.items()}
    other["observation"][0] += 1.0
    for restart in (True, False):
        valid = np.ones((4, 1), bool)
        valid[1] = not restart
        left, right = (
            np.asarray(network.unroll(observations, batch.recurrent_state, valid)["value"])
            for observations in (batch.observations, other)
        )
        assert np.abs(left[:2] - right[:2]).min() > 1e-4
        assert (np.abs(left[2:] - right[2:]).max() < 1e-7) == restart


def test_rows_and_sequences_stay_apart_without_memory(build, batch_for):
    network = build(TWO)
    batch = batch_for(network, 3, 3)
    outputs = network.unroll(batch.observations, {}, batch.valid)
    assert {name: tuple(output.shape) for name, output in outputs.items()} == {
        "policy/action": (4, 3, 3),
        "value": (4, 3),
    }
    for row in range(4):
        logits, value = network.predict({name: array[row] for name, array in batch.observations.items()})
        np.testing.assert_allclose(np.asarray(outputs["policy/action"])[row], logits, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(np.asarray(outputs["value"])[row], value, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("path", "arguments", "message"),
    [
        ("distrl_nowhere:Net", {}, r"network\.model: layer distrl_nowhere:Net: .* No module named 'distrl_nowhere'"),
        ("keras.layers:Foo", {}, r"network\.model: layer keras\.layers:Foo: module .* has no attribute 'Foo'"),
        ("math:sqrt", {}, r"network\.model: layer math:sqrt is no keras\.layers\.Layer"),
        ("keras.layers:Flatten", {"foo": 1}, r"network\.model: layer keras\.layers:Flatten: Unrecognized keyword"),
        ("keras.layers:Flatten", {}, r"network\.model: keras\.layers:Flatten: AttributeError: .*'dict' object"),
        ("keras.layers:Identity", {}, r"keras\.layers:Identity must return \[batch, width\] of one width, not dict"),
    ],
)
def test_a_users_model_that_is_none_is_one_line_of_error(build, path, arguments, message):
    with pytest.raises(ConfigError, match=message) as raised:
        build(model=path, model_arguments=arguments)
    assert "\n" not in str(raised.value)


OWN = """
import keras

class Lacks(keras.Model):
    def call(self, inputs):
        return {}["nope"]

class Refuses(keras.Model):
    def call(self, inputs):
        raise ValueError("two\\nwidths")
"""


@pytest.mark.parametrize(
    ("name", "message"),
    [("Lacks", "KeyError: 'nope' (own_net.py, line 6)"), ("Refuses", "ValueError: two widths (own_net.py, line 10)")],
)
def test_a_users_model_that_raises_is_told_in_its_own_words(build, tmp_path, monkeypatch, name, message):
    (tmp_path / "own_net.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError) as raised:
        build(model=f"own_net:{name}")
    assert str(raised.value) == f"network.model: own_net:{name}: {message}"
