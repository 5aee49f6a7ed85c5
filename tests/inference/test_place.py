import os
from contextlib import ExitStack

import pytest

from distrl.inference import place
from distrl.inference.place import held_alone, host_directory, is_awaited, socket_path, waiting_for_place


def test_processes_of_one_launch_meet_in_a_private_directory_that_the_last_one_removes(tmp_path, monkeypatch):
    monkeypatch.setattr(place, "_SHARED_MEMORY", tmp_path)
    with host_directory("a1") as first, host_directory("a1") as second, host_directory("b2") as other:
        assert first == second != other
        assert first.parent == tmp_path
        assert first.stat().st_mode & 0o077 == 0
        assert socket_path(first).parent == first
    assert os.listdir(tmp_path) == []


def test_where_there_is_no_shared_memory_the_directory_of_temporary_files_has_it(tmp_path, monkeypatch):
    monkeypatch.setattr(place, "_SHARED_MEMORY", tmp_path / "missing")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with host_directory("a1") as directory:
        assert directory.parent == tmp_path
    directory = tmp_path / "distrl-inference-c3"
    directory.mkdir(mode=0o755)
    directory.chmod(0o755)  # whatever the umask: others may enter
    with pytest.raises(PermissionError, match="is not a private directory"), host_directory("c3"):
        pass


def test_one_process_at_a_time_is_the_server(tmp_path):
    with ExitStack() as first:
        assert first.enter_context(held_alone(tmp_path))
        with held_alone(tmp_path) as held:
            assert not held
    with held_alone(tmp_path) as held:
        assert held


def test_the_server_can_tell_whether_others_wait_for_its_place(tmp_path):
    with waiting_for_place(tmp_path), waiting_for_place(tmp_path):
        assert is_awaited(tmp_path)
    assert not is_awaited(tmp_path)
