"""Weights to begin with are found under every name that a user has for them."""

import numpy as np
import pytest

from distrl.data_store.checkpoints import save
from distrl.errors import CheckpointError, ConfigError
from distrl.learner.policy_files import write_weights
from distrl.learner.weight_source import UNKNOWN_ROWS, read_source, settled_name
from distrl.types import Weights


def arrays(number):
    return {"main/dense/kernel": np.full((2, 3), number, np.float32)}


@pytest.fixture
def run(tmp_path):
    """A run with checkpoints 10 (the best) and 20, and policy/ as of 10."""
    for step in (10, 20):
        statistics = {"position/count": np.array(70.0 * step), "position/mean": np.zeros(1)}
        groups = {"main.online": arrays(step), "main.statistics": statistics, "main.optimizer": arrays(-1)}
        groups["critic.online"] = {"critic/dense/kernel": np.full(1, step + 1.0)}
        meta = {"weights_version": step, "env_steps": 100 * step}
        save(tmp_path / "run" / "checkpoints", step, groups, meta, keep=5, best=step == 10)
    (tmp_path / "run" / "policy").mkdir()
    write_weights(tmp_path / "run" / "policy", Weights(10, arrays(10)))
    return tmp_path / "run"


def read(name):
    """(name, number of the weights, networks, rows behind the position, rows behind another input)."""
    found = read_source(str(name))
    (number,) = set(found.weights["main"]["main/dense/kernel"].flat)
    return found.name, number, sorted(found.weights), found.rows_behind("main", "position"), found.policy_rows


def test_every_name_of_weights(run, tmp_path):
    both = ["critic", "main"]
    assert read(run) == (str(run), 20, both, 1400.0, UNKNOWN_ROWS)
    assert read(f"{run}@10") == (f"{run}@10", 10, both, 700.0, UNKNOWN_ROWS)
    assert read(f"{run}@best") == (f"{run}@best", 10, both, 700.0, UNKNOWN_ROWS)
    checkpoint = run / "checkpoints" / "ckpt-000000000010"
    assert read(checkpoint) == (str(checkpoint), 10, both, 700.0, UNKNOWN_ROWS)
    assert read(run / "policy") == (str(run / "policy"), 10, ["main"], 1000.0, 1000.0)
    (run / "policy").rename(tmp_path / "alone")  # without the checkpoints beside it
    assert read(tmp_path / "alone") == (str(tmp_path / "alone"), 10, ["main"], UNKNOWN_ROWS, UNKNOWN_ROWS)


def test_a_settled_name_stays_with_the_checkpoint_when_the_run_goes_on(run):
    names = [settled_name(str(name)) for name in (run, f"{run}@best", f"{run}@20", run / "policy")]
    assert names == [f"{run}@20", f"{run}@10", f"{run}@20", str(run / "policy")]
    file = run / "checkpoints" / "ckpt-000000000020" / "main.online.npz"
    file.write_bytes(file.read_bytes()[:-1])
    assert settled_name(str(run)) == f"{run}@10"  # the newest that is valid
    with pytest.raises(CheckpointError, match="ckpt-000000000020 is not valid"):
        settled_name(f"{run}@20")  # named, and so nothing else


def test_what_holds_no_weights_is_one_line(run, tmp_path):
    (tmp_path / "empty" / "checkpoints").mkdir(parents=True)
    (tmp_path / "text.onnx").write_text("no model")
    (run / "policy" / "weights.msgpack").write_bytes(b"no weights")
    refused = {
        tmp_path / "no": "no does not exist; name a run, a checkpoint or an exported policy",
        tmp_path: "holds no weights: name a run with checkpoints, a checkpoint, a file of distrl export, or a policy/",
        tmp_path / "empty": "empty has no checkpoint: there is none in",
        f"{run}@15": "run has no checkpoint of update 15; there are 10, 20",
        tmp_path / "text.onnx": "text.onnx is no policy that can be read: it is no ONNX model, or not a whole one",
        run / "policy": r"weights\.msgpack cannot be read: ",
    }
    for name, message in refused.items():
        with pytest.raises((ConfigError, CheckpointError), match=message) as caught:
            read_source(str(name))
        assert "\n" not in str(caught.value)
    for name in (tmp_path / "no", tmp_path / "empty", f"{run}@15"):
        with pytest.raises(ConfigError):
            settled_name(str(name))
