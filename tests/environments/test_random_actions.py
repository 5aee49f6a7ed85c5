"""Random actions are drawn from what a mask allows."""

import numpy as np
import pytest

from distrl.config.environment import EnvironmentConfig
from distrl.config.network import NetworkParameters
from distrl.environments.check import CheckedEpisode, FirstObservation, look, speed
from distrl.environments.probe import probe
from distrl.environments.random_actions import RandomActions, require_a_choice
from distrl.errors import ConfigError
from distrl.types import ArraySpec, BoxSpec, DiscreteSpec, EnvSpec, MultiBinarySpec, MultiDiscreteSpec

FOUR = ArraySpec((4,), "int8", 0.0, 1.0)


def masked(how="auto", **kwargs):
    return EnvironmentConfig(id="distrl.environments.worlds.toy:Masked", vectorization=how, kwargs=kwargs)


def drawn(action, mask, name="action_mask", configured=None):
    """The rows that are drawn for each row of the mask, 500 times."""
    rows = np.asarray(mask, np.int8)
    spec = EnvSpec("E", {name: ArraySpec(rows.shape[1:], "int8")}, {"action": action})
    draw = RandomActions(spec, np.random.default_rng(0), configured)
    return np.stack([draw({name: rows})["action"] for _ in range(500)], axis=1)


@pytest.mark.parametrize("configured", [None, "deep/action_mask"])
def test_choices_are_uniform_among_those_allowed(configured):
    first, second, none = drawn(
        DiscreteSpec(4, start=3), [[0, 1, 0, 1], [0, 0, 1, 0], [0, 0, 0, 0]], "deep/action_mask", configured
    )
    assert first.dtype == np.int32
    assert np.bincount(first, minlength=4) / 500 == pytest.approx([0.0, 0.5, 0.0, 0.5], abs=0.1)
    assert set(second) == {2}
    assert set(none) == {0, 1, 2, 3}  # as after an episode's end


def test_several_choices_and_switches():
    (several,) = drawn(MultiDiscreteSpec((2, 3), (0, 0)), [[0, 1, 1, 0, 1]])
    assert {tuple(row) for row in several.tolist()} == {(1, 0), (1, 2)}
    (switches,) = drawn(MultiBinarySpec((2,)), [[1, 0]])
    assert {tuple(row) for row in switches.tolist()} == {(0, 0), (1, 0)}


@pytest.mark.parametrize(
    ("observations", "action", "mask"),
    [
        ({"action_mask": FOUR}, DiscreteSpec(4), "action_mask"),
        ({"a/action_mask": FOUR, "b": FOUR}, DiscreteSpec(4), "a/action_mask"),
        ({"a/action_mask": FOUR, "b/action_mask": FOUR}, DiscreteSpec(4), None),  # which of them?
        ({"action_mask": FOUR}, DiscreteSpec(5), None),
        ({"action_mask": FOUR}, BoxSpec((4,), (0.0,) * 4, (1.0,) * 4), None),
        ({"mask": FOUR}, DiscreteSpec(4), None),
    ],
)
def test_a_mask_that_the_configuration_does_not_name_is_taken_where_it_can_be_no_other(observations, action, mask):
    draw = RandomActions(EnvSpec("E", observations, {"action": action}), np.random.default_rng(0))
    assert draw.mask == mask


def test_a_configured_mask_must_fit():
    spec = EnvSpec("E", {"mask": FOUR}, {"action": DiscreteSpec(5)})
    with pytest.raises(ConfigError, match=r"observation 'mask' must be \[5\], one for each choice, not \[4\]"):
        RandomActions(spec, np.random.default_rng(0), "mask")


def test_heads_name_the_mask():
    heads = [{"kind": "value"}, {"kind": "ppo", "action_mask": "legal"}]
    assert NetworkParameters.model_validate({"heads_parameters": heads}).action_mask == "legal"
    assert NetworkParameters().action_mask is None


def test_the_trial_before_launch_chooses_what_is_allowed():
    assert probe(masked()).actions == {"action": DiscreteSpec(6)}
    legal = {"mask": "legal"}
    assert probe(masked(**legal), action_mask="legal").actions == {"action": DiscreteSpec(6)}
    with pytest.raises(ConfigError, match="is not allowed by"):
        probe(masked(**legal))  # nothing says that it is a mask


def test_the_check_chooses_what_is_allowed():
    episodes = [found for found in look(masked()) if isinstance(found, CheckedEpisode)]
    assert [episode.length_steps for episode in episodes] == [8, 8, 8]
    (*_, measured, _) = speed(masked(how="sync"), 3, for_s=0.1)
    assert measured.steps_per_s > 0


def test_the_check_writes_no_picture_unasked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kwargs = {"world": "8x16", "state_representation": "cam", "max_episode_steps": 5}
    world = EnvironmentConfig(id="distrl.environments.worlds.grid_world:GridWorld", kwargs=kwargs)
    (seen,) = [found for found in look(world) if isinstance(found, FirstObservation)]
    assert (seen.path, seen.text) == (None, "an image of 160 x 80; --pictures DIR saves it")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("action", "mask", "refused"),
    [
        (DiscreteSpec(3), [[0, 1, 0], [1, 1, 1]], False),
        (DiscreteSpec(3), [[0, 1, 0], [0, 0, 0]], True),
        (MultiDiscreteSpec((2, 2), (0, 0)), [[1, 0, 0, 1]], False),
        (MultiDiscreteSpec((2, 2), (0, 0)), [[1, 1, 0, 0]], True),
        (MultiBinarySpec((2,)), [[0, 0]], False),
    ],
)
def test_a_mask_that_forbids_everything_is_refused_in_one_line(action, mask, refused):
    rows = np.asarray(mask, np.int8)
    spec = EnvSpec("Board", {"legal": ArraySpec(rows.shape[1:], "int8")}, {"action": action})
    require_a_choice(spec, None, {"legal": 0 * rows})
    if not refused:
        require_a_choice(spec, "legal", {"legal": rows})
        return
    with pytest.raises(
        ConfigError, match=r"^Board: observation 'legal' forbids every choice while .*; allow one, or end"
    ):
        require_a_choice(spec, "legal", {"legal": rows})


NEVER = """
from distrl.environments.worlds.toy import Masked

class Stuck(Masked):
    def _show(self):
        shown = super()._show()
        if self._steps == 2:
            shown["action_mask"][:] = 0
        return shown
"""


def test_the_trial_before_launch_finds_it(tmp_path, monkeypatch):
    (tmp_path / "stuck_board.py").write_text(NEVER)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="stuck_board:Stuck: observation 'action_mask' forbids every choice"):
        probe(EnvironmentConfig(id="stuck_board:Stuck"), action_mask="action_mask")
