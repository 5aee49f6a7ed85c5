"""The file of `distrl dashboard --alerts FILE`: limits of the rules, rules that are off, and the webhook."""

from collections.abc import Mapping
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from distrl.apps.dashboard.severities import Severity
from distrl.config.document import parse_mapping, shown
from distrl.config.load import validated
from distrl.config.presets import nearest
from distrl.config.secrets import MASK, check_private
from distrl.config.section import Section
from distrl.errors import ConfigError
from distrl.files import read_small
from distrl.runs.reading import SILENT_FOR_S, STALLED_S

TOKEN_VARIABLE = "DISTRL_ALERTS_TOKEN"
OFF = "off"
RULES: Mapping[str, Severity] = {
    "failed": "bad",
    "non_finite": "bad",
    "gone": "bad",
    "damaged": "bad",
    "no_steps": "bad",
    "silent": "bad",
    "unreachable": "bad",
    "unsaved": "bad",
    "unstored": "warning",
    "restarts": "warning",
    "starved": "warning",
    "no_better_return": "warning",
    "solved": "info",
    "ended": "info",
}
"""Rule -> its severity."""


class AlertSettings(Section):
    """Limits of the rules, and where alerts are sent.

    Attributes:
        no_steps_s: Seconds without new environment steps; five times as many before the first ones.
        no_better_steps: Environment steps without a better mean return of 100 episodes; None: no such rule.
        silent_s: Seconds without a heartbeat of a role, or without an answer of the run's Redis.
        restarts: Number of restarts of roles that is not yet too many.
        starved_share, starved_s: Share of the learner's time spent waiting for unrolls, and for how many seconds.
        without: Rules that cause no alert.
        webhook: URL that every alert is posted to.
        webhook_token: Sent as `Authorization: Bearer …`; else that in the variable `DISTRL_ALERTS_TOKEN`, if any.
        webhook_from: Lowest severity that is posted.
    """

    no_steps_s: float = Field(STALLED_S, ge=10.0, le=1e7, allow_inf_nan=False)
    no_better_steps: int | None = Field(None, ge=1)
    silent_s: float = Field(SILENT_FOR_S, ge=5.0, le=1e7, allow_inf_nan=False)
    restarts: int = Field(3, ge=0)
    starved_share: float = Field(0.9, gt=0.0, le=1.0)
    starved_s: float = Field(60.0, ge=0.0, le=1e7, allow_inf_nan=False)
    without: tuple[str, ...] = ()
    webhook: str | None = Field(None, repr=False)
    webhook_token: str | None = Field(None, repr=False)
    webhook_from: Severity = "info"

    @field_validator("without")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name not in RULES:
                raise ValueError(f"no rule is called {shown(name)}; {nearest(name, [*RULES])}")
        return names

    @field_validator("webhook", "webhook_token", mode="before")
    @classmethod
    def _is_text(cls, value: object) -> object:
        if value is not None and not isinstance(value, str):
            raise ValueError(f"{MASK} is no text; write it in quotes")  # the value may be a secret
        return value

    @field_validator("webhook")
    @classmethod
    def _is_url(cls, url: str | None) -> str | None:
        if url is None:
            return None
        try:
            parts = urlsplit(url)
            port_is_valid = parts.port != 0
        except ValueError:
            port_is_valid, parts = False, urlsplit("")
        if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_valid:
            raise ValueError(f"{MASK} is no URL such as https://host/path; write one, or leave webhook out")
        if parts.username is not None or not (url.isascii() and url.isprintable()) or " " in url:
            raise ValueError(
                "the URL has a user, a password or a character that no URL has; use webhook_token for a token"
            )
        return url

    @field_validator("webhook_token")
    @classmethod
    def _is_header(cls, token: str | None) -> str | None:
        if token is not None and not (token and token.isascii() and token.isprintable()):
            raise ValueError("a token is printable ASCII characters")
        return token

    @model_validator(mode="after")
    def _token_has_use(self) -> Self:
        if self.webhook_token is not None and self.webhook is None:
            raise ValueError("webhook_token is given without webhook; add the URL that it is for")
        return self

    @property
    def webhook_shown(self) -> str:
        """The URL without its path, which may be a secret."""
        parts = urlsplit(self.webhook or "")
        return f"{parts.scheme}://{parts.netloc}/{MASK}" if len(parts.path) > 1 or parts.query else self.webhook or ""


def read_alert_settings(path: str, environment: Mapping[str, str]) -> AlertSettings | None:
    """Read the file; None: "off".

    Args:
        environment: Variables of the process, for the token.

    Raises:
        ConfigError: It cannot be read, has a wrong value, or has a webhook and others may read it.
    """
    if path == OFF:
        return None
    where = f"--alerts {path}"
    try:
        text = read_small(Path(path)).decode()
    except OSError as error:
        raise ConfigError(
            f"{where} cannot be read: {error.strerror}; name a YAML file, or write --alerts off"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{where} is not UTF-8 text; name a YAML file, or write --alerts off") from error
    tree = parse_mapping(text, where)
    if tree.get("webhook") is not None:
        check_private(path, "--alerts")
    settings = validated(AlertSettings, tree, dict.fromkeys(tree, where))
    token = environment.get(TOKEN_VARIABLE)
    if token and settings.webhook is not None and settings.webhook_token is None:
        return validated(AlertSettings, {**tree, "webhook_token": token}, {"webhook_token": TOKEN_VARIABLE})
    return settings
