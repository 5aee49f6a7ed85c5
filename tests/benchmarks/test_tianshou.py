import pytest

from benchmarks import tianshou
from benchmarks.measurement import keep
from benchmarks.provenance import resolved
from benchmarks.report import report_tree
from distrl.replay.rate_limiter import RateLimiter

BY_NAME = {entry.name: entry for entry in tianshou.ENTRIES}


def config(name):
    return resolved(BY_NAME[name].row)


@pytest.mark.parametrize("name", BY_NAME)
def test_every_training_has_100000_updates_after_its_random_steps(name):
    """10,000 random steps for SAC and 25,000 for the others, which Tianshou collects before it counts."""
    found = config(name)
    random_steps = found.exploration.random_steps
    assert random_steps == (10_000 if name.startswith("sac") else 25_000)
    assert (found.actors.count, BY_NAME[name].row.env_steps) == (0, 100_000 + random_steps)
    limiter = RateLimiter(found.algorithm.replay.samples_per_insert, found.algorithm.replay.min_size_steps)
    limiter.insert(random_steps - 1)
    assert not limiter.may_sample(found.learner.batch_size)
    updates = 0
    for _ in range(1_001):
        limiter.insert(found.actors.unroll_length_steps)
        while limiter.may_sample(found.learner.batch_size):
            limiter.sample(found.learner.batch_size)
            updates += 1
    assert updates == 1_000  # the first after step random_steps + 1


def test_settings_are_theirs():
    sac, td3, ddpg = (config(f"{name}-halfcheetah") for name in ("sac", "td3", "ddpg"))
    assert [each.network.learning_rate for each in (sac, td3, ddpg)] == [1e-3, 3e-4, 1e-3]
    assert (sac.algorithm.initial_temperature, sac.algorithm.temperature_learning_rate) == (0.2, 0.0)
    assert {each.algorithm.target_update_rate for each in (sac, td3, ddpg)} == {0.005}
    assert {each.algorithm.discount for each in (sac, td3, ddpg)} == {0.99}
    noise = td3.algorithm
    assert (noise.target_noise, noise.target_noise_clip, noise.policy_every_updates) == (0.2, 0.5, 2)
    assert td3.exploration.stddev.value == ddpg.exploration.stddev.value == 0.1 / 2
    assert config("sac-ant").environment.kwargs == {"include_cfrc_ext_in_observation": False}


def test_the_table_has_their_scores_beside_ours(result, tmp_path):
    results = [result("td3-hopper", 1, 600.0), result("td3-hopper", 2, 700.0)]
    keep(tmp_path / "tianshou.json", report_tree([BY_NAME["td3-hopper"].row], results, {}, "c", [1, 2]))
    *_, heads, _, line = tianshou.SCORES.block(tmp_path / "tianshou.json").splitlines()
    assert heads.endswith("ten trainings |")
    assert line == "| Hopper-v5 | TD3 | 125,000 | 600 | 700 | 650 | 596.5 ± 287.8 |"


def test_the_page_is_what_the_committed_report_says(page_agrees):
    assert page_agrees("tianshou", tianshou.SCORES.block)
