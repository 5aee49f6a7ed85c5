"""Roles as Ray actors on a private cluster: they end, are killed, and leave nothing behind."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray")
pytestmark = [pytest.mark.ray, pytest.mark.slow]

# In a process of its own: Ray stays in whatever process has imported it.
SCRIPT = """
import json, os, signal, sys, time
from pathlib import Path
from distrl.launch.distributed import make_private_token
make_private_token()
from distrl.errors import ConfigError
from distrl.roles.plan import Role
from tests.launched_run import run_in
from tests.waiting import wait_until
from distrl.launch.ray_actors import RayLauncher, ray

def end(handle):
    wait_until(lambda: handle.poll() is not None)
    return handle.poll()

folder = Path(sys.argv[1])

def refuse(**options):
    told["failed"] = Path(options["_temp_dir"]).parent
    raise Exception("The current node timed out\\nduring startup.")

told = {}
start, ray.init = ray.init, refuse
try:
    RayLauncher(run_in(folder, f"unix://{folder}/nowhere", "0" * 64, threads=1), None)
except ConfigError as error:
    refusal = str(error), told.pop("failed").exists()
ray.init = start
signal.signal(signal.SIGTERM, handler := lambda number, frame: None)
os.environ["RAY_ADDRESS"] = "10.77.0.1:6380"  # of a cluster that is not meant
launcher = RayLauncher(run_in(folder, f"unix://{folder}/nowhere", "0" * 64, threads=1), None)
directory = launcher._directory
told = {"handler": signal.getsignal(signal.SIGTERM) is handler, "private": oct(directory.stat().st_mode & 0o777)}
unreachable, killed = launcher.start(Role("actor", 0)), launcher.start(Role("actor", 1))
killed.kill()
told["codes"] = [end(unreachable), end(killed)]
told["errors"] = [unreachable.error, killed.error]
asked = launcher.start(Role("actor", 2))
wait_until(lambda: asked.waits_for is None)
asked.terminate()
told["asked"] = end(asked)
launcher._run = run_in(folder, f"unix://{folder}/nowhere", "0" * 64, threads=2000)
large = launcher.start(Role("learner"))
wait_until(lambda: large.waits_for != "2000 CPU")
told["waits"], told["code"] = large.waits_for, large.poll()
large.kill()
told["ended"] = large.poll()
launcher.close()
told["left"] = directory.exists()
told["refusal"] = refusal
print(json.dumps(told))
"""


@pytest.mark.long
def test_roles_end_with_their_code_and_the_cluster_with_its_directory(tmp_path: Path):
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["refusal"] == [
        "Ray does not start on this machine: The current node timed out during startup.; try again, or leave out "
        "--launcher ray",
        False,
    ]
    assert told["handler"]  # Ray's own ends the command before it has saved
    # 6: no Redis there. -9: Ray knows no exit codes of the killed.
    assert told["codes"] == [6, -9]
    assert told["asked"] == 6
    assert told["errors"][0].startswith("Redis at unix://")  # though its log may be on another host
    assert (told["waits"], told["code"], told["ended"]) == ("2000 CPU, which no node has", None, -9)
    assert (told["private"], told["left"]) == ("0o700", False)
    assert "distrl: error: Redis at unix://" in (tmp_path / "logs" / "actor-0.log").read_text()
