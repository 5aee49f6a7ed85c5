"""Parameters of algorithms that learn from recorded steps, without acting in between: imitation and offline learning.

Their batches are those of a replay memory, so that each of them but `bc` also goes on from what its own actors record.
"""

from typing import ClassVar, Literal

from pydantic import Field

from distrl.config.algorithms.off_policy import CriticsSection, EntropySection, TargetsSection, Td3Section
from distrl.config.algorithms.q_learning import DqnSection, OneChoiceSection
from distrl.config.algorithms.section import AlgorithmContext, AlgorithmSection, LearnsFrom
from distrl.config.replay import (
    ItemParameters,
    PrioritizedParameters,
    ReplayParameters,
    SamplerParameters,
    SequenceParameters,
)


class ImitationSection(AlgorithmSection):
    """Fields of algorithms that learn a policy by the log-probabilities of recorded actions."""

    batch_size: ClassVar[int] = 256
    learns_from: ClassVar[LearnsFrom] = "anybody"

    replay: ReplayParameters = ReplayParameters(capacity_steps=1_000_000, samples_per_insert=256.0)
    """Transitions or sequences; with memory, sequences."""

    @property
    def masked_head(self) -> str | None:
        return "policy"

    def check(self, context: AlgorithmContext) -> None:
        super().check(context)
        if self.replay.sampler.kind == "prioritized":
            raise ValueError(
                f"algorithm.replay.sampler.kind: prioritized; {self.name} has no errors that could set priorities; use "
                "uniform or balanced"
            )


class BcParameters(ImitationSection):
    """Behavioural cloning (Pomerleau 1991, doi:10.1162/neco.1991.3.1.88): supervised learning of recorded actions.

    Use it to imitate an expert: the baseline of offline learning.
    """

    implementation: ClassVar[str] = "distrl.algorithms.imitation:Bc"

    name: Literal["bc"] = "bc"

    @property
    def takes_bonus(self) -> bool:
        return False

    def check(self, context: AlgorithmContext) -> None:
        if not context.learns_from_data:
            raise ValueError(
                "algorithm.name: bc imitates recorded actions, and would imitate itself; learn from data alone: --data "
                "NAME --actors 0"
            )
        if self.curiosity is not None:
            raise ValueError("algorithm.curiosity: bc learns from actions and not from rewards; leave it out")
        super().check(context)
        if (steps := self.replay.item.n_step) > 1:
            raise ValueError(
                f"algorithm.replay.item.n_step: {steps}; bc learns from actions and not from rewards; use 1"
            )


class WeightedImitationSection(AlgorithmSection):
    """The exponent of advantages."""

    beta: float = Field(1.0, ge=0.0)
    """Weights of recorded actions are exp(beta advantage). 0: imitation of all alike."""


class LargestWeightSection(WeightedImitationSection):
    """A bound of the weights."""

    max_weight: float = Field(100.0, gt=0.0)
    """Weights are clipped to this."""


class MarwilReplayParameters(ReplayParameters):
    """The replay memory with MARWIL's sequences, whole unrolls, in which the returns of their steps are."""

    capacity_steps: int = Field(1_000_000, ge=1)
    item: ItemParameters = SequenceParameters()


class MarwilParameters(ImitationSection, LargestWeightSection):
    """MARWIL (Wang et al. 2018): imitation weighted by exponentials of advantages over a learned value.

    Use it as `bc`, where recorded actions are of mixed quality.
    """

    implementation: ClassVar[str] = "distrl.algorithms.imitation:Marwil"
    batch_size: ClassVar[int] = 32

    name: Literal["marwil"] = "marwil"
    replay: MarwilReplayParameters = MarwilReplayParameters()
    """Returns in sequences go to the episode's end, or to the sequence's and V there; of transitions, over n_step."""
    value_loss_weight: float = Field(1.0, ge=0.0)
    """Weight of the value loss beside the policy's."""
    advantage_norm_rate: float = Field(1e-3, ge=0.0, le=1.0)
    """Advantages are divided by c; with every update, c^2 moves towards their mean square at this rate."""
    initial_advantage_norm: float = Field(10.0, gt=0.0)
    """c before the first update."""

    def check(self, context: AlgorithmContext) -> None:
        super().check(context)
        if self.replay.item.kind == "sequence" and (steps := self.replay.item.n_step) > 1:
            raise ValueError(
                f"algorithm.replay.item.n_step: {steps}; marwil's returns use all steps of a sequence; leave it out"
            )


class AwacParameters(TargetsSection, CriticsSection, WeightedImitationSection):
    """AWAC (Nair et al. 2020, arXiv:2006.09359): imitation of the actions that the critics prefer to the policy's.

    The optimizer of the policy is the section `network`'s; the critics have another one like it.

    Use it for recorded steps first and the environment afterwards.
    """

    implementation: ClassVar[str] = "distrl.algorithms.advantage_weighted:Awac"

    name: Literal["awac"] = "awac"


class IqlParameters(TargetsSection, CriticsSection, LargestWeightSection):
    """IQL (Kostrikov, Nair and Levine 2021, arXiv:2110.06169): values of recorded actions alone, by an expectile.

    The optimizer of the policy is the section `network`'s; critics and value have others like it.

    Use it for recorded steps; a safe first choice.
    """

    implementation: ClassVar[str] = "distrl.algorithms.advantage_weighted:Iql"

    name: Literal["iql"] = "iql"
    beta: float = Field(3.0, ge=0.0)
    """Weights of recorded actions are exp(beta advantage). 0: imitation of all alike."""
    expectile: float = Field(0.7, gt=0.0, lt=1.0)
    """tau of the value: a half is the mean over recorded actions, near 1 the best of them."""


class Td3BcParameters(Td3Section):
    """TD3+BC (Fujimoto and Gu 2021, arXiv:2106.06860): TD3 whose policy also stays near the recorded actions.

    Use it for recorded steps; cheap updates.
    """

    implementation: ClassVar[str] = "distrl.algorithms.td3:Td3Bc"

    name: Literal["td3_bc"] = "td3_bc"
    value_weight: float = Field(2.5, ge=0.0)
    """alpha: weight of the value, divided by its mean size, beside the squared distance from recorded actions."""


class CqlParameters(TargetsSection, EntropySection):
    """CQL (Kumar et al. 2020, arXiv:2006.04779): SAC whose critics value what was not recorded low.

    Use it for recorded steps, also of poor policies; slow updates.
    """

    implementation: ClassVar[str] = "distrl.algorithms.cql:Cql"
    takes_sequences: ClassVar[bool] = False

    name: Literal["cql"] = "cql"
    conservative_weight: float = Field(2.5, ge=0.0)
    """alpha of equation 4, whose squared error has a half. The authors' code has none: its 5 is 2.5 here."""
    sampled_actions: int = Field(10, ge=1)
    """Actions from each of three sources, whose values make the soft maximum: uniform ones, and the policy's before and
    after the step."""
    gap_target: float | None = Field(None, gt=0.0)
    """tau of the Lagrangian form: the weight is multiplied by a number that is trained, and grows while the gap between
    the soft maximum and the recorded actions is larger. null: the weight stays."""
    soft_targets: bool = False
    """Targets have the policy's entropy, as SAC's."""


class DiscreteCqlParameters(DqnSection):
    """Discrete CQL (Kumar et al. 2020, arXiv:2006.04779): DQN that values choices which were not recorded low.

    Use it for recorded steps.
    """

    implementation: ClassVar[str] = "distrl.algorithms.cql:DiscreteCql"

    name: Literal["discrete_cql"] = "discrete_cql"
    double: bool = True
    target_update_every_updates: int = Field(2_000, ge=1)
    conservative_weight: float = Field(1.0, ge=0.0)
    """Weight of the gap between the soft maximum of all values and the value of the recorded choice."""


class DiscreteBcqParameters(OneChoiceSection):
    """Discrete BCQ (Fujimoto et al. 2019, arXiv:1910.01708): double DQN among choices that the data makes likely.

    The head constrained_q has the threshold.

    Use it for recorded steps, to stay among their choices.
    """

    implementation: ClassVar[str] = "distrl.algorithms.discrete_bcq:DiscreteBcq"

    name: Literal["discrete_bcq"] = "discrete_bcq"
    double: bool = True
    target_update_every_updates: int = Field(2_000, ge=1)
    logit_penalty: float = Field(0.01, ge=0.0)
    """Weight of the mean square of the imitation's logits."""

    @property
    def masked_head(self) -> str | None:
        return "constrained_q"


class DqfdReplayParameters(ReplayParameters):
    """The replay memory with DQfD's defaults: prioritised sequences, and ten steps before the bootstrap."""

    item: ItemParameters = SequenceParameters(n_step=10)
    sampler: SamplerParameters = PrioritizedParameters(alpha=0.4)


class DqfdParameters(DqnSection):
    """DQfD (Hester et al. 2018, arXiv:1704.03732): double DQN that also learns a margin from demonstrated choices.

    All steps of `data.sets` are demonstrations, and have the margin; those of actors are not. Set
    `network.l2_regularization` for the paper's fourth loss.

    Use it with actors and a share of an expert's steps (`data.share`).
    """

    implementation: ClassVar[str] = "distrl.algorithms.dqfd:Dqfd"

    name: Literal["dqfd"] = "dqfd"
    double: bool = True
    replay: DqfdReplayParameters = DqfdReplayParameters()
    """The replay memory."""
    n_step_weight: float = Field(1.0, ge=0.0)
    """lambda 1: weight of the loss over replay.item.n_step steps beside that over one."""
    margin_weight: float = Field(1.0, ge=0.0)
    """lambda 2: weight of the margin loss."""
    margin: float = Field(0.8, ge=0.0)
    """By so much the demonstrated choice shall be better than every other one."""
    demonstration_bonus: float = Field(1.0, ge=0.0)
    """Added to the priorities of demonstrations."""

    def check(self, context: AlgorithmContext) -> None:
        super().check(context)
        if self.n_step_weight and self.replay.item.kind == "transition":
            raise ValueError(
                "algorithm.n_step_weight: a transition has one return; set algorithm.replay.item.kind to sequence, or "
                "n_step_weight to 0"
            )
