import dataclasses
import subprocess
import sys

import numpy as np
import pytest

import distrl
from distrl.errors import ConfigError
from tests.run_folders import make_run


def test_a_run_in_python(tmp_path):
    run = distrl.load_run(str(make_run(tmp_path / "a", sets=("network.learning_rate=0.25",))))
    assert run.path == tmp_path / "a"
    assert run.config.network.learning_rate == 0.25
    assert run.summary.mean_return_100 == 20.0
    np.testing.assert_array_equal(run.metrics["mean_return_100"], [np.nan, 10.0, 20.0])
    with pytest.raises(dataclasses.FrozenInstanceError):
        run.path = tmp_path


def test_a_run_that_goes_on_has_no_summary(tmp_path):
    run = distrl.load_run(make_run(tmp_path / "a", summary=None, rows=()))
    assert (run.summary, len(run.metrics)) == (None, 0)
    (tmp_path / "a/metrics.csv").unlink()
    assert dict(distrl.load_run(tmp_path / "a").metrics) == {}


def test_a_picture_of_a_metric(tmp_path):
    run = distrl.load_run(make_run(tmp_path / "a"))
    picture = run.plot("mean_return_100", over="time")
    assert picture._repr_png_().startswith(b"\x89PNG\r\n")
    assert picture.png != run.plot("env_steps_per_s").png
    picture.save(tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes() == picture.png
    with pytest.raises(ConfigError, match="no metric is named 'mean_retrun_100'; did you mean mean_return_100"):
        run.plot("mean_retrun_100")
    with pytest.raises(ConfigError, match="over 'step': did you mean steps"):
        run.plot(over="step")


def test_what_is_no_run(tmp_path):
    with pytest.raises(ConfigError, match="is not a run's directory"):
        distrl.load_run(tmp_path)


def test_no_framework_is_needed(tmp_path):
    make_run(tmp_path / "a")
    program = (
        f"import sys, distrl; distrl.load_run({str(tmp_path / 'a')!r});"
        "print([name for name in ('tensorflow', 'keras', 'onnxruntime', 'matplotlib', 'redis') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
