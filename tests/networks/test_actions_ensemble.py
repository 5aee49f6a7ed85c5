"""How an ensemble's members decide, with and without exploration."""

import numpy as np
import pytest

from distrl.actors.exploring.explorers import ActorRows, MemberOfEpisode, explorer_of, random_of
from distrl.config.exploration import MemberParameters, UcbParameters
from distrl.config.schedules import ConstantSchedule
from distrl.networks.actions.ensemble import EnsembleSpec, mean_values, upper_bounds, votes
from distrl.networks.actions.family import MASKED
from distrl.types import DiscreteSpec

NEVER = ConstantSchedule(value=0.0)
CHEN = np.array([[[1.0, 2.0], [3.0, 2.0]]], np.float32)
"""Two members value choice 0 at 1 and 3, choice 1 at 2 and 2."""


def flat(values):
    return values.reshape(len(values), -1)


@pytest.mark.row("D82")
def test_the_majority_decides():
    """Best choices 0, 1, 1 -> 1, although the mean of choice 0 is greater."""
    values = np.array([[[9.0, 0.0], [0.0, 1.0], [0.0, 1.0]]], np.float32)
    np.testing.assert_array_equal(votes(values), [[1.0, 2.0]])
    assert EnsembleSpec(2, 3, "q").sampler().mode(flat(values)).tolist() == [1]
    assert EnsembleSpec(2, 3, "q", "mean").sampler().mode(flat(values)).tolist() == [0]


@pytest.mark.row("D90")
def test_optimism_prefers_what_members_disagree_about():
    """Means are 2 and 2, deviations 1 and 0: 2.1 against 2 with a weight of .1; without exploration it is a tie."""
    np.testing.assert_allclose(upper_bounds(CHEN, 0.1), [[2.1, 2.0]], rtol=1e-6)
    np.testing.assert_array_equal(mean_values(CHEN), [[2.0, 2.0]])
    spec, rng = EnsembleSpec(2, 2, "q", "mean"), np.random.default_rng(0)
    explorer = explorer_of(UcbParameters(deviations=0.1, epsilon=NEVER), spec, DiscreteSpec(2), ActorRows(0, 1, 1))
    assert {int(explorer.sample(flat(CHEN), rng)[0][0]) for _ in range(50)} == {0}
    even = explorer_of(UcbParameters(deviations=0.0, epsilon=NEVER), spec, DiscreteSpec(2), ActorRows(0, 1, 1))
    assert {int(even.sample(flat(CHEN), rng)[0][0]) for _ in range(50)} == {0, 1}  # equal ones share evenly


@pytest.mark.row("D82")
def test_a_member_leads_for_a_whole_episode():
    rows, rng = ActorRows(0, 1, 3), np.random.default_rng(0)
    chooser = MemberOfEpisode(EnsembleSpec(2, 5, "q"), rows)
    values = np.arange(3 * 5 * 2, dtype=np.float32).reshape(3, 5, 2)
    seen = []
    for step in range(200):
        chosen = chooser.values(values, rng)
        np.testing.assert_array_equal(chosen, values[np.arange(3), chooser.members])
        seen.append(chooser.members.copy())
        if step % 10 == 9:
            rows.episodes += np.array([1, 0, 1])
    seen = np.array(seen)
    assert (seen[:, 1] == seen[0, 1]).all()  # its episode never ended
    assert (seen.reshape(20, 10, 3) == seen.reshape(20, 10, 3)[:, :1]).all()
    assert set(seen[:, 0]) == set(range(5))
    assert (seen[:, 0] != seen[:, 2]).any()


@pytest.mark.row("D82")
def test_the_leading_member_takes_its_best_choice():
    spec, rows, rng = EnsembleSpec(3, 2, "q"), ActorRows(0, 1, 4), np.random.default_rng(1)
    explorer = explorer_of(MemberParameters(), spec, DiscreteSpec(3), rows)
    values = np.tile(np.array([[[0.0, 5.0, 1.0], [7.0, 0.0, 2.0]]], np.float32), (4, 1, 1))
    taken = set()
    for _ in range(20):
        actions, log_probabilities = explorer.sample(flat(values), rng)
        assert set(actions.tolist()) <= {0, 1}
        np.testing.assert_allclose(log_probabilities, 0.0, atol=1e-6)
        taken |= set(actions.tolist())
        rows.episodes += 1
    assert taken == {0, 1}


def test_chance_is_drawn_over_the_allowed_choices():
    spec, rng = EnsembleSpec(3, 2, "q", masked=True), np.random.default_rng(2)
    values = np.zeros((1000, 2, 3), np.float32)
    values[..., 1] -= MASKED
    for explorer in (
        random_of(DiscreteSpec(3), spec),
        explorer_of(
            MemberParameters(epsilon=ConstantSchedule(value=1.0)), spec, DiscreteSpec(3), ActorRows(0, 1, 1000)
        ),
    ):
        actions, log_probabilities = explorer.sample(flat(values), rng)
        assert set(actions.tolist()) == {0, 2}
        assert 400 < np.count_nonzero(actions == 0) < 600
        np.testing.assert_allclose(log_probabilities, np.log(0.5), atol=1e-5)


@pytest.mark.row("D82", "D90")
def test_a_masked_choice_wins_neither_votes_nor_bounds():
    values = np.array([[[1.0, 50.0], [2.0, 60.0]]], np.float32)
    values[..., 1] -= MASKED
    assert EnsembleSpec(2, 2, "q").sampler().mode(flat(values)).tolist() == [0]
    assert int(np.argmax(upper_bounds(values, 10.0))) == 0
