"""The file of alerts: a wrong value is one line that says what to do, and a secret is in none."""

import pytest

from distrl.apps.dashboard.alert_settings import RULES, TOKEN_VARIABLE, AlertSettings, read_alert_settings
from distrl.apps.dashboard.severities import SEVERITIES
from distrl.errors import ConfigError


@pytest.fixture
def read(tmp_path):
    path = tmp_path / "alerts.yaml"
    path.touch(mode=0o600)

    def reading(text, **variables):
        path.write_text(text)
        return read_alert_settings(str(path), variables)

    return reading


def test_an_empty_file_is_the_defaults_and_off_is_none(read):
    assert read("") == AlertSettings()
    assert read_alert_settings("off", {}) is None


def test_values_are_taken(read):
    settings = read("no_steps_s: 30\nno_better_steps: 1_000_000\nwithout: [solved, ended]\nwebhook: https://h:8/x\n")
    assert settings.no_steps_s == 30
    assert settings.no_better_steps == 1_000_000
    assert settings.without == ("solved", "ended")
    assert settings.webhook == "https://h:8/x"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("no_step_s: 3", "unknown key no_step_s (from --alerts {file}); did you mean no_steps_s?"),
        ("no_steps_s: 3", "no_steps_s: 3 (from --alerts {file}) must be greater than or equal to 10"),
        ("without: [solvd]", "without: no rule is called 'solvd'; did you mean solved?"),
        ("[3]", "--alerts {file} must hold a mapping like 'actors: {{count: 4}}', not [3]"),
        (
            "webhook: ftp://h/s3cret",
            "webhook: ••• is no URL such as https://host/path; write one, or leave webhook out",
        ),
        ("webhook: http://h:99999/s3cret", "webhook: ••• is no URL such as https://host/path"),
        ("webhook: {a: s3cret}", "webhook: ••• is no text; write it in quotes"),
        ("webhook: https://me:s3cret@h/", "webhook: the URL has a user, a password or a character that no URL has"),
        ("webhook: https://h/\nwebhook_token: [s3cret]", "webhook_token: ••• is no text; write it in quotes"),
        ('webhook: https://h/\nwebhook_token: "s3cret\\r\\nX: 1"', "webhook_token: a token is printable ASCII"),
        ("webhook_token: s3cret", "webhook_token is given without webhook; add the URL that it is for"),
        ("webhook_from: loud", "webhook_from: 'loud' (from --alerts {file}) must be 'info', 'warning' or 'bad'"),
    ],
)
def test_a_wrong_value_is_one_line_without_secrets(read, tmp_path, text, told):
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert str(caught.value).startswith(told.format(file=tmp_path / "alerts.yaml"))
    assert "s3cret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_and_one_that_others_may_read(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot be read: No such file .*; name a YAML file, or write --alerts off"):
        read_alert_settings(str(tmp_path / "none.yaml"), {})
    (tmp_path / "open.yaml").write_text("webhook: https://h/s3cret\n")
    (tmp_path / "open.yaml").chmod(0o644)
    with pytest.raises(ConfigError, match=r"others may read --alerts .*chmod 600"):
        read_alert_settings(str(tmp_path / "open.yaml"), {})


def test_the_token_comes_from_the_file_or_else_the_environment(read):
    assert read("webhook: http://h/", **{TOKEN_VARIABLE: "from-outside"}).webhook_token == "from-outside"
    assert read("webhook: http://h/\nwebhook_token: own", **{TOKEN_VARIABLE: "from-outside"}).webhook_token == "own"
    assert read("restarts: 2", **{TOKEN_VARIABLE: "from-outside"}).webhook_token is None


def test_neither_url_nor_token_is_printed(read):
    settings = read("webhook: https://h:8/hooks/s3cret?key=s3cret\nwebhook_token: s3cret")
    assert "s3cret" not in repr(settings) + settings.webhook_shown
    assert settings.webhook_shown == "https://h:8/•••"


def test_every_rule_has_a_severity():
    assert set(RULES.values()) == set(SEVERITIES)
