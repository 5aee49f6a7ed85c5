import pytest

from distrl.config.load import load
from distrl.config.presets import nearest, presets, read_preset
from distrl.errors import ConfigError


@pytest.mark.row("D40")
def test_presets_have_a_name_and_a_line():
    described = presets()
    assert "cartpole-impala" in described
    assert described["cartpole-impala"].startswith("CartPole-v1 with IMPALA")
    assert all(line and "\n" not in line for line in described.values())


@pytest.mark.row("R02")
@pytest.mark.parametrize("name", sorted(presets()))
def test_every_preset_validates_and_has_an_acceptance_threshold(name):
    config = load(preset=name).config
    assert config.stop.mean_return is not None
    assert config.stop.env_steps is not None
    assert "Acceptance:" in read_preset(name)


def test_cartpole_is_what_the_issue_asks_for():
    config = load(preset="cartpole-impala").config
    assert config.environment.id == "CartPole-v1"
    assert config.algorithm.name == "impala"
    assert config.actors.count == 2
    assert (config.stop.mean_return, config.stop.env_steps) == (475.0, 1_000_000)


@pytest.mark.row("D40")
def test_an_unknown_preset_names_the_nearest():
    with pytest.raises(ConfigError, match=r"^unknown preset 'CartPole_impala'; did you mean cartpole-impala or "):
        read_preset("CartPole_impala")
    with pytest.raises(ConfigError, match=r"^unknown preset '\.\./x'; known: cartpole-"):
        read_preset("../x")


def test_nearest_names():
    assert nearest("abd", ["abc", "xyz"]) == "did you mean abc?"
    assert nearest("qqq", ["abc", "xyz"]) == "known: abc, xyz"
