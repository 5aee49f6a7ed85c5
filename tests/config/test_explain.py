import pytest
from pydantic import ValidationError

from distrl.config import RunConfig
from distrl.config.explain import explain, known_paths, section_at
from distrl.config.network import EmbedderParameters, MiddlewareParameters, NetworkParameters


def explained(tree, origin_of=None):
    with pytest.raises(ValidationError) as caught:
        RunConfig.model_validate(tree)
    return explain(caught.value, origin_of or {})


@pytest.mark.row("A24", "R05")
@pytest.mark.parametrize(
    ("tree", "line"),
    [
        ({"network": {"lerning_rate": 1}}, "unknown key network.lerning_rate; did you mean network.learning_rate?"),
        ({"lerning_rate": 1}, "unknown key lerning_rate; did you mean network.learning_rate?"),
        ({"actors": {"learning_rate": 1}}, "unknown key actors.learning_rate; did you mean network.learning_rate?"),
        ({"batch_size": 8}, "unknown key batch_size; did you mean learner.batch_size?"),
        ({"actor": {"count": 1}}, "unknown key actor; did you mean actors?"),
        ({"backend": "x"}, "unknown key backend; did you mean learner.backend?"),
        (
            {"network": {"input_embedders_parameters": {"camera": {"unit": [3]}}}},
            "unknown key network.input_embedders_parameters.camera.unit; "
            "did you mean network.input_embedders_parameters.camera.units?",
        ),
        (
            {"launch": {"xyzzy": 1}},
            "unknown key launch.xyzzy; valid keys in launch: launcher, ray_address",
        ),
        (
            {"xyzzy": 1},
            "unknown key xyzzy; valid keys: seed, environment, algorithm, network, actors, memory, learner, "
            "checkpoint, stop, launch",
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
            {"network": {"optimizer_type": "adam"}},
            "network.optimizer_type: 'adam' must be 'Adam', 'RMSProp' or 'SGD'; did you mean Adam?",
        ),
        (
            {"launch": {"launcher": 3}},
            "launch.launcher: 3 must be 'process' or 'ray'",
        ),
        ({"launch": 3}, "launch: 3 must be a mapping of launcher, ray_address"),
        ({"environment": {"kwargs": 3}}, "environment.kwargs: 3 must be a mapping"),
        ({"network": {"middleware_parameters": {"units": 5}}}, "network.middleware_parameters.units: 5 must be a list"),
        (
            {"network": {"learning_rate_decay_rate": 0.5}},
            "network: learning_rate_decay_rate and learning_rate_decay_steps must be set together",
        ),
        (
            {"actors": {"count": 0}, "launch": {"launcher": "ray"}},
            "launch.launcher: ray needs actors.count >= 1; actors.count: 0 is one process",
        ),
    ],
)
def test_a_bad_value_says_what_is_allowed(tree, line):
    assert explained(tree) == line


@pytest.mark.row("A05")
def test_clipping_at_zero_is_refused_and_null_is_no_clipping():
    assert "must be greater than 0" in explained({"network": {"clip_gradients": 0.0}})
    assert RunConfig.model_validate({"network": {"clip_gradients": None}}).network.clip_gradients is None


@pytest.mark.row("D40")
def test_an_unknown_algorithm_names_the_nearest_ones():
    assert explained({"algorithm": {"name": "Impalla"}}) == "unknown algorithm 'Impalla'; did you mean impala?"
    assert explained({"algorithm": {"name": "zzz"}}) == "unknown algorithm 'zzz'; known: impala"


def test_an_unknown_key_comes_first_and_the_rest_is_counted():
    tree = {"seed": -1, "actors": {"count": -1}, "network": {"lerning_rate": 1}}
    assert explained(tree) == (
        "unknown key network.lerning_rate; did you mean network.learning_rate? (and 2 more problems)"
    )
    assert explained({"seed": -1, "actors": {"count": -1}}).endswith(" (and 1 more problem)")


def test_the_origin_is_that_of_the_value_or_of_what_is_around_it():
    tree = {"network": {"middleware_parameters": {"units": [64, -1.5]}}}
    origin_of = {"network.middleware_parameters.units": "file a.yaml"}
    assert explained(tree, origin_of) == (
        "network.middleware_parameters.units.1: -1.5 (from file a.yaml) must be a valid integer, "
        "got a number with a fractional part"
    )
    assert explained({"netwrok": {"learning_rate": 1}}, {"netwrok.learning_rate": "flag --set"}) == (
        "unknown key netwrok (from flag --set); did you mean network?"
    )


def test_sections_by_path():
    assert section_at(()) is RunConfig
    assert section_at(("network",)) is NetworkParameters
    assert section_at(("network", "middleware_parameters")) is MiddlewareParameters
    assert section_at(("network", "input_embedders_parameters")) is None
    assert section_at(("network", "input_embedders_parameters", "camera")) is EmbedderParameters
    assert section_at(("seed",)) is None
    assert section_at(("nowhere", "x")) is None


def test_known_paths_are_the_tree():
    paths = known_paths()
    assert {"seed", "network", "network.learning_rate", "network.middleware_parameters.units"} <= set(paths)
    assert len(paths) == len(set(paths))
