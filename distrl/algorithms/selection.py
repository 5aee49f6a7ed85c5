"""From a configuration to its algorithm: a built-in one, or a class of the user's own, named package.module:Class."""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from pydantic import create_model

from distrl.algorithms.algorithm import Algorithm, GradientAlgorithm, Networks
from distrl.algorithms.curiosity import Curious
from distrl.config import RunConfig
from distrl.config.algorithms import AlgorithmContext, AlgorithmSection, Declared, ExternalAlgorithmParameters
from distrl.config.algorithms.external import BOUNDS, EARLIER_EXTRAS
from distrl.config.heads import HeadSection
from distrl.config.load import LoadedConfig, validated
from distrl.config.section import Section
from distrl.errors import ConfigError, DistrlError
from distrl.networks.framework.backend import building
from distrl.networks.framework.out_of_memory import no_room
from distrl.networks.freezing import require_matches
from distrl.types import EnvSpec
from distrl.unroll_schema import step_extras
from distrl.user_classes import own_class


def make_algorithm(config: RunConfig) -> Algorithm:
    """Make the algorithm that `config.algorithm.name` selects, with curiosity if the section has it.

    Raises:
        ConfigError: It is a class of the user's own that cannot be imported, or is no `Algorithm`.
    """
    algorithm = algorithm_class(config.algorithm)(context_of(config))
    curiosity = config.algorithm.curiosity
    return algorithm if curiosity is None else Curious(algorithm, curiosity)


def built(algorithm: Algorithm, spec: EnvSpec) -> Networks:
    """Build the networks of an algorithm.

    Raises:
        ConfigError: See `Algorithm.build`; also if a pattern of `network.frozen` matches no weight of them, or if
            there is no memory for them.
    """
    try:
        with building():
            networks = algorithm.build(spec)
    except Exception as error:
        if (refusal := no_room(str(error))) is None:
            raise
        raise refusal from error
    copies = [network.online for network in networks.values() if network.online.parameters.frozen]
    require_matches(
        algorithm.context.network.frozen,
        [name for copy in copies for name in copy.frozen],
        [name for copy in copies for name in copy.weight_names],
        [name for copy in copies for name in copy.numbers],
    )
    return networks


def algorithm_class(section: AlgorithmSection) -> type[Algorithm]:
    """Return the class that a section `algorithm` selects."""
    if isinstance(section, ExternalAlgorithmParameters):
        return external_class(section.name)
    module, _, name = section.implementation.partition(":")
    class_: type[Algorithm] = getattr(import_module(module), name)
    return class_


def context_of(config: RunConfig) -> AlgorithmContext:
    """Return all that the algorithm may know of the run; `parameters` is an instance of its class' `Parameters`."""
    context, section = config.algorithm_context, config.algorithm
    if not isinstance(section, ExternalAlgorithmParameters):
        return context
    return replace(context, parameters=_own_parameters(LoadedConfig(config, {}), external_class(section.name)))


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
    for earlier, extra in EARLIER_EXTRAS.items():
        if hasattr(parameters, earlier):
            instead = f"name {extra!r} in unroll_extras instead" if getattr(parameters, earlier) else "leave it out"
            raise ConfigError(f"algorithm {name}: Parameters.{earlier}: {instead}")
    _refuse_misspelt(name, class_)
    _refuse_misspelt(name, parameters)
    return class_


def _of_distrl(class_: type[Any]) -> type[Any]:
    """Return the nearest base that is distrl's own."""
    return next(base for base in class_.__mro__ if base.__module__.startswith("distrl."))


def _refuse_misspelt(name: str, class_: type[Any]) -> None:
    """Refuse a method that is nearly called like one of distrl's: it replaces nothing, and nothing else would tell."""
    base = _of_distrl(class_)
    known = [method for method in dir(base) if not method.startswith("_")]
    for method in sorted(name for name in {*dir(class_)}.difference(dir(base)) if not name.startswith("_")):
        close = get_close_matches(method, known, n=1, cutoff=0.85)
        if close and inspect.isfunction(getattr(class_, method, None)):
            raise ConfigError(
                f"algorithm {name}: {base.__name__} has no method {method} that could be replaced; did you mean "
                f"{close[0]}? Begin the name of a method of your own with _"
            )


def tried_out(loaded: LoadedConfig) -> ExternalAlgorithmParameters:
    """Make and check an instance of the class that `algorithm.name` names; return its `effective_section`.

    Raises:
        ConfigError: Something is wrong with the class, or its code raises an error; the message is one line.
    """
    name = loaded.config.algorithm.name
    with _in_one_line(name):
        section = effective_section(loaded, external_class(name))
        config = loaded.with_algorithm(section.model_dump(mode="json"), {}).config
        algorithm = algorithm_class(section)(context_of(config))
        for check in (_of_distrl(type(algorithm.parameters)).check, type(algorithm.parameters).check):
            check(algorithm.parameters, algorithm.context)  # the first, where the second lacks super().check
        if isinstance(algorithm, GradientAlgorithm):
            _check_heads(name, algorithm.heads)
    return section


def effective_section(loaded: LoadedConfig, class_: type[Algorithm]) -> ExternalAlgorithmParameters:
    """Return the section `algorithm` with the defaults of the class' parameters and with its declarations.

    Raises:
        ConfigError: A key is unknown, a value is wrong or cannot be serialised, or a declaration is invalid; the
            message is one line.
    """
    parameters = _own_parameters(loaded, class_)
    name, written = parameters.name, parameters.model_dump(mode="json")
    again = type(parameters).model_validate(written)
    for key in type(parameters).model_fields:
        if getattr(again, key) != getattr(parameters, key):
            raise ConfigError(
                f"algorithm {name}: parameter {key}, {type(getattr(parameters, key)).__name__}, is another one when it "
                "is read back from a run's config.yaml; declare it as plain data, and read secrets from the environment"
            )
    said = {name: getattr(parameters, name, None) for name in Declared.model_fields}
    said |= {"replay": parameters.replay_parameters, "live": _live_numbers(parameters)}
    try:
        declared = validated(Declared, said, dict.fromkeys(said, "its Parameters"))
        step_extras(declared.unroll_extras)
    except ConfigError as error:
        raise ConfigError(f"algorithm {name}: {error}") from error.__cause__
    return ExternalAlgorithmParameters(**written, declared=declared)


def _live_numbers(parameters: AlgorithmSection) -> dict[str, dict[str, object]]:
    """Return `parameters.live` with the bounds of its fields, which roles that do not import the class check."""
    kind, found = type(parameters), {}
    decorated = {field for each in kind.__pydantic_decorators__.field_validators.values() for field in each.info.fields}
    for name, meaning in parameters.live.items():
        field = kind.model_fields.get(name)
        bounds = [each for each in (field.metadata if field else ()) for bound in BOUNDS if hasattr(each, bound)]
        if field is None or field.annotation is not float or len(bounds) < len(field.metadata) or name in decorated:
            raise ConfigError(
                f"algorithm {parameters.name}: Parameters.live names {name}, which is no field of type float with ge, "
                "gt, le and lt alone; other rules cannot be checked while a run trains"
            )
        given = {bound: getattr(each, bound) for each in bounds for bound in BOUNDS if hasattr(each, bound)}
        found[name] = {"meaning": meaning, **given}
    return found


def _own_parameters(loaded: LoadedConfig, class_: type[Algorithm]) -> AlgorithmSection:
    own = class_.Parameters
    if own.model_fields["name"].annotation is not str:  # those of a built-in class take its own name alone
        own = create_model(own.__name__, __base__=own, name=(str, ...))
    # Under the section's name, so that messages have the whole path.
    root = create_model("root", __base__=Section, algorithm=(own, ...))
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


def _check_heads(name: str, heads: object) -> None:
    if not (isinstance(heads, Sequence) and heads and all(isinstance(head, HeadSection) for head in heads)):
        raise ConfigError(
            f"algorithm {name} has no heads; every GradientAlgorithm has, "
            "for example heads = (PolicyHeadParameters(), ValueHeadParameters()) of distrl.config.heads"
        )
