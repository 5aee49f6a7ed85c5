"""The container images: built from a base of Debian, looked into, and run as strictly as a cluster would run them."""

import json
import re
import signal
import stat
import subprocess
import sys
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest

from distrl import __version__
from distrl.health import WITHIN_S
from distrl.runs.directories import RunRecord
from distrl.runs.summary import Summary
from image.build import LOCKS, ROOT, USUAL, build, parts, read_file, revision, size_bytes
from tests.faults.arguments import sets
from tests.faults.built_images import Image
from tests.faults.checkout_files import variables_of_dockerfile
from tests.faults.training import WAIT_S
from tests.helm.rendering import UnavailableError, objects_in, pods_in, rendered
from tests.test_project import lock
from tests.waiting import lasts, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.row("D70"), pytest.mark.timeout(1800)]

USER = 10001
ACTOR_MB = 500
PORT = 8720
BUILT = sys.executable, "image/build.py", *USUAL
SECRETS = re.compile(
    r"(^|/)(\.git|\.env|\.netrc|\.pypirc|\.ssh|\.aws|\.docker|pip\.conf|[^/]*\.key|redis\.password)(/|$)"
)
CACHES = re.compile(r"^(root/\.cache|var/cache/apt/.*\.(deb|bin)|var/lib/apt/lists/.*Packages|wheels|build|tools)(/|$)")


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
    assert config["Env"] == [f"{name}={value}" for name, value in variables_of_dockerfile().items()]
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
    assert unknown <= {"keras", "namex", "protobuf", "ray"}, "packages that declare no licence"


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
def start(cluster):
    """A function that starts a container as the chart does, but with arguments, variables and volumes of the test."""
    try:
        objects = objects_in(rendered({}))
    except UnavailableError as error:
        pytest.skip(str(error))
    pods = {spec["containers"][0]["name"]: spec for found in objects for _, spec in pods_in(found)}
    claim = {"metadata": {"name": "runs"}, "spec": {"accessModes": ["ReadWriteMany"]}}
    cluster.objects["PersistentVolumeClaim", "runs"] = claim

    def start(name, role, *arguments, **variables):
        container = {key: pods[role]["containers"][0][key] for key in ("name", "image", "securityContext")}
        container["args"] = arguments
        container["env"] = [{"name": key, "value": value} for key, value in variables.items()]
        container["volumeMounts"] = [{"name": "runs", "mountPath": "/runs"}, {"name": "tmp", "mountPath": "/tmp"}]
        spec = {"securityContext": pods[role]["securityContext"], "containers": [container], "restartPolicy": "Never"}
        claimed = {"name": "runs", "persistentVolumeClaim": {"claimName": "runs"}}
        spec["volumes"] = [claimed, {"name": "tmp", "emptyDir": {}}]
        labels = {"app.kubernetes.io/component": name}
        return cluster.start(name, {"metadata": {"labels": labels}, "spec": spec}).containers[0]

    return start


@pytest.mark.parametrize("cluster", ["images"], indirect=True)
def test_three_containers_learn_cartpole_and_their_health_checks_know_when_they_stop(images, cluster, start):
    """They share a directory and nothing else: Redis is the learner's."""

    def check_health(container):
        kind, *command = images["learner"].config["Healthcheck"]["Test"]
        assert kind == "CMD"
        return container.execute(*command)

    def healthy(container):
        return container.running and check_health(container)[0] == 0

    run_dir = cluster.claim("runs") / "pole"
    look = ["dashboard", "/runs", "--host", "0.0.0.0", "--port", str(PORT)]
    dashboard = start("dashboard", "dashboard", *look, DISTRL_DASHBOARD_TOKEN="t" * 32)
    wait_until(lambda: healthy(dashboard) or dashboard.exits, "the dashboard is healthy")
    assert dashboard.exits == [], dashboard.log

    shared = ["--run-dir", "/runs/pole"]
    waiting = ["--count", "1", "--wait", "--log-dir", "/tmp/logs"]
    actors = [start(f"actors{number}", "actors", "actors", *shared, *waiting) for number in (1, 2)]
    wait_until(lambda: all(map(healthy, actors)), "actors wait for the run, and are healthy")
    alone = ["--no-actors", *sets("memory.listen=auto", "stop.mean_return=475")]
    learner = start("learner", "learner", "train", "--preset", "cartpole-impala", "--plain", *alone, *shared)
    containers = [learner, *actors, dashboard]
    # An actor has heartbeats before it acts: the training is not over yet.
    wait_until(lambda: actors[0].execute("distrl", "health", "--role", "actor")[0] == 0, "there is an actor")
    assert learner.execute("distrl", "health", "--role", "learner")[0] == 0
    for container in containers:
        container.signal(signal.SIGSTOP)
    lasts(WITHIN_S + 1)
    said = [check_health(container) for container in containers]
    assert [code for code, _ in said] == [1] * len(containers), said
    assert all(text.startswith(f"no heartbeat within {WITHIN_S:g} s: ") for _, text in said)
    for container in containers:
        container.signal(signal.SIGCONT)
    wait_until(lambda: all(map(healthy, containers)), "all are healthy again")

    with urllib.request.urlopen(f"http://{dashboard.pod.address}:{PORT}/healthz", timeout=WAIT_S) as answer:
        assert answer.status == 200
    wait_until(lambda: learner.exits, "it has learned", 4 * WAIT_S)
    assert learner.exits == [0], learner.log
    summary = Summary.read(run_dir / "summary.json")
    assert (summary.stop_reason, summary.imbalance) == ("mean_return", 0)
    assert RunRecord.read(run_dir / "run.json").redis_url.startswith(f"redis://{learner.pod.address}:")
    wait_until(lambda: all(container.exits for container in actors), "the actors end")
    assert [container.exits for container in actors] == [[0], [0]], [container.log for container in actors]


@pytest.mark.usefixtures("images")
def test_the_other_target_has_its_environments():
    with closing(Image("actor-environments")) as image:
        packages = next(image.root.glob("opt/distrl/lib/python3*/site-packages"))
        assert [name for name in ("ale_py", "mujoco", "Box2D", "cv2") if not (packages / name).exists()] == []
        assert not (packages / "tensorflow").exists()
    print(f"{size_bytes(build('actor-environments')) / 1e6:.0f} MB")
