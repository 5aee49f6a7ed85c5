"""The first phase of a training: refuse what cannot work before a directory is made or a process is started."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from distrl.config import RunConfig
from distrl.config.action_masks import unused_mask_note
from distrl.config.load import LoadedConfig
from distrl.config.memory import MemoryConfig
from distrl.environments.probe import probe
from distrl.errors import ConfigError, require
from distrl.launch.earlier_launch import wait_for_room
from distrl.launch.external_algorithm import settled
from distrl.launch.external_network import check_own_layers
from distrl.launch.ray_cluster import check_cluster
from distrl.launch.recorded_data import check_off_policy, check_recording, fitted
from distrl.memory_backend.compression import require_library
from distrl.memory_backend.embedded_redis import find_server
from distrl.memory_backend.keys import with_namespace
from distrl.memory_backend.listening import find_port
from distrl.memory_backend.tls import with_files
from distrl.networks.parts.schemes import check_windows
from distrl.observers.observer import Observer
from distrl.roles.framework import require_framework
from distrl.roles.plan import check_queue, oversubscription_warning, publication_note, replay_note
from distrl.shadows import require_no_shadow
from distrl.types import EnvSpec


@dataclass(frozen=True)
class Checked:
    """A configuration that may be launched, with the environment's spec and notes for the user."""

    loaded: LoadedConfig
    spec: EnvSpec
    notes: tuple[str, ...]


def check(
    loaded: LoadedConfig,
    run_dir: Path,
    run_id: str,
    report: Callable[[str], None],
    observers: Sequence[type[Observer]],
    *,
    new: bool,
) -> Checked:
    """Check everything that can be known before the launch, the cheapest first.

    Args:
        report: Takes lines on waits.
        new: Whether a run begins.
    """
    require_no_shadow()
    loaded = settled(loaded)
    config = loaded.config
    require_framework(config.learner.backend)
    for observer in observers:
        observer.check(config)
    _check_launchable(config, run_dir, run_id, report)
    making_s = config.making_timeout_s
    mask, filmed = config.network.action_mask, config.evaluation.films.used
    spec = probe(config.environment, action_mask=mask, making_s=making_s, filmed=filmed, report=report)
    sized, data_note = fitted(config, spec)
    config.algorithm.check_actions(spec)
    if (replay := config.algorithm.replay_parameters) is not None:
        replay.check_spec(spec)
    check_windows(config.network, spec)
    check_own_layers(config, spec, report)
    check_queue(config, spec)
    _check_other_environments(config, spec, report)
    check_recording(config, spec, new=new)
    check_off_policy(config, spec)
    notes = (
        data_note,
        oversubscription_warning(config),
        replay_note(sized, spec),
        publication_note(sized, spec),
        unused_mask_note(config, spec),
    )
    return Checked(loaded, spec, tuple(filter(None, notes)))


def _check_other_environments(config: RunConfig, spec: EnvSpec, report: Callable[[str], None]) -> None:
    """Try the other environments of evaluations, unless this host has none; then the evaluator's host checks them."""
    if config.environment.spec_file is not None:
        return
    for name, environment in config.other_environments.items():
        try:
            mask, making_s = config.network.action_mask, config.making_timeout_s
            other = probe(environment, action_mask=mask, making_s=making_s, report=report)
        except ConfigError as error:
            error.args = (f"evaluation.other_environments.{name}: {error}",)  # its notes stay
            raise
        config.evaluation.check_spaces(name, spec, other)


def _check_launchable(config: RunConfig, run_dir: Path, run_id: str, report: Callable[[str], None]) -> None:
    """Check extras, Redis, whether all roles can reach it, whether the run's id is free there, and a Ray cluster."""
    if config.evaluation.films.used:
        require("cv2", "OpenCV, which writes the films of evaluation.films,", "video")
    if config.deterministic:
        return
    require_library(config.memory.compression)
    if config.launch.launcher == "ray":
        require("ray", "Ray", "ray")
    if config.launch.ray_address is not None and not config.memory.reachable:
        raise ConfigError(
            f"launch.ray_address {config.launch.ray_address}: roles on other hosts cannot reach an embedded Redis; "
            "name one that they can with --redis-url, or let this one listen for them: --set memory.listen=auto"
        )
    if config.memory.url is None:
        find_server()
        if config.memory.listen is not None:
            find_port(config.memory.listen)
    else:
        url = run_url(config.memory.url, config.memory)
        wait_for_room(url, run_id, str(run_dir.resolve()), config.launch.wait_s, report)
    if config.launch.ray_address is not None:
        check_cluster(config)


def run_url(url: str, memory: MemoryConfig) -> str:
    """Return the URL by which roles and operators reach the run: with its namespace and the files of TLS."""
    return with_files(with_namespace(url, memory.namespace), memory.tls)
