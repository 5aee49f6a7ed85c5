"""Tasks of bsuite: what counts, and distrl's settings for them."""

import pytest

from benchmarks.behaviour.tasks import EXPERIMENTS, MEMORIES, SEAS, TASKS
from benchmarks.provenance import resolved


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_every_task_is_a_configuration_of_one_environment_in_one_process(task):
    config = resolved(task.row)
    assert (config.actors.count, config.actors.environments) == (0, 1)
    assert config.environment.kwargs == {"bsuite_id": task.bsuite_id}
    assert config.algorithm.discount == 0.99
    assert config.checkpoint.every_updates > task.row.env_steps  # bsuite's log counts rewards of abandoned episodes
    network = config.network  # optax's Adam
    assert (network.clip_gradients, network.optimizer_epsilon, network.adam_optimizer_beta2) == (None, 1e-8, 0.999)


def test_names_are_their_own():
    assert len({task.name for task in TASKS}) == len(TASKS)


def test_settings_are_those_of_bsuite():
    lengths = [*range(1, 11), 12, 14, 17, 20, 25, *range(30, 105, 10)]  # bsuite/experiments/memory_len/sweep.py
    sizes = range(10, 51, 2)  # deep_sea/sweep.py
    assert {index: lengths[index] for index in MEMORIES} == MEMORIES
    assert {index: sizes[index] for index in SEAS} == SEAS


def test_a_training_has_all_episodes():
    by_name = {task.name: task.row.env_steps for task in TASKS}
    assert by_name["actor_critic_rnn-memory_len-2"] == 10_000 * 4  # a cue, two steps of waiting, the answer
    assert by_name["actor_critic_rnn-discounting_chain-0"] == 1_000 * 100
    assert by_name["boot_dqn-deep_sea-0"] == 1_200 * 10


def test_values_learn_as_often_as_there():
    (task,) = (task for task in TASKS if task.name == "boot_dqn-deep_sea-0")
    config = resolved(task.row)
    assert config.algorithm.replay.samples_per_insert == config.learner.batch_size == 128
    assert config.actors.unroll_length_steps == 1
    assert (config.algorithm.target_update_every_updates, config.algorithm.double) == (4, False)


def logged(experiment, **totals):
    ends = [experiment.episodes // 10, experiment.episodes, 2 * experiment.episodes]
    return [
        {"episode": end, **{name: value[index] for name, value in totals.items()}} for index, end in enumerate(ends)
    ]


@pytest.mark.parametrize(("right", "learned"), [(6_250, False), (6_251, True)])
def test_a_memory_counts_by_its_last_row(right, learned):
    experiment = EXPERIMENTS["memory_len"]
    log = logged(experiment, total_perfect=[1_000, right, 20_000])
    assert experiment.outcome(log, None) == (right / 10_000, learned)
    # bsuite/experiments/memory_len/analysis.py: errors over those of random answers
    assert ((10_000 - right) / 0.5 / 10_000 < 0.75) is learned


@pytest.mark.parametrize(
    ("bad", "before", "learned"),
    [([120, 1_140], 1_201, False), ([107, 1_140], 121, True), ([107, 1_140], 120, False), ([108, 1_079], 1_200, False)],
)
def test_a_sea_counts_before_an_episode(bad, before, learned):
    experiment = EXPERIMENTS["deep_sea"]
    log = logged(experiment, total_bad_episodes=[*bad, 0])
    value, found = experiment.outcome(log, before)
    assert (value, found) == (pytest.approx(1 - bad[1] / 1_200), learned)


def test_random_actions_need_too_long_in_a_sea():
    by_name = {task.name: task.before for task in TASKS}
    assert by_name["boot_dqn-deep_sea-0"] == 1_124  # deep_sea/analysis.py
    assert by_name["actor_critic_rnn-memory_len-2"] is None


def test_a_chain_has_a_score_alone():
    experiment = EXPERIMENTS["discounting_chain"]
    assert experiment.outcome(logged(experiment, total_return=[100, 1_080, 2_200]), None) == (1.08, None)


@pytest.mark.parametrize("until", [0, 1])
def test_a_log_that_ends_early_is_refused(until):
    experiment = EXPERIMENTS["memory_len"]
    log = logged(experiment, total_perfect=[1_000, 9_000, 18_000])[:until]
    with pytest.raises(ValueError, match=f"last row is of episode {1_000 * until:,}, and 10,000 are needed"):
        experiment.outcome(log, None)
