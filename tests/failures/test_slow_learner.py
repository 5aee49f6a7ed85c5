"""A learner much slower than its actors: they wait, nothing piles up, and nothing is lost."""

import json
import time

import pytest

from tests.faults.arguments import sets
from tests.faults.processes import Taken, slope_per_h
from tests.waiting import lasts

pytestmark = [pytest.mark.slow, pytest.mark.redis]

BATCHES = 4
"""That the queue may hold, of one unroll each."""


@pytest.mark.parametrize(
    "length_s",
    [
        pytest.param(10.0, marks=pytest.mark.long),
        pytest.param(1800.0, marks=[pytest.mark.endurance, pytest.mark.timeout(2700)]),
    ],
)
def test_actors_wait_for_a_learner_that_sleeps_a_second_per_batch(
    start_run, slow_steps, command_here, measured, length_s
):
    fast = ["environment.kwargs={step_s: 0}", f"memory.queue_batches={BATCHES}", "algorithm.max_staleness_updates=null"]
    run = start_run(*slow_steps, "--algorithm", "tests.faults.learners:Sleepy", *sets(*fast))
    run.wait_for_updates(3)
    client, keys = run.backend.engine, run.backend._run.keys
    actors = [run.role("actor", number).pid for number in (0, 1)]
    pids = [*actors, run.role("learner").pid, int(client.call("INFO", "server")["process_id"])]
    began, times, sizes, longest, largest_mb = time.monotonic(), [], [], 0, 0.0
    while (passed := time.monotonic() - began) < length_s:
        longest = max(longest, client.call("XLEN", keys.unrolls))
        memory = client.call("INFO", "memory")
        largest_mb = max(largest_mb, memory["used_memory"] / 1e6)
        if passed > length_s / 6:
            times.append(passed)
            sizes.append([Taken.by(pid).rss_mb for pid in pids])
        lasts(0.2)
    assert BATCHES <= longest <= BATCHES + len(actors)
    assert largest_mb < 20.0  # of a gigabyte that it may have: a handful of small unrolls, and snapshots
    told = json.loads(command_here("status", "--json", "--run", str(run.run_dir)).stdout)
    assert told["snapshot"]["bottleneck"] == "learner"
    assert "bottleneck learner" in run.told
    run.process.terminate()
    summary = run.finish()
    assert (summary.exit_code, summary.restarts, summary.imbalance, summary.lost) == (0, 0, 0, 0)
    assert sum(summary.dropped.values()) == 0
    growth = [slope_per_h(times, list(taken)) for taken in zip(*sizes, strict=True)]
    # Actors are what must stay flat here; Redis has its bound above. Everybody's hour is in test_constant_kills: a
    # learner with one update a second is still warming up when this ends.
    if length_s > 1000:
        assert max(growth[:2]) <= 1.0, growth
    measured(
        6,
        minutes=length_s / 60,
        updates=summary.updates,
        longest_queue=longest,
        redis_memory_mb=largest_mb,
        actor_mb_per_h=max(growth[:2]),
        learner_mb_per_h=growth[2],
        redis_mb_per_h=growth[3],
        actors_blocked_share=summary.actors_blocked_share or 0.0,
    )
