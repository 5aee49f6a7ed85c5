"""Visitors of a running training: second learners, other versions, foreign payloads, and other users of the machine.

One training with default settings is there for all of it, and goes on as if nothing had happened.
"""

import os
import pickle
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import msgpack
import msgpack_numpy
import psutil
import pytest

from distrl.memory_backend.keys import PROTOCOL_VERSION, RunKeys, entry_fields
from distrl.types import UnrollHeader
from tests.faults.sockets import Socket, is_private, listening
from tests.faults.training import Run
from tests.faults.versions import NEWER, OLDER, OURS, THEIRS, command, install, refusal

pytestmark = [pytest.mark.slow, pytest.mark.redis]


@pytest.fixture(scope="module")
def run(tmp_path_factory, unhurried) -> Iterator[Run]:
    """A training that SIGTERM ends after the last test, with 0 and nothing lost."""
    folder = tmp_path_factory.mktemp("visited")
    old = os.umask(0o022)  # as most people have it: others may read what is not made private
    try:
        started = Run(folder / "run", *unhurried, cwd=folder)
    finally:
        os.umask(old)
    try:
        started.wait_for_updates(3)
        yield started
        started.process.terminate()
        summary = started.finish()
        assert (summary.exit_code, summary.stop_reason, summary.restarts, summary.imbalance) == (0, "SIGTERM", 0, 0)
        assert (summary.lost, summary.rolled_back) == (0, 0)
    finally:
        started.end()


def test_a_second_learner_is_refused_while_the_first_lives_and_changes_nothing(run, distrl_command):
    first = run.role("learner")
    run_id = run.record["run_id"]
    done = distrl_command("learner", "--redis-url", run.record["redis_url"], "--run-id", run_id, **run.key)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"distrl: error: run {run_id} has learner, process {first.pid} on ")
    run.wait_for_updates(run.updates + 10)
    # No token was taken, so that there was no moment at which the first could not publish.
    assert (run.role("learner").pid, run.role("learner").incarnation) == (first.pid, first.incarnation)


@pytest.mark.row("S15")
def test_an_older_and_a_newer_role_are_refused_and_the_run_goes_on(run, tmp_path):
    run_id = run.record["run_id"]
    for protocol, kind, *more in ((OLDER, "actor", "--id", "7"), (NEWER, "learner")):
        root = install(tmp_path / f"protocol-{protocol}", protocol)
        done = command(run, kind, root, *more)
        assert done.returncode == 6
        assert refusal(done) == (
            f"run {run_id} speaks protocol {PROTOCOL_VERSION} (distrl {OURS}), this distrl {THEIRS} speaks "
            f"{protocol}; use one version of distrl for all roles"
        )
    # No role was registered, and the run got no request.
    assert run.backend.registry.register_actor(7) == 1
    asked = command(run, "stop", root)
    assert (asked.returncode, "speaks protocol" in refusal(asked)) == (6, True)
    run.wait_for_updates(run.updates + 5)
    assert {(role.role, role.id) for role in run.backend.registry.roles()} == {
        ("actor", 0),
        ("actor", 1),
        ("learner", 0),
    }


class Touches:
    """Unpickling one creates a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self):
        return Path.touch, (self._path,)


def crafted(array: dict[bytes, object]) -> bytes:
    """An unroll's tree with `array` where the observations are."""
    return msgpack.packb({"observations": {"observation": array}, "actions": None})


@pytest.mark.row("D61", "T05")
def test_payloads_that_would_execute_code_are_counted_kept_and_never_decoded(run, tmp_path):
    trap = tmp_path / "executed"
    pickled = crafted({b"nd": True, b"kind": b"O", b"shape": [1], b"type": "|O", b"data": pickle.dumps(Touches(trap))})
    objects = crafted({b"nd": True, b"kind": b"", b"shape": [1], b"type": "|O", b"data": bytes(8)})
    # The trap is real: the library's own decoder walks into it.
    msgpack.unpackb(pickled, object_hook=msgpack_numpy.decode)
    assert trap.exists()
    trap.unlink()

    keys, client = RunKeys(run.backend._run.keys.run_id), run.backend.engine
    for sequence, payload in enumerate((pickled, objects)):
        fields = entry_fields(UnrollHeader(99, 1, sequence, 1, 2048), payload)
        client.call("XADD", keys.unrolls, "*", *(part for field in fields.items() for part in field))
    run.wait_until(lambda: run.backend.ledger.counts().dropped["decode"] == 2, "both are counted")
    dead = [fields for _, fields in client.call("XRANGE", keys.dead, "-", "+")]
    assert [(fields[b"reason"], fields[b"payload"], fields[b"actor"]) for fields in dead] == [
        (b"decode", pickled, b"99"),
        (b"decode", objects, b"99"),
    ]
    run.wait_for_updates(run.updates + 20)  # training goes on
    assert not trap.exists()
    counts = run.backend.ledger.counts()
    assert counts.foreign == 2
    assert counts.dropped == {"stale": 0, "duplicate": 0, "decode": 2, "schema": 0, "nonfinite": 0, "poison": 0}


@pytest.fixture
def short_path():
    """A folder whose sockets' paths fit the kernel's limit, wherever tests are kept."""
    with TemporaryDirectory(dir="/tmp") as directory:
        yield Path(directory)


def test_the_tables_are_read_as_they_are(short_path):
    """Each kind of socket that must not be there would be seen."""
    (short_path / "open").mkdir()
    os.chmod(short_path / "open", 0o755)
    (short_path / "shut").mkdir(0o700)
    before = listening([os.getpid()])
    sockets = [socket.socket(*kind) for kind in ((socket.AF_UNIX, socket.SOCK_STREAM),) * 3]
    sockets += [socket.socket(socket.AF_INET, socket.SOCK_STREAM) for _ in range(2)]
    sockets += [socket.socket(socket.AF_INET, socket.SOCK_DGRAM)]
    try:
        places = [str(short_path / "open" / "s"), str(short_path / "shut" / "s"), f"\0distrl-{os.getpid()}"]
        for each, place in zip(sockets, [*places, ("0.0.0.0", 0), ("127.0.0.1", 0), ("0.0.0.0", 0)], strict=True):
            each.bind(place)
            if each.type == socket.SOCK_STREAM:
                each.listen()
        ports = [each.getsockname()[1] for each in sockets[3:]]
        found = [each for each in listening([os.getpid()]) if each not in before]
        assert {each: is_private(each) for each in found} == {
            Socket("unix", places[0]): False,
            Socket("unix", places[1]): True,
            Socket("unix", f"@{places[2][1:]}"): False,
            Socket("tcp", f"0.0.0.0:{ports[0]}"): False,
            Socket("tcp", f"127.0.0.1:{ports[1]}"): True,
            Socket("udp", f"0.0.0.0:{ports[2]}"): False,
        }
    finally:
        for each in sockets:
            each.close()


def test_a_run_that_nobody_configured_listens_to_this_user_alone_and_keeps_its_secrets(run):
    """Every process of it, the embedded Redis and its guardian among them, while it trains."""
    parent = psutil.Process(run.process.pid)
    family = {parent.pid, *(child.pid for child in parent.children(recursive=True))}
    assert family >= set(run.pids)
    server = next(pid for pid in family if psutil.Process(pid).name() in ("redis-server", "valkey-server"))
    assert Socket("unix", str(run.socket)) in listening([server])  # so that this sees what there is
    found = listening(family)
    assert [each for each in found if not is_private(each)] == []
    assert [each for each in found if each.kind != "unix"] == []  # nor is there any port, even of this machine
    assert stat.S_IMODE(run.socket.parent.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in run.run_dir.iterdir() if path.is_file()}
    assert (modes["run.json"], modes["config.yaml"]) == (0o600, 0o600)
    assert any(mode & 0o044 for mode in modes.values())  # others would have been able to read what is not private
    assert not any(mode & 0o022 for mode in modes.values())
