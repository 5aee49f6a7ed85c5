"""Intrinsic rewards: an algorithm that is also paid for what its learner cannot predict yet."""

from collections.abc import Sequence

import numpy as np
from keras import ops

from distrl import nest
from distrl.algorithms.algorithm import Algorithm, Bootstrap, Networks, Update
from distrl.algorithms.epochs import shuffled
from distrl.algorithms.predictors import CURIOSITY, Predictor, Rows, make_predictor
from distrl.config.algorithms import AlgorithmContext
from distrl.config.curiosity import CuriositySection
from distrl.networks.actions.family import Tensor
from distrl.networks.framework.backend import Outputs
from distrl.networks.steps import Minibatches, Step
from distrl.networks.weights import to_numpy
from distrl.types import Array, Batch, Contributions, EnvSpec, FloatArray, IntArray


class Curious(Algorithm):
    """An algorithm whose batches get the bonus ``weight * intrinsic reward`` of every step before each update.

        intrinsic reward = min(error / deviation, clip),   deviation = sqrt(mean of error^2)

    The errors are those of `Predictor`, by its weights before the update. The mean is over all valid steps of all
    batches so far, this one included. The papers divide by the deviation of discounted intrinsic returns; steps that a
    replay memory samples are in no order from which returns could be made. The deviation is taken about 0 and not about
    the mean, so it does not vanish where all errors are alike. Then the predictor learns from the same steps, and the
    algorithm from the batch.

    There is one value function: bonuses end with an episode, where the paper on RND has a second, non-episodic one. It
    does not say what it minimises (`objective`), because its rewards depend on what it has seen.

    Args:
        algorithm: Learns from environment's rewards and bonuses.
    """

    _step: Step | None = None
    _errors: Outputs
    _predictor: Predictor

    def __init__(self, algorithm: Algorithm, section: CuriositySection) -> None:
        self.Parameters = algorithm.Parameters  # type: ignore[misc]  # those of the algorithm within
        super().__init__(algorithm.context)
        self._algorithm, self._section = algorithm, section
        self._weight = section.weight

    def build(self, spec: EnvSpec) -> Networks:
        """Build the algorithm's networks, then those of curiosity.

        Raises:
            ConfigError: See the algorithm; also if the networks of curiosity do not fit the environment.
        """
        networks = self._algorithm.build(spec)
        predictor = self._predictor = make_predictor(self.context, self._section, spec)
        self._errors = Outputs(self._novelty, predictor.variables)
        parts = predictor.parts
        moved = {id(variable) for part in parts for variable in part.trainable}
        self._step = Step(
            predictor.loss,
            parts,
            [],
            [variable for variable in predictor.variables if id(variable) not in moved],
            replicas=self.context.replicas,
            minibatches=Minibatches(_taken, self._order),
        )
        return networks | predictor.networks

    @property
    def bootstrap(self) -> Bootstrap | None:
        return self._algorithm.bootstrap

    def update(self, networks: Networks, batch: Batch | Contributions) -> Update:
        """Make one update of the predictor, then one of the algorithm.

        Returns:
            Metrics of the algorithm, and intrinsic_reward (mean over valid steps, before the weight),
            intrinsic_deviation, the divisor of errors, predictor_loss and, with ICM, inverse_loss and forward_loss.
        """
        if self._step is None:
            raise RuntimeError("update was called before build")
        assert isinstance(batch, Batch)  # as the section's `check` says
        rows, statistics = self._predictor.rows(batch), networks[CURIOSITY].statistics
        before = statistics.state_arrays()
        intrinsic = self._intrinsic_rewards(networks, batch, rows)
        learned = self._step(rows)
        told: dict[str, float | bool] = {
            "intrinsic_reward": float(intrinsic.sum(dtype=np.float64) / max(int(batch.valid.sum()), 1)),
            "intrinsic_deviation": self._deviation(networks),
            "predictor_loss": learned["loss"],
        }
        told |= {name: learned[name] for name in ("inverse_loss", "forward_loss") if name in learned}
        if not (learned["finite"] and np.isfinite(intrinsic).all()):
            statistics.restore(before)  # or nothing that comes later would be finite
            return Update(told | {"loss": learned["loss"], "gradient_norm": learned["gradient_norm"], "finite": False})
        bonus = (np.float32(self._weight) * intrinsic).astype(np.float32)
        update = self._algorithm.update(self._own(networks), batch._replace(bonus=bonus))
        return Update({**update.metrics, **told}, update.priorities)

    def compile(self, networks: Networks, batch: Batch) -> None:
        """Compile the predictor's update, and that of the algorithm."""
        if self._step is None:
            raise RuntimeError("compile was called before build")
        rows = self._predictor.rows(batch)
        self._errors(rows)
        self._step.compile(rows)
        self._algorithm.compile(self._own(networks), batch._replace(bonus=np.zeros(batch.valid.shape, np.float32)))

    def steer(self, networks: Networks, context: AlgorithmContext) -> None:
        """Apply the algorithm's changed settings, and the weight."""
        self._algorithm.steer(self._own(networks), context)
        assert context.parameters.curiosity is not None  # whether there is one does not change
        self._weight = context.parameters.curiosity.weight

    def _own(self, networks: Networks) -> Networks:
        """Return the networks of the algorithm within."""
        return {name: network for name, network in networks.items() if name not in self._predictor.networks}

    def _intrinsic_rewards(self, networks: Networks, batch: Batch, rows: Rows) -> FloatArray:
        """Return float32 [T, N], 0 where not valid, and add the batch to the statistics; errors that are not finite.

        Observations are added first: by statistics of nothing, those of the first batch would not be normalised.
        """
        statistics = networks[CURIOSITY].statistics
        statistics.observe(batch._replace(reward_moments=_moments(np.zeros(0))))
        errors: FloatArray = self._errors(rows)["errors"].reshape(batch.valid.shape)
        if not np.isfinite(errors).all():
            return errors
        statistics.observe_rewards(_moments(errors[batch.valid]))
        return statistics.with_normal_rewards(batch._replace(rewards=errors)).rewards

    @staticmethod
    def _deviation(networks: Networks) -> float:
        rewards = networks[CURIOSITY].rewards
        assert rewards is not None  # as `make_predictor` made it
        return rewards.deviation

    def _novelty(self, rows: Rows) -> tuple[Tensor, dict[str, Tensor]]:
        return ops.zeros(()), {"errors": self._predictor.errors(rows)[0]}

    def _order(self, rows: Rows) -> IntArray:
        """Return the steps of every minibatch; a resumed run continues with the same orders."""
        optimizer = self._predictor.networks[CURIOSITY].optimizer
        return shuffled(
            rows.valid.shape[1],
            epochs=self._section.epochs,
            minibatches=self._section.minibatches,
            seed=self.context.seed,
            step=int(to_numpy(optimizer.iterations)),
        )


def _moments(errors: Array) -> dict[str, Array]:
    """Return the moments of errors [K] about 0, of which "squares" over "count" is the mean square."""
    squares = np.square(errors.astype(np.float64)).sum()
    return {"count": np.array(float(len(errors))), "mean": np.zeros(()), "squares": np.array(squares)}


def _taken(rows: Rows, items: Sequence[int]) -> Rows:
    """Select items, int32 [K], of [1, M, ...]."""
    taken: Rows = nest.map(lambda array: ops.take(array, items, axis=1), rows)
    return taken
