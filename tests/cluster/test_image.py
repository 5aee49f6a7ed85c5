"""The container images: built from a base of Debian, looked into, and run as strictly as a cluster would run them."""

import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from distrl import __version__
from distrl.health import WITHIN_S
from distrl.runs.directories import RunRecord
from distrl.runs.summary import Summary
from image.build import LOCKS, ROOT, USUAL, build, parts, read_file, revision, size_bytes
from tests.faults.arguments import sets
from tests.faults.containers import Container, Image, missing_for_containers
from tests.faults.training import WAIT_S, wait_until
from tests.test_project import lock

pytestmark = [pytest.mark.cluster, pytest.mark.row("D70"), pytest.mark.timeout(1800)]

USER = 10001
ACTOR_MB = 500
PORT = 8720
BUILT = sys.executable, "image/build.py", *USUAL
SECRETS = re.compile(
    r"(^|/)(\.git|\.env|\.netrc|\.pypirc|\.ssh|\.aws|\.docker|pip\.conf|[^/]*\.key|redis\.password)(/|$)"
)
CACHES = re.compile(r"^(root/\.cache|var/cache/apt/.*\.(deb|bin)|var/lib/apt/lists/.*Packages|wheels|build|tools)(/|$)")


@pytest.fixture(scope="module", autouse=True)
def needs_containers():
    if (reason := missing_for_containers()) is not None:
        pytest.skip(reason)


@pytest.fixture(scope="module")
def images(needs_containers, needs_hosts):
    found = {target: Image(target) for target in USUAL}
    yield found
    for image in found.values():
        image.close()


def test_a_second_build_does_nothing(images):
    before = {target: image.archive.stat() for target, image in images.items()}
    done = subprocess.run(BUILT, cwd=ROOT, capture_output=True, text=True)
    lines = [
        f"distrl/{target}: {size_bytes(image.archive) / 1e6:,.0f} MB in {image.archive.relative_to(ROOT)}"
        for target, image in images.items()
    ]
    assert (done.returncode, done.stdout.splitlines(), done.stderr) == (0, lines, "")
    assert {target: image.archive.stat() for target, image in images.items()} == before


def test_an_actor_is_small_and_has_no_framework(images):
    print({target: f"{size_bytes(image.archive) / 1e6:.0f} MB" for target, image in images.items()})
    assert size_bytes(images["actor"].archive) <= ACTOR_MB * 1e6
    for target in ("actor", "dashboard"):
        packages = next(images[target].root.glob("opt/distrl/lib/python3*/site-packages"))
        assert (packages / "distrl").is_dir()
        assert [name for name in ("tensorflow", "keras", "jax", "ray") if (packages / name).exists()] == []


@pytest.mark.parametrize("target", USUAL)
def test_the_image_says_how_it_is_run(images, target):
    config = images[target].config
    assert (config["User"], config["WorkingDir"], config["Entrypoint"]) == ("10001:10001", "/runs", ["distrl"])
    assert config["Healthcheck"]["Test"] == ["CMD", "distrl", "health"]
    labels = {name.rpartition(".")[2]: text for name, text in config["Labels"].items() if ".opencontainers." in name}
    assert labels == {
        "title": "distrl",
        "version": __version__,
        "revision": revision(),
        "source": "unknown",  # the release names it
        "licenses": "Apache-2.0",
    }
    runs = images[target].root / "runs"
    assert (runs.stat().st_uid, runs.stat().st_gid, stat.S_IMODE(runs.stat().st_mode)) == (USER, USER, 0o755)


@pytest.mark.parametrize("target", USUAL)
def test_the_image_holds_no_secret_no_cache_and_nothing_that_its_user_may_change(images, target):
    with parts(images[target].archive) as (_, layers):
        members = {member.name.removeprefix("./"): member for layer in layers for member in layer}
    assert [name for name in members if SECRETS.search(name)] == []
    assert [name for name in members if CACHES.search(name)] == []
    files = [member for member in members.values() if not member.issym()]
    assert [member.name for member in files if member.uid == USER] == ["runs"]
    others = [member for member in files if member.mode & stat.S_IWOTH and not member.mode & stat.S_ISVTX]
    assert [member.name for member in others if not member.isdev()] == []


@pytest.mark.parametrize("target", USUAL)
def test_the_list_of_packages_is_what_the_lock_pins_and_names_licences(images, target):
    text = read_file(images[target].archive, "opt/distrl/sbom.cdx.json")
    assert text == images[target].archive.with_name(f"{target}.sbom.cdx.json").read_bytes()
    listed = json.loads(text)
    versions = {part["name"].lower().replace("_", "-"): part["version"] for part in listed["components"]}
    locked = {name: version for name, (version, *_) in lock(LOCKS[target].removesuffix(".lock")).items()}
    assert versions.pop("distrl") == __version__
    assert versions.pop("pip")
    assert {name: locked[name] for name in versions} == versions
    assert locked.keys() - versions.keys() <= {"colorama", "box2d-py", "swig", "tzdata", "async-timeout"}
    unknown = {part["name"] for part in listed["components"] if not part.get("licenses")}
    assert unknown <= {"protobuf"}, "packages that declare no licence"


def test_the_dockerfile_has_no_lint():
    done = subprocess.run([Path(sys.executable).with_name("hadolint"), "Dockerfile"], cwd=ROOT, capture_output=True)
    assert (done.returncode, done.stdout) == (0, b"")
    text = (ROOT / "Dockerfile").read_text()
    assert "hadolint ignore" not in text
    assert set(re.findall(r"^FROM runtime AS (\S+)$", text, re.MULTILINE)) == LOCKS.keys()


def test_a_missing_program_is_one_line(tmp_path):
    target = tmp_path / "build"
    program = (
        f"import image.build as b, pathlib; b.PRODUCTS = pathlib.Path({str(target)!r}); raise SystemExit(b.main())"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, env={"PATH": str(tmp_path)}, capture_output=True, text=True)
    said = "image: error: install buildah mmdebstrap first: sudo apt-get install buildah mmdebstrap\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", said)
    assert not target.exists()


@pytest.fixture
def run_container(images, network, tmp_path):
    runs = tmp_path / "runs"
    runs.mkdir(mode=0o700)
    os.chown(runs, USER, USER)
    containers = []

    def run(target, name, *command, **variables):
        volumes = {"/runs": runs}
        host = network.host(name)
        containers.append(Container(images[target], host, *command, volumes=volumes, directory=tmp_path, **variables))
        return containers[-1]

    yield run
    for container in containers:
        container.end()


def healthy(container, code=0):
    return container.check_health().returncode == code


def test_three_containers_learn_cartpole_and_their_health_checks_know_when_they_stop(run_container, network, tmp_path):
    run_dir = tmp_path / "runs" / "pole"
    shared = ["--run-dir", "/runs/pole"]
    alone = ["--no-actors", *sets("memory.listen=auto", "stop.mean_return=475")]
    learner = run_container("learner", "learner", "train", "--preset", "cartpole-impala", "--plain", *alone, *shared)
    actors = [
        run_container(
            "actor", f"actors{number}", "actors", *shared, "--count", "1", "--wait", "--log-dir", f"/tmp/{number}"
        )
        for number in (1, 2)
    ]
    token = {"DISTRL_DASHBOARD_TOKEN": "t" * 32}
    dashboard = run_container(
        "dashboard", "dashboard", "dashboard", "/runs", "--host", "0.0.0.0", "--port", str(PORT), **token
    )
    containers = [learner, *actors, dashboard]
    for container in containers:
        wait_until(lambda: healthy(container) or container.process.poll() is not None, "it is healthy", 2 * WAIT_S)  # noqa: B023
        assert container.process.poll() is None, container.output.read_text()
    wait_until(lambda: "acting" in actors[0].output.read_text(), "actors act")
    assert actors[0].execute("distrl", "health", "--role", "actor").returncode == 0
    assert learner.execute("distrl", "health", "--role", "learner").returncode == 0

    for container in containers:
        container.signal(signal.SIGSTOP)
    time.sleep(WITHIN_S + 1)
    said = [container.check_health() for container in containers]
    assert [done.returncode for done in said] == [1] * len(containers), said
    assert all(done.stdout.startswith(f"no heartbeat within {WITHIN_S:g} s: ") for done in said)
    for container in containers:
        container.signal(signal.SIGCONT)
    wait_until(lambda: all(map(healthy, containers)), "all are healthy again")
    rights = actors[0].execute("cat", "/proc/self/status").stdout
    assert re.findall(r"^(?:NoNewPrivs|CapEff|CapBnd):\s+(\w+)$", rights, re.MULTILINE) == ["0" * 16, "0" * 16, "1"]
    assert actors[0].execute("sh", "-c", "echo > /opt/distrl/x").stderr.strip().endswith("Read-only file system")

    with urllib.request.urlopen(f"http://{dashboard.address}:{PORT}/healthz", timeout=WAIT_S) as answer:
        assert answer.status == 200
    assert learner.process.wait(4 * WAIT_S) == 0, learner.output.read_text()
    summary = Summary.read(run_dir / "summary.json")
    assert (summary.stop_reason, summary.imbalance) == ("mean_return", 0)
    assert RunRecord.read(run_dir / "run.json").redis_url.startswith(f"redis://{learner.address}:")
    for container in actors:
        assert container.process.wait(WAIT_S) == 0, container.output.read_text()


def test_the_other_target_has_its_environments():
    image = Image("actor-environments")
    try:
        packages = next(image.root.glob("opt/distrl/lib/python3*/site-packages"))
        assert [name for name in ("ale_py", "mujoco", "Box2D", "cv2") if not (packages / name).exists()] == []
        assert not (packages / "tensorflow").exists()
    finally:
        image.close()
    print(f"{size_bytes(build('actor-environments')) / 1e6:.0f} MB")
