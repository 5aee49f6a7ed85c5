"""Pictures of a vector's first environment, or one line that says why there are none."""

from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest

from distrl.environments.rendering import frames_per_s, picture
from distrl.errors import ConfigError, EnvironmentFailedError, MissingExtraError


def vector(render, **metadata):
    """What surrounds an environment that renders as `render` does."""
    first = SimpleNamespace(render=render, metadata=metadata)
    return SimpleNamespace(unwrapped=SimpleNamespace(envs=[first, SimpleNamespace(render=pytest.fail)]))


def raises(error):
    def render():
        raise error

    return render


def test_the_first_environment_is_shown():
    shown = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    np.testing.assert_array_equal(picture("e", vector(lambda: shown)), shown)
    assert frames_per_s(vector(None, render_fps=50)) == 50.0
    assert frames_per_s(vector(None)) == frames_per_s(vector(None, render_fps=None)) == 30.0


@pytest.mark.parametrize(
    "shown", [None, "text", np.zeros((2, 2), np.uint8), np.zeros((2, 2, 3)), np.zeros((2, 2, 4), np.uint8)]
)
def test_what_is_no_picture_is_one_line(shown):
    with pytest.raises(ConfigError, match=r"environment e renders no pictures \(rgb_array\)"):
        picture("e", vector(lambda: shown))


def test_what_it_draws_with_may_be_missing_and_it_may_fail():
    missing = gymnasium.error.DependencyNotInstalled("pygame")
    with pytest.raises(
        MissingExtraError, match=r"what environment e draws with is not installed: pip install .*\[video\]"
    ):
        picture("e", vector(raises(missing)))
    with pytest.raises(EnvironmentFailedError, match="environment e failed in render: OSError: no display"):
        picture("e", vector(raises(OSError("no display"))))
