import pytest
from pydantic import ValidationError

from distrl.config import RunConfig
from distrl.config.explain import ALIASES, explain, known_paths


def explained(tree, origin_of=None):
    with pytest.raises(ValidationError) as caught:
        RunConfig.model_validate(tree)
    return explain(caught.value, origin_of or {})


@pytest.mark.row("A24", "R05")
@pytest.mark.parametrize(
    ("tree", "line"),
    [
        ({"network": {"lerning_rate": 1}}, "unknown key network.lerning_rate; did you mean network.learning_rate?"),
        (
            {"lerning_rate": 1},
            "unknown key lerning_rate; did you mean network.learning_rate or algorithm.curiosity.learning_rate?",
        ),
        (
            {"actors": {"learning_rate": 1}},
            "unknown key actors.learning_rate; did you mean network.learning_rate or "
            "algorithm.curiosity.learning_rate?",
        ),
        ({"batch_size": 8}, "unknown key batch_size; did you mean learner.batch_size?"),
        ({"actor": {"count": 1}}, "unknown key actor; did you mean actors?"),
        ({"backend": "x"}, "unknown key backend; did you mean learner.backend?"),
        (
            {"network": {"input_embedders_parameters": {"camera": {"schem": [3]}}}},
            "unknown key network.input_embedders_parameters.camera.schem; "
            "did you mean network.input_embedders_parameters.camera.scheme?",
        ),
        (
            {"network": {"middleware_parameters": {"scheme": [64, {"kind": "conv2d", "filters": 3, "stride": 2}]}}},
            "unknown key network.middleware_parameters.scheme.1.stride; "
            "did you mean network.middleware_parameters.scheme.1.strides?",
        ),
        (
            {"network": {"middleware_parameters": {"number_of_lstm_cells": 3}}},
            "unknown key network.middleware_parameters.number_of_lstm_cells; only kind lstm has it",
        ),
        (
            {
                "network": {
                    "middleware_parameters": {"kind": "graph", "blocks": {"output": {"inputs": ["a"], "layer": 3}}}
                }
            },
            "unknown key network.middleware_parameters.blocks.output.layer; "
            "did you mean network.middleware_parameters.blocks.output.layers?",
        ),
        (
            {"launch": {"xyzzy": 1}},
            "unknown key launch.xyzzy; valid keys in launch: mode, launcher, ray_address, wait_for_nodes, "
            "start_actors, wait_s, sigterm_exit_code, log_level, print_logs, role_rows_s",
        ),
        (
            {"xyzzy": 1},
            "unknown key xyzzy; valid keys: seed, environment, algorithm, exploration, network, actors, memory, "
            "learner, data, recording, checkpoint, evaluation, stop, tensorboard, launch",
        ),
    ],
)
def test_an_unknown_key_names_the_nearest_valid_one(tree, line):
    assert explained(tree) == line


@pytest.mark.row("R05")
@pytest.mark.parametrize(
    ("tree", "line"),
    [
        ({"network": {"learning_rate": -1}}, "network.learning_rate: -1 must be greater than 0"),
        ({"network": {"clip_gradients": 0.0}}, "network.clip_gradients: 0.0 must be greater than 0"),
        (
            {"seed": "abc"},
            "seed: 'abc' must be a valid integer, unable to parse string as an integer",
        ),
        (
            {"network": {"optimizer_type": "Adams"}},
            "network.optimizer_type: 'Adams' must be 'Adam', 'AdamW', 'RMSProp', 'SGD', 'Nadam', 'Adagrad', "
            "'Adadelta', 'Muon' or 'LBFGS'; did you mean Adam?",
        ),
        (
            {"launch": {"launcher": 3}},
            "launch.launcher: 3 must be 'process' or 'ray'",
        ),
        (
            {"launch": 3},
            "launch: 3 must be a mapping of mode, launcher, ray_address, wait_for_nodes, start_actors, wait_s, "
            "sigterm_exit_code, log_level, print_logs, role_rows_s",
        ),
        ({"environment": {"kwargs": 3}}, "environment.kwargs: 3 must be a mapping"),
        (
            {"network": {"heads_parameters": 5}},
            "network.heads_parameters: 5 must be a list",
        ),
        (
            {"network": {"heads_parameters": [{"distribution": "beta"}]}},
            "network.heads_parameters.0: {distribution: beta} must have a kind of "
            "policy, ppo, acer_policy, value, q, dueling_q, ensemble_q, constrained_q, categorical_q, rainbow_q, "
            "quantile_q, naf, q_value, quantile_q_value, twin_q, deterministic_policy, classification, embedding",
        ),
        (
            {"network": {"middleware_parameters": {"kind": "lstmm"}}},
            "network.middleware_parameters: {kind: lstmm} must have a kind of fc, lstm, gru, graph; did you mean lstm?",
        ),
        (
            {"exploration": 3},
            "exploration: 3 must have a kind of policy, greedy, epsilon_greedy, member, ucb, boltzmann, "
            "gaussian_noise, truncated_gaussian_noise, ornstein_uhlenbeck, constant_noise, noisy_network, "
            "parameter_noise, per_action",
        ),
        (
            {"algorithm": {"name": "dqn", "replay": {"sampler": None}}},
            "algorithm.replay.sampler: null must have a kind of uniform, prioritized, balanced",
        ),
        (
            {"network": {"middleware_parameters": {"kind": "graph"}}},
            "network.middleware_parameters.blocks is missing",
        ),
        (
            {"network": {"middleware_parameters": {"kind": "graph", "blocks": {"a b": {"inputs": ["x"]}}}}},
            r"network.middleware_parameters.blocks.a b: 'a b' must match pattern '^\w+$'",
        ),
        (
            {"network": {"learning_rate_decay_rate": 0.5}},
            "network: learning_rate_decay_rate and learning_rate_decay_steps must be set together",
        ),
        (
            {"actors": {"count": 0}, "launch": {"launcher": "ray"}},
            "launch.launcher: ray needs several processes; this run is one (launch.mode)",
        ),
        (
            {"actors": {"count": 0}, "launch": {"start_actors": False}},
            "launch.start_actors: false is for actors that join; this run is one process",
        ),
        (
            {"launch": {"start_actors": False}},
            "launch.start_actors: false: actors of other hosts cannot reach an embedded Redis; name one that they can "
            "with --redis-url, or let this one listen for them: --set memory.listen=auto",
        ),
        (
            {"environment": {"spec_file": "spec.json"}},
            "environment.spec_file: spec.json is for a host without the environment, which starts no actors; add "
            "--no-actors (launch.start_actors: false)",
        ),
    ],
)
def test_a_bad_value_says_what_is_allowed(tree, line):
    assert explained(tree) == line


@pytest.mark.parametrize("alias", ALIASES)
def test_a_name_of_another_library_is_known(alias):
    paths = known_paths(RunConfig)
    assert ALIASES[alias] in paths, "no such setting"
    assert alias not in paths
    assert explained({"network": {alias: 1}}) == f"unknown key network.{alias}; did you mean {ALIASES[alias]}?"


@pytest.mark.parametrize(
    ("tree", "line"),
    [
        ({"algorithm": "ppo"}, "algorithm: 'ppo' must be a mapping; write algorithm.name=ppo"),
        ({"exploration": "boltzmann"}, "exploration: 'boltzmann' must be a mapping; write exploration.kind=boltzmann"),
        (
            {"network": {"middleware_parameters": "lstm"}},
            "network.middleware_parameters: 'lstm' must be a mapping; write network.middleware_parameters.kind=lstm",
        ),
    ],
)
def test_a_name_in_place_of_a_section_is_answered_with_the_key_that_takes_it(tree, line):
    assert explained(tree) == line


@pytest.mark.row("A05")
def test_clipping_at_zero_is_refused_and_null_is_no_clipping():
    assert "must be greater than 0" in explained({"network": {"clip_gradients": 0.0}})
    assert RunConfig.model_validate({"network": {"clip_gradients": None}}).network.clip_gradients is None


@pytest.mark.row("D40")
def test_an_unknown_algorithm_names_the_nearest_ones():
    assert explained({"algorithm": {"name": "Impalla"}}) == (
        "unknown algorithm 'Impalla'; did you mean impala?; one of your own is package.module:Class"
    )
    assert explained({"algorithm": {"name": "zzz"}}).startswith("unknown algorithm 'zzz'; known: impala, a3c, a2c, ")


def test_an_unknown_key_comes_first_and_the_rest_is_counted():
    tree = {"seed": -1, "actors": {"count": -1}, "network": {"lerning_rate": 1}}
    assert explained(tree) == (
        "unknown key network.lerning_rate; did you mean network.learning_rate? (and 2 more problems)"
    )
    assert explained({"seed": -1, "actors": {"count": -1}}).endswith(" (and 1 more problem)")


def test_the_origin_is_that_of_the_value_or_of_what_is_around_it():
    tree = {"network": {"middleware_parameters": {"scheme": [64, -1.5]}}}
    origin_of = {"network.middleware_parameters.scheme": "file a.yaml"}
    assert explained(tree, origin_of) == (
        "network.middleware_parameters.scheme.1: -1.5 (from file a.yaml) must be a valid integer"
    )
    assert explained({"netwrok": {"learning_rate": 1}}, {"netwrok.learning_rate": "flag --set"}) == (
        "unknown key netwrok (from flag --set); did you mean network?"
    )


def test_known_paths_are_the_tree():
    paths = known_paths(RunConfig)
    assert {"seed", "network", "network.learning_rate", "network.middleware_parameters.scheme"} <= set(paths)
    assert {"network.middleware_parameters.number_of_lstm_cells", "network.middleware_parameters.blocks"} <= set(paths)
    assert len(paths) == len(set(paths))
