import pytest

from distrl.config.load import load
from distrl.environments.extras import extras_of


@pytest.mark.parametrize(
    ("sets", "extras"),
    [
        (["environment.id=CartPole-v1"], set()),
        (["environment.id=ALE/Pong-v5"], {"atari"}),
        (["environment.id=ALE/Pong-v5", "environment.atari={stack: 4}"], {"atari"}),
        (["environment.id=HalfCheetah-v5"], {"mujoco"}),
        (["environment.id=LunarLander-v3"], {"box2d"}),
        (["environment.id=dm_control/cartpole-swingup-v0"], {"dm-control"}),
        (["environment.id=MinAtar/Breakout-v1"], {"minatar"}),
        (["environment.id=gym:CartPole-v1"], {"gym"}),
        (["environment.id=HalfCheetah-v4", "environment.vectorization=envpool"], {"envpool"}),
        (["environment.id=mine:Own", "environment.preprocessing=[{step: grayscale}]"], {"image"}),
        (["environment.id=tcp://host:9"], set()),
    ],
)
def test_extras_follow_from_the_name(sets, extras):
    assert extras_of(load(sets=sets).config.environment) == extras
