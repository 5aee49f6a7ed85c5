"""Tests of several hosts and of Redis as companies run it: `make cluster` runs them.

A test that cannot run here skips with the reason. `make cluster` sets CLUSTER_SKIPS_FAIL, by which every skip of this
folder is a failure that shows the same reason.
"""

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

SKIPS_FAIL = "CLUSTER_SKIPS_FAIL"


def missing_for_hosts() -> str | None:
    """Return the reason why this machine cannot make network namespaces with veth pairs, and the remedy; or None."""
    if os.geteuid() != 0:
        return f"hosts are network namespaces, which only root makes, and this is uid {os.geteuid()}: sudo make cluster"
    if (ip := shutil.which("ip")) is None:
        return "hosts are network namespaces, made by the program ip, which is missing: apt-get install iproute2"
    name = f"try-{uuid.uuid4().hex[:8]}"
    made = subprocess.run([ip, "netns", "add", name], capture_output=True, text=True)
    if made.returncode == 0:
        link = ["link", "add", "veth0", "type", "veth", "peer", "name", "veth1"]
        made = subprocess.run([ip, "-n", name, *link], capture_output=True, text=True)
        subprocess.run([ip, "netns", "delete", name], check=True, capture_output=True)
    return None if made.returncode == 0 else f"hosts are network namespaces, which the kernel refuses: {made.stderr}"


@pytest.fixture(scope="session")
def needs_hosts() -> None:
    """Skips a test of several hosts where they cannot be made."""
    if (reason := missing_for_hosts()) is not None:
        pytest.skip(reason.strip())


def _no_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.skipped and SKIPS_FAIL in os.environ:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome, report.longrepr = "failed", f"a skip is a failure with {SKIPS_FAIL}: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[Any]:
    report = yield
    _no_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[Any]:
    report = yield
    _no_skip(report)
    return report
