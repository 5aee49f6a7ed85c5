import sys
import textwrap
from pathlib import Path

import pytest

from distrl.config.heads import PolicyHeadParameters, ValueHeadParameters
from distrl.config.network import NetworkParameters
from distrl.launch.network_view import tree
from distrl.networks.network import Network
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec

TWO = EnvSpec(
    "Two-v0",
    {"camera": ArraySpec((8, 8, 3), "uint8", 0, 255), "speed": ArraySpec((), "float32")},
    {"action": DiscreteSpec(3)},
)


def build(spec=None, **parameters):
    """A network copy with a policy and a value, and a hidden layer of 8 unless told otherwise."""
    spec = spec or EnvSpec("Vector-v0", {"observation": ArraySpec((4,), "float32")}, {"action": DiscreteSpec(2)})
    heads = (PolicyHeadParameters(), ValueHeadParameters())
    return Network(
        NetworkParameters(**({"middleware_parameters": {"scheme": [8]}} | parameters)), spec, heads, "main", 1
    )


def text(block):
    return textwrap.dedent(block).strip("\n")


@pytest.mark.row("D09")
def test_every_part_and_layer_is_shown_with_shapes_and_weights():
    """Weights by hand: 2 x 2 x 3 x 4 + 4 = 52; four per channel of batch normalisation; mean and variance of a number;
    65 x 6 + 6 = 396; four gates of (6 + 5) x 5 + 5, 240; 5 x 3 + 3 = 18; 5 + 1 = 6. Together 730."""
    network = build(
        TWO,
        input_embedders_parameters={
            "camera": {"scheme": [{"kind": "conv2d", "filters": 4, "kernel_size": 2, "strides": 2}], "batchnorm": True},
            "speed": {"normalize": True},
        },
        middleware_parameters={"kind": "lstm", "number_of_lstm_cells": 5, "scheme": [6], "dropout_rate": 0.5},
    )
    assert tree(network) == text("""
        main                                     network                              730
          inputs
            camera                               uint8                     [8, 8, 3]
            speed                                float32                   []
            lstm_h                               recurrent state           [5]
            lstm_c                               recurrent state           [5]
          embedder
            embedder_camera_conv2d_0             Conv2D                    [4, 4, 4]   52
            embedder_camera_conv2d_0_batch_norm  BatchNormalization        [4, 4, 4]   16
            embedder_camera_conv2d_0_activation  Activation                [4, 4, 4]    0
            normalization_speed                  ObservationNormalization  []           2
            embedder_camera_flatten              Flatten                   [64]         0
            embedder_speed_flatten               Flatten                   [1]          0
          merger
            merger                               Concatenate               [65]         0
          middleware
            middleware_dense_0                   Dense                     [6]        396
            middleware_dense_0_activation        Activation                [6]          0
            middleware_dense_0_dropout           Dropout                   [6]          0
            middleware_lstm                      LSTMCell                  [5]        240
          heads
            policy_head_action                   Dense                     [3]         18
            value_head                           Dense                     [1]          6
          outputs
            policy/action                        float32                   [3]
            value                                float32                   []
            next_lstm_h                          float32                   [5]
            next_lstm_c                          float32                   [5]
    """)


def test_frozen_layers_are_marked():
    lines = tree(build(frozen=["*/middleware_*", "*/policy_head_action/bias"])).splitlines()
    assert [line.split()[:-2] for line in lines if "frozen" in line] == [
        ["middleware_dense_0", "Dense", "(frozen)"],
        ["policy_head_action", "Dense", "(partly", "frozen)"],
    ]


@pytest.mark.row("D09")
def test_parts_stay_together_when_heads_have_networks_of_their_own():
    lines = tree(build(use_separate_networks_per_head=True)).splitlines()
    parts = [line.strip() for line in lines if line.startswith("  ") and not line.startswith("    ")]
    assert parts == ["inputs", "embedder", "middleware", "heads", "outputs"]
    names = [line.split()[0] for line in lines if line.startswith("    ")]
    assert names[1:7] == [
        "policy_embedder_observation_flatten",
        "value_embedder_observation_flatten",
        "policy_middleware_dense_0",
        "value_middleware_dense_0",
        "policy_middleware_dense_0_activation",
        "value_middleware_dense_0_activation",
    ]


def test_a_users_own_model_is_shown_as_other(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2]))
    lines = tree(build(TWO, model="examples.own_network:Attention", model_arguments={"filters": 4})).splitlines()
    sys.modules.pop("examples.own_network")
    # 3 x 3 x 3 x 4 + 4 of the convolution; queries, keys, values and what comes of them: 4 x 4 + 4 each
    assert [line.split() for line in lines[4:6]] == [["other"], ["model", "Attention", "[5]", "192"]]


def test_names_of_observations_and_actions_command_no_terminal():
    name = "a\x1b[31m\u202eb"
    shown = tree(build(EnvSpec("E", {name: ArraySpec((2,), "float32")}, {name: DiscreteSpec(2)})))
    assert all(map(str.isprintable, shown.splitlines()))
    assert "    a?[31m?b" in shown
