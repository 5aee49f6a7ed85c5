"""The section tensorboard: what is refused, and what its questions answer."""

from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from distrl.config import RunConfig
from distrl.config.tensorboard import TensorBoardConfig


def refused(match, **paths):
    with pytest.raises(ValidationError, match=match):
        RunConfig.model_validate(paths)


@pytest.mark.row("P03")
@pytest.mark.parametrize(
    ("name", "path"), [("batch_size", "learner.batch_size"), ("learner.threads", "learner.threads"), ("stop", "stop")]
)
def test_a_name_of_a_setting_is_taken(name, path):
    refused(f"tensorboard.meta: {name} is the name of a setting, {path}", tensorboard={"meta": {name: 1}})


@pytest.mark.row("P03", "P04")
def test_arrays_are_lists_as_they_are_when_they_are_read_back():
    meta = {"ones": np.ones((2, 3)), "pair": (1, np.float32(0.5)), "deep": {"row": np.arange(2)}}
    given = RunConfig.model_validate({"tensorboard": {"meta": meta}}).tensorboard.meta
    assert given == {"ones": [[1.0] * 3] * 2, "pair": [1, 0.5], "deep": {"row": [0, 1]}}
    assert (
        RunConfig.model_validate_json(RunConfig(tensorboard={"meta": given}).model_dump_json()).tensorboard.meta
        == given
    )


def test_names_in_mappings_of_the_users_own_are_no_settings():
    tree = {"environment": {"kwargs": {"author": "x"}}, "tensorboard": {"meta": {"author": "y"}}}
    assert RunConfig.model_validate(tree).tensorboard.meta == {"author": "y"}


def test_in_deterministic_mode_every_snapshot_is_a_look():
    refused(
        "histograms_every_s: 5 has no use with actors.count: 0",
        actors={"count": 0},
        tensorboard={"labels": ["rewards"], "histograms_every_s": 5},
    )


def test_settings_within_mappings_are_settings():
    name = "network.input_embedders_parameters.observation.scheme"
    tree = {"network": {"input_embedders_parameters": {"observation": {"scheme": [4]}}}}
    refused(f"tensorboard.meta: {name} is the name of a setting, {name}", **tree, tensorboard={"meta": {name: 1}})


def test_other_names_are_free_also_those_that_settings_of_others_have():
    given = {"note": "x", "kl_penalty": 1, "matrix": [[1, 2]], "deep": {"batch_size": 3}}
    assert RunConfig.model_validate({"tensorboard": {"meta": given}}).tensorboard.meta == given


@pytest.mark.parametrize(
    ("match", "section"),
    [
        ("every_s and every_env_steps contradict each other", {"every_s": 1.0, "every_env_steps": 5}),
        ("'\\(' is no regular expression: ", {"tags": "("}),
        ("meta is written with the label configuration", {"meta": {"a": 1}, "labels": ["relu"]}),
        ("'histogram'|Input should be", {"labels": ["histogram"]}),
        ("greater than 0", {"histograms_every_s": 0}),
        ("histograms_every_s is of no use: no label needs", {"histograms_every_s": 5.0}),
        ("at least 1 character", {"directory": ""}),
        ("'~nobody-of-that-name/x': ", {"directory": "~nobody-of-that-name/x"}),
    ],
)
def test_what_cannot_be_is_refused(match, section):
    refused(match, tensorboard=section)


@pytest.mark.parametrize("label", ["losses", "regularization", "inputs", "states", "actions", "rewards", "activations"])
def test_gradient_actors_keep_their_rows(label):
    refused(
        f"tensorboard.labels: {label} is of unrolls; actors of algorithm a3c ship gradients",
        algorithm={"name": "a3c"},
        tensorboard={"labels": [label]},
    )


def test_gradients_and_weights_the_learner_has_in_any_case():
    labels = ["gradients", "gradients_scalar", "gradients_histogram", "variables", "relu", "configuration"]
    config = RunConfig.model_validate({"algorithm": {"name": "a3c"}, "tensorboard": {"labels": labels}})
    assert config.tensorboard.looks


def test_by_default_the_learner_looks_at_nothing_more():
    assert not TensorBoardConfig().looks
    assert TensorBoardConfig(labels=("rewards",)).looks
    assert TensorBoardConfig(labels=("rewards", "gradients")).differentiates == ("gradients",)


def test_a_folder_is_seen_from_the_runs_directory():
    assert TensorBoardConfig().folder(Path("/runs/a")) == Path("/runs/a/tensorboard")
    assert TensorBoardConfig(directory="../curves").folder(Path("/runs/a")) == Path("/runs/a/../curves")
    assert TensorBoardConfig(directory="/curves").folder(Path("/runs/a")) == Path("/curves")
