"""Worlds of few states, whose true values are known by dynamic programming, played by many at once."""

from typing import NamedTuple

import gymnasium
import numpy as np

from distrl.data.off_policy.fitted_q import Steps


class Played(NamedTuple):
    """Episodes, one after the other: states and actions of steps [N], observations [N + E], lengths [E]."""

    states: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    observations: np.ndarray
    lengths: np.ndarray
    terminated: np.ndarray


def steps_of(played, discount):
    discounts = np.full(len(played.rewards), discount)
    discounts[np.cumsum(played.lengths)[played.terminated] - 1] = 0.0
    episodes = np.repeat(np.arange(len(played.lengths)), played.lengths)
    return Steps(played.rewards, discounts, episodes, played.lengths)


class World:
    """A world by its table.

    Args:
        outcomes: [S, A, K] each: probabilities, next states, rewards, and whether the episode is over.
        first: [S]. Probabilities of first states.
        softness: Of the policies: shares of random actions beside the best one, of the one that acts and the target's.
    """

    def __init__(self, outcomes, first, discount, episodes, softness, most_steps=200):
        self._chances, self._follows, self._rewards, self._over = outcomes
        self._first, self.discount, self._episodes, self._most_steps = first, discount, episodes, most_steps
        best = self._solved(None).argmax(axis=1)
        self.behaviour, self.target = (self._soft(best, share) for share in softness)
        self.value = float(first @ (self._solved(self.target) * self.target).sum(axis=1))

    def _soft(self, best, share):
        policy = np.full(self._chances.shape[:2], share / self._chances.shape[1])
        policy[np.arange(len(best)), best] += 1.0 - share
        return policy

    def _solved(self, policy):
        """Return Q [S, A] of a policy [S, A]; None: of the best one."""
        q = np.zeros(self._chances.shape[:2])
        for _ in range(2_000):
            v = q.max(axis=1) if policy is None else (policy * q).sum(axis=1)
            q = (self._chances * (self._rewards + self.discount * ~self._over * v[self._follows])).sum(axis=2)
        return q

    def play(self, rng):
        count = self._episodes
        state = rng.choice(len(self._first), count, p=self._first)
        shown, acted, paid = [state], [], []
        lengths, terminated, plays = np.zeros(count, np.int64), np.zeros(count, np.bool_), np.ones(count, np.bool_)
        for _ in range(self._most_steps):
            action = (rng.random(count)[:, None] > self.behaviour[state].cumsum(axis=1)).sum(axis=1)
            outcome = (rng.random(count)[:, None] > self._chances[state, action].cumsum(axis=1)).sum(axis=1)
            where = state, action, np.minimum(outcome, self._chances.shape[2] - 1)
            lengths += plays
            acted.append(action)
            paid.append(self._rewards[where])
            state = np.where(plays, self._follows[where], state)
            shown.append(state)
            terminated |= plays & self._over[where]
            plays &= ~self._over[where]
            if not plays.any():
                break
        taken = np.arange(len(acted)) < lengths[:, None]
        seen = np.arange(len(shown)) <= lengths[:, None]
        states = np.stack(shown, axis=1)
        return Played(
            states[:, :-1][taken],
            np.stack(acted, axis=1)[taken],
            np.stack(paid, axis=1)[taken],
            states[seen],
            lengths,
            terminated,
        )


def _of_gymnasium(name, discount, episodes, softness, **options):
    env = gymnasium.make(name, **options).unwrapped
    states, choices = env.observation_space.n, env.action_space.n
    most = max(len(outcomes) for row in env.P.values() for outcomes in row.values())
    chances, rewards = np.zeros((states, choices, most)), np.zeros((states, choices, most))
    follows, over = np.zeros((states, choices, most), np.int64), np.zeros((states, choices, most), np.bool_)
    for state, row in env.P.items():
        for action, outcomes in row.items():
            for place, outcome in enumerate(outcomes):
                at = state, action, place
                chances[at], follows[at], rewards[at], over[at] = outcome
    first = np.asarray(env.initial_state_distrib, np.float64)
    return World((chances, follows, rewards, over), first / first.sum(), discount, episodes, softness)


def _chain(length=6):
    """A corridor: on, or back to the start; each fails with probability .2. The far end pays and is the end."""
    chances = np.tile([0.8, 0.2], (length, 2, 1))
    on, back = np.minimum(np.arange(length) + 1, length - 1), np.zeros(length, np.int64)
    follows = np.stack([np.stack([on, back], axis=1), np.stack([back, on], axis=1)], axis=1)
    over = follows == length - 1
    rewards = np.where(over, 1.0, -0.05)
    first = np.zeros(length)
    first[0] = 1.0
    return World((chances, follows, rewards, over), first, 0.95, 300, (0.5, 0.4))


WORLDS = {
    "chain": _chain,
    "FrozenLake-v1": lambda: _of_gymnasium("FrozenLake-v1", 0.95, 800, (0.5, 0.3)),
    "Taxi-v4": lambda: _of_gymnasium("Taxi-v4", 0.95, 2_000, (0.8, 0.75)),
}
