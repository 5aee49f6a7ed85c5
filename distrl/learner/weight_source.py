"""Weights that a new training may begin with: read from a checkpoint, an exported policy or a policy/ directory.

Weights are what a network's copies are made of, with the statistics that normalise observations. Optimizers, counters,
schedules, replay memories, the scale of rewards and numbers beside the networks (SAC's temperature) begin anew.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from distrl.config.stores import is_store_url
from distrl.data_store.checkpoints import LoadedCheckpoint, load, load_newest
from distrl.data_store.named_checkpoints import CheckpointName, parse
from distrl.errors import CheckpointError, ConfigError, DistrlError, require
from distrl.files import MOST_POLICY_BYTES, read_small
from distrl.learner.policy_files import env_steps_of
from distrl.memory_backend.codec import decode_weights
from distrl.networks.policy.exported_model import opened
from distrl.types import Array

if TYPE_CHECKING:  # it brings Keras, and the command line imports this module
    from distrl.algorithms.algorithm import Networks

UNKNOWN_ROWS = 100_000.0
"""Weight of a policy's statistics of observations, in rows, where its environment steps are not known."""
_ACTING = "main"
"""The network of which a policy is made."""
_MOST_LAYERS = 6
"""Most layers that a report lists by name."""


@dataclass(frozen=True)
class WeightSource:
    """Weights to begin with.

    Attributes:
        name: Names them to the user.
        weights: Network -> weight -> array.
        rows: Network -> input -> rows behind its statistics, where that is known for each input.
        policy_rows: Rows behind all others.
    """

    name: str
    weights: Mapping[str, Mapping[str, Array]]
    rows: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    policy_rows: float = UNKNOWN_ROWS

    def rows_behind(self, network: str, key: str) -> float:
        """Return the rows behind the statistics of one input of a network."""
        return self.rows.get(network, {}).get(key, self.policy_rows)


def settled_name(name: str) -> str:
    """Return a name of the same weights that names them also later, when the run has further checkpoints.

    Raises:
        ConfigError, CheckpointError: See `read_source`.
    """
    if is_store_url(name):
        raise ConfigError(f"{name} is in a data store: name a file made by distrl export {name} --output FILE.onnx")
    named = parse(name)
    if named.mark is None and not named.directory.is_dir():
        _require_exists(named.run)
        return name
    return str(CheckpointName(named.run, _loaded(named).step))


def read_source(name: str) -> WeightSource:
    """Read weights: a run (RUN, RUN@STEP, RUN@best), a checkpoint's directory, an exported policy, or a policy/.

    Raises:
        ConfigError: There is nothing of that name, or something else.
        CheckpointError: It is damaged.
        MissingExtraError: onnx, which reads exported policies, is not installed.
    """
    named = parse(name)
    path = named.run
    if named.mark is not None or named.directory.is_dir():
        return _of_checkpoint(name, _loaded(named))
    _require_exists(path)
    if path.is_file():
        return _of_export(path)
    if (path / "meta.json").is_file():
        return _of_checkpoint(name, load(path))
    if (path / "weights.msgpack").is_file():
        return _of_policy(path)
    raise ConfigError(
        f"{path} holds no weights: name a run with checkpoints, a checkpoint, a file of distrl export, or a policy/"
    )


def begin_with_named(networks: "Networks", name: str) -> str:
    """Set all copies of `networks` to the weights that `learner.init_from` names; return a line as `begin_with`.

    Raises:
        ConfigError: They cannot be read, none fits, or one has another shape.
    """
    try:
        return begin_with(networks, read_source(name))
    except DistrlError as error:
        raise ConfigError(f"learner.init_from: {error}") from error


def begin_with(networks: "Networks", source: WeightSource) -> str:
    """Set all copies of `networks` to the weights; return a line on what was taken and what was not.

    Raises:
        CheckpointError: No weight is taken, or one of the same name has another shape. Networks may have changed.
    """
    taken, new, unused = [], [], []
    frozen: list[str] = []
    for name, network in networks.items():
        given = source.weights.get(name, {})
        try:
            got = network.take(given, partial(source.rows_behind, name))
        except CheckpointError as error:
            raise CheckpointError(
                f"{source.name} has another network: {error}; configure the network as it was there, or begin without"
            ) from error
        here = network.online.weight_names
        taken += got
        frozen += network.online.frozen
        new += sorted(set(here) - set(got), key=here.index)
        unused += [each for each in given if each not in network.online.variables]
    unused += [each for name, given in source.weights.items() if name not in networks for each in given]
    if not taken:
        raise CheckpointError(
            f"{source.name} has no weight of the same name as this run: there {_layers(unused)}, here {_layers(new)}"
        )
    parts = [f"begins with the weights of {source.name}: took {len(taken)} of {len(taken) + len(new)}"]
    parts += [f"new: {_layers(new)}"] if new else []
    parts += [f"not used: {_layers(unused)}"] if unused else []
    if frozen:
        fresh = len(set(frozen) - set(taken))
        parts.append(f"frozen: {len(frozen)} weights" + (f", {fresh} of them new" if fresh else ""))
    return "; ".join(parts)


def _require_exists(path: Path) -> None:
    if not path.exists():
        raise ConfigError(f"{path} does not exist; name a run, a checkpoint or an exported policy")


def _loaded(named: CheckpointName) -> LoadedCheckpoint:
    """Load the checkpoint, for a run without a mark its newest valid one."""
    if named.mark is not None:
        return load(named.find())
    loaded = load_newest(named.directory)
    return load(named.find()) if loaded is None else loaded  # without any, `find` says so


def _of_checkpoint(name: str, loaded: LoadedCheckpoint) -> WeightSource:
    weights: dict[str, Mapping[str, Array]] = {}
    rows: dict[str, dict[str, float]] = {}
    for key, arrays in loaded.arrays.items():
        network, _, group = key.partition(".")
        if group == "online":
            weights[network] = arrays
        if group == "statistics":
            counts = {each.removesuffix("/count"): array for each, array in arrays.items() if each.endswith("/count")}
            rows[network] = {each: float(array) for each, array in counts.items()}
    return WeightSource(name, weights, rows)


def _of_export(path: Path) -> WeightSource:
    require("onnx", "onnx, which reads exported policies,", "cpu")
    from distrl.networks.policy import onnx_graph

    try:
        bundle, exported = opened(read_small(path, MOST_POLICY_BYTES))
        arrays = onnx_graph.embedded(bundle.graph, f"{_ACTING}/")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except DistrlError as error:
        raise CheckpointError(f"{path} is no policy that can be read: {error}") from error
    return WeightSource(str(path), {_ACTING: arrays}, policy_rows=_known_rows(exported.env_steps))


def _of_policy(directory: Path) -> WeightSource:
    path = directory / "weights.msgpack"
    try:
        weights = decode_weights(read_small(path, MOST_POLICY_BYTES))
    except (OSError, DistrlError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    steps = env_steps_of(directory.parent / "checkpoints", weights.version)
    return WeightSource(str(directory), {_ACTING: weights.arrays}, policy_rows=_known_rows(steps))


def _known_rows(env_steps: int | None) -> float:
    return UNKNOWN_ROWS if env_steps is None else float(env_steps)


def _layers(names: Sequence[str]) -> str:
    """Return the layers of weights, at most `_MOST_LAYERS` by name."""
    layers = list(dict.fromkeys(name.rpartition("/")[0] or name for name in names))
    more = f" and {len(layers) - _MOST_LAYERS} more" if len(layers) > _MOST_LAYERS else ""
    return f"{', '.join(layers[:_MOST_LAYERS])}{more}" if layers else "none"
