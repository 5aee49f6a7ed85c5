"""A world whose films take time, in a module that is quickly imported by every process of a run."""

from typing import Any, ClassVar

import numpy as np

from distrl.environments.worlds.toy import StepCounter
from tests.waiting import lasts


class Filmed(StepCounter):
    """Drawing a picture takes `render_s`; nothing else takes time."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 12}

    def __init__(self, steps: int, render_s: float, render_mode: str | None = None) -> None:
        super().__init__(terminate_at_steps=steps)
        self.render_mode, self._render_s = render_mode, render_s

    def render(self) -> Any:
        lasts(self._render_s)
        return np.full((48, 64, 3), self._steps, np.uint8)
