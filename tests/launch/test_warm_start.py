"""The weights that a training begins with are tried out before anything is made, and named exactly."""

from pathlib import Path

import pytest

import distrl
from distrl.config.load import dump, load
from distrl.data_store.checkpoints import save
from distrl.environments.probe import probe
from distrl.errors import ConfigError
from distrl.launch import warm_start
from distrl.launch.checks import Checked
from distrl.launch.warm_start import with_first_weights

EARLIER = Path(distrl.__file__).parents[1] / "tests" / "earlier" / "cartpole"
ORIGIN = "learner.init_from"


@pytest.fixture(scope="module")
def spec():
    return probe(load("cartpole-impala").config.environment)


@pytest.fixture
def checked(spec):
    def make(*sets, init_from=None):
        return Checked(load("cartpole-impala", sets=sets, flags={"--init-from": init_from}), spec, ("a note",))

    return make


@pytest.fixture
def run(tmp_path):
    """A run that began with EARLIER's weights of update 2 and has a checkpoint."""
    save(tmp_path / "run" / "checkpoints", 5, {}, {}, keep=1)
    (tmp_path / "run" / "config.yaml").write_text(f"learner: {{init_from: {EARLIER}@2}}\n")
    return tmp_path / "run"


def test_without_a_name_nothing_is_tried(checked, monkeypatch):
    monkeypatch.setattr(warm_start, "_ask", None)
    assert with_first_weights(given := checked(), None) is given


def test_the_name_becomes_exact_and_keeps_its_origin(checked, monkeypatch):
    monkeypatch.setattr(warm_start, "_ask", lambda config, spec, report: f"begins with {config.learner.init_from}")
    made = with_first_weights(checked(init_from=str(EARLIER)), None)
    assert made.loaded.config.learner.init_from == f"{EARLIER}@2"
    assert made.loaded.origins[ORIGIN] == "flag --init-from"
    assert made.notes == ("a note", f"the training begins with {EARLIER}@2")
    assert f"init_from: {EARLIER}@2" in dump(made.loaded)


def test_a_run_that_goes_on_keeps_the_record_and_tries_nothing(checked, run, monkeypatch):
    monkeypatch.setattr(warm_start, "_ask", None)
    for given in (None, str(EARLIER), f"{EARLIER}@best", f"{EARLIER}@2"):  # such as a command that a queue repeats
        made = with_first_weights(checked(init_from=given), run)
        assert made.loaded.config.learner.init_from == f"{EARLIER}@2"
        assert made.notes == ("a note",)
    assert with_first_weights(checked(), run).loaded.origins[ORIGIN] == f"file {run / 'config.yaml'}"
    for other in (f"{EARLIER}@1", str(run)):
        with pytest.raises(ConfigError, match=f"{other} is for a new training; the run in {run} began with those of "):
            with_first_weights(checked(init_from=other), run)
    (run / "config.yaml").write_text("seed: 1\n")
    with pytest.raises(ConfigError, match="began with fresh weights and goes on with its own: leave it out"):
        with_first_weights(checked(init_from=str(EARLIER)), run)


def test_a_run_without_a_checkpoint_begins_with_them(checked, run, monkeypatch):
    monkeypatch.setattr(warm_start, "_ask", lambda *_: "begins")
    (run / "checkpoints" / "ckpt-000000000005").rename(run / "gone")
    assert "the training begins" in with_first_weights(checked(init_from=str(EARLIER)), run).notes


@pytest.mark.slow
def test_a_child_tries_them_out_and_refuses_in_one_line(checked, tmp_path):
    small = "network.middleware_parameters.scheme=[8]"
    made = with_first_weights(checked(small, init_from=str(EARLIER)), None)
    assert made.notes[-1] == f"the training begins with the weights of {EARLIER}@2: took 6 of 6"
    with pytest.raises(ConfigError) as refused:
        with_first_weights(checked(init_from=f"{EARLIER}@2"), None)
    assert str(refused.value) == (
        f"learner.init_from: {EARLIER}@2 has another network: main: weight main/middleware_dense_0/kernel has shape "
        "(4, 64), given (4, 8); configure the network as it was there, or begin without"
    )
    with pytest.raises(ConfigError, match=r"^learner\.init_from: .*nowhere does not exist; name a run, a checkpoint"):
        with_first_weights(checked(init_from=str(tmp_path / "nowhere")), None)


@pytest.mark.long
def test_a_child_refuses_layers_to_freeze_that_are_not_there(checked):
    with pytest.raises(ConfigError, match=r"^network\.frozen: 'main/b/\*' matches no weight that training changes; "):
        with_first_weights(checked("network.frozen=[main/b/*]", init_from=str(EARLIER)), None)


@pytest.mark.long
def test_a_checkpoint_of_tensorflow_begins_a_training_of_jax_on_devices_that_are_not_here():
    pytest.importorskip("jax")
    pendulum = EARLIER.parent / "pendulum"
    sets = ("network.middleware_parameters.scheme=[8]", "learner.backend=jax", "learner.replicas=2")
    loaded = load("pendulum-sac", sets=sets, flags={"--init-from": str(pendulum)})
    made = with_first_weights(Checked(loaded, probe(loaded.config.environment), ()), None)
    assert made.notes == (f"the training begins with the weights of {pendulum}@125: took 14 of 14",)
