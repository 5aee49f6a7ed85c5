"""Reporter: when snapshots are due, what is in them, and the verdict on what limits the speed."""

import math
import time
from types import SimpleNamespace

import pytest

from distrl.algorithms.algorithm import Update
from distrl.config import RunConfig
from distrl.config.live_settings import steered
from distrl.learner.attendants import reporter as reporter_module
from distrl.learner.attendants.reporter import Reporter, bottleneck, queue_fill
from distrl.learner.batches import Trained
from distrl.learner.state import LearnerState
from distrl.memory_backend.ledger import LedgerCounts
from distrl.metrics.counters import Waits
from distrl.metrics.snapshot import METRICS, columns_of, tag_of

CONFIG = RunConfig.model_validate(
    {"learner": {"batch_size": 2}, "memory": {"queue_batches": 3, "queue_bytes": 100_000}}
)
UPDATE = Update({"loss": 0.5, "gradient_norm": 2.0, "learning_rate": 0.01, "finite": True})


class Clock:
    """Seconds that pass when told to."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(reporter_module, "time", SimpleNamespace(monotonic=made, time=time.time))
    return made


class Reporting:
    """A reporter over a small run, with a learner whose time is told by hand."""

    def __init__(self, run, clock, config):
        self.run, self.clock = run, clock
        self.feed = run.feed(batch_size=2, first_version=3)
        self.state = LearnerState(run_id="small", env_steps=1000, updates=40)
        self.waits = Waits(clock)
        self.reporter = Reporter(config, self.state, run.backend, self.waits, lambda _: None)
        self.sequence = 0

    def update(self, waited_s=0.0, worked_s=0.0, loss=0.5):
        """One update on two unrolls, of lag 2 and 0."""
        for version in (self.feed._intake.version - 2, self.feed._intake.version):
            self.run.push(0, self.sequence, version, episode_returns=(float(self.sequence),))
            self.sequence += 1
        with self.waits.measure("unrolls"):
            self.clock.now += waited_s
        with self.waits.measure("update"):
            self.clock.now += worked_s
        made = self.feed.collect()
        self.run.use(made)
        self.state.updates += 1
        self.state.env_steps += made.receipts[0].env_steps
        receipt = made.receipts[0]
        self.state.observe_episodes(
            receipt.episode_returns,
            receipt.episode_lengths_steps,
            receipt.episode_discounted_returns,
            receipt.episode_successes,
        )
        self.reporter.record(Trained(made, Update({**UPDATE.metrics, "loss": loss})))


@pytest.fixture
def reporting(run, clock):
    return Reporting(run, clock, CONFIG)


def test_the_first_snapshot_is_due_right_after_the_first_update_and_then_one_a_second(reporting, clock):
    reporting.update(worked_s=0.001)
    assert reporting.reporter.due
    reporting.reporter.snapshot()
    due = []
    for _ in range(8):
        reporting.update(worked_s=0.3)
        due.append(reporting.reporter.due)
        if due[-1]:
            reporting.reporter.snapshot()
    assert due == [False, False, False, True, False, False, False, True]


def test_rates_and_ages_are_of_the_interval(reporting, clock):
    reporting.update(worked_s=2.0)
    reporting.reporter.snapshot()
    before = reporting.run.ledger.pushed_bytes
    reporting.update(waited_s=1.0, worked_s=3.0)
    clock.now += 1.0
    reporting.reporter.saved_at = clock.now - 2.5
    told = reporting.reporter.snapshot()
    assert told["episodes_per_s"] == pytest.approx(2 / 5.0)  # two unrolls, an episode each
    assert told["wire_bytes_per_s"] == pytest.approx((reporting.run.ledger.pushed_bytes - before) / 5.0)
    assert told["checkpoint_age_s"] == 2.5
    assert (told["min_return_100"], told["max_return_100"]) == (0.0, 3.0)
    assert (told["learner_time/unrolls"], told["learner_time/update"]) == pytest.approx((0.2, 0.6))
    assert reporting.reporter.time_shares == pytest.approx({"unrolls": 0.2, "update": 0.6})


def test_what_a_predecessor_received_is_nobodys_rate(run, clock):
    run.push(0, 0)
    reporting = Reporting(run, clock, CONFIG)
    clock.now += 1.0
    assert reporting.reporter.snapshot()["wire_bytes_per_s"] == 0.0


def test_unrolls_are_dropped_by_reason(reporting):
    reporting.update(worked_s=1.0)
    reporting.run.push(0, 0, 3)  # there before
    reporting.update(worked_s=1.0)
    told = reporting.reporter.snapshot()
    assert {name: value for name, value in told.items() if name.startswith("dropped") and value} == {
        "dropped": 1,
        "dropped_duplicate": 1,
    }


@pytest.mark.parametrize("first", [0, 10, 37])
def test_deterministic_mode_reports_at_the_same_updates_whatever_came_before(run, clock, first):
    config = RunConfig.model_validate({"actors": {"count": 0}})
    reporting = Reporting(run, clock, config)
    reporting.state.updates = first
    due = []
    for updates in range(first + 1, 61):
        clock.now += 100.0 * (updates % 3)  # time is no reason
        reporting.state.updates = updates
        if reporting.reporter.due:
            due.append(updates)
            reporting.reporter.snapshot()
    assert due == [updates for updates in (10, 20, 30, 40, 50, 60) if updates > first]


def test_a_snapshot_tells_what_happened_since_the_last_one(reporting):
    reporting.update(worked_s=2.0)
    first = reporting.reporter.snapshot()
    assert first["first_update_unix_s"] == pytest.approx(time.time(), abs=60)
    reporting.update(waited_s=1.0, worked_s=1.0)
    reporting.update(waited_s=0.5, worked_s=1.5)
    reporting.run.push(1, 0)
    reporting.state.wall_s = 6.0
    snapshot = reporting.reporter.snapshot()
    expected = {
        "updates": 43,
        "env_steps": 1030,
        "trained_steps": 0,
        "episodes": 6,
        "mean_return_100": 2.5,
        "best_mean_return_100": None,
        "mean_length_100_steps": 7.0,
        "loss": 0.5,
        "gradient_norm": 2.0,
        "learning_rate": 0.01,
        "policy_lag_mean": 1.0,
        "policy_lag_p95": 2,
        "policy_lag_max": 2,
        "queue_entries": 1,
        "queue_fill": pytest.approx(1 / 6),
        "dropped": 0,
        "env_steps_per_s": 5.0,  # 20 steps in 4 s
        "updates_per_s": 0.5,
        "learner_wait_share": pytest.approx(1.5 / 4),
        "bottleneck": "actors",
        "wall_s": 6.0,
        "stop_reason": None,
    }
    assert {name: snapshot[name] for name in expected} == expected
    assert reporting.reporter.env_steps_per_s == 5.0
    assert snapshot["first_update_unix_s"] == first["first_update_unix_s"]
    assert snapshot["queue_bytes"] == reporting.run.ledger.stream_bytes > 0


@pytest.mark.row("D31")
def test_every_signal_of_an_update_has_its_statistics_over_the_interval(reporting):
    reporting.update(loss=100.0)
    reporting.reporter.snapshot()
    reporting.update(loss=1.0)
    reporting.update(loss=3.0)
    told = reporting.reporter.snapshot()
    assert told["loss"] == 3.0  # of the last update, as before
    assert {name: value for name, value in told.items() if name.startswith("interval/loss")} == {
        "interval/loss/mean": 2.0,
        "interval/loss/std": 1.0,
        "interval/loss/min": 1.0,
        "interval/loss/max": 3.0,
    }
    of = {name.split("/")[1] for name in told if name.startswith("interval/")}
    assert of == {"loss", "gradient_norm", "learning_rate"}
    # Six episodes of returns 0 … 5.
    assert told["std_return_100"] == pytest.approx((35 / 12) ** 0.5)
    assert (told["mean_discounted_return_100"], told["success_rate_100"]) == (1.25, 0.0)  # as `make_unroll` says


@pytest.mark.row("P07.1")
def test_the_present_strength_of_exploration(run, clock):
    def reporting(**exploration):
        algorithm = {"name": "dqn"} if exploration.get("kind") == "epsilon_greedy" else {"name": "sac"}
        return Reporting(run, clock, RunConfig.model_validate({"algorithm": algorithm, "exploration": exploration}))

    linear = {"kind": "linear", "start": 1.0, "end": 0.5, "steps": 2000}
    falling = reporting(kind="epsilon_greedy", epsilon=linear)
    assert falling.reporter.snapshot()["exploration_strength"] == 0.75  # after 1,000 steps
    falling.state.env_steps = 1500
    assert falling.reporter.snapshot()["exploration_strength"] == 0.625
    falling.state.settings = {"exploration.epsilon": (None, 0.125)}  # an operator's
    assert falling.reporter.snapshot()["exploration_strength"] == 0.125
    noise = reporting(kind="ornstein_uhlenbeck", sigma=0.3)
    assert noise.reporter.snapshot()["exploration_strength"] == 0.3
    for without in ({"kind": "epsilon_greedy", "epsilon": {"kind": "ladder"}}, {"kind": "policy"}):
        assert reporting(**without).reporter.snapshot()["exploration_strength"] is None


def test_every_name_is_in_the_table_and_no_value_is_nan(reporting):
    before = reporting.reporter.snapshot(stop_reason="asked")  # nothing was learned at all
    assert (before["mean_return_100"], before["policy_lag_mean"], before["stop_reason"]) == (None, None, "asked")
    reporting.update()
    supervised = {"actors_up", "actors_blocked_share", "cpu_cores", "restarts", "rss_mb"}
    names = {metric.name for metric in METRICS} - supervised
    for snapshot in (before, reporting.reporter.snapshot()):
        assert columns_of(snapshot) <= names
        assert not [value for value in snapshot.values() if isinstance(value, float) and not math.isfinite(value)]


@pytest.mark.row("L16")
def test_zeros_of_relu_layers_are_told_by_layer_and_at_their_greatest_until_they_are_measured_again(reporting):
    assert reporting.reporter.snapshot()["relu_zeros_max"] is None
    reporting.reporter.relu_zeros = {"first": 0.25, "second": 0.75}
    for _ in range(2):
        told = reporting.reporter.snapshot()
        assert told["relu_zeros_max"] == 0.75
        assert {name: value for name, value in told.items() if "/" in name} == {
            "network/relu_zeros/first": 0.25,
            "network/relu_zeros/second": 0.75,
        }


def test_dropped_unrolls_are_summed_over_all_reasons(reporting):
    reporting.run.push(0, 0, payload=b"\xc1")
    reporting.run.push(1, 0, payload=b"\xc1")
    reporting.run.push(1, 0)
    reporting.sequence = 1
    reporting.update()
    assert reporting.reporter.snapshot()["dropped"] == 3


def test_the_last_word_is_on_the_whole_run_and_not_on_its_last_moment(reporting):
    reporting.update(waited_s=30.0, worked_s=1.0)  # the actors were still starting
    assert reporting.reporter.snapshot()["bottleneck"] == "actors"
    for _ in range(9):
        reporting.update(worked_s=1.0)
        assert reporting.reporter.snapshot()["bottleneck"] == "learner"
    reporting.update(waited_s=0.4, worked_s=0.6)
    assert reporting.reporter.snapshot()["bottleneck"] == "actors"
    last = reporting.reporter.snapshot(stop_reason="updates")
    assert (last["bottleneck"], last["learner_wait_share"]) == ("learner", pytest.approx(0.4 / 10))


@pytest.mark.parametrize(
    ("wait_share", "verdict"),
    [(0.0, "learner"), (0.05, "learner"), (0.06, "-"), (0.19, "-"), (0.2, "actors"), (1.0, "actors")],
)
def test_the_verdict(wait_share, verdict):
    assert bottleneck(wait_share) == verdict


@pytest.mark.parametrize(
    ("ledger", "fill"),
    [
        (LedgerCounts(), 0.0),
        (LedgerCounts(queued=1, in_flight=2), 0.5),
        (LedgerCounts(queued=3, stream_bytes=75_000), 0.75),  # bytes are nearer to their bound
        (LedgerCounts(queued=9), 1.0),
    ],
)
def test_the_queue_is_as_full_as_its_nearer_bound(ledger, fill):
    assert queue_fill(ledger, CONFIG) == fill


def test_rounds_without_somebody_are_counted_and_say_without_whom(run, clock):
    config = RunConfig.model_validate({"algorithm": {"name": "a2c"}, "actors": {"count": 4}})
    reporting = Reporting(run, clock, config)
    assert reporting.reporter.snapshot()["incomplete_rounds"] == 0
    for missing in ([1, 3], [3], []):
        made = SimpleNamespace(lags_updates=[0, 0], missing=missing)
        reporting.reporter.record(Trained(made, UPDATE))
        snapshot = reporting.reporter.snapshot()
        assert snapshot["missing_workers"] == (", ".join(f"actor {i}" for i in missing) or None)
    assert snapshot["incomplete_rounds"] == 2


def test_a_round_is_as_full_as_it_has_gradients():
    config = RunConfig.model_validate({"algorithm": {"name": "a2c"}, "actors": {"count": 4}})
    assert queue_fill(LedgerCounts(queued=1, in_flight=2, stream_bytes=10**12), config) == 0.75
    assert queue_fill(LedgerCounts(queued=9), config) == 1.0


def test_parameters_of_the_curriculum_are_numbers_beside_the_return(run, clock):
    stages = {"kind": "stages", "at_env_steps": [1001]}
    curriculum = {
        "level": {**stages, "values": [0, 2]},
        "hard mode": {**stages, "values": [False, True]},
        "map": {**stages, "values": ["a", "b"]},
    }
    kwargs = {"level": 0, "hard mode": False, "map": "a", "other": 3}
    environment = {"kwargs": kwargs, "curriculum": curriculum}
    config = RunConfig.model_validate({**CONFIG.model_dump(mode="json"), "environment": environment})
    made = Reporting(run, clock, config)
    names = {"curriculum_level", "curriculum_hard_mode"}
    assert {name: made.reporter.snapshot()[name] for name in names} == dict.fromkeys(names, 0.0)
    assert {name for name in made.reporter.snapshot() if name.startswith("curriculum")} == names
    made.update()
    assert (made.reporter.snapshot()["curriculum_level"], tag_of("curriculum_level")) == (
        2.0,
        "curriculum/curriculum_level",
    )
    made.reporter.environment = steered(config, {"environment.kwargs.level": 9}, ["level"]).environment
    assert made.reporter.snapshot()["curriculum_level"] == 9.0
