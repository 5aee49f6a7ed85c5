"""Parameters of curiosity: a reward of the learner's own for what it cannot predict yet."""

from typing import Annotated, Literal

from pydantic import Field

from distrl.config.layers import MOST_UNITS, Count
from distrl.config.section import Section


class CuriositySection(Section):
    """Fields of both kinds. Each has an optimizer of its own, Adam with the constants of its paper."""

    weight: float = Field(0.1, ge=0.0)
    """Factor of the intrinsic reward beside the environment's reward. Its mean square is 1 at first, and falls as the
    predictor learns. It may change while the run trains; at 0 the algorithm learns as without curiosity."""
    clip: float | None = Field(5.0, gt=0.0)
    """Upper bound of the intrinsic reward, before the weight; null: none."""
    learning_rate: float = Field(1e-4, gt=0.0)
    units: tuple[Count, ...] = (128,)
    """Widths of hidden layers, of every network of curiosity."""
    embedding_size: int = Field(64, ge=1, le=MOST_UNITS)
    """Width of the features that are predicted."""
    epochs: int = Field(1, ge=1)
    """Passes of the predictor through a batch."""
    minibatches: int = Field(1, ge=1)
    """Equal parts of such a pass, one optimizer step each: of all steps of the batch."""

    def check(self, steps: int, replicas: int) -> None:
        """Refuse minibatches that cannot be made of a batch.

        Args:
            steps: Steps in a batch.
            replicas: Devices that share it.

        Raises:
            ValueError: They cannot; one line.
        """
        if steps % self.minibatches:
            raise ValueError(
                f"algorithm.curiosity.minibatches: {self.minibatches} equal parts cannot be made of the {steps} steps "
                "of a batch; choose a divisor"
            )
        part = steps // self.minibatches
        if part % replicas:
            raise ValueError(
                f"learner.replicas: {replicas} devices cannot share {part} steps evenly, a minibatch of "
                "algorithm.curiosity"
            )


class RndParameters(CuriositySection):
    """RND (Burda et al. 2019, arXiv:1810.12894): new is what a network cannot predict of a random one's features."""

    kind: Literal["rnd"] = "rnd"


class IcmParameters(CuriositySection):
    """ICM (Pathak et al. 2017, arXiv:1705.05363): new is what an action leads to, in features that actions change."""

    kind: Literal["icm"] = "icm"
    beta: float = Field(0.2, ge=0.0, le=1.0)
    """Share of the forward model's loss; 1 - beta is that of the inverse model, which finds the action."""


CuriosityParameters = Annotated[RndParameters | IcmParameters, Field(discriminator="kind")]
