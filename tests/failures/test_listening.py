"""A run with default settings opens nothing to other machines, and writes no secret to the disk."""

import os
import socket
import stat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import psutil
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.redis]

ACCEPTS = 0x10000
"""__SO_ACCEPTCON in the flags of /proc/net/unix."""
LISTEN, ANYWHERE = "0A", "07"
"""States in /proc/net: of a TCP socket that listens, and of a UDP socket that receives from any host."""


class Socket(NamedTuple):
    """One that takes connections or datagrams.

    Attributes:
        place: An address and port, or the path of a unix socket; '' for one without a name, which is unreachable.
    """

    kind: str
    place: str


def listening(pids):
    """Those of the processes, by the kernel's own tables; nothing is asked over a network."""
    inodes = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                target = os.readlink(link)
            except OSError:  # closed, or the process has ended, since the folder was read
                continue
            if target.startswith("socket:["):
                inodes.add(target.removeprefix("socket:[").removesuffix("]"))
    found = []
    for kind, state in (("tcp", LISTEN), ("tcp6", LISTEN), ("udp", ANYWHERE), ("udp6", ANYWHERE)):
        for line in _lines(kind):
            fields = line.split()
            if fields[3] == state and fields[9] in inodes:
                found.append(Socket(kind, _address(fields[1])))
    for line in _lines("unix"):
        fields = line.split(maxsplit=7)
        if int(fields[3], 16) & ACCEPTS and fields[6] in inodes:
            found.append(Socket("unix", fields[7] if len(fields) > 7 else ""))
    return found


def _lines(kind):
    path = Path(f"/proc/net/{kind}")
    return path.read_text().splitlines()[1:] if path.exists() else []


def _address(field):
    """'0100007F:1F90' -> '127.0.0.1:8080'; the kernel writes words of four bytes in the machine's order."""
    host, port = field.split(":")
    words = b"".join(bytes.fromhex(host[at : at + 8])[::-1] for at in range(0, len(host), 8))
    return f"{socket.inet_ntop(socket.AF_INET6 if len(words) == 16 else socket.AF_INET, words)}:{int(port, 16)}"


def is_private(found):
    """Return whether only this user, on this machine, can connect."""
    if found.kind != "unix":
        return found.place.rpartition(":")[0] in ("127.0.0.1", "::1")
    if not found.place or found.place.startswith("@"):  # an abstract one has no permissions: all users can connect
        return not found.place
    told = Path(found.place).parent.stat()
    return (stat.S_IMODE(told.st_mode), told.st_uid) == (0o700, os.getuid())


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


def test_a_run_that_nobody_configured_listens_to_this_user_alone_and_keeps_its_secrets(start_run, unhurried):
    """Every process of it, the embedded Redis and its guardian among them, while it trains."""
    old = os.umask(0o022)  # as most people have it: others may read what is not made private
    try:
        run = start_run(*unhurried)
    finally:
        os.umask(old)
    run.wait_for_updates(2)
    parent = psutil.Process(run.process.pid)
    family = {parent.pid, *(child.pid for child in parent.children(recursive=True))}
    assert family >= set(run.pids)
    server = next(pid for pid in family if psutil.Process(pid).name() in ("redis-server", "valkey-server"))
    assert Socket("unix", str(run.socket)) in listening([server])  # so that this sees what there is
    found = listening(family)
    assert [each for each in found if not is_private(each)] == []
    assert [each for each in found if each.kind != "unix"] == []  # nor is there any port, even of this machine
    assert stat.S_IMODE(run.socket.parent.stat().st_mode) == 0o700

    run.process.terminate()
    assert run.finish().exit_code == 0
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in run.run_dir.iterdir() if path.is_file()}
    assert (modes["run.json"], modes["config.yaml"]) == (0o600, 0o600)
    assert any(mode & 0o044 for mode in modes.values())  # others would have been able to read what is not private
    assert not any(mode & 0o022 for mode in modes.values())
