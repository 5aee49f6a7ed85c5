"""Specifications of TensorForce 0.3 as configurations: what has a counterpart is converted, the rest is named."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from distrl.config.document import parse_mapping
from distrl.errors import ConfigError
from distrl.files import read_given

ALGORITHMS: Mapping[str, Mapping[str, Any]] = {
    "ppo_agent": {"name": "ppo"},
    "trpo_agent": {"name": "trpo"},
    "vpg_agent": {"name": "vpg"},
    "dqn_agent": {"name": "dqn"},
    "ddqn_agent": {"name": "dqn", "double": True},
    "dqfd_agent": {"name": "dqfd"},
    "naf_agent": {"name": "naf"},
}
"""Type of an agent -> part of the section `algorithm`."""
OPTIMIZERS = {"adam": "Adam", "rmsprop": "RMSProp", "gradient_descent": "SGD", "adagrad": "Adagrad", "nadam": "Nadam"}
ALIKE = {
    "discount": "algorithm.discount",
    "entropy_regularization": "algorithm.entropy_weight",
    "likelihood_ratio_clipping": "algorithm.clip_range",
    "gae_lambda": "algorithm.gae_lambda",
    "target_update_weight": "algorithm.target_update_rate",
    "double_q_model": "algorithm.double",
}
"""Key -> setting that takes its value as it is."""
NUMBERS = {"float": "float32", "int": "int64"}

Settings = dict[str, Any]


class Converted(NamedTuple):
    """A specification as `distrl.Agent` takes it.

    Attributes:
        config: Part of the configuration, with the spaces.
        left: Keys that have no counterpart, or none that follows from their value.
    """

    config: dict[str, Any]
    left: tuple[str, ...]


def from_tensorforce(
    spec: Mapping[str, Any] | str | Path,
    states: Mapping[str, Any],
    actions: Mapping[str, Any],
    network: Sequence[Mapping[str, Any]] | None = None,
) -> Converted:
    """Convert an agent's specification.

        made = distrl.from_tensorforce(spec, states=…, actions=…, network=…)
        print("without a counterpart:", *made.left)
        agent = distrl.Agent(made.config)

    Args:
        spec: As `Agent.from_spec` of TensorForce 0.3 takes it: `type`, and the agent's arguments; or a JSON file.
        states: One specification, or a mapping of names to them: `type` bool, int or float; `shape`; of whole numbers
            `num_states`; of real ones both bounds or neither.
        actions: Likewise; whole numbers have `num_actions`.
        network: Its layers; None: `network` in `spec`, or the algorithm's own.

    Raises:
        ConfigError: The file cannot be read; the type of agent is unknown; or a state, an action or a number is not
            specified as it must be.
    """
    if not isinstance(spec, Mapping):
        spec = _read(Path(spec))
    kind = spec.get("type")
    if not isinstance(kind, str) or kind not in ALGORITHMS:
        raise ConfigError(f"TensorForce's agent {kind!r}: converted are {', '.join(ALGORITHMS)}")
    made: Settings = {f"algorithm.{name}": value for name, value in ALGORITHMS[kind].items()}
    made["actors.count"] = 0
    made["environment.spaces.observation_space"] = _space(states, "states", "num_states")
    made["environment.spaces.action_space"] = _space(actions, "actions", "num_actions")
    if kind == "trpo_agent":
        made["network.use_separate_networks_per_head"] = True
    left = []
    given = dict(spec) if network is None else {**spec, "network": network}
    rest = {key: value for key, value in given.items() if key not in _TOGETHER}
    for settings, keys in (_steps(given, str(ALGORITHMS[kind]["name"])), _synchronisation(given)):
        made |= settings
        left += keys
    for key, value in rest.items():
        converted = _converted(key, value, str(ALGORITHMS[kind]["name"]))
        if converted is None:
            left.append(key)
        else:
            made |= converted
    tree: dict[str, Any] = {"environment": {"id": "own-loop"}}
    for path, value in made.items():
        *sections, last = path.split(".")
        below = tree
        for section in sections:
            below = below.setdefault(section, {})
        below[last] = value
    return Converted(tree, tuple(left))


def _read(path: Path) -> dict[str, Any]:
    try:
        return parse_mapping(read_given(path).decode(), f"specification {path}")
    except OSError as error:
        raise ConfigError(f"specification {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"specification {path} is not UTF-8: {error}") from error


def _converted(key: str, value: Any, algorithm: str) -> Settings | None:
    """Return the settings that a key stands for; None: there are none."""
    if key == "type":
        return {}
    if key in ALIKE:
        name = ALIKE[key]
        return {name: value} if name.removeprefix("algorithm.") in _fields(algorithm) else None
    convert = _CONVERSIONS.get(key)
    return None if convert is None else convert(value, algorithm)


def _fields(algorithm: str) -> frozenset[str]:
    from distrl.config.algorithms import ALGORITHMS as SECTIONS  # here: its models take a third of a second

    return frozenset(SECTIONS[algorithm].model_fields)


def _optimizer(value: Any, algorithm: str) -> Settings | None:
    """Convert an optimizer, also the inner one of TensorForce's `multi_step`."""
    while isinstance(value, Mapping) and "optimizer" in value:
        value = value["optimizer"]
    if not isinstance(value, Mapping) or value.get("type") not in OPTIMIZERS:
        return None
    made: Settings = {"network.optimizer_type": OPTIMIZERS[value["type"]]}
    if "learning_rate" in value:
        made["network.learning_rate"] = value["learning_rate"]
    return made if value.keys() <= {"type", "learning_rate"} else None


def _network(value: Any, algorithm: str) -> Settings | None:
    """Convert dense layers that share an activation."""
    layers: Sequence[Any] = value if isinstance(value, Sequence) and not isinstance(value, str) else [None]
    known = {"type", "size"}, {"type", "size", "activation"}
    if not all(isinstance(layer, Mapping) and layer.keys() in known for layer in layers):
        return None
    activations = {layer.get("activation", "tanh") for layer in layers}  # TensorForce's default
    if {layer.get("type") for layer in layers} != {"dense"} or len(activations) != 1:
        return None
    return {
        "network.middleware_parameters.scheme": [layer["size"] for layer in layers],
        "network.middleware_parameters.activation": activations.pop(),
    }


_TOGETHER = frozenset({"optimization_steps", "subsampling_fraction", "target_sync_frequency"})
"""Keys whose meaning depends on others."""


def _steps(spec: Mapping[str, Any], algorithm: str) -> tuple[Settings, list[str]]:
    """Convert steps of the optimizer, each on a part of the batch: epochs times minibatches are about as many."""
    given = [key for key in ("optimization_steps", "subsampling_fraction") if key in spec]
    if not given or not {"epochs", "minibatches"} <= _fields(algorithm):
        return {}, given
    fraction, steps = positive(spec, "subsampling_fraction", 1.0), positive(spec, "optimization_steps", 1)
    minibatches = max(round(1.0 / fraction), 1)
    epochs = max(round(steps / minibatches), 1)
    return {"algorithm.minibatches": minibatches, "algorithm.epochs": epochs}, []


def _synchronisation(spec: Mapping[str, Any]) -> tuple[Settings, list[str]]:
    """Convert time steps between two moves of the target network to updates, if updates come by time steps."""
    if "target_sync_frequency" not in spec:
        return {}, []
    mode = spec.get("update_mode")
    if not isinstance(mode, Mapping) or mode.get("unit") != "timesteps":
        return {}, ["target_sync_frequency"]
    every = positive(mode, "frequency", positive(mode, "batch_size", 1))
    updates = max(round(positive(spec, "target_sync_frequency", 1) / every), 1)
    return {"algorithm.target_update_every_updates": updates}, []


def positive(spec: Mapping[str, Any], key: str, otherwise: float) -> float:
    """Return a number of a specification; raise ConfigError if it is none, or not above 0."""
    value = spec.get(key, otherwise)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise ConfigError(f"{key}: {value!r} must be a number above 0")
    return value


def _memory(value: Any, algorithm: str) -> Settings | None:
    if "replay" not in _fields(algorithm) or not isinstance(value, Mapping):
        return {} if isinstance(value, Mapping) and value.get("type") == "latest" else None
    if value.get("type") not in ("replay", "prioritized_replay") or not value.keys() <= _OF_MEMORY:
        return None
    made: Settings = {"algorithm.replay.capacity_steps": value.get("capacity", 100_000)}
    if value["type"] == "prioritized_replay":
        made["algorithm.replay.sampler"] = {"kind": "prioritized"}
    return made


_OF_MEMORY = frozenset({"type", "capacity", "include_next_states"})


def _update_mode(value: Any, algorithm: str) -> Settings | None:
    """Convert updates by time steps; episodes are of unknown length."""
    if not isinstance(value, Mapping) or value.get("unit") != "timesteps" or "batch_size" not in value:
        return None
    batch = positive(value, "batch_size", 1)
    frequency = positive(value, "frequency", batch)
    if "replay" in _fields(algorithm):
        return {
            "learner.batch_size": batch,
            "actors.unroll_length_steps": frequency,
            "algorithm.replay.samples_per_insert": batch / frequency,
        }
    if frequency != batch:
        return None
    return {"learner.batch_size": 1, "actors.unroll_length_steps": batch, "actors.environments": 1}


def _exploration(value: Any, algorithm: str) -> Settings | None:
    if not isinstance(value, Mapping) or value.get("type") != "epsilon_decay" or "replay" not in _fields(algorithm):
        return None
    schedule = {
        "kind": "linear",
        "start": value.get("initial_epsilon", 1.0),
        "end": value.get("final_epsilon", 0.1),
        "steps": value.get("timesteps", 10_000),
    }
    return {"exploration": {"kind": "epsilon_greedy", "epsilon": schedule}}


_CONVERSIONS: Mapping[str, Callable[[Any, str], Settings | None]] = {
    "optimizer": _optimizer,
    "step_optimizer": _optimizer,
    "network": _network,
    "memory": _memory,
    "update_mode": _update_mode,
    "actions_exploration": _exploration,
}


def _space(spec: Mapping[str, Any], where: str, count: str) -> dict[str, Any]:
    """Return the description of the space of one specification, or of a mapping of them."""
    if not isinstance(spec, Mapping) or not spec:
        raise ConfigError(f"{where}: {spec!r} is no specification; give a mapping with type and shape")
    if "type" not in spec or isinstance(spec["type"], Mapping):
        return {"type": "Dict", "spaces": {name: _space(one, f"{where}.{name}", count) for name, one in spec.items()}}
    kind, given = spec["type"], spec.get("shape", ())
    shape = [given] if isinstance(given, int) else [*given]
    if kind == "bool":
        return {"type": "MultiBinary", "shape": shape} if shape else {"type": "Discrete", "n": 2}
    if kind == "int" and count in spec:
        if not shape:
            return {"type": "Discrete", "n": spec[count]}
        return {"type": "MultiDiscrete", "nvec": _filled(shape, spec[count])}
    if kind == "int" and count == "num_actions":
        raise ConfigError(f"{where}: whole numbers need num_actions, how many there are to choose from")
    if kind not in NUMBERS:
        raise ConfigError(f"{where}: type {kind!r} is none of bool, int, float")
    bounds = {"low": spec.get("min_value"), "high": spec.get("max_value")}
    if [*bounds.values()].count(None) == 1:
        raise ConfigError(f"{where}: real numbers have both min_value and max_value, or neither")
    return {"type": "Box", "shape": shape, "dtype": NUMBERS[kind], **bounds}


def _filled(shape: Sequence[int], number: int) -> Any:
    """Return nested lists of this shape, of one number."""
    return [_filled(shape[1:], number) for _ in range(shape[0])] if shape else number
