import pytest

from distrl.config.environment import EnvironmentConfig
from distrl.environments.remote.connection import TOKEN_VARIABLE, Address, Route
from distrl.errors import ConfigError

TOKEN = "0123456789abcdef"


@pytest.fixture(autouse=True)
def _no_token(monkeypatch):
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)


def route(id_="tcp://robot:6025", step_timeout_s=60.0, **kwargs):
    return Route.of(EnvironmentConfig(id=id_, kwargs=kwargs, step_timeout_s=step_timeout_s))


def test_we_dial_or_are_dialled(tmp_path):
    assert (route().address, route().token) == (Address("robot", 6025), None)
    (tmp_path / "token").write_text(TOKEN)
    listening = route("tcp-listen://0.0.0.0:6025", token_file=str(tmp_path / "token"))
    assert (listening.address.dial, listening.token) == (False, TOKEN)


def test_who_is_dialled_waits_longer_as_somebody_may_be_about_to_start_it():
    assert route().first_connection_s == 5.0
    assert route("tcp-listen://127.0.0.1:6025").first_connection_s == 30.0
    assert route("tcp-listen://127.0.0.1:6025", connect_timeout_s=2).first_connection_s == 2.0


def test_atari_is_not_for_remote_environments():
    with pytest.raises(ConfigError, match=r"environment tcp://robot:1: environment\.atari is not for remote"):
        Route.of(EnvironmentConfig(id="tcp://robot:1", atari={}))


def test_who_listens_for_others_needs_a_token(monkeypatch):
    with pytest.raises(ConfigError, match="a token is needed"):
        route("tcp-listen://0.0.0.0:6025")
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    assert route("tcp-listen://0.0.0.0:6025").token == TOKEN


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"gravity": 9.8}, r"environment\.kwargs\.gravity: Extra inputs are not permitted \(environment tcp://robot"),
        ({"give_up_s": -1}, r"environment\.kwargs\.give_up_s: Input should be greater than 0"),
        ({"observation_space": {"type": "Box", "shape": [1]}}, "come together"),
        ({"token_file": "/no/such/file"}, "cannot be read"),
        (
            {"give_up_s": 40},
            r"give_up_s \(40\) \+ message_timeout_s \(20\) is 60 and must be less than environment\.step_timeout_s 60",
        ),
        (
            {"connect_timeout_s": 45},
            r"connect_timeout_s \(45\) \+ message_timeout_s \(20\) is 65 and must be less than",
        ),
        ({"message_timeout_s": 30}, r"2 \* message_timeout_s \(30\) is 60 and must be less than"),
    ],
)
def test_parameters_that_are_wrong_are_named(kwargs, message):
    with pytest.raises(ConfigError, match=message):
        route(**kwargs)
