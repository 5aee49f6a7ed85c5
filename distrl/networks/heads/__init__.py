"""Heads, the last parts of networks: `HEADS` lists their classes, `make_heads` creates those of a configuration.

An algorithm names the heads that it needs, and a network ends in them. A head turns features into named outputs and has
the loss of these outputs. How actions are drawn belongs to `networks/actions/`.
"""

from collections.abc import Sequence
from typing import Any

from distrl.config.heads import HeadParameters
from distrl.config.network import NetworkParameters
from distrl.errors import ConfigError
from distrl.networks.heads.acer import ACERPolicyHead
from distrl.networks.heads.auxiliary import ClassificationHead, EmbeddingHead
from distrl.networks.heads.continuous import (
    DeterministicPolicyHead,
    NAFHead,
    QuantileQValueHead,
    QValueHead,
    TwinQHead,
)
from distrl.networks.heads.head import Head
from distrl.networks.heads.policy import PolicyHead, PPOHead
from distrl.networks.heads.values import (
    CategoricalQHead,
    ConstrainedQHead,
    DuelingQHead,
    EnsembleQHead,
    QHead,
    QuantileQHead,
    RainbowQHead,
    ValueHead,
)
from distrl.types import EnvSpec

__all__ = ["HEADS", "Head", "make_heads"]

HEADS: dict[str, type[Head[Any]]] = {
    "policy": PolicyHead,
    "ppo": PPOHead,
    "acer_policy": ACERPolicyHead,
    "value": ValueHead,
    "q": QHead,
    "dueling_q": DuelingQHead,
    "ensemble_q": EnsembleQHead,
    "constrained_q": ConstrainedQHead,
    "categorical_q": CategoricalQHead,
    "rainbow_q": RainbowQHead,
    "quantile_q": QuantileQHead,
    "naf": NAFHead,
    "q_value": QValueHead,
    "quantile_q_value": QuantileQValueHead,
    "twin_q": TwinQHead,
    "deterministic_policy": DeterministicPolicyHead,
    "classification": ClassificationHead,
    "embedding": EmbeddingHead,
}
"""By `kind`."""


def make_heads(
    parameters: Sequence[HeadParameters], spec: EnvSpec, network: NetworkParameters, *, seed: int
) -> list[Head[Any]]:
    """Create the heads of one network copy, not yet built, in the order of their parameters.

    A head has the name of its kind, or "policy" for all policies; names of copies end in `_<index>`.

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
