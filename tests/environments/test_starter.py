"""A first configuration is one that loads, and says what the check has seen."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary

from distrl.config.action_masks import unused_mask_note
from distrl.config.environment import EnvironmentConfig
from distrl.config.load import load
from distrl.environments.check import CheckedSpaces, Infos, look
from distrl.environments.starter import starter


class Shop(gymnasium.Env):
    """Three steps an episode; with numbers, text and an array in info, a mask, and large rewards."""

    reward_threshold = 900.0

    def __init__(self, pays: float = 300.0) -> None:
        self.observation_space = Dict(
            {"action_mask": MultiBinary(3), "stock": Box(-np.inf, np.inf, (2,)), "share": Box(0.0, 1.0, (1,))}
        )
        self.action_space = Discrete(3)
        self._pays = pays

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._steps = 0
        return self._shown(), {"only at reset": 1}

    def step(self, action: Any) -> Any:
        assert action < 2
        self._steps += 1
        info = {
            "sold": np.float32(2.0),
            "days open": self._steps,
            "days/open": 1,
            "TimeLimit.truncated": False,
            "note": "quiet",
            "visits": np.zeros(24),
            "is_success": True,
        }
        return self._shown(), self._pays, self._steps == 3, False, info

    def _shown(self) -> dict[str, np.ndarray]:
        return {
            "action_mask": np.array([1, 1, 0], np.int8),
            "stock": np.zeros(2, np.float32),
            "share": np.zeros(1, np.float32),
        }


SHOP = f"{__name__}:Shop"
WRITTEN = f"""\
# A first configuration for {SHOP}, from three episodes with random actions: distrl train FILE
# normalize: the numbers of stock have no bounds, or wide ones
# action_mask: action_mask has a number for each choice
# stop.mean_return: the environment's own threshold
# metrics: numbers of info, of each episode's last step; sum, mean, max and min are the other ways
# reward_normalization: rewards are about 300 in size
environment:
  id: {SHOP}
  metrics:
    days/open: last
    sold: last
algorithm:
  name: ppo
  reward_normalization:
    kind: discounted_return
network:
  input_embedders_parameters:
    stock:
      normalize: true
  heads_parameters:
  - kind: ppo
    action_mask: action_mask
stop:
  env_steps: 500000
  mean_return: 900.0
"""


def test_a_check_of_an_environment_is_written_as_a_configuration_that_loads(tmp_path: Any) -> None:
    config = EnvironmentConfig(id=SHOP)
    findings = [*look(config)]
    (spaces,) = (found for found in findings if isinstance(found, CheckedSpaces))
    (infos,) = (found for found in findings if isinstance(found, Infos))
    assert spaces.mask == "action_mask"
    assert infos.numbers == ("days open", "days/open", "is_success", "sold")
    assert infos.others == ("TimeLimit.truncated", "note", "visits")
    assert starter(config, findings) == WRITTEN
    (tmp_path / "shop.yaml").write_text(WRITTEN)
    loaded = load(file=tmp_path / "shop.yaml").config
    assert loaded.environment.metrics == {"days/open": "last", "sold": "last"}
    assert unused_mask_note(loaded, spaces.spec) is None
    loaded.algorithm.check_actions(spaces.spec)


@pytest.mark.parametrize("vectorization", ["sync", "own"])
def test_what_was_configured_stays_and_what_needs_no_word_has_none(vectorization: str) -> None:
    given = {"id": "CartPole-v1", "kwargs": {"sutton_barto_reward": True}, "vectorization": vectorization}
    config = EnvironmentConfig.model_validate(given)
    text = starter(config, look(config))
    assert text.splitlines()[1].startswith("# normalize: the numbers of observation have no bounds")
    assert f"  vectorization: {vectorization}\n" in text
    assert "  kwargs:\n    sutton_barto_reward: true\n" in text
    assert "metrics" not in text
    assert "reward_normalization" not in text
