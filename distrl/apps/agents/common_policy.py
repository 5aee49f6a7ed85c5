"""One policy for several loops, each of which is an ordinary actor."""

from collections.abc import Mapping, Sequence

import numpy as np

from distrl.actors.acting import Acting, Fetch, Perturb, PolicyOutput
from distrl.actors.policy import Policy
from distrl.config.schedules import Progress
from distrl.types import Array, PolicyBundle


class CommonPolicy:
    """The policy of several loops: computes rows of several of them at once, and follows each version once."""

    def __init__(self, bundle: PolicyBundle) -> None:
        self.policy = Policy(bundle)
        self._progress: Progress | None = None
        self._ready: dict[int, PolicyOutput] = {}  # by the identity of a row's observations, which are in use

    def prepare(self, rows: Sequence[tuple[Mapping[str, Array], Mapping[str, Array]]]) -> None:
        """Compute the outputs for these rows, of one environment each, which `step` then returns.

        Raises:
            DistrlError: As `Policy.step`.
        """
        self._ready.clear()
        seen, states = ([row[part] for row in rows] for part in (0, 1))
        output = self.policy.step(_joined(seen), _joined(states))
        for number, observations in enumerate(seen):
            outputs, state = (
                {name: array[number : number + 1] for name, array in arrays.items()}
                for arrays in (output.outputs, output.recurrent_state)
            )
            self._ready[id(observations)] = PolicyOutput(outputs, state)

    def clear(self) -> None:
        """Forget outputs that no row has taken."""
        self._ready.clear()

    def step(self, observations: Mapping[str, Array], recurrent_state: Mapping[str, Array]) -> PolicyOutput:
        """Return the outputs for one row, as `Acting.step`."""
        ready = self._ready.pop(id(observations), None)
        return self.policy.step(observations, recurrent_state) if ready is None else ready

    def follow(self, newest: int, fetch: Fetch, rate: float) -> Progress | None:
        """Act with the newest weights, as `Acting.follow`."""
        if newest != self.policy.version:
            self._progress = self.policy.follow(newest, fetch, rate)
        return self._progress


def _joined(rows: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}


class LoopPolicy(Acting):
    """One loop's end of it: an actor with this policy follows each version, and the progress behind it."""

    def __init__(self, shared: CommonPolicy) -> None:
        policy = self._policy = shared.policy
        self._shared = shared
        self.spec, self.distributions, self.exploration = policy.spec, policy.distributions, policy.exploration
        self.version = 0

    def initial_state(self, batch: int) -> dict[str, Array]:
        return self._policy.initial_state(batch)

    def step(self, observations: Mapping[str, Array], recurrent_state: Mapping[str, Array]) -> PolicyOutput:
        return self._shared.step(observations, recurrent_state)

    def follow(self, newest: int, fetch: Fetch, rate: float) -> Progress | None:
        progress = self._shared.follow(newest, fetch, rate)
        self.version = self._policy.version
        return progress

    def forget_weights(self) -> None:
        self.version = 0

    def perturb(self, perturb: Perturb) -> None:
        self._policy.perturb(perturb)
