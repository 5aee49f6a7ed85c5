"""The lines that tell other hosts how to join a training."""

import shlex
from types import SimpleNamespace

from distrl.launch.distributed import _tell_how_to_join
from tests.launched_run import run_in


def test_the_command_for_other_hosts_can_be_pasted_into_a_shell(tmp_path):
    url, told = "rediss://ada@h:1?ca_file=/etc/ca.crt&namespace=team-a", []
    _tell_how_to_join(run_in(tmp_path, url, "k" * 64), SimpleNamespace(event=told.append))
    (line,) = told
    command = line[line.index("distrl actors") :]
    assert shlex.split(command) == ["distrl", "actors", "--redis-url", url, "--run-id", "r1"]
    assert f"'{url}'" in command  # & ends a command
