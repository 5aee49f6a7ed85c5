"""Try a network with layers of the user's own in a child process: whether it can be built, and exported for the actors.

Networks of distrl's own layers are exported by the learner alone. The graph goes into the cache, where the learner
finds it.
"""

from collections.abc import Callable, Mapping
from typing import Any

from distrl.child import Parent, answer_of
from distrl.config import RunConfig
from distrl.roles.framework import import_framework
from distrl.types import EnvSpec

_TIMEOUT_S = 600.0  # nearly all of what it takes is the framework's import, on JAX sometimes also TensorFlow's


def check_own_layers(
    config: RunConfig, spec: EnvSpec, report: Callable[[str], None], *, timeout_s: float = _TIMEOUT_S
) -> None:
    """Raise ConfigError, in one line that names the layer, if layers of the user's own cannot be built or exported."""
    if not config.network.has_own_layers:
        return
    what = "the network's custom layers" if config.network.model is None else f"network.model {config.network.model}"
    report(f"trying out {what} …")
    sections = config.model_dump(mode="json", exclude_unset=True, include={*RunConfig.model_fields})
    request = {"config": sections, "spec": spec.to_json()}
    answer_of("distrl.launch.external_network:try_out", request, what, timeout_s)


def try_out(request: Mapping[str, Any], parent: Parent) -> None:
    """Build the networks and export the policy; runs in the child."""
    config, spec = RunConfig.model_validate(request["config"]), EnvSpec.from_json(request["spec"])
    import_framework(config.learner.backend)
    # Imported here: the parent is the command line, which has no Keras.
    from distrl.algorithms import built, make_algorithm
    from distrl.networks.policy.bundle import export_bundle

    networks = built(make_algorithm(config), spec)
    export_bundle(networks["main"].online, unroll_steps=config.actors.unroll_length_steps)
    parent.say(exported=True)
