"""Each kind of policy that the command line names has a first version, and the followed ones have later ones."""

import pytest

import distrl
from distrl.apps.serve.sources import source_of
from distrl.errors import ConfigError
from distrl.learner.policy_files import read_policy, write_weights
from distrl.terminal.console import QuietView
from distrl.types import Weights
from tests.apps.serve.conftest import USUAL


def test_a_directory_is_followed_and_a_checkpoint_is_not(copied):
    run_dir = copied("mlp")
    followed = source_of(str(run_dir))
    first = followed.newer()
    assert (followed.follows, followed.newer()) == (True, None)
    (checkpoint,) = (path for path in (run_dir / "checkpoints").iterdir() if path.is_dir())
    fixed = source_of(f"{run_dir}@{int(checkpoint.name.rpartition('-')[2])}")
    assert fixed.newer().exported.weights_version == first.exported.weights_version
    write_weights(run_dir / "policy", Weights(50, read_policy(run_dir).weights.arrays))
    assert followed.newer().exported.weights_version == 50
    assert (fixed.follows, fixed.newer()) == (False, None)


def test_a_run_in_a_store_is_followed(tmp_path):
    store = f"file://{tmp_path / 'store'}"
    config = distrl.load("cartpole-impala", sets=[*USUAL, f"checkpoint.store={store}"])
    run_dir = tmp_path / "first"
    distrl.train(config, run_dir=run_dir, view=QuietView(run_dir, lambda text: None))
    (stored,) = (tmp_path / "store").iterdir()
    source = source_of(f"{store}/{stored.name}")
    expected = read_policy(run_dir).weights.version
    assert (source.follows, source.newer().exported.weights_version, source.newer()) == (True, expected, None)
    with pytest.raises(ConfigError, match="there is no such run"):
        source_of(f"{store}/other").newer()
