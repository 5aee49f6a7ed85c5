"""Check the weights that a new training begins with, in a child process, before anything is made or launched.

Only a numeric framework knows the network's weights, and the command line imports none.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from distrl.child import Child, Parent, ending, to_stderr, with_detail
from distrl.config import RunConfig
from distrl.config.load import LoadedConfig, load
from distrl.data_store.checkpoints import newest_first
from distrl.data_store.named_checkpoints import parse
from distrl.errors import ConfigError, DistrlError
from distrl.launch.checks import Checked
from distrl.learner.weight_source import settled_name
from distrl.roles.framework import import_framework
from distrl.types import EnvSpec

_TIMEOUT_S = 300.0  # nearly all of what it takes is the framework's import
_PATIENCE_S = 2.0
_SETTING = "learner.init_from"


def with_first_weights(checked: Checked, resumed: Path | None, report: Callable[[str], None] = to_stderr) -> Checked:
    """Return the configuration with an exact name of the weights that the training begins with, and a note on them.

    Args:
        resumed: Directory of the run whose checkpoint the training goes on from, if it may have one; None: a new run.
        report: Takes one line on what takes long.

    Raises:
        ConfigError: In one line: the weights cannot be read, none fits the network, or one has another shape; or a run
            is to go on that began with other weights.
    """
    if resumed is not None and newest_first(resumed / "checkpoints"):
        return _going_on(checked, resumed)
    name = checked.loaded.config.learner.init_from
    if name is None:
        return checked
    loaded = _with_name(checked.loaded, _settled(name), checked.loaded.origins[_SETTING])
    taken = _ask(loaded.config, checked.spec, report)
    return replace(checked, loaded=loaded, notes=(*checked.notes, f"the training {taken}"))


def require_weights(config: RunConfig) -> None:
    """Raise ConfigError unless this host has the run, checkpoint or file that the training begins with, unread."""
    if config.learner.init_from is not None:
        _settled(config.learner.init_from)


def _settled(name: str) -> str:
    try:
        return settled_name(name)
    except DistrlError as error:
        raise ConfigError(f"{_SETTING}: {error}") from error


def _going_on(checked: Checked, run_dir: Path) -> Checked:
    """Keep the recorded name, as the weights are not used again."""
    path = run_dir / "config.yaml"
    recorded = load(file=path).config.learner.init_from if path.is_file() else None
    given = checked.loaded.config.learner.init_from
    if given is not None and not _is_same(given, recorded):
        began = "with fresh weights" if recorded is None else f"with those of {recorded}"
        raise ConfigError(
            f"{_SETTING}: {given} is for a new training; the run in {run_dir} began {began} and goes on with its own: "
            "leave it out, or choose another --run-dir"
        )
    return replace(checked, loaded=_with_name(checked.loaded, recorded, f"file {path}"))


def _is_same(given: str, recorded: str | None) -> bool:
    """Whether `recorded` may have come from `given`, whose newest or best checkpoint it then names by number."""
    if recorded is None or given == recorded:
        return given == recorded
    before, now = parse(recorded), parse(given)
    return before.run == now.run and not isinstance(now.mark, int)


def _with_name(loaded: LoadedConfig, name: str | None, origin: str) -> LoadedConfig:
    if name == loaded.config.learner.init_from:
        return loaded
    return loaded.with_values({"learner": {"init_from": name}}, origin)


def _ask(config: RunConfig, spec: EnvSpec, report: Callable[[str], None]) -> str:
    """Return the child's report on what the network takes."""
    request = {"config": config.model_dump(mode="json", exclude_unset=True), "spec": spec.to_json()}
    variables = {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    with Child("distrl.launch.warm_start:try_out", request, timeout_s=_TIMEOUT_S, variables=variables) as child:
        exit_code = child.wait(_PATIENCE_S)
        if exit_code is None:
            report(f"reading the weights of {config.learner.init_from} …")
            exit_code = child.wait(_TIMEOUT_S)
        messages, output = child.messages(), child.output()
    if not messages:
        ended = ending(exit_code, "when the weights were tried out", _TIMEOUT_S)
        raise with_detail(ConfigError(f"{_SETTING}: the process {ended}"), output)
    if "error" in messages[0]:
        raise ConfigError(messages[0]["error"])
    return str(messages[0]["report"])


def try_out(request: Mapping[str, Any], parent: Parent) -> None:
    """Build the networks, set them to the weights, and report what was taken; runs in the child."""
    config = RunConfig.model_validate(request["config"])
    import_framework(config.learner.backend)
    from distrl.algorithms import built, make_algorithm  # here: the parent is the command line, which has no Keras
    from distrl.learner.warm_start import begin_with
    from distrl.learner.weight_source import read_source

    assert config.learner.init_from is not None
    learner = config.learner.model_copy(update={"replicas": 1})  # of devices, which this process does not see
    algorithm = make_algorithm(config.model_copy(update={"learner": learner}))
    networks = built(algorithm, EnvSpec.from_json(request["spec"]))
    try:
        parent.say(report=begin_with(networks, read_source(config.learner.init_from)))
    except DistrlError as error:
        raise ConfigError(f"{_SETTING}: {error}") from error
