"""`distrl bench`: the cost of each part alone, the limit of the same cores, and the speed of the pipeline.

    limit = cores / (environment + policy + learner seconds per environment step)

Every part is measured in isolation on one core, in the same run as the pipeline, because machines drift.
"""

import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from distrl import machine
from distrl.actors.extras import make_extras
from distrl.actors.policy import Policy
from distrl.actors.unroll import UnrollBuilder, restarted
from distrl.config import RunConfig
from distrl.config.load import LoadedConfig
from distrl.config.schedules import Progress
from distrl.config.stop import StopConfig
from distrl.environments.random_actions import random_actions
from distrl.environments.vector import VectorEnvironment
from distrl.errors import DistrlError
from distrl.launch.external_algorithm import settled
from distrl.launch.one_process import standard_error_in
from distrl.launch.training import train
from distrl.memory_backend.joining import stack
from distrl.networks.actions.joint import ActionSelector
from distrl.observers.observer import Observer
from distrl.roles.framework import select_framework
from distrl.runs.metrics_csv import read_table
from distrl.terminal.console import View
from distrl.types import Unroll, Weights

if TYPE_CHECKING:
    from distrl.algorithms.algorithm import Algorithm, Networks

ISOLATED_S = 1.5
WARM_UP_S = 3.0
ROUNDS = 3


def bench(
    loaded: LoadedConfig, *, seconds: float, run_dir: Path, view: View, observers: Sequence[type[Observer]] = ()
) -> dict[str, Any]:
    """Measure the pipeline for `seconds` while it learns, then every part alone; store bench.json in `run_dir`."""
    loaded = settled(loaded)
    pipeline = measure_pipeline(loaded, seconds, run_dir, view, observers)
    view.event("measuring environment, policy and learner alone: about 10 s")
    with standard_error_in(run_dir / "logs" / "bench.log"):  # the framework prints much when it is imported
        parts = measure_parts(loaded.config)
    cores = machine.cores()
    limit = cores / sum(parts.values())
    measured = pipeline["env_steps_per_s"]
    report = {
        "cores": cores,
        "env_steps_per_s": measured,
        "limit_steps_per_s": limit,
        "ratio": measured / limit,
        "env_s_per_step": parts["environment"],
        "policy_s_per_step": parts["policy"],
        "learner_s_per_step": parts["learner"],
        "shares": shares(parts, cores, measured),
        **pipeline,
    }
    (run_dir / "bench.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return report


def shares(parts: dict[str, float], cores: int, measured: float) -> dict[str, float]:
    """Return each part's share of the cores' time per environment step, and the unexplained rest."""
    per_step = cores / measured
    known = {name: seconds / per_step for name, seconds in parts.items()}
    return {**known, "everything else": max(0.0, 1.0 - sum(known.values()))}


def measure_pipeline(
    loaded: LoadedConfig, seconds: float, run_dir: Path, view: View, observers: Sequence[type[Observer]] = ()
) -> dict[str, Any]:
    """Train for `seconds` and `WARM_UP_S` more after the first update; the rate is taken over `seconds`."""
    stop = StopConfig(minutes=(seconds + WARM_UP_S) / 60.0)
    config = loaded.config.model_copy(update={"stop": stop})
    loaded = replace(loaded, config=config)
    summary = train(loaded, run_dir=run_dir, resume=None, view=view, observers=observers)
    if summary.exit_code != 0:
        raise DistrlError(
            f"the pipeline ended with {summary.exit_code} ({summary.stop_reason}); see {run_dir / 'logs'}"
        )
    table = read_table(run_dir / "metrics.csv")
    rows = [*zip(table["wall_s"].tolist(), table["env_steps"].tolist(), strict=True)]
    # On a machine too busy for the warm-up the whole of it counts.
    first = next((row for row in rows[:-1] if row[0] >= rows[0][0] + WARM_UP_S), rows[0])
    if rows[-1][0] <= first[0] or rows[-1][1] <= first[1]:
        raise DistrlError(
            f"{seconds:g} s are too few on this machine: no reading came after a further step; give --seconds more"
        )
    return {
        "env_steps_per_s": (rows[-1][1] - first[1]) / (rows[-1][0] - first[0]),
        "measured_s": rows[-1][0] - first[0],
        "verdict": summary.bottleneck,
        "learner_idle_share": summary.learner_idle_share,
        "actors_blocked_share": summary.actors_blocked_share,
        "policy_lag": dict(summary.policy_lag),
        "peak_rss_mb": dict(summary.peak_rss_mb),
        "time_to_first_update_s": summary.time_to_first_update_s,
    }


def measure_parts(config: RunConfig) -> dict[str, float]:
    """Seconds per environment step of each part alone, on one core: the median of `ROUNDS` rounds."""
    select_framework(config.learner.backend)
    # Imported after the pipeline has been measured: they bring the framework, whose import would count there.
    from distrl.algorithms import built, make_algorithm
    from distrl.networks.framework import backend as numeric_backend
    from distrl.networks.policy.bundle import export_bundle

    numeric_backend.configure(device=config.device, threads=1, deterministic=False, seed=config.seed)
    environment = VectorEnvironment(config.environment, config.actors.environments)
    algorithm = make_algorithm(config)
    networks = built(algorithm, environment.spec)
    policy = Policy(export_bundle(networks["main"].online, unroll_steps=config.actors.unroll_length_steps))
    policy.set_weights(Weights(1, networks["main"].online.policy_weights()))
    random = np.random.default_rng(config.seed)
    observations = environment.reset(config.seed)
    state = policy.initial_state(environment.rows)
    actions = random_actions(environment.spec.actions, environment.rows, random)
    selector = ActionSelector(policy.distributions)

    def act() -> None:
        selector.sample(policy.step(observations, state).outputs, random)

    learn = learning(
        algorithm,
        networks,
        environment.spec.frames,
        [record(config, environment, policy, random) for _ in range(config.batch_size)],
    )
    rows = config.actors.unroll_length_steps * config.sequences_per_batch
    try:
        return {
            "environment": seconds_per_call(lambda: environment.step(actions)) / environment.rows,
            "policy": seconds_per_call(act) / environment.rows,
            "learner": seconds_per_call(learn) / rows,
        }
    finally:
        environment.close()


def learning(
    algorithm: "Algorithm", networks: "Networks", frame_counts: Mapping[str, int], unrolls: list[Unroll]
) -> Callable[[], object]:
    """Return one update with all that learning from these unrolls takes, in any role."""
    if algorithm.parameters.ships == "unrolls":
        batch = stack(unrolls, frame_counts)
        return lambda: algorithm.update(networks, batch)
    # Imported here: it brings the framework.
    from distrl.actors.gradient_actor import GradientShipper
    from distrl.algorithms.algorithm import GradientAlgorithm

    assert isinstance(algorithm, GradientAlgorithm)  # all that ship gradients are
    shipper = GradientShipper(algorithm, networks, frame_counts)
    return lambda: algorithm.update(networks, tuple(shipper.contribution(unroll) for unroll in unrolls))


def seconds_per_call(call: Callable[[], object], seconds: float | None = None) -> float:
    """Median over `ROUNDS` of the mean time of one call, after a warm-up; all take `seconds`, or `ISOLATED_S`."""
    for _ in range(5):
        call()
    means = []
    for _ in range(ROUNDS):
        calls, began = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - began) < (seconds or ISOLATED_S) / ROUNDS:
            call()
            calls += 1
        means.append(elapsed / calls)
    return statistics.median(means)


def record(
    config: RunConfig,
    environment: VectorEnvironment,
    policy: Policy,
    random: np.random.Generator,
    *,
    earlier_unrolls: int = 0,
) -> Unroll:
    """Record one real unroll, so that the learner is timed on the run's own data.

    Args:
        earlier_unrolls: Unrolls to make before it since the reset of the environments, which begin alike.
    """
    length = config.actors.unroll_length_steps
    builder = UnrollBuilder(environment.spec, length, environment.rows, config.state_rows, config.algorithm.discount)
    extras, progress = make_extras(config, policy, environment), Progress()
    selector = ActionSelector(policy.distributions)
    for extra in extras:
        extra.reset(config, progress)
    builder.begin(environment.reset(int(random.integers(2**31))), policy.initial_state(environment.rows))
    for sequence in range(1 + earlier_unrolls):
        for extra in extras:
            extra.begin(config, progress)
        while not builder.full:
            output = policy.step(*builder.newest)
            actions, log_probabilities = selector.sample(output.outputs, random)
            step = environment.step(actions)
            builder.add(actions, log_probabilities, step, restarted(output.recurrent_state, step.valid))
            for extra in extras:
                extra.add(output, step)
        unroll = builder.close((0, 1), sequence, 1)
        for extra in extras:
            unroll = extra.close(unroll)
    return unroll
