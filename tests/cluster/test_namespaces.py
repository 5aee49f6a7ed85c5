"""Hosts can be made here; where they cannot, the reason is given."""

import shutil
import subprocess
from contextlib import closing

import pytest

from tests.cluster.conftest import missing_for_hosts
from tests.faults.hosts import Network
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster


@pytest.mark.usefixtures("needs_hosts")
def test_a_host_has_a_name_and_one_link_which_can_be_cut(tmp_path):
    with closing(Network(tmp_path)) as network:
        host = network.host("one")

        def shown(*command):
            return subprocess.run(host.enter(*command), capture_output=True, text=True, check=True).stdout

        def links():
            """Return name -> state."""
            return {line.split()[0]: line.split()[1] for line in shown("ip", "-brief", "link").splitlines()}

        assert shown("hostname") == "one\n"
        assert sorted(name.partition("@")[0] for name in links()) == ["eth0", "lo"]
        wait_until(lambda: "UP" in links().values(), "it is connected")
        network.unplug(host)
        wait_until(lambda: "UP" not in links().values(), "it is cut off")


@pytest.mark.parametrize("missing", ["unshare", "nsenter", "hostname", "mount", "ip"])
def test_a_program_that_is_missing_is_named(tmp_path, monkeypatch, missing):
    folder = tmp_path / "bin"
    folder.mkdir()
    for program in {"unshare", "nsenter", "hostname", "mount", "ip", "sh", "cat"} - {missing}:
        (folder / program).symlink_to(shutil.which(program))
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    reason = missing_for_hosts(tmp_path)
    assert reason is not None
    assert missing in reason.partition("iproute2: ")[2]


def test_a_user_who_is_not_root_is_told_so(tmp_path, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert "sudo make cluster" in missing_for_hosts(tmp_path)
