"""Loops of a user's own that join a run as one more actor."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import distrl
from distrl.errors import ConfigError, DistrlError
from tests.faults.arguments import sets

pytestmark = [pytest.mark.slow, pytest.mark.redis]

SPACES = "{observation_space: {type: Box, shape: [3]}, action_space: {type: Discrete, n: 2}}"


@pytest.mark.row("G06", "G20")
def test_loops_join_a_run_that_starts_no_actors(start_run, redis_url):
    """The run has nothing but their spaces; nothing is lost when they leave, and after its end nothing is learned."""
    run = start_run(
        *("--env", "game", "--algorithm", "impala", "--no-actors", "--redis-url", redis_url),
        *sets(f"environment.spaces={SPACES}", "learner.batch_size=2"),
        *sets("actors.environments=1", "actors.unroll_length_steps=4", "network.middleware_parameters.scheme=[8]"),
    )
    run.wait_until(lambda: run.state("learner").startswith(("waiting", "training")), "the learner waits")
    with distrl.Agent(run=run.run_dir) as agent:
        assert agent.act(np.zeros(3, np.float32), "greedy", greedy=True) in (0, 1)
        shown = np.random.default_rng(0)
        for step in range(200):
            for loop in "ab":
                agent.act(shown.normal(size=3).astype(np.float32), loop)
                agent.observe(1.0, step % 5 == 4, id=loop)
        run.wait_until(lambda: run.backend.weights.version() > 50, "it learns from all of it")
        assert [role.id for role in run.backend.registry.roles() if role.role == "actor"] == [10_000]
        with pytest.raises(DistrlError, match=r"^update: the run's learner makes updates as unrolls come"):
            agent.update()
        agent.save()
        assert list((run.run_dir / "checkpoints").glob("ckpt-*"))
        run.process.terminate()
        summary = run.finish()
        run.wait_until(lambda: agent.ended == "SIGTERM", "the agent knows of the end")
        with pytest.raises(DistrlError, match=r"^act: the run has ended \(SIGTERM\); act\(…, greedy=True\) goes on"):
            agent.act(np.zeros(3, np.float32), "c")
    assert agent.close() is None
    assert (summary.exit_code, summary.imbalance, summary.lost, summary.foreign) == (0, 0, 0, 0)
    assert summary.produced >= 60
    assert summary.mean_return_100 == 5.0


def test_loops_of_one_agent_would_wait_for_each_other_where_staleness_is_bounded(start_run, redis_url):
    run = start_run(
        *("--env", "game", "--algorithm", "ppo", "--no-actors", "--redis-url", redis_url),
        *sets(f"environment.spaces={SPACES}", "learner.batch_size=1", "algorithm.minibatches=1"),
        *sets("actors.environments=1", "actors.unroll_length_steps=4", "network.middleware_parameters.scheme=[8]"),
    )
    run.wait_until(lambda: run.state("learner").startswith(("waiting", "training")), "the learner waits")
    with distrl.Agent(run=run.run_dir) as agent:
        for _ in range(20):
            agent.act(np.zeros(3, np.float32))
            with pytest.raises(DistrlError, match=r"staleness is bounded \(ppo\).* give each an agent in its own "):
                agent.act(np.zeros(3, np.float32), "another")
            agent.observe(1.0, terminated=False)
        run.process.terminate()
        summary = run.finish()
    assert (summary.exit_code, summary.imbalance, summary.policy_lag.max) == (0, 0, 0)
    assert summary.trained >= 4


def test_what_does_not_fit_a_run_is_refused(start_run, tmp_path):
    with pytest.raises(DistrlError, match=r"there is no run in .* yet"):
        distrl.Agent(run=tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"^sets: the run that is joined has its own; leave it out$"):
        distrl.Agent(run=tmp_path / "nowhere", sets=["seed=1"])
    run = start_run("--preset", "cartpole-impala", *sets("stop.mean_return=null", "actors.count=1"))
    run.wait_for_updates(1)
    spaces = {"observation_space": Box(0, 1, (3,)), "action_space": Discrete(2)}
    with pytest.raises(ConfigError, match=r"^the loop does not fit the run: "):
        distrl.Agent(run=run.run_dir, **spaces)
    with distrl.Agent(run=run.run_dir) as agent:  # of the run's own environment, beside its actor
        environment = gymnasium.make("CartPole-v1")
        result = distrl.Runner(agent, environment).run(updates=3)
    assert result.updates >= 3
