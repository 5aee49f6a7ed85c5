"""A policy from the file that `distrl export` writes: acts with NumPy and ONNX Runtime, on an environment's own terms.

It needs no gymnasium, Redis, numeric framework or environment; OpenCV only if preprocessing resizes images. All that
the policy must remember between steps is in the state that `act` returns and takes, so that one policy serves any
number of episodes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from distrl import frames
from distrl.actors.acting import PolicyOutput
from distrl.actors.policy import Policy
from distrl.environments.preprocessing.pipeline import Pipeline
from distrl.errors import ConfigError, DistrlError
from distrl.files import MOST_POLICY_BYTES, read_small
from distrl.networks.actions import FamilySpec
from distrl.networks.actions.joint import ActionSelector
from distrl.networks.policy.exported_model import Exported, opened
from distrl.serving.served_values import action_writer, batched_arrays
from distrl.types import ActionSpec, Array, ArraySpec, BoolArray, EnvSpec, FloatArray, PolicyBundle, Weights


@dataclass(frozen=True)
class PolicyState:
    """Memory of earlier steps, for each of B environments; never written to.

    Attributes:
        recurrent: name -> [B, ...]. Recurrent state of the network.
        stacks: name -> [B, ..., n * C]. The newest stacks of frames.
        begins: bool [B]. The next observation is the first of an episode.
    """

    recurrent: dict[str, Array]
    stacks: dict[str, Array]
    begins: BoolArray

    def restarted(self, where: Any) -> "PolicyState":
        """Return the state without memory of the environments that have just been reset, bool [B]."""
        begins = np.asarray(where, np.bool_)
        if begins.shape != self.begins.shape:
            raise DistrlError(f"restarted: {begins.shape} flags, the state is of {self.begins.shape} environments")
        recurrent = {name: array.copy() for name, array in self.recurrent.items()}
        for array in recurrent.values():
            array[begins] = 0
        return replace(self, recurrent=recurrent, begins=self.begins | begins)


class Choice(NamedTuple):
    """Actions for B observations, before they are written as the environment takes them.

    Attributes:
        actions: name -> [B, ...], as `ActionSpec.array` says.
        chosen: The same before preprocessing's steps for actions: what log-probabilities are of.
        outputs: name -> float32 [B, ...]. What the policy's heads put out.
        state: For the next call.
    """

    actions: dict[str, Array]
    chosen: dict[str, Array]
    outputs: dict[str, FloatArray]
    state: PolicyState


class Decision(NamedTuple):
    """An action and the next state.

    Attributes:
        action: As `env.step` takes it; with a batch axis where the observation had one.
        state: For the next call; None if the policy has no memory.
    """

    action: Any
    state: PolicyState | None


class ExportedPolicy:
    """Chooses actions for an environment's own observations.

    Attributes:
        exported: Its description: algorithm, environment steps of training, versions.
        spec: The environment, with its own observations and actions.
        remembers: Whether `act` needs the state that it returned before: the policy is recurrent or sees stacks.
    """

    def __init__(self, bundle: PolicyBundle, exported: Exported, weights: Weights | None = None) -> None:
        """Open what `exported_model.opened` returns, or a bundle and the weights that it takes."""
        self.exported = exported
        self._policy = Policy(bundle)
        self._policy.set_weights(Weights(exported.weights_version, {}) if weights is None else weights)
        self._pipeline = Pipeline.of(self._policy.spec)
        if _forms(self._pipeline.spec) != _forms(self._policy.spec):
            raise DistrlError("its description is inconsistent: preprocessing makes other observations or actions")
        self.spec = self._pipeline.raw
        self._selector = ActionSelector(self._policy.distributions)
        self._write = action_writer(self.spec.actions)
        # Stacks that preprocessing makes; where the environment stacks, its observations hold all the frames.
        given = self.spec.observations
        self._stacks = {
            name: count
            for name, count in self._policy.spec.frames.items()
            if name not in given or given[name].frames == 1
        }
        self.remembers = bool(self._stacks or self._policy.initial_state(1))
        self._rng = np.random.default_rng()

    def act(
        self,
        observation: Any,
        state: PolicyState | None = None,
        deterministic: bool = True,
        rng: np.random.Generator | None = None,
    ) -> Decision:
        """Choose the action for one observation, or an action for each of a batch.

        Args:
            observation: As the environment shows it: an array, a whole number for a Discrete, or those nested as its
                spaces are; texts are tokens. All may have a batch axis. A Discrete may also be one-hot in real numbers.
            state: The state that the previous call returned; None: these are the first observations of their episodes.
            deterministic: The most probable action, or the mean; else one drawn from the policy's distribution. A
                policy of values, such as DQN's, takes the best in either case.
            rng: Random generator; None: the policy's own, seeded at random.

        Raises:
            DistrlError: The observation, or the state, is not one of this policy's; or the graph cannot be run, or
                puts out something else than its description says. The message says in what way.
        """
        raw, single = batched_arrays(observation, self.spec.observations)
        count = len(next(iter(raw.values())))
        before = self.fresh(count) if state is None else self._checked(state, count)
        actions, after = self.choose(raw, before, None if deterministic else self._rng if rng is None else rng)
        return Decision(self._write(actions, single), after if self.remembers else None)

    def choose(
        self, raw: dict[str, Array], before: PolicyState, rng: np.random.Generator | None = None
    ) -> tuple[dict[str, Array], PolicyState]:
        """Return (actions as `ActionSpec.array` says, state for the next call), name -> [B, ...] each.

        Args:
            raw: name -> [B, ...] as in `spec.observations`.
            rng: Draws the actions; None: the most probable ones.

        Raises:
            DistrlError: As `act`, of the graph.
        """
        choice = self.decide(raw, before, np.full(len(before.begins), rng is None), rng or self._rng)
        return choice.actions, choice.state

    def decide(self, raw: dict[str, Array], before: PolicyState, greedy: BoolArray, rng: np.random.Generator) -> Choice:
        """Choose actions, for some rows the most probable ones and for the others drawn ones.

        Args:
            raw: As of `choose`.
            greedy: bool [B]. The most probable action, in place of a drawn one.

        Raises:
            DistrlError: As `act`, of the graph.
        """
        count = len(before.begins)
        seen = self._seen(raw, before, count)
        output = self._policy.step(seen, before.recurrent)
        self._check(output, count)
        chosen: dict[str, Array] = {}
        if greedy.any():
            chosen = self._selector.mode(output.outputs)
        if not greedy.all():
            drawn, _ = self._selector.sample(output.outputs, rng)
            chosen = {
                name: np.where(greedy.reshape(count, *[1] * (array.ndim - 1)), chosen[name], array) if chosen else array
                for name, array in drawn.items()
            }
        stacks = {name: seen[name] for name in self._stacks}
        state = PolicyState(output.recurrent_state, stacks, np.zeros(count, np.bool_))
        return Choice(self._pipeline.actions(chosen), chosen, output.outputs, state)

    def log_probabilities(self, choice: Choice) -> FloatArray:
        """Return the log-probability of each row's actions, float32 [B]; 0 for a policy of values."""
        return self._selector.log_probability(choice.outputs, choice.chosen)

    @property
    def distributions(self) -> Mapping[str, FamilySpec]:
        """Action -> how the policy's outputs are read."""
        return self._policy.distributions

    def written(self, actions: Mapping[str, Array]) -> Any:
        """Return actions as `env.step` takes them, with a batch axis."""
        return self._write(actions, False)

    def joined(self, states: Sequence[PolicyState | None]) -> PolicyState:
        """Return the state of several environments, of each one's own; None: its first observation comes next."""
        fresh = self.fresh(len(states))
        if not self.remembers or all(state is None for state in states):
            return fresh
        begins = np.array([state is None or state.begins[0] for state in states])
        # Rows that begin are overwritten with their first stack.
        blank = {name: np.zeros((1, *spec.shape), spec.dtype) for name, spec in self._policy.spec.observations.items()}
        rows = [fresh.recurrent if state is None else state.recurrent for state in states]
        stacks = [(state.stacks if state is not None else {}) or blank for state in states]
        recurrent = {name: np.concatenate([row[name][:1] for row in rows]) for name in fresh.recurrent}
        return PolicyState(
            recurrent, {name: np.concatenate([row[name] for row in stacks]) for name in self._stacks}, begins
        )

    def takes(self, state: PolicyState) -> bool:
        """Whether a state, of another version perhaps, has this policy's arrays."""
        specs = self._policy.spec.observations
        stacks = {name: (specs[name].shape, np.dtype(specs[name].dtype)) for name in self._stacks}
        return _arrays_of(self._policy.initial_state(1)) == _arrays_of(state.recurrent) and (
            not state.stacks or stacks == _arrays_of(state.stacks)
        )

    def row(self, state: PolicyState, index: int) -> PolicyState | None:
        """Return a copy of one environment's state; None if the policy remembers nothing."""
        if not self.remembers:
            return None
        one = slice(index, index + 1)
        recurrent = {name: array[one].copy() for name, array in state.recurrent.items()}
        return PolicyState(
            recurrent, {name: array[one].copy() for name, array in state.stacks.items()}, state.begins[one]
        )

    def _check(self, output: PolicyOutput, count: int) -> None:
        """Refuse outputs of a foreign graph: texts, lists, or arrays of other shapes."""
        described = self.exported.policy
        wanted = {name: ArraySpec(shape, "float32") for name, shape in described.outputs.items()}
        for name, array in {**output.outputs, **output.recurrent_state}.items():
            spec = wanted.get(name) or described.recurrent_state[name]
            if not isinstance(array, np.ndarray) or array.shape != (count, *spec.shape) or array.dtype != spec.dtype:
                what = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
                raise DistrlError(f"the graph puts out {what} as {name!r}, not {spec.dtype} {(count, *spec.shape)}")

    def fresh(self, count: int) -> PolicyState:
        """Return the state of so many environments before their first observations."""
        return PolicyState(self._policy.initial_state(count), {}, np.ones(count, np.bool_))

    def _checked(self, state: PolicyState, count: int) -> PolicyState:
        if not self.remembers:
            raise DistrlError("this policy remembers nothing: its state is None")
        if len(state.begins) != count:
            raise DistrlError(f"the state is of {len(state.begins)} environments, the observations are of {count}")
        return state

    def _seen(self, raw: dict[str, Array], before: PolicyState, count: int) -> dict[str, Array]:
        """Preprocess observations. The pipeline starts fresh each time; earlier frames are in the stacks."""
        self._pipeline.reset()
        seen = self._pipeline.observations(raw, np.ones(count, np.bool_))
        for name, size in self._stacks.items():
            if not before.begins.all():
                newest = frames.newest(seen[name], size)
                seen[name] = frames.advanced(before.stacks[name], newest, before.begins, size)
        return seen


def _forms(spec: EnvSpec) -> tuple[dict[str, tuple[tuple[int, ...], str]], dict[str, ActionSpec]]:
    """Shapes and dtypes of a spec's observations, and its actions."""
    return {name: (array.shape, array.dtype) for name, array in spec.observations.items()}, spec.actions


def _arrays_of(arrays: dict[str, Array]) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """Shape of one row, and dtype, of each array."""
    return {name: (array.shape[1:], array.dtype) for name, array in arrays.items()}


def load_policy(path: str | Path) -> ExportedPolicy:
    """Load the policy from a file that `distrl export` wrote.

    Raises:
        ConfigError: The file cannot be read.
        DistrlError: It is not an exported policy, is damaged, or wants data from outside of it.
    """
    try:
        content = read_small(Path(path), MOST_POLICY_BYTES)
    except OSError as error:
        raise ConfigError(f"policy {path} cannot be read: {error.strerror}") from error
    try:
        return ExportedPolicy(*opened(content))
    except DistrlError as error:
        raise DistrlError(f"policy {path}: {error}") from error
