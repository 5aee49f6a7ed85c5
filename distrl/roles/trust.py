"""Trust in a run's description: the key that signs it, and the code that it may name without one.

The description names classes (environment, algorithm, layers) that roles import, and every client of Redis can rewrite
it. The supervisor signs it with a random key, which is never in Redis: roles get it by `DISTRL_RUN_KEY`, and operators
find it in the run directory, in `run.key`.
"""

import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from distrl.config import RunConfig
from distrl.config.algorithms import ExternalAlgorithmParameters
from distrl.config.secrets import read_secret
from distrl.errors import ConfigError, RunKeyError
from distrl.role_kinds import KINDS

KEY_VARIABLE = "DISTRL_RUN_KEY"
KEY_FILE_VARIABLE = "DISTRL_RUN_KEY_FILE"
KEY_FILE = "run.key"
_KEY = re.compile(r"[0-9a-f]{64}")
_PURPOSE = b"distrl: description of a run\n"
_IMPORTS_BY_KWARGS = ("GymV21Environment", "GymV26Environment")
"""Ids of gymnasium that import the module which their kwargs name."""


def new_key() -> str:
    """Return a random key, 64 hexadecimal digits."""
    return secrets.token_hex(32)


def signature(key: str, description: str) -> str:
    """Return the HMAC-SHA256 of the description's text, in hexadecimal digits."""
    return hmac.new(bytes.fromhex(key), _PURPOSE + description.encode(), hashlib.sha256).hexdigest()


def given_key(environment: Mapping[str, str] | None = None) -> str | None:
    """Return the run's key from `DISTRL_RUN_KEY` or from the file that `DISTRL_RUN_KEY_FILE` names; else None.

    Raises:
        RunKeyError: There is one and it is not 64 hexadecimal digits, or the file cannot be read.
    """
    variables = os.environ if environment is None else environment
    if key := variables.get(KEY_VARIABLE, "").strip():
        return _checked(key, KEY_VARIABLE)
    if not (path := variables.get(KEY_FILE_VARIABLE, "")):
        return None
    return key_in(path, KEY_FILE_VARIABLE)


def key_in(path: str, where: str) -> str:
    """Return the key in a file.

    Args:
        where: Name of the file, or of the setting that names it, for errors.

    Raises:
        RunKeyError: It is not 64 hexadecimal digits, or the file cannot be read.
    """
    try:
        key = read_secret(path, where)
    except ConfigError as error:
        raise RunKeyError(str(error)) from error
    return _checked(key, f"{where} {path}")


def key_may_change(environment: Mapping[str, str] | None = None) -> bool:
    """Return whether `given_key` reads a file, which may be written or replaced while this process waits."""
    variables = os.environ if environment is None else environment
    return bool(variables.get(KEY_FILE_VARIABLE)) and not variables.get(KEY_VARIABLE, "").strip()


def _checked(key: str, where: str) -> str:
    if not _KEY.fullmatch(key):
        raise RunKeyError(f"{where} is no run key; copy the 64 hexadecimal digits in {KEY_FILE} of the run directory")
    return key


@dataclass(frozen=True)
class Trust:
    """The rules by which a role believes the description that it reads from Redis.

    Attributes:
        key: The run's key; None: signatures cannot be checked, and the role imports no code but what `allowed` names.
        allowed: Names of code that the operator allows, as the configuration writes them: package.module:Class.
    """

    key: str | None = field(default=None, repr=False)
    allowed: frozenset[str] = frozenset()

    def check_signature(self, run_id: str, description: str, signed: str | None) -> None:
        """Check the signature of the description's text, before the text is parsed; without a key nothing is checked.

        Raises:
            RunKeyError: The signature is missing or wrong.
        """
        if self.key is None:
            return
        if hmac.compare_digest(signature(self.key, description).encode(), (signed or "").encode()):
            return
        what = "is not signed" if not signed else "does not have its signature"
        raise RunKeyError(
            f"the description of run {run_id} in Redis {what}: a client of Redis has rewritten it, or {KEY_VARIABLE} "
            "is the key of another run or launch: copy run.key again; nothing of it was used"
        )

    def check_code(self, run_id: str, config: RunConfig, role: str) -> None:
        """Without a key, refuse a kind of role that needs one, and code that the operator has not named.

        Raises:
            ConfigError: There is no key, and the role needs it or the description names such code.
        """
        if self.key is not None:
            return
        get_it = f"set {KEY_VARIABLE} to what {KEY_FILE} in the run directory holds"
        if KINDS[role].needs_key:
            raise ConfigError(
                f"a {role} of run {run_id} needs the run's key; {get_it}, or {KEY_FILE_VARIABLE} to its path"
            )
        for place, name in code_named(config, role):
            if name not in self.allowed:
                raise ConfigError(
                    f"run {run_id} names code, {place}: {name}, which may be forged: there is no key to check it by; "
                    f"{get_it}, or add --allow {name}"
                )


def code_named(config: RunConfig, role: str) -> Iterator[tuple[str, str]]:
    """Yield (path in the configuration, name) of all code beyond distrl and gymnasium that a role would import.

    The address of a remote environment counts, too: the role would connect to it.
    """
    environments = {"environment.id": config.environment.id}
    if role == "evaluator":
        others = config.other_environments.items()
        environments |= {f"evaluation.other_environments.{name}.id": other.id for name, other in others}
    for place, environment in environments.items():
        if ":" in environment or environment.startswith(_IMPORTS_BY_KWARGS):
            yield place, environment
    if role == "evaluator" or (role == "actor" and config.algorithm.ships == "unrolls"):
        return  # they build no network
    if isinstance(config.algorithm, ExternalAlgorithmParameters):
        yield "algorithm.name", config.algorithm.name
    for section in ("network", "algorithm"):
        yield from _layers(section, getattr(config, section).model_dump(mode="json"))


def _layers(path: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield (path, name) of each class that a network names, and of functions of rewards."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ("layer", "model", "function") and isinstance(inner, str) and ":" in inner:
                yield f"{path}.{key}", inner
            else:
                yield from _layers(f"{path}.{key}", inner)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _layers(f"{path}.{number}", inner)
