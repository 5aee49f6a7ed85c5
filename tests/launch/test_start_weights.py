"""The weights that a training begins with are named exactly, and the learner tries them out."""

from pathlib import Path

import pytest

import distrl
from distrl.config.load import dump, load
from distrl.data_store.checkpoints import save
from distrl.environments.probe import probe
from distrl.errors import ConfigError
from distrl.launch.checks import Checked
from distrl.launch.start import with_weights

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


def test_without_a_name_nothing_changes(checked):
    assert with_weights(given := checked(), None) is given


def test_the_name_becomes_exact_and_keeps_its_origin(checked):
    made = with_weights(checked(init_from=str(EARLIER)), None)
    assert made.loaded.config.learner.init_from == f"{EARLIER}@2"
    assert made.loaded.origins[ORIGIN] == "flag --init-from"
    assert f"init_from: {EARLIER}@2" in dump(made.loaded)
    with pytest.raises(ConfigError, match=r"^learner\.init_from: .*nowhere does not exist; name a run, a checkpoint"):
        with_weights(checked(init_from="nowhere"), None)


def test_a_run_that_goes_on_keeps_the_record(checked, run):
    for given in (None, str(EARLIER), f"{EARLIER}@best", f"{EARLIER}@2"):  # such as a command that a queue repeats
        made = with_weights(checked(init_from=given), run)
        assert made.loaded.config.learner.init_from == f"{EARLIER}@2"
        assert made.notes == ("a note",)
    assert with_weights(checked(), run).loaded.origins[ORIGIN] == f"file {run / 'config.yaml'}"
    for other in (f"{EARLIER}@1", str(run)):
        with pytest.raises(ConfigError, match=f"{other} is for a new training; the run in {run} began with those of "):
            with_weights(checked(init_from=other), run)
    (run / "config.yaml").write_text("seed: 1\n")
    with pytest.raises(ConfigError, match="began with fresh weights and goes on with its own: leave it out"):
        with_weights(checked(init_from=str(EARLIER)), run)


@pytest.mark.slow
def test_the_learner_tries_them_out_and_refuses_in_one_line_and_nothing_is_left(tmp_path):
    sets = ["actors.count=0", "stop.updates=1", f"learner.init_from={EARLIER}"]
    summary = distrl.train(load("cartpole-impala", sets=sets), run_dir=tmp_path / "run", view="silent")
    assert (summary.exit_code, summary.error) == (
        2,
        f"learner.init_from: {EARLIER}@2 has another network: main: weight main/middleware_dense_0/kernel has shape "
        "(4, 64), given (4, 8); configure the network as it was there, or begin without",
    )
    assert not (tmp_path / "run").exists()
