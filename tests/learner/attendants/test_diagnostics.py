"""Diagnostics of the learner: an event file has the tags of its labels, and without a label none."""

from types import SimpleNamespace

import numpy as np
import pytest

from distrl.algorithms import make_algorithm
from distrl.errors import ConfigError
from distrl.learner.attendants.diagnostics import Histograms, NonFiniteBatches, _mean_gradients
from distrl.learner.nonfinite import NonFiniteBatchError
from distrl.learner.session import Session
from distrl.types import Batch, Contribution, Differentiated, UnrollHeader
from tests.event_files import read_events

T, N = 4, 3
VALID = np.ones((T, N), np.bool_)
VALID[1, 2] = VALID[3, 0] = False
BATCH = Batch(
    observations={"observation": np.zeros((T + 1, N, 2), np.float32)},
    actions={"action": np.zeros((T, N), np.int32)},
    rewards=np.where(VALID, 0.5, 7.0).astype(np.float32),
    terminated=np.zeros((T, N), np.bool_),
    truncated=np.zeros((T, N), np.bool_),
    valid=VALID,
    behaviour_log_probabilities=np.full((T, N), np.log(0.5), np.float32),
    recurrent_state={},
)
DENSE = "main/middleware_dense_0"
VARIABLES = {f"variables/{DENSE}/kernel", f"variables/{DENSE}/bias"}
HISTOGRAMS = {f"gradients/{DENSE}/kernel", f"gradients/{DENSE}/bias"}
SCALARS = {f"{name}/{what}" for name in HISTOGRAMS for what in ("mean", "variance")}
INPUTS = {"states/observation", "actions/action", "rewards/reward"}


def test_a_batch_that_cannot_be_written_leaves_the_error_that_ended_the_training(tmp_path):
    (tmp_path / "logs").write_text("no folder")
    error = NonFiniteBatchError(SimpleNamespace(batch=BATCH), 7, "loss nan")
    NonFiniteBatches(tmp_path / "logs", SimpleNamespace(rewards=None)).close(error)
    assert str(error).startswith("update 7 is not finite: loss nan; the batch cannot be written: [Errno 17]")


@pytest.fixture
def train(prepared, acting, toy_config, tmp_path, monkeypatch):
    """train(**tensorboard): a training of three updates, each with a snapshot; what the learner's file holds."""
    monkeypatch.setattr("distrl.learner.attendants.reporter.EVERY_S", 0.0)

    def run(**tensorboard):
        given = {f"tensorboard__{name}": value for name, value in tensorboard.items()}
        folder = tmp_path / str(len([*tmp_path.iterdir()]))
        made = prepared(toy_config(stop__updates=3, **given), run_dir=folder)
        assert Session(made, acting(made), lambda snapshot: None, lambda: False).run() == "updates"
        return read_events(folder / "tensorboard" / "learner")

    return run


@pytest.fixture(scope="module")
def built(toy_config, toy_spec):
    """An algorithm with its networks."""
    algorithm = make_algorithm(toy_config(network__l2_regularization=0.01))
    return algorithm, algorithm.build(toy_spec)


@pytest.fixture
def look(built, toy_config, tmp_path):
    """look(**tensorboard): one look at a batch, two of whose twelve rows are not valid; what the file holds."""

    def write(**tensorboard):
        given = {f"tensorboard__{name}": value for name, value in tensorboard.items()}
        histograms = Histograms(toy_config(network__l2_regularization=0.01, **given), *built, tmp_path)
        histograms.write(BATCH, 10)
        histograms.close()
        return read_events(tmp_path / "tensorboard" / "learner")

    return write


def of_layer(tags):
    """Those of the hidden layer and of what there is no layer of; heads have others."""
    return {tag for tag in tags if DENSE in tag or not tag.startswith(("variables/", "gradients/"))}


@pytest.mark.parametrize(
    ("label", "tags"),
    [
        pytest.param("losses", {"loss/without_regularization"}, marks=pytest.mark.row("P02.1")),
        pytest.param("variables", VARIABLES, marks=pytest.mark.row("P02.3")),
        pytest.param("inputs", INPUTS, marks=pytest.mark.row("P02.4")),
        pytest.param("states", {"states/observation"}, marks=pytest.mark.row("P02.5")),
        pytest.param("actions", {"actions/action"}, marks=pytest.mark.row("P02.6")),
        pytest.param("rewards", {"rewards/reward"}, marks=pytest.mark.row("P02.7")),
        pytest.param("gradients", HISTOGRAMS | SCALARS, marks=pytest.mark.row("P02.8")),
        pytest.param("gradients_histogram", HISTOGRAMS, marks=pytest.mark.row("P02.9")),
        pytest.param("gradients_scalar", SCALARS, marks=pytest.mark.row("P02.10")),
        pytest.param("regularization", {"regularization/main/0"}, marks=pytest.mark.row("P02.11")),
        pytest.param("activations", {"activations/middleware_dense_0_activation"}, marks=pytest.mark.row("P02.14")),
    ],
)
def test_a_label_has_its_tags_and_no_others(look, label, tags):
    assert of_layer(look(labels=[label]).tags) == tags


def test_without_such_labels_there_is_no_file_of_the_learner(train, tmp_path):
    assert train(labels=["total-loss", "relu", "configuration"]).tags == set()
    assert not [*tmp_path.rglob("tensorboard")]


def test_a_look_is_taken_at_the_first_snapshot_and_then_as_often_as_asked(train):
    assert len(train(labels=["rewards"]).histograms) == 1
    steps = [step for _, step in train(labels=["rewards"], histograms_every_s=1e-9).histograms]
    assert len(steps) == 3


def test_a_regular_expression_lets_tags_pass(look):
    assert look(labels=["inputs", "variables"], tags="^(states|actions)/").tags == {
        "states/observation",
        "actions/action",
    }


def test_what_is_seen_are_the_valid_rows_of_the_batch(look):
    found = look(labels=["inputs"]).histograms
    counts = {tag: histogram.num for (tag, _), histogram in found.items()}
    assert counts == {"states/observation": 2 * 10, "actions/action": 10, "rewards/reward": 10}
    assert found["rewards/reward", 10].max == 0.5  # the invalid ones have 7


def test_in_deterministic_mode_every_snapshot_is_a_look(built, toy_config, tmp_path):
    config = toy_config(actors__count=0, tensorboard__labels=["rewards"])
    histograms = Histograms(config, *built, tmp_path)
    for step in (1, 2, 3):
        assert histograms.due
        histograms.write(BATCH, step)
    histograms.close()
    assert [step for _, step in read_events(tmp_path / "tensorboard" / "learner").histograms] == [1, 2, 3]


def test_training_is_the_same_with_all_labels(prepared, acting, toy_config, tmp_path, monkeypatch):
    monkeypatch.setattr("distrl.learner.attendants.reporter.EVERY_S", 0.0)
    labels = ["losses", "regularization", "variables", "inputs", "gradients", "activations"]
    weights = []
    for given in ({}, {"tensorboard__labels": labels, "tensorboard__histograms_every_s": 1e-9}):
        made = prepared(toy_config(stop__updates=5, **given), run_dir=tmp_path / str(len(given)))
        Session(made, acting(made), lambda snapshot: None, lambda: False).run()
        weights.append(made.networks["main"].online.named_weights())
    for name, array in weights[0].items():
        np.testing.assert_array_equal(array, weights[1][name])


def test_a_disk_that_refuses_costs_points_and_is_told_of_once(train, monkeypatch, caplog):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("distrl.metrics.event_file.EventFile.flush", refuse)
    train(labels=["rewards"], histograms_every_s=1e-9)
    assert [record.message for record in caplog.records if "histograms" in record.message] == [
        "histograms cannot be kept: [Errno 28] No space left on device"
    ]


def test_an_algorithm_that_does_not_say_what_it_minimises_is_refused(prepared, toy_config, tmp_path, monkeypatch):
    made = prepared(toy_config(tensorboard__labels=["variables", "gradients"]))
    monkeypatch.setattr(type(made.algorithm), "objective", lambda self, networks: None)
    with pytest.raises(ConfigError, match=r"tensorboard.labels: gradients: algorithm impala does not say what it min"):
        Histograms(made.config, made.algorithm, made.networks, tmp_path)


def test_gradients_that_were_applied_together_are_seen_as_their_mean():
    def contribution(actor, value):
        gradients, none = {"kernel": np.full((2, 2), value, np.float32)}, np.zeros(0)
        return Contribution(
            UnrollHeader(actor, 1, 0, 1, env_steps=1), Differentiated(gradients, {}, {}, {}), none, none
        )

    found = _mean_gradients((contribution(0, 1.0), contribution(1, 4.0)))
    np.testing.assert_array_equal(found["kernel"], np.full((2, 2), 2.5, np.float32))
