"""A skip among the tests of `make cluster` fails there, and only there."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parent / "cluster/conftest.py"
SKIPPING = {
    "a test": "import pytest\ndef test_it():\n    pytest.skip('no such server')",
    "a fixture": "import pytest\n@pytest.fixture\ndef it():\n    pytest.skip('no such server')\ndef test_it(it): ...",
    "a module": "import pytest\npytest.skip('no such server', allow_module_level=True)",
}


@pytest.mark.parametrize("fails", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_skip_fails_where_it_is_said_to(fails, tmp_path):
    shutil.copy(CONFTEST, tmp_path)
    for number, source in enumerate(SKIPPING.values()):
        (tmp_path / f"test_{number}.py").write_text(source)
    environment = {"PATH": os.environ["PATH"], **({"CLUSTER_SKIPS_FAIL": "1"} if fails else {})}
    command = [sys.executable, "-m", "pytest", "-rsfE", "-p", "no:valkey", "-p", "no:cacheprovider", "-c", os.devnull]
    command += ["--continue-on-collection-errors", f"--rootdir={tmp_path}"]
    done = subprocess.run([*command, tmp_path], env=environment, capture_output=True, text=True)
    assert done.stdout.count("no such server") >= len(SKIPPING)
    last = done.stdout.splitlines()[-1]
    assert ("1 failed, 2 errors" if fails else "3 skipped") in last, done.stdout
