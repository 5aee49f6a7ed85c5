"""ActorsConfig: the fleet of actors, and how many there are."""

from typing import Literal, Self

from pydantic import Field, model_validator

from distrl.config.algorithms import AlgorithmSection
from distrl.config.exploration import ExplorationParameters
from distrl.config.launch import LaunchConfig
from distrl.config.section import Section


class AutoscaleConfig(Section):
    """The number of actors that follows from how long learner and actors wait for each other."""

    enabled: bool = False
    """Whether the run chooses its number of actors itself. `distrl autoscale` and `distrl scale` change that later."""
    min_count: int = Field(1, ge=1)
    """Fewest actors."""
    max_count: int | None = Field(None, ge=1)
    """Most actors; null: as many as `distrl scale` may request, see `actors.max_count`."""
    window_s: float = Field(60.0, gt=0.0)
    """Seconds of undisturbed training that one judgement takes: several updates, and several unrolls of an actor."""
    lower_after_s: float = Field(300.0, ge=0.0)
    """How long every judgement must be for fewer actors before there are fewer."""

    @model_validator(mode="after")
    def _has_room(self) -> Self:
        if self.max_count is not None and self.min_count > self.max_count:
            raise ValueError(f"min_count: {self.min_count} is more than max_count: {self.max_count}; set one of them")
        return self

    def check(self, algorithm: AlgorithmSection, *, count: int, most: int | None) -> None:
        """Refuse it for runs whose number of actors is fixed, and bounds that contradict those of the run.

        Args:
            count, most: `actors.count` and `actors.max_count`.
        """
        if self.enabled and count == 0:
            raise ValueError("actors.autoscale.enabled needs actors.count >= 1; actors.count: 0 is one process")
        if self.enabled and algorithm.rounds:
            raise ValueError(
                f"actors.autoscale.enabled: {algorithm.name} makes each update of one gradient of every actor: "
                "their number is the size of its batch; leave it out"
            )
        for name in ("min_count", "max_count"):
            value = getattr(self, name)
            if most is not None and value is not None and value > most:
                raise ValueError(
                    f"actors.autoscale.{name}: {value} is more than actors.max_count: {most}; set one of them"
                )


class ActorsConfig(Section):
    """The fleet of actors."""

    count: int = Field(2, ge=0)
    """Actor processes. 0: deterministic mode, everything in one process without threads."""
    max_count: int | None = Field(None, ge=1)
    """Most actors that `distrl scale` may request; null: 4 for each core of the machine, or 1,000 on a cluster."""
    environments: int = Field(64, ge=1)
    """Environments of each actor."""
    unroll_length_steps: int = Field(32, ge=1)
    """T: steps of every environment in one unroll."""
    weight_mixing_rate: float = Field(1.0, gt=0.0, le=1.0)
    """rate of set_weights(weights, rate): new = rate * given + (1 - rate) * old."""
    inference: Literal["own", "host"] = "own"
    """Where the policy is evaluated: by every actor in its own process, or by one inference server for all actors of a
    host, in batches of their rows. The latter saves memory, and on two cores no time."""
    restart_budget: int = Field(20, ge=0)
    """Restarts of one role within ten minutes before the run gives up."""
    autoscale: AutoscaleConfig = AutoscaleConfig()

    def check(self, algorithm: AlgorithmSection, exploring: ExplorationParameters | None, launch: LaunchConfig) -> None:
        """Refuse settings that contradict each other, the algorithm, its exploration, or where the roles run."""
        if self.max_count is not None and self.count > self.max_count:
            raise ValueError(
                f"actors.count: {self.count} is more than actors.max_count: {self.max_count}; set one of them"
            )
        if self.weight_mixing_rate < 1.0 and (algorithm.max_staleness_updates == 0 or algorithm.rounds):
            which = f"algorithm {algorithm.name}" if algorithm.rounds else "algorithm.max_staleness_updates: 0"
            raise ValueError(
                f"actors.weight_mixing_rate < 1 mixes old weights into every policy, which {which} forbids; "
                "set one of them"
            )
        if self.inference == "host" and (why := self._why_own(algorithm, exploring, launch)):
            raise ValueError(f"actors.inference: host shares the policy of a host's actors, but {why}; leave it out")
        self.autoscale.check(algorithm, count=self.count, most=self.max_count)

    def _why_own(
        self, algorithm: AlgorithmSection, exploring: ExplorationParameters | None, launch: LaunchConfig
    ) -> str | None:
        """Return why each actor has to evaluate a policy of its own; None: it need not."""
        if self.count == 0:
            return "actors.count: 0 is one process"
        if launch.launcher == "ray":
            return "launch.launcher: ray places each actor by itself"
        if algorithm.ships == "gradients":
            return f"actors of {algorithm.name} hold the network to differentiate it"
        if self.weight_mixing_rate < 1.0:
            return f"actors.weight_mixing_rate: {self.weight_mixing_rate:g} gives each actor weights of its own"
        if exploring is not None and exploring.kind in ("noisy_network", "parameter_noise"):
            return f"exploration.kind: {exploring.kind} gives each actor weights of its own"
        return None
