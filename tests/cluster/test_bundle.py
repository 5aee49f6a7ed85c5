"""`make bundle` for Python 3.12: installed without a network into an environment with JAX alone, it trains CartPole."""

import platform
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from bundle.build import MIB, ROOT
from distrl.runs.summary import Summary
from tests.faults.hosts import Space
from tests.test_project import lock

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(1200)]

PYTHON = "3.12"
MOST_MIB = 60


def other_python():
    """Return an interpreter of this version, such as pyenv's; None without one."""
    of_pyenv = sorted(Path.home().glob(f".pyenv/versions/{PYTHON}.*/bin/python{PYTHON}"))
    return next((str(path) for path in of_pyenv), shutil.which(f"python{PYTHON}"))


@pytest.fixture(scope="module")
def bundle():
    """The bundle's folder, made anew."""
    subprocess.run(["make", "bundle", f"BUNDLE_PYTHON={PYTHON}"], cwd=ROOT, check=True)
    return ROOT / f"build/bundle-{PYTHON}-{platform.machine()}"


@pytest.fixture
def environment(tmp_path):
    """An environment of that Python with JAX alone, which an index installs."""
    if (python := other_python()) is None:
        pytest.skip(f"Python {PYTHON} is not on this machine: install it, or pyenv's")
    subprocess.run([python, "-m", "venv", tmp_path / "venv"], check=True)
    pinned = [f"{name}=={lock('dev')[name][0]}" for name in ("jax", "jaxlib", "numpy", "scipy", "ml-dtypes")]
    pip = [tmp_path / "venv/bin/python", "-m", "pip", "install", "--quiet", "--only-binary", ":all:", *pinned]
    subprocess.run(pip, check=True)
    return tmp_path / "venv"


def test_the_folder_is_small(bundle):
    size = sum(path.stat().st_size for path in bundle.rglob("*") if path.is_file()) / MIB
    print(f"{size:.1f} MiB")
    assert size <= MOST_MIB


@pytest.mark.usefixtures("needs_hosts")
def test_it_installs_and_trains_without_a_network(bundle, environment, tmp_path):
    shutil.copytree(bundle, tmp_path / "bundle")  # nothing of the checkout is needed
    python, run_dir = environment / "bin/python", tmp_path / "run"
    with ExitStack() as stack:
        offline = Space("offline")
        stack.callback(offline.end)

        def runs(*command, path):
            """Run a command without a network, with this PATH and a home of its own; return its end."""
            variables = "env", "-i", "-C", str(tmp_path), f"PATH={path}", f"HOME={tmp_path / 'home'}"
            return subprocess.run(offline.enter(*variables, *map(str, command)), capture_output=True, text=True)

        def install():
            return runs(tmp_path / "bundle/install.sh", python, path="/usr/bin:/bin")

        assert runs("/usr/bin/ip", "route", path="").stdout == ""
        done = install()
        assert done.returncode == 0, done.stdout + done.stderr
        assert runs(python, "-c", "import tensorflow", path="").returncode == 1
        # Without PATH there is no redis-server but the one of the bundle.
        options = ["--preset", "cartpole-impala", "--set", "learner.backend=jax", "--run-dir", run_dir, "--plain"]
        done = runs(python, "-m", "distrl", "train", *options, path="")
        assert done.returncode == 0, done.stdout + done.stderr
        summary = Summary.read(run_dir / "summary.json")
        assert (summary.stop_reason, summary.imbalance) == ("mean_return", 0)
        print(f"solved after {summary.wall_s:.0f} s")

        wheel = next((tmp_path / "bundle/wheels").glob("gymnasium-*.whl"))
        wheel.write_bytes(wheel.read_bytes()[:-1] + b"!")
        assert (
            runs(python, "-m", "pip", "uninstall", "--yes", "--quiet", "gymnasium", "distrl", path="").returncode == 0
        )
        done = install()
        assert done.returncode == 1
        assert "DO NOT MATCH THE HASHES" in done.stderr
        assert runs(python, "-c", "import distrl", path="").returncode == 1, "nothing is half done"
