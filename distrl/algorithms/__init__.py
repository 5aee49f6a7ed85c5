"""Algorithms: each states its loss in one file. `config.algorithms.ALGORITHMS` lists the built-in ones.

`__all__` is the stable API for algorithms of your own: a change of these names, or of their documented attributes, is a
breaking change and stands in CHANGELOG.md. Modules below may move. Each name is imported at its first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distrl.algorithms.a3c import ActorCritic
    from distrl.algorithms.acer import Acer
    from distrl.algorithms.advantage_weighted import Awac, Iql
    from distrl.algorithms.algorithm import Algorithm, GradientAlgorithm, Loss, Networks, Update
    from distrl.algorithms.appo import Appo
    from distrl.algorithms.bootstrapped_dqn import BootstrappedDqn
    from distrl.algorithms.cql import Cql, DiscreteCql
    from distrl.algorithms.crossq import Crossq
    from distrl.algorithms.ddpg import Ddpg
    from distrl.algorithms.discrete_bcq import DiscreteBcq
    from distrl.algorithms.discrete_sac import DiscreteSac
    from distrl.algorithms.distributional import C51, QrDqn
    from distrl.algorithms.dqfd import Dqfd
    from distrl.algorithms.dqn import Dqn
    from distrl.algorithms.epochs import Experience
    from distrl.algorithms.imitation import Bc, Marwil
    from distrl.algorithms.impala import Impala
    from distrl.algorithms.maths.critic_losses import critic_targets, smallest, smoothed_actions
    from distrl.algorithms.maths.losses import masked_mean, policy_gradient, value_loss
    from distrl.algorithms.maths.returns import Returns, batch_discounts, gae, n_step, step_discounts, vtrace
    from distrl.algorithms.maths.rewards import learned_rewards
    from distrl.algorithms.naf import Naf
    from distrl.algorithms.off_policy import ActionScale, CriticTerms, PolicyTerms
    from distrl.algorithms.ppo import Ppo
    from distrl.algorithms.q_learning import TemporalDifferences
    from distrl.algorithms.sac import Sac
    from distrl.algorithms.selection import built, context_of, make_algorithm
    from distrl.algorithms.td3 import Td3, Td3Bc
    from distrl.algorithms.tqc import Tqc
    from distrl.algorithms.trpo import Trpo
    from distrl.algorithms.views import Rows, StepView
    from distrl.algorithms.vpg import Vpg
    from distrl.config.algorithms import AlgorithmContext, AlgorithmSection
    from distrl.config.algorithms.actor_critics import A2cParameters
    from distrl.config.algorithms.distributional import RainbowParameters
    from distrl.config.algorithms.q_learning import ApexParameters, R2d2Parameters
    from distrl.networks.actions.family import Tensor
    from distrl.networks.copies import Copies
    from distrl.networks.framework.differentiation import Objective, Part
    from distrl.networks.heads.losses import huber, squared_error
    from distrl.networks.network import action_input
    from distrl.networks.objective import regularization, weighted_sum
    from distrl.networks.steps import Step, TrainedNumber, held
    from distrl.types import Batch, EnvSpec

__all__ = [
    "C51",
    "A2cParameters",
    "Acer",
    "ActionScale",
    "ActorCritic",
    "Algorithm",
    "AlgorithmContext",
    "AlgorithmSection",
    "ApexParameters",
    "Appo",
    "Awac",
    "Batch",
    "Bc",
    "BootstrappedDqn",
    "Copies",
    "Cql",
    "CriticTerms",
    "Crossq",
    "Ddpg",
    "DiscreteBcq",
    "DiscreteCql",
    "DiscreteSac",
    "Dqfd",
    "Dqn",
    "EnvSpec",
    "Experience",
    "GradientAlgorithm",
    "Impala",
    "Iql",
    "Loss",
    "Marwil",
    "Naf",
    "Networks",
    "Objective",
    "Part",
    "PolicyTerms",
    "Ppo",
    "QrDqn",
    "R2d2Parameters",
    "RainbowParameters",
    "Returns",
    "Rows",
    "Sac",
    "Step",
    "StepView",
    "Td3",
    "Td3Bc",
    "TemporalDifferences",
    "Tensor",
    "Tqc",
    "TrainedNumber",
    "Trpo",
    "Update",
    "Vpg",
    "action_input",
    "batch_discounts",
    "built",
    "context_of",
    "critic_targets",
    "gae",
    "held",
    "huber",
    "learned_rewards",
    "make_algorithm",
    "masked_mean",
    "n_step",
    "policy_gradient",
    "regularization",
    "smallest",
    "smoothed_actions",
    "squared_error",
    "step_discounts",
    "value_loss",
    "vtrace",
    "weighted_sum",
]

_MODULES = {
    "distrl.algorithms.a3c": {"ActorCritic"},
    "distrl.algorithms.acer": {"Acer"},
    "distrl.algorithms.advantage_weighted": {"Awac", "Iql"},
    "distrl.algorithms.algorithm": {"Algorithm", "GradientAlgorithm", "Loss", "Networks", "Update"},
    "distrl.algorithms.appo": {"Appo"},
    "distrl.algorithms.bootstrapped_dqn": {"BootstrappedDqn"},
    "distrl.algorithms.cql": {"Cql", "DiscreteCql"},
    "distrl.algorithms.crossq": {"Crossq"},
    "distrl.algorithms.ddpg": {"Ddpg"},
    "distrl.algorithms.discrete_bcq": {"DiscreteBcq"},
    "distrl.algorithms.discrete_sac": {"DiscreteSac"},
    "distrl.algorithms.distributional": {"C51", "QrDqn"},
    "distrl.algorithms.dqfd": {"Dqfd"},
    "distrl.algorithms.dqn": {"Dqn"},
    "distrl.algorithms.epochs": {"Experience"},
    "distrl.algorithms.imitation": {"Bc", "Marwil"},
    "distrl.algorithms.impala": {"Impala"},
    "distrl.algorithms.maths.critic_losses": {"critic_targets", "smallest", "smoothed_actions"},
    "distrl.algorithms.maths.losses": {"masked_mean", "policy_gradient", "value_loss"},
    "distrl.algorithms.maths.returns": {"Returns", "batch_discounts", "gae", "n_step", "step_discounts", "vtrace"},
    "distrl.algorithms.maths.rewards": {"learned_rewards"},
    "distrl.algorithms.naf": {"Naf"},
    "distrl.algorithms.off_policy": {"ActionScale", "CriticTerms", "PolicyTerms"},
    "distrl.algorithms.ppo": {"Ppo"},
    "distrl.algorithms.q_learning": {"TemporalDifferences"},
    "distrl.algorithms.sac": {"Sac"},
    "distrl.algorithms.selection": {"built", "context_of", "make_algorithm"},
    "distrl.algorithms.td3": {"Td3", "Td3Bc"},
    "distrl.algorithms.tqc": {"Tqc"},
    "distrl.algorithms.trpo": {"Trpo"},
    "distrl.algorithms.views": {"Rows", "StepView"},
    "distrl.algorithms.vpg": {"Vpg"},
    "distrl.config.algorithms": {"AlgorithmContext", "AlgorithmSection"},
    "distrl.config.algorithms.actor_critics": {"A2cParameters"},
    "distrl.config.algorithms.distributional": {"RainbowParameters"},
    "distrl.config.algorithms.q_learning": {"ApexParameters", "R2d2Parameters"},
    "distrl.networks.actions.family": {"Tensor"},
    "distrl.networks.copies": {"Copies"},
    "distrl.networks.framework.differentiation": {"Objective", "Part"},
    "distrl.networks.heads.losses": {"huber", "squared_error"},
    "distrl.networks.network": {"action_input"},
    "distrl.networks.objective": {"regularization", "weighted_sum"},
    "distrl.networks.steps": {"Step", "TrainedNumber", "held"},
    "distrl.types": {"Batch", "EnvSpec"},
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'distrl.algorithms' has no attribute {name!r}")
