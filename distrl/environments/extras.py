"""The extras of distrl that an environment needs, by its name and settings alone: it need not be installed here."""

from typing import NamedTuple

import gymnasium

from distrl.config.environment import EnvironmentConfig
from distrl.environments.old_gym import PREFIX

OF_MODULE = {"gymnasium.envs.box2d": "box2d", "gymnasium.envs.mujoco": "mujoco"}
"""Module of environments that gymnasium registers itself -> extra."""


class Namespace(NamedTuple):
    """How ids that begin with a namespace come into gymnasium's registry.

    Attributes:
        modules: The modules that these environments need; the last one registers the ids when it is imported.
        extra: The extra of distrl that installs them.
        register: Name of the function of the last module that registers the ids; None: importing it does.
    """

    modules: tuple[str, ...]
    extra: str
    register: str | None = None


OF_NAMESPACE = {
    "ALE/": Namespace(("ale_py",), "atari"),
    "dm_control/": Namespace(("dm_control", "shimmy"), "dm-control"),
    "MinAtar/": Namespace(("minatar", "minatar.gym"), "minatar", "register_envs"),
}
"""Beginning of ids -> its namespace."""
_OF_VECTORIZATION = {"ale": "atari", "envpool": "envpool", "mujoco": "mujoco"}
_WITH_OPENCV = ("resize", "grayscale")
"""Steps of preprocessing that need the extra image."""


def extras_of(config: EnvironmentConfig) -> set[str]:
    """Return the extras; none for what a class of the user's needs, which no name tells."""
    found = {_OF_VECTORIZATION.get(config.vectorization, "")}
    if config.atari is not None:
        found.add("atari")
    if config.id.startswith(PREFIX):
        found.add("gym")
    found |= {namespace.extra for begin, namespace in OF_NAMESPACE.items() if config.id.startswith(begin)}
    if config.id in gymnasium.registry and config.vectorization != "envpool":
        module = str(gymnasium.registry[config.id].entry_point)
        found |= {extra for prefix, extra in OF_MODULE.items() if module.startswith(prefix)}
    if any(step.step in _WITH_OPENCV for step in config.preprocessing):
        found.add("image")
    return found - {""}
