"""`distrl network show`: the networks that a configuration gives, without training them."""

import os
import tempfile
from pathlib import Path
from typing import Any

from distrl.config import RunConfig
from distrl.environments.probe import probe
from distrl.errors import DistrlError
from distrl.launch.one_process import standard_error_in
from distrl.roles.framework import import_framework, require_framework


def network_view(config: RunConfig) -> str:
    """Return every network as a tree of layers with shapes and numbers of weights, and the copies there are of it.

    Of layers of the user's own it also says whether they can be exported.
    """
    require_framework(config.learner.backend)
    making_s = config.making_timeout_s
    spec = probe(config.environment, action_mask=config.network.action_mask, making_s=making_s)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    with tempfile.TemporaryDirectory() as folder, standard_error_in(Path(folder) / "framework.log"):
        import_framework(config.learner.backend)
        # Imported here: they bring the framework, with all that has to say for itself.
        from distrl.algorithms import built, make_algorithm
        from distrl.networks.outline import tree

        networks = built(make_algorithm(config), spec)
        shown = [f"{tree(network.online)}\n\n{str(network).splitlines()[0]}" for network in networks.values()]
        if config.network.has_own_layers:
            shown.append(_exported(networks["main"].online))
    return "\n\n".join(shown)


def _exported(network: Any) -> str:
    from distrl.networks.policy.bundle import export_bundle

    try:
        export_bundle(network)
    except DistrlError as error:
        return f"A training refuses it: {error}"
    return "Export to ONNX: tried, and right"
