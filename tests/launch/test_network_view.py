import textwrap

import pytest

from distrl.config.load import load
from distrl.errors import ConfigError
from distrl.launch.network_view import network_view

CARTPOLE = textwrap.dedent("""
    main                               network           4,675
      inputs
        observation                    float32     [4]
      embedder
        embedder_observation_flatten   Flatten     [4]       0
      middleware
        middleware_dense_0             Dense       [64]    320
        middleware_dense_0_activation  Activation  [64]      0
        middleware_dense_1             Dense       [64]  4,160
        middleware_dense_1_activation  Activation  [64]      0
      heads
        policy_head_action             Dense       [2]     130
        value_head                     Dense       [1]      65
      outputs
        policy/action                  float32     [2]
        value                          float32     []

    Network: main, Copies: 1 (online network)
""").strip("\n")


def view(*sets, preset="cartpole-impala"):
    return network_view(load(preset, None, sets, {}).config)


@pytest.mark.row("D09")
def test_the_networks_of_the_cartpole_preset():
    """Weights by hand: 4 x 64 + 64, 64 x 64 + 64, 64 x 2 + 2, 64 + 1."""
    assert view() == CARTPOLE


@pytest.mark.row("D09", "L20")
def test_memory_and_copies_are_shown():
    shown = view(
        "network.middleware_parameters={kind: lstm, number_of_lstm_cells: 8}", "network.create_target_network=true"
    )
    assert "    lstm_h                        recurrent state  [8]" in shown
    assert "    middleware_lstm               LSTMCell         [8]  416" in shown
    assert shown.splitlines()[-1] == "Network: main, Copies: 2 (online network | target network)"


@pytest.mark.parametrize(
    ("layer", "last"),
    [
        ("{kind: custom, layer: 'keras.layers:UnitNormalization'}", "Export to ONNX: tried, and right"),
        (
            "{kind: custom, layer: 'keras.layers:Hashing', arguments: {num_bins: 5, output_mode: one_hot}}",
            "A training refuses it: policy export: layer main/middleware_custom_0 (Hashing) computes "
            "StringToHashBucketFast, which cannot be exported to ONNX; take another layer (docs/networks.md)",
        ),
    ],
)
def test_layers_that_distrl_does_not_know_are_exported_on_trial(layer, last, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert view(f"network.middleware_parameters.scheme=[{layer}]").splitlines()[-1] == last


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("environment.id=Nowhere-v0", "Nowhere"),
        ("network.input_embedders_parameters={foo: {}}", "network.input_embedders_parameters: no input 'foo'"),
        ("network.heads_parameters=[{kind: q}]", "network.heads_parameters: q: algorithm impala has the heads"),
    ],
)
def test_what_cannot_be_built_is_one_line_of_error(setting, message):
    with pytest.raises(ConfigError, match=message) as raised:
        view(setting)
    assert "\n" not in str(raised.value)
