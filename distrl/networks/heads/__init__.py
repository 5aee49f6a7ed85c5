"""Heads: what a network can end in. `HEADS` is the list, `make_heads` makes those that a network is configured with."""

from collections.abc import Sequence
from typing import Any

from distrl.config.heads import HeadParameters
from distrl.config.network import NetworkParameters
from distrl.errors import ConfigError
from distrl.networks.heads.acer import ACERPolicyHead
from distrl.networks.heads.auxiliary import ClassificationHead, RNDHead
from distrl.networks.heads.continuous import DeterministicPolicyHead, NAFHead, QValueHead, TwinQHead
from distrl.networks.heads.distributional import CategoricalQHead, QuantileQHead, RainbowQHead
from distrl.networks.heads.head import Head
from distrl.networks.heads.policy import PolicyHead, PPOHead
from distrl.networks.heads.q import DuelingQHead, QHead
from distrl.networks.heads.value import ValueHead
from distrl.types import EnvSpec

__all__ = ["HEADS", "Head", "make_heads"]

HEADS: dict[str, type[Head[Any]]] = {
    "policy": PolicyHead,
    "ppo": PPOHead,
    "acer_policy": ACERPolicyHead,
    "value": ValueHead,
    "q": QHead,
    "dueling_q": DuelingQHead,
    "categorical_q": CategoricalQHead,
    "rainbow_q": RainbowQHead,
    "quantile_q": QuantileQHead,
    "naf": NAFHead,
    "q_value": QValueHead,
    "twin_q": TwinQHead,
    "deterministic_policy": DeterministicPolicyHead,
    "classification": ClassificationHead,
    "rnd": RNDHead,
}
"""By `kind`."""


def make_heads(
    parameters: Sequence[HeadParameters], spec: EnvSpec, network: NetworkParameters, *, seed: int
) -> list[Head[Any]]:
    """The heads of one network copy, not yet built, in the order of their parameters.

    A head is called by its kind, policies whatever their loss "policy"; of several copies the i-th is `<that>_<i>`.

    Args:
        parameters: Of every head; one with `num_output_head_copies` becomes as many.
        spec: The environment's.
        network: The network that the heads belong to.
        seed: The network's.

    Raises:
        ConfigError: Two heads have one name, or a head cannot serve the environment's actions.
    """
    heads: dict[str, Head[Any]] = {}
    for section in parameters:
        kind = HEADS[section.kind]
        single, copies = kind.output_name or section.kind, section.num_output_head_copies
        for name in [single] if copies == 1 else [f"{single}_{index}" for index in range(copies)]:
            if name in heads:
                raise ConfigError(
                    f"heads_parameters: two heads are called {name!r}; several of one kind are num_output_head_copies"
                )
            heads[name] = kind(section, spec, network, name=name, seed=seed)
    return list(heads.values())
