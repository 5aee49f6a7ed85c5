import pytest

from distrl.config.secrets import masked, masked_text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("redis://:pw@host/0", "redis://•••@host/0"),
        ("rediss://me:p/w@host and unix:///run/a@b", "rediss://•••@host and unix://•••@b"),
        ("tcp://host:1?token=abc&size=4", "tcp://host:1?token=•••&size=4"),
        ("--set environment.kwargs.api_key=abc", "--set environment.kwargs.api_key=•••"),
        ("{password: abc, size: 4}", "{password: •••, size: 4}"),
        ("""{"Token": "a b", "size": 4}""", """{"Token": •••, "size": 4}"""),
        ("redis_password='a b' x", "redis_password=••• x"),
        ("AccountName=me;AccountKey=abc;x=y", "AccountName=me;AccountKey=•••;x=y"),
        ("DB_PASS=abc bypass=4", "DB_PASS=••• bypass=4"),
        ("length_tokens: 16", "length_tokens: 16"),
        ("the token was refused", "the token was refused"),
        ("a://b://c@d@e/f 'g://h' i@j", "a://•••@e/f 'g://h' i@j"),
        # Logs are masked whole: a pattern that tries each start anew takes hours for this one.
        ("://" * 2**20, "://" * 2**20),
    ],
)
def test_text(text, told):
    assert masked_text(text) == told


@pytest.mark.parametrize(
    ("dotted", "value", "told"),
    [
        ("memory.url", "redis://me:pw@host", "redis://•••@host"),
        ("environment.kwargs.api_key", "abc", "•••"),
        ("environment.kwargs.Password", 12, "•••"),
        ("environment.kwargs.token", None, None),
        ("environment.text.length_tokens", 16, 16),
        ("environment.kwargs.secrets", ["a", "b"], ["•••", "•••"]),
        ("environment.kwargs.token.value", "abc", "•••"),
        ("environment.kwargs.openaiApiKey", "abc", "•••"),
        ("environment.kwargs.access_key", "abc", "•••"),
        ("x.AZURE_STORAGE_ACCOUNT_KEY", "abc", "•••"),
        ("x.AZURE_STORAGE_CONNECTION_STRING", "AccountKey=abc", "•••"),
        *((f"x.{name}", "abc", "•••") for name in ("private_key", "hmac_key", "passphrase", "DB_PASS", "bearer")),
        *(
            (f"x.{name}", "abc", "abc")
            for name in (
                "key",
                "PWD",
                "observation_key",
                "sort_key",
                "monkey",
                "bypass",
                "compass",
                "key_file",
                "tokens",
            )
        ),
        ("environment.kwargs.urls", ["tcp://a:b@c", 3], ["tcp://•••@c", 3]),
        ("environment.kwargs.login", {"secret": "abc", "name": "me"}, {"secret": "•••", "name": "me"}),
        (
            "x.env",
            [{"name": "A_TOKEN", "value": "b"}, {"name": "A", "value": "b"}],
            [{"name": "A_TOKEN", "value": "•••"}, {"name": "A", "value": "b"}],
        ),
    ],
)
def test_values_by_their_names(dotted, value, told):
    assert masked(dotted, value) == told
