import pytest

from benchmarks import minatar
from benchmarks.provenance import resolved

BY_NAME = {entry.name: entry for entry in minatar.ENTRIES}


@pytest.mark.parametrize("name", BY_NAME)
def test_settings_are_theirs(name):
    config = resolved(BY_NAME[name].row)
    replay = config.algorithm.replay
    assert (config.actors.count, config.actors.unroll_length_steps, config.learner.batch_size) == (0, 4, 32)
    assert replay.samples_per_insert * 4 == 32  # an update for every fourth step
    assert (replay.capacity_steps, replay.min_size_steps) == (100_000, 1_000)
    assert config.algorithm.target_update_every_updates * 4 == 1_000  # steps
    assert (config.algorithm.double, config.algorithm.replay.item.n_step) == (False, 1)
    assert config.network.learning_rate == 2.5e-4
    assert config.algorithm.name == "dqn"


def test_names_are_short():
    assert [*BY_NAME] == ["dqn-asterix", "dqn-breakout", "dqn-freeway", "dqn-spaceinvaders"]


def test_the_page_is_what_the_committed_report_says(page_agrees):
    assert page_agrees("minatar", minatar.SCORES.block)
