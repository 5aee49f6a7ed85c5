import pytest

from distrl.commands.main import main
from distrl.memory_backend.access import users


@pytest.mark.parametrize(("version", "weaker"), [("7", False), ("6.2", True)])
def test_the_users_are_lines_of_an_acl_file_and_the_notes_are_not(capsys, version, weaker):
    assert main(["redis", "acl", "--namespace", "team-a", "--redis", version]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == list(users("team-a", version).values())
    assert "add #<sha256" in err
    assert ("cannot limit a command" in err) == weaker


def test_an_unknown_version_is_refused(capsys):
    assert main(["redis", "acl", "--redis", "5"]) == 2
    assert "--redis 5 is not known; use one of 6.2, 7" in capsys.readouterr().err
