"""A world whose infos have numbers, in a module that is quickly imported by every process of a run."""

from typing import Any

from distrl.environments.worlds.toy import Identity


class Measured(Identity):
    """Episodes of three steps, whose infos have numbers that can be added by hand."""

    _episode = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._episode, self._step = self._episode + 1, 0
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        self._step += 1
        info = {"pay": self._step, "episode": self._episode, "drawn": self.np_random.random()}
        if self._episode > 2:
            info["late"] = float(self._episode)
        return *super().step(action)[:4], info
