"""Hosts can be made here."""

import subprocess

import pytest

pytestmark = pytest.mark.cluster


@pytest.mark.usefixtures("needs_hosts")
def test_a_host_has_interfaces_of_its_own():
    command = ["unshare", "--net", "ip", "-brief", "link", "show", "lo"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert shown.split()[:2] == ["lo", "DOWN"]  # that of this machine is up
