"""Neither distrl nor its libraries send telemetry."""

import os
import subprocess
import sys

SILENCING = ("CI", "ORT_DISABLE_TELEMETRY", "ORT_RUNNING_UNIT_TESTS")
"""Variables by which ONNX Runtime would be silent anyway."""


def test_an_actor_keeps_no_records_for_onnx_runtimes_makers(tmp_path):
    env = {name: value for name, value in os.environ.items() if name not in SILENCING}
    env |= {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    subprocess.run([sys.executable, "-c", "import distrl.actors.policy"], env=env, check=True)
    assert not [*tmp_path.rglob("*")]


def test_whoever_wants_it_has_it():
    env = os.environ | {"ORT_DISABLE_TELEMETRY": "0"}
    code = "import os, distrl; print(os.environ['ORT_DISABLE_TELEMETRY'])"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"
