"""From specifications to distributions, and all actions of an environment at once: what algorithms use.

The distributions themselves are in `networks/actions/discrete.py` and `networks/actions/continuous.py`.
Everything is a pure function of what the policy head puts out, in `keras.ops`, on any backend. The actors' twin in
NumPy is `actors/action_selection.py`; tests hold the two together.
"""

from collections.abc import Mapping

import numpy as np

from distrl.networks.actions.continuous import Beta, Gaussian, SquashedGaussian
from distrl.networks.actions.deterministic import DeterministicSpec
from distrl.networks.actions.discrete import Bernoulli, Categorical, MultiCategorical
from distrl.networks.actions.distribution import Distribution, Seed, Tensor, total
from distrl.networks.actions.specs import (
    BernoulliSpec,
    BetaSpec,
    CategoricalSpec,
    DistributionSpec,
    GaussianSpec,
    MultiCategoricalSpec,
    MultiValuesSpec,
    SquashedGaussianSpec,
    ValuesSpec,
    policy_output,
)

__all__ = ["Distribution", "JointDistribution", "Seed", "Tensor", "make_distribution"]


def make_distribution(spec: DistributionSpec) -> Distribution:
    """The distribution that a specification describes.

    Raises:
        ValueError: It describes values of choices.
    """
    match spec:
        case CategoricalSpec():
            return Categorical()
        case MultiCategoricalSpec():
            return MultiCategorical(spec)
        case BernoulliSpec():
            return Bernoulli()
        case GaussianSpec():
            return Gaussian()
        case SquashedGaussianSpec():
            return SquashedGaussian(spec)
        case BetaSpec():
            return Beta(spec)
        case ValuesSpec() | MultiValuesSpec():
            raise ValueError(f"output {spec.output} holds values of choices, which no distribution is made of")
        case DeterministicSpec():
            raise ValueError(f"output {spec.output} holds an action, which no distribution is made of")


class JointDistribution:
    """All actions of an environment at once, independent of each other given the observation.

    Attributes:
        specs: Action -> its distribution.

    Args:
        specs: Action -> its distribution.
        head: The policy head whose outputs these are.
    """

    def __init__(self, specs: Mapping[str, DistributionSpec], head: str = "policy") -> None:
        self.specs = dict(specs)
        self._sizes = {policy_output(action, head): spec.parameters_size for action, spec in specs.items()}
        self._parts = {action: (policy_output(action, head), make_distribution(spec)) for action, spec in specs.items()}

    def log_probability(self, outputs: Mapping[str, Tensor], actions: Mapping[str, Tensor]) -> Tensor:
        """Log-probability of all actions together, float32 [...].

        Args:
            outputs: The network's outputs by name; of them `policy_output(action, head)`, float32 [..., P].
            actions: By name, [...] or [..., n].

        Raises:
            ValueError: An output does not have the size that its distribution takes, or an action not its rank.
        """
        return total(
            part.log_probability(self._read(outputs, name), actions[action])
            for action, (name, part) in self._parts.items()
        )

    def entropy(self, outputs: Mapping[str, Tensor]) -> Tensor:
        """Sum of the actions' entropies, float32 [...]."""
        return total(part.entropy(self._read(outputs, name)) for name, part in self._parts.values())

    def kl(self, outputs_p: Mapping[str, Tensor], outputs_q: Mapping[str, Tensor]) -> Tensor:
        """KL(p || q) of all actions together, float32 [...]."""
        return total(
            part.kl(self._read(outputs_p, name), self._read(outputs_q, name)) for name, part in self._parts.values()
        )

    def mode(self, outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The action to take when not exploring, by name."""
        return {action: part.mode(self._read(outputs, name)) for action, (name, part) in self._parts.items()}

    def sample(self, outputs: Mapping[str, Tensor], seed: Seed) -> dict[str, Tensor]:
        """Actions by name, drawn independently of each other."""
        return {
            action: part.sample(self._read(outputs, name), _own_seed(seed, position))
            for position, (action, (name, part)) in enumerate(self._parts.items())
        }

    def sample_with_log_probability(
        self, outputs: Mapping[str, Tensor], seed: Seed
    ) -> tuple[dict[str, Tensor], Tensor]:
        """As `sample`, and the log-probability of what was drawn, float32 [...]."""
        drawn = {
            action: part.sample_with_log_probability(self._read(outputs, name), _own_seed(seed, position))
            for position, (action, (name, part)) in enumerate(self._parts.items())
        }
        return {action: one for action, (one, _) in drawn.items()}, total(log_p for _, log_p in drawn.values())

    def _read(self, outputs: Mapping[str, Tensor], name: str) -> Tensor:
        parameters = outputs[name]
        if parameters.shape[-1] != self._sizes[name]:
            raise ValueError(f"output {name} must be [..., {self._sizes[name]}], not {tuple(parameters.shape)}")
        return parameters


def _own_seed(seed: Seed, position: int) -> Seed:
    """A generator as it is; of an int, one int per position, so that no two actions share their noise."""
    return int(np.random.SeedSequence((seed, position)).generate_state(1)[0]) if isinstance(seed, int) else seed
