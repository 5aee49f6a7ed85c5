"""The data store on an S3 server: writers that are killed, two writers, other hosts, and a server that goes away."""

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import closing

import psutil
import pytest

from distrl.data_store import checkpoints
from distrl.data_store.fetching import fetch_newest
from distrl.data_store.opening import open_objects
from distrl.data_store.stored_run import CheckpointPosition, StoredRun, Writer
from distrl.errors import FencedError
from distrl.learner.mirror import Mirror
from distrl.runs.summary import Summary
from tests.data_store.stores import held, saved, store_steps
from tests.faults.arguments import environment, sets
from tests.faults.s3_server import S3Server
from tests.faults.training import Run
from tests.waiting import lasts, wait_until

pytestmark = pytest.mark.cluster

CARTPOLE = ("--preset", "cartpole-impala", "--run-id", "c1", "--seed", "1")
ANOTHER_USER = (  # who reads this checkout and its Python wherever they are
    *("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"),
    *("--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"),
)
WRITER = """
import sys
from pathlib import Path
import numpy as np
from distrl.data_store import checkpoints
from distrl.data_store.opening import open_objects
from distrl.data_store.stored_run import StoredRun, Writer

run, folder = StoredRun(open_objects(sys.argv[1]), "r"), Path(sys.argv[2])
listing = run.look()
writer = Writer.claim(run, listing.writer, "l")
step = listing.newest.step if listing.newest else 0
print("ready", flush=True)
while True:
    step += 1
    arrays = {"main.online": {"w": np.full(200_000, step)}, "main.optimizer": {"m": np.full(200_000, step)}}
    path = checkpoints.save(folder, step, arrays, {"step": step}, keep=3)
    print("begins", step, flush=True)
    writer.store(path, step, {}, best=False, keep=3)
    print("stored", step, flush=True)
"""


@pytest.fixture
def server(tmp_path, free_port):
    server = S3Server(tmp_path / "server", free_port)
    yield server
    server.close()


@pytest.fixture
def client(server, monkeypatch):
    """Make this process a client of the server."""
    for name, value in server.variables.items():
        monkeypatch.setenv(name, value)
    return server


@pytest.fixture
def train(server):
    """Start trainings that store on the server, and end those that are left."""
    runs = []

    def started(run_dir, *arguments):
        runs.append(Run(run_dir, *arguments, cwd=run_dir.parent, env=environment(**server.variables)))
        return runs[-1]

    yield started
    for run in runs:
        run.end()


def events(run_dir):
    return (run_dir / "logs" / "events.log").read_text()


# ------------------------------------------------------------------------------------------------------------ writers


@pytest.mark.row("D63", "T08")
def test_a_writer_killed_at_20_points_leaves_the_previous_or_the_new_version(client, tmp_path):
    """The reader never waits for the writer, and what it loads is whole: every array holds the step."""
    run = StoredRun(open_objects(client.url), "r")
    store_steps(run, tmp_path / "first", 1)
    draws, seen = random.Random(1), set()
    for point in range(20):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, client.url, str(tmp_path / f"local-{point}")],
            stdout=subprocess.PIPE,
            text=True,
            env=environment(**client.variables),
        )
        with writer, closing(writer.stdout) as output:
            said = [output.readline() for _ in range(2 + 2 * draws.randrange(2))]  # ready, and the last one begins
            lasts(draws.uniform(0.0, 0.2))
            writer.kill()
            said += output
        began = max(int(text.split()[1]) for text in said if text.startswith("begins"))
        stored = max((int(text.split()[1]) for text in said if text.startswith("stored")), default=began - 1)
        here = tmp_path / f"reader-{point}"
        fetched = fetch_newest(run, here, (), lambda line: None)
        assert fetched.rejected == []
        loaded = checkpoints.load_newest(here / "checkpoints")
        assert stored <= loaded.step <= began
        assert {float(array.min()) for group in loaded.arrays.values() for array in group.values()} == {loaded.step}
        assert {float(array.max()) for group in loaded.arrays.values() for array in group.values()} == {loaded.step}
        seen.add(loaded.step == began)
        shutil.rmtree(here)
    assert False in seen  # some were killed within an upload
    assert run.look().writer == 21


@pytest.mark.row("D63", "T08")
def test_of_many_that_claim_at_once_exactly_one_is_the_writer(client):
    wins, start = [], threading.Barrier(8)
    runs = [StoredRun(open_objects(client.url), "r") for _ in range(8)]

    def claim(run):
        for number in range(5):
            start.wait()
            try:
                Writer.claim(run, number, "l")
            except FencedError:
                continue
            finally:
                start.wait()
            wins.append(number)

    threads = [threading.Thread(target=claim, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(wins) == [0, 1, 2, 3, 4]


@pytest.mark.row("D63")
def test_the_requests_of_a_checkpoint(client, tmp_path):
    """docs/cluster.md has these numbers, of a checkpoint like those of the CartPole preset."""
    here = tmp_path / "here"
    (here / "policy").mkdir(parents=True)
    mirror = Mirror(StoredRun(open_objects(client.url), "r"), here, after=0, launch="l", keep=5, give_up_s=30.0)
    for step in range(1, 9):
        before = client.requests()
        saved(here, step, best=step == 2, groups=("main.online", "main.optimizer", "main.statistics"))
        (here / "policy" / "weights.msgpack").write_bytes(b"%d" % step)
        mirror.request()
        mirror.finish(lambda: None)
    mirror.close()
    assert client.requests() - before == {"PUT": 6, "LIST": 3, "GET": 1, "HEAD": 2, "DELETE": 5}


# ---------------------------------------------------------------------------------------------------------- trainings


@pytest.mark.row("D63", "S17")
def test_another_host_another_user_and_an_empty_disk(server, train, tmp_path):
    """The first host is lost; what it had trained is not."""
    (tmp_path / "a").mkdir()
    first = train(
        tmp_path / "a" / "run",
        *CARTPOLE,
        *sets(f"checkpoint.store={server.url}", "checkpoint.every_s=1", "stop.mean_return=null", "stop.env_steps=null"),
    )
    wait_until(lambda: "000001" in str(server.names("c1")) and first.updates > 12, "it has trained and stored")
    wait_until(lambda: server.has_checkpoint("c1"), "one is whole")
    host = psutil.Process(first.process.pid)
    lost = [host, *host.children(recursive=True)]
    for process in lost:
        process.kill()
    wait_until(lambda: not any(first.alive(process.pid) for process in lost), "the first host is gone")
    first.process.wait()
    shutil.rmtree(tmp_path / "a")
    home = tmp_path / "b"
    home.mkdir()
    shutil.chown(home, 65534, 65534)
    second = subprocess.run(
        [
            *(*ANOTHER_USER, sys.executable, "-m", "distrl", "train", "--plain", "--resume", f"{server.url}/c1"),
            *sets("stop.mean_return=475"),
        ],
        cwd=home,
        env=environment(**server.variables, HOME=str(home), XDG_CACHE_HOME=str(home / "cache")),
        capture_output=True,
        text=True,
    )
    assert second.returncode == 0, second.stdout + second.stderr
    run_dir = home / "runs" / "c1"
    assert run_dir.stat().st_uid == 65534
    assert "fetched checkpoint 000001-" in second.stdout
    assert "fetched checkpoint 000001-" in events(run_dir)
    summary = Summary.read(run_dir / "summary.json")
    assert (summary.run_id, summary.stop_reason) == ("c1", "mean_return")
    assert summary.resumed_updates > 0
    # From anywhere, with both machines gone:
    shutil.rmtree(run_dir)
    for command in (
        ["evaluate", f"{server.url}/c1", "--episodes", "20"],
        ["logs", f"{server.url}/c1", "--role", "learner"],
        ["jobs", "--store", server.url],
    ):
        shown = subprocess.run(
            [sys.executable, "-m", "distrl", *command],
            env=environment(**server.variables),
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert shown.returncode == 0, shown.stderr
        assert shown.stdout.strip()
    assert "secret-of-the-store" not in "".join(
        server.files().cat_file(f"bucket/runs/c1/{name}").decode(errors="replace") for name in server.names("c1")
    )


@pytest.mark.row("D63", "T08")
def test_a_second_host_takes_over_and_the_first_one_ends_in_one_line(server, train, tmp_path):
    slow = sets(
        f"checkpoint.store={server.url}", "checkpoint.every_s=1", "stop.mean_return=null", "stop.updates=100000"
    )
    first = train(tmp_path / "first", *CARTPOLE, *slow, *sets("stop.env_steps=null"))
    wait_until(lambda: server.has_checkpoint("c1"), "one is whole")
    second = train(
        tmp_path / "second",
        *("--resume", f"{server.url}/c1"),
        *sets("stop.mean_return=null", "stop.env_steps=null", "checkpoint.every_s=1"),
    )
    summary = first.finish()
    assert summary.exit_code == 6
    assert f"another learner has taken over the run in {server.url}/c1 (writer 2)" in summary.error
    assert first.errors.read_text().count("distrl: error: ") == 1
    wait_until(lambda: any("000002-" in name for name in server.names("c1")), "the second one stores")
    subprocess.run([sys.executable, "-m", "distrl", "stop", str(second.run_dir)], check=True, env=environment())
    assert second.finish().exit_code == 0
    newest = second.run_dir / "checkpoints"
    fetch = tmp_path / "reader"
    variables = server.variables
    os.environ.update(variables)
    try:
        run = StoredRun(open_objects(server.url), "c1")
        fetch_newest(run, fetch, (), print)
    finally:
        for name in variables:
            del os.environ[name]
    loaded = checkpoints.load_newest(fetch / "checkpoints")
    assert loaded.step == checkpoints.load_newest(newest).step
    assert run.look().newest.writer == 2


@pytest.mark.row("D63", "T08")
@pytest.mark.parametrize(
    "how", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.long)], ids=["dies", "hangs"]
)
def test_a_server_that_goes_away(server, train, tmp_path, how):
    """The training goes on, ends with 6 and a complete directory, and the next launch stores it."""
    run_dir = tmp_path / "run"
    limits = sets("checkpoint.every_s=1", "stop.mean_return=null", "stop.env_steps=null")
    store = sets(f"checkpoint.store={server.url}", "checkpoint.store_give_up_s=5")
    run = train(run_dir, *CARTPOLE, *limits, *store)
    wait_until(lambda: server.has_checkpoint("c1"), "one is whole")
    server.signal(how)
    wait_until(lambda: "the data store lacks the newest checkpoint: " in events(run_dir), "it is reported")
    reached = run.updates
    run.wait_for_updates(reached + 5)
    subprocess.run([sys.executable, "-m", "distrl", "stop", str(run_dir)], check=True, env=environment())
    summary = run.finish()
    assert summary.exit_code == 6
    assert "the data store lacks the last checkpoint" in summary.error
    assert f"it is complete in {run_dir}" in summary.error
    assert run.errors.read_text().count("distrl: error: ") == 1
    newest = checkpoints.load_newest(run_dir / "checkpoints")
    assert newest.step == summary.updates > reached
    if how == signal.SIGKILL:
        server.start()
    else:
        server.signal(signal.SIGCONT)
    again = train(run_dir, "--resume", str(run_dir), *sets(f"stop.updates={newest.step + 3}"))
    assert again.finish().exit_code == 0, again.told
    assert f"{newest.step + 3:012d}/manifest.json" in str(server.names("c1"))


@pytest.mark.long
def test_a_server_that_dies_and_comes_back_gets_what_it_missed(server, train, tmp_path):
    run_dir = tmp_path / "run"
    limits = sets("checkpoint.every_s=1", "stop.mean_return=null", "stop.env_steps=null")
    run = train(run_dir, *CARTPOLE, *limits, *sets(f"checkpoint.store={server.url}"))
    wait_until(lambda: server.has_checkpoint("c1"), "one is whole")
    server.signal(signal.SIGSTOP)
    wait_until(lambda: "the data store lacks the newest checkpoint: " in events(run_dir), "it is reported")
    server.signal(signal.SIGCONT)
    wait_until(lambda: "checkpoints are stored again" in events(run_dir), "it is reported")
    subprocess.run([sys.executable, "-m", "distrl", "stop", str(run_dir)], check=True, env=environment())
    summary = run.finish()
    assert (summary.exit_code, summary.error) == (0, None)
    assert f"{summary.updates:012d}/manifest.json" in str(server.names("c1"))


# ------------------------------------------------------------------------------------------------ refused at the start


def refused(variables, url, tmp_path):
    """Return the one line of a training that is refused, and check that it has left nothing."""
    ended = subprocess.run(
        [sys.executable, "-m", "distrl", "train", *CARTPOLE, *sets(f"checkpoint.store={url}")],
        env=environment(**variables),
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1), ended.stderr
    assert not (tmp_path / "runs").exists() or not any((tmp_path / "runs").iterdir())
    return ended.stderr


@pytest.mark.row("D63")
def test_no_bucket_no_rights_no_credentials_no_server(server, tmp_path, free_port):
    assert "The specified bucket does not exist; make the bucket, or correct its name" in refused(
        server.variables, "s3://none/runs", tmp_path
    )
    without = {**server.variables, "AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "HOME": str(tmp_path)}
    assert "set the credentials in the environment (docs/cluster.md)" in refused(without, server.url, tmp_path)
    server.signal(signal.SIGKILL)
    assert "Could not connect to the endpoint URL" in refused(server.variables, server.url, tmp_path)
    refusing = S3Server(tmp_path / "refusing", free_port, refuses=True)
    try:
        line = refused(refusing.variables, refusing.url, tmp_path)
    finally:
        refusing.close()
    assert "the credentials must allow to list, read, write and delete there" in line


@pytest.mark.row("D63")
def test_a_full_disk_at_the_start_and_while_training(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root mounts a small disk: sudo make cluster")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], check=True)
    try:
        filler = disk / "filler"
        with filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(disk).free)
        assert "No space left on device" in refused({}, f"file://{disk}/runs", tmp_path)
        filler.unlink()
        run_dir = tmp_path / "run"
        store = sets(f"checkpoint.store=file://{disk}/runs", "checkpoint.store_give_up_s=3", "checkpoint.every_s=1")
        run = Run(run_dir, *CARTPOLE, *store, *sets("stop.mean_return=null", "stop.env_steps=400000"), cwd=tmp_path)
        summary = run.finish()
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    assert summary.exit_code == 6
    assert "No space left on device" in summary.error
    assert f"it is complete in {run_dir}" in summary.error
    assert checkpoints.load_newest(run_dir / "checkpoints").step == summary.updates


@pytest.mark.row("D63", "T08")
def test_the_newest_is_damaged_in_the_bucket(client, tmp_path):
    run = StoredRun(open_objects(client.url), "r")
    writer = Writer.claim(run, 0, "l")
    for step in (1, 2):
        writer.store(saved(tmp_path / "other", step), step, {}, best=False, keep=5)
    for number, name in enumerate(["main.online.npz", "meta.json", "manifest.json"]):
        path = f"r/checkpoints/000001-000000000002/{name}"
        whole = run.objects.get(path)
        for harmed in (whole[:-10], whole[:5], b""):
            run.objects.put(path, harmed)
            here = tmp_path / f"here-{number}-{len(harmed)}"
            fetched = fetch_newest(run, here, (), lambda line: None)
            assert fetched.position == CheckpointPosition(1, 1)
            assert held(here) == 1.0
            assert "000001-000000000002" in fetched.notes[0]
        run.objects.put(path, whole)
