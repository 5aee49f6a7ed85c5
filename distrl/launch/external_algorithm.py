"""Try a class of the user's own in a child process: what it declares, and whether its parameters are right.

The command line and the actors import no numeric framework, and the class does. Before anything is launched, a child
imports it, checks the section `algorithm` against the class' `Parameters`, makes an instance, and answers with the
whole section: every key, and what all roles must know of the class (`config/algorithms/external.py`).
"""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from distrl.child import Parent, answer_of
from distrl.config import RunConfig
from distrl.config.algorithms import ExternalAlgorithmParameters
from distrl.config.load import LoadedConfig
from distrl.errors import ConfigError
from distrl.roles.framework import import_framework, require_framework

_TIMEOUT_S = 300.0  # nearly all of what it takes is the framework's import


def settled(loaded: LoadedConfig, *, timeout_s: float = _TIMEOUT_S) -> LoadedConfig:
    """Return the configuration with all that a class of the user's own declares; any other one as it is.

    Raises:
        ConfigError: In one line: the class cannot be imported or is no algorithm, a key is unknown, a value is wrong,
            `algorithm.declared` is not what the class says, or the configuration does not go with it.
        MissingExtraError: The framework is not installed.
    """
    given = loaded.config.algorithm
    if not isinstance(given, ExternalAlgorithmParameters):
        return loaded
    require_framework(loaded.config.learner.backend)
    section = ExternalAlgorithmParameters.model_validate(_ask(loaded, given.name, timeout_s))
    told = set() if given.declared is None else given.declared.model_fields_set  # an earlier version knew fewer
    if any(getattr(given.declared, name) != getattr(section.declared, name) for name in told):
        raise ConfigError(
            f"algorithm.declared is not what {given.name} says of itself: "
            f"{section.declared!r}; leave algorithm.declared out"
        )
    declared = dict.fromkeys(_below("algorithm.declared", section.model_dump(mode="json")["declared"]), given.name)
    return loaded.with_algorithm(section.model_dump(mode="json"), declared)


def _below(path: str, value: Any) -> Iterable[str]:
    """Dotted paths of the values of a tree."""
    if not (isinstance(value, dict) and value):
        return [path]
    return [leaf for key, inner in value.items() for leaf in _below(f"{path}.{key}", inner)]


def _ask(loaded: LoadedConfig, name: str, timeout_s: float) -> Any:
    """Return the section as the child answers it."""
    config = loaded.config.model_dump(mode="json", exclude_unset=True, include={*RunConfig.model_fields})
    request = {"config": config, "origins": loaded.origins}
    function = "distrl.launch.external_algorithm:try_out"
    return answer_of(function, request, f"algorithm {name}", timeout_s)["algorithm"]


def try_out(request: Mapping[str, Any], parent: Parent) -> None:
    """Import the class and report its section; runs in the child."""
    loaded = LoadedConfig(RunConfig.model_validate(request["config"]), request["origins"])
    import_framework(loaded.config.learner.backend)
    from distrl.algorithms.selection import tried_out  # here: the parent is the command line, which has no Keras

    try:
        section = tried_out(loaded)
    except ConfigError as error:
        if isinstance(error.__cause__, ValidationError):  # its traceback adds nothing to the line
            error.__cause__ = None
        raise
    parent.say(algorithm=section.model_dump(mode="json"))
