"""A learner starts again where it does not see the run's directory, as on another host of a Ray cluster."""

import pytest

from tests.faults.arguments import sets

pytestmark = [pytest.mark.slow, pytest.mark.redis, pytest.mark.long]


@pytest.mark.parametrize("launcher", ["process", pytest.param("ray", marks=pytest.mark.ray)])
def test_a_learner_without_the_directory_goes_on_and_the_user_is_told(start_run, unhurried, launcher):
    constant = sets("network.learning_rate_decay_rate=0", "network.learning_rate_decay_steps=0")
    run = start_run(*unhurried, *constant, *sets("checkpoint.every_s=null"), "--launcher", launcher)
    run.wait_for_updates(10)
    before, first = run.snapshot, run.role("learner").pid
    (run.run_dir / "run.json").rename(run.run_dir.parent / "run.json")
    run.kill("learner")
    run.wait_until(lambda: run.role("learner").pid != first and run.state("learner") == "training", "it trains again")
    run.wait_for_updates(before["updates"] + 5)
    assert run.snapshot["env_steps"] > before["env_steps"]
    run.backend.registry.set_control(stop="asked")
    summary = run.finish()
    assert summary.error is None
    assert (summary.exit_code, summary.restarts, summary.imbalance, summary.rolled_back) == (0, 1, 0, 0)
    assert "the learner goes on from the published weights (version " in run.told
    assert f"no checkpoint of the run is in {run.run_dir} on " in run.told
    assert "share the run's directory between all hosts" in run.told
