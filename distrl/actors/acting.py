"""The socket of what makes an actor's decisions: `policy.py` runs an ONNX graph in the actor's process.

`inference/client.py` asks a server that all actors of its host share.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from distrl.config.exploration import ExplorationParameters
from distrl.config.schedules import Progress
from distrl.networks.actions import FamilySpec
from distrl.networks.policy.description import BundleDescription
from distrl.types import Array, EnvSpec, FloatArray, Weights

Perturb = Callable[[BundleDescription, Mapping[str, Array]], Mapping[str, Array]]
"""Makes the weights to act with from all weights; returned arrays are new or unchanged."""
Fetch = Callable[[], tuple[Weights, Progress] | None]
"""Fetches the newest published weights, and the training's progress behind them; None: there are none."""


class PolicyOutput(NamedTuple):
    """The policy's outputs for B observations.

    Attributes:
        outputs: name -> float32 [B, ...]. ``policy/<action>`` parametrises the distribution of an action.
        recurrent_state: name -> [B, ...]. State for the next call, before any restart.
    """

    outputs: dict[str, FloatArray]
    recurrent_state: dict[str, Array]


class Chosen(NamedTuple):
    """The actions of a row, name -> [B, ...], their log-probabilities [B], and the policy's output for it."""

    actions: dict[str, Array]
    log_probabilities: FloatArray
    output: PolicyOutput


class Acting(Protocol):
    """Computes the policy's outputs for an actor, which draws actions from them.

    Attributes:
        spec: The environment that the policy was made for.
        distributions: Action -> the distribution that the policy's outputs parametrise.
        exploration: The actors' exploration; None: draw from these distributions.
        version: Version of the weights in use; 0 before the first.
    """

    spec: EnvSpec
    distributions: dict[str, FamilySpec]
    exploration: ExplorationParameters | None
    version: int

    def initial_state(self, batch: int) -> dict[str, Array]:
        """Return the recurrent state at an episode's start: zeros, name -> [batch, ...]; empty without recurrence."""

    def step(self, observations: Mapping[str, Array], recurrent_state: Mapping[str, Array]) -> PolicyOutput:
        """Run the network once.

        Args:
            observations: name -> [B, ...] in the environment's dtype.
            recurrent_state: name -> [B, ...].

        Raises:
            DistrlError: There are no weights yet, the arrays do not fit the network, or it cannot be run.
        """

    def follow(self, newest: int, fetch: Fetch, rate: float) -> Progress | None:
        """Act with the newest published weights from the next step on, which begins an unroll.

        Args:
            newest: Their version as the actor knows it, not the one in use; there may be a newer one by now.
            fetch: Called where the actor's process computes the outputs.
            rate: Mixing rate in (0, 1], see `Policy.set_weights`.

        Returns:
            The training's progress behind the weights now in use; None: there are none, and nothing has changed.

        Raises:
            DistrlError: They do not fit. The ones in use stay.
        """

    def forget_weights(self) -> None:
        """Forget the weights: the next ones are taken whole."""

    def perturb(self, perturb: Perturb) -> None:
        """Act with the weights that `perturb` returns, until the weights change or are perturbed again.

        Raises:
            DistrlError: It needs weights that were not given.
        """
