import subprocess
import sys

import psutil
import pytest

from benchmarks.peers.processes import adopting_orphans, descendants, end, reap_orphans, usage
from tests.waiting import wait_until

MEGABYTE = 2**20
# A parent of 16 MB with a child that leaves the group and is orphaned, and holds 32 MB.
PARENT = f"""
import signal, subprocess, sys
held = b"x" * {16 * MEGABYTE}
daemon = 'import signal; held = b"y" * {32 * MEGABYTE}; print("there", flush=True); signal.pause()'
middle = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {{daemon!r}}], start_new_session=True)"
subprocess.run([sys.executable, "-c", middle])
signal.pause()
"""


@pytest.fixture
def before():
    return frozenset(process.pid for process in psutil.Process().children(recursive=True))


def test_a_run_is_all_its_processes_those_included_that_left_it(before):
    with adopting_orphans():
        parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
        try:
            assert parent.stdout.readline() == "there\n"
            found = wait_until(lambda: len(found := descendants(before)) == 2 and found, "both are found")
            (orphan,) = (process for process in found if process.pid != parent.pid)
            assert orphan.ppid() == psutil.Process().pid
            used = usage(found)
            assert used.processes == 2
            assert 48 * MEGABYTE < used.pss_bytes < 48 * MEGABYTE + 60 * MEGABYTE
            assert 0 < used.cpu_s < 30
        finally:
            end(before)
        assert descendants(before) == []
        reap_orphans(parent.pid, before)
        parent.wait(10)
        parent.stdout.close()
        assert not psutil.pid_exists(orphan.pid)
        assert usage([orphan]).processes == 0


def test_those_that_do_not_listen_are_killed(before):
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); signal.pause()"
    child = subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE)
    child.stdout.readline()
    end(before, patience_s=0.2)
    assert child.wait(10) == -9
    child.stdout.close()
