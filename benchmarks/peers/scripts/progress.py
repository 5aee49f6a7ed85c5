"""Shared parts of the scripts: arguments, the end of a run, and the progress file. Standard library only.

A script runs inside a peer's own environment, by `VENV/bin/python benchmarks/peers/scripts/NAME.py ARGUMENTS`. It
appends one JSON object per line to the progress file: right after its first update, then at most every `EVERY_S`, and
at its end.

    wall_s            float. Seconds since the command, whose start the driver passes
    env_steps         int. Environment steps so far (skipped frames do not count)
    updates           int. Optimizer steps so far, or training iterations if the peer reports no other count
    mean_return_100   float or null. Mean return of the last 100 training episodes; null before the 100th ended
"""

import argparse
import json
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

EVERY_S = 0.5
EPISODES = 100
ENVPOOL: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "cartpole": ("CartPole-v1", {}),
    "solve": ("CartPole-v1", {}),
    "halfcheetah": ("HalfCheetah-v5", {}),
    "pong": ("Pong-v5", {"episodic_life": False, "reward_clip": True, "repeat_action_probability": 0.25}),
}
"""Task -> its name in EnvPool, and its options."""


def arguments(description: str, algorithms: list[str], settings: Mapping[tuple[str, str], Mapping[str, Any]]) -> Any:
    """Return the driver's arguments with the `settings` of that algorithm and task, changed by `--set name=JSON`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--task", required=True, choices=sorted({task for _, task in settings}))
    parser.add_argument("--algorithm", choices=algorithms, default=algorithms[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--progress", type=Path, required=True, help="file that lines are appended to")
    parser.add_argument("--began", type=float, default=time.time(), help="when the command was given, since 1970")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of the run")
    parser.add_argument("--since", choices=["command", "first-update"], default="first-update", help="of --seconds")
    parser.add_argument("--until-return", type=float, help="ends the run once the mean of 100 episodes is there")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=JSON", help="for trying settings out")
    given = parser.parse_args()
    given.settings = dict(settings[given.algorithm, given.task])
    for name, _, value in (pair.partition("=") for pair in given.set):
        if name not in given.settings:
            parser.error(f"--set {name}: there is {', '.join(given.settings)}")
        given.settings[name] = json.loads(value)
    return given


class Progress:
    """Appends to the progress file and decides when the run is over."""

    def __init__(self, given: Any) -> None:
        self._given = given
        self._first_update_s: float | None = None
        self._told_s = 0.0
        self._returns: deque[float] = deque(maxlen=EPISODES)

    def episode(self, episode_return: float) -> None:
        """Record the return of a training episode, neither normalised nor clipped."""
        self._returns.append(float(episode_return))

    @property
    def mean_return_100(self) -> float | None:
        """Mean return of the last 100 episodes; None before the 100th."""
        return sum(self._returns) / EPISODES if len(self._returns) == EPISODES else None

    def update(self, env_steps: int, updates: int, mean_return_100: float | None = None) -> bool:
        """Record the progress after an update; return True once the run is over.

        Args:
            mean_return_100: The peer's own mean; None: that of the recorded episodes.
        """
        mean = self.mean_return_100 if mean_return_100 is None else mean_return_100
        now_s = time.time() - self._given.began
        if self._first_update_s is None:
            self._first_update_s = now_s
            self._told_s = -EVERY_S
        since_s = 0.0 if self._given.since == "command" else self._first_update_s
        reached = self._given.until_return is not None and mean is not None and mean >= self._given.until_return
        over = reached or now_s - since_s >= self._given.seconds
        if over or now_s - self._told_s >= EVERY_S:
            self._told_s = now_s
            row: dict[str, Any] = {"wall_s": round(now_s, 3), "env_steps": int(env_steps), "updates": int(updates)}
            row["mean_return_100"] = None if mean is None else round(mean, 2)
            with self._given.progress.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        return over
