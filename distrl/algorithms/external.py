"""Users' algorithms: classes in their own files, selected by package.module:Class."""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

from pydantic import create_model

from distrl.algorithms.algorithm import Algorithm, GradientAlgorithm, MemorySpec
from distrl.config import RunConfig
from distrl.config.algorithms import AlgorithmSection, Declared, ExternalAlgorithmParameters
from distrl.config.heads import HeadSection
from distrl.config.load import LoadedConfig, validated
from distrl.config.replay import ReplayParameters
from distrl.config.section import Section
from distrl.errors import ConfigError, DistrlError
from distrl.user_classes import own_class


def external_class(name: str) -> type[Algorithm]:
    """Import the class that `algorithm.name` names.

    Raises:
        ConfigError: It cannot be imported, is no `Algorithm`, lacks a method, or its `Parameters` are no
            `AlgorithmSection` or have a parameter with a reserved name.
    """
    class_ = own_class(name, "algorithm")
    if not (isinstance(class_, type) and issubclass(class_, Algorithm)):
        raise ConfigError(f"algorithm {name} is no distrl.algorithms.algorithm:Algorithm or GradientAlgorithm")
    if inspect.isabstract(class_):
        missing = ", ".join(sorted(class_.__abstractmethods__))
        raise ConfigError(f"algorithm {name} lacks {missing}, which every algorithm of its kind has")
    parameters = class_.Parameters
    if not (isinstance(parameters, type) and issubclass(parameters, AlgorithmSection)):
        raise ConfigError(f"algorithm {name}: Parameters is no distrl.config.algorithms:AlgorithmSection")
    if "declared" in parameters.model_fields:
        raise ConfigError(
            f"algorithm {name}: Parameters.declared is the name of what classes declare; take another one"
        )
    return class_


def tried_out(loaded: LoadedConfig) -> ExternalAlgorithmParameters:
    """Make and check an instance of the class that `algorithm.name` names; return its `effective_section`.

    Raises:
        ConfigError: Something is wrong with the class, or its code raises an error; the message is one line.
    """
    name = loaded.config.algorithm.name
    with _in_one_line(name):
        class_ = external_class(name)
        section = effective_section(loaded, class_)
        config = loaded.with_algorithm(section.model_dump(mode="json"), {}).config
        _check_instance(class_(with_own_parameters(config, class_)), config)
    return section


def with_own_parameters(config: RunConfig, class_: type[Algorithm]) -> RunConfig:
    """Return the configuration for the class: `algorithm` is an instance of its `Parameters`."""
    return config.model_copy(update={"algorithm": _parameters(LoadedConfig(config, {}), class_)})


def effective_section(loaded: LoadedConfig, class_: type[Algorithm]) -> ExternalAlgorithmParameters:
    """Return the section `algorithm` with the defaults of the class' parameters and with its declarations.

    Raises:
        ConfigError: A key is unknown, a value is wrong or cannot be serialised, or a declaration is invalid; the
            message is one line.
    """
    parameters = _parameters(loaded, class_)
    name, written = parameters.name, parameters.model_dump(mode="json")
    again = type(parameters).model_validate(written)
    for key in type(parameters).model_fields:
        if getattr(again, key) != getattr(parameters, key):
            raise ConfigError(
                f"algorithm {name}: parameter {key}, {type(getattr(parameters, key)).__name__}, is another one when it "
                "is read back from a run's config.yaml; declare it as plain data, and read secrets from the environment"
            )
    said = {
        "ships": parameters.ships,
        "rounds": parameters.rounds,
        "batch_size": parameters.batch_size,
        "exploration": parameters.exploration,
        "replay": parameters.replay_parameters,
        "learns_from": parameters.learns_from,
        "tells_priorities": parameters.tells_priorities,
    }
    try:
        declared = validated(Declared, said, dict.fromkeys(said, "its Parameters"))
    except ConfigError as error:
        raise ConfigError(f"algorithm {name}: {error}") from error.__cause__
    return ExternalAlgorithmParameters(**written, declared=declared)


def _parameters(loaded: LoadedConfig, class_: type[Algorithm]) -> AlgorithmSection:
    # Under the section's name, so that messages have the whole path.
    root = create_model("root", __base__=Section, algorithm=(class_.Parameters, ...))
    given = loaded.config.algorithm.model_dump(mode="json", exclude={"declared"}, exclude_unset=True)
    section: AlgorithmSection = validated(root, {"algorithm": given}, loaded.given).algorithm  # type: ignore[attr-defined]
    return section


@contextmanager
def _in_one_line(name: str) -> Iterator[None]:
    """Turn any error of the user's code into a ConfigError that names the class and the cause."""
    try:
        yield
    except DistrlError:
        raise
    except Exception as error:
        raise ConfigError(f"algorithm {name}: {type(error).__name__}: {' '.join(str(error).split())}") from error


def _check_instance(algorithm: Algorithm, config: RunConfig) -> None:
    """Refuse an instance that the learner could not use, or whose memory differs from the section's declarations."""
    name = config.algorithm.name
    if isinstance(algorithm, GradientAlgorithm):
        heads = getattr(algorithm, "heads", ())
        if not (isinstance(heads, Sequence) and heads and all(isinstance(head, HeadSection) for head in heads)):
            raise ConfigError(
                f"algorithm {name} has no heads; every GradientAlgorithm has, "
                "for example heads = (PolicyHeadParameters(), ValueHeadParameters()) of distrl.config.heads"
            )
    found, said = algorithm.memory, MemorySpec.of(config)
    for field in (field.name for field in fields(MemorySpec)):
        of_class, of_section = (_plain(getattr(memory, field)) for memory in (found, said))
        if of_class != of_section:
            raise ConfigError(
                f"algorithm {name}: memory has {field} {of_class!r}, its Parameters and the configuration say "
                f"{of_section!r}; declare it there, and take MemorySpec.of(config)"
            )


def _plain(value: Any) -> Any:
    """Return the replay memory's settings without those of a user's subclass, or another value unchanged."""
    if isinstance(value, ReplayParameters):
        return value.model_dump(mode="json", include=set(ReplayParameters.model_fields))
    return value
