"""From a configuration to a summary: what is refused before anything starts, signals, and the last look."""

import importlib.util
import json
import re
import subprocess
import sys
from contextlib import ExitStack, closing
from types import SimpleNamespace

import pytest
import redis

import distrl
from distrl.apps.config.configuration import Configuration
from distrl.apps.trackers.tracking import Trackers
from distrl.config import RunConfig
from distrl.config.load import LoadedConfig, load
from distrl.config.schedules import Progress
from distrl.data_store.checkpoints import save
from distrl.data_store.start_plan import StartPlan
from distrl.environments import probe
from distrl.errors import CheckpointError, ConfigError, MemoryBackendError, MissingExtraError
from distrl.interrupt import Interrupt
from distrl.launch import checks, distributed, start, training
from distrl.launch.checks import Checked
from distrl.launch.monitor import Monitor
from distrl.launch.outcome import Outcome, summarize
from distrl.launch.start import PlannedRun, require_same_task, write_config
from distrl.launch.training import train
from distrl.memory_backend.backend import connect
from distrl.memory_backend.ledger import LedgerCounts
from distrl.memory_backend.records import Request, SupervisorStatus
from distrl.memory_backend.stream import QueueCaps
from distrl.observers.fleet_state import FleetState
from distrl.roles import presence
from distrl.roles.description import LaunchedRun, RunAddress, RunDescription
from distrl.roles.trust import Trust
from distrl.runs.run_directory import locked, write_run_json
from distrl.runs.summary import Summary
from distrl.runs.trial import Trial
from distrl.terminal.console import PlainView
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec, UnrollHeader

TOY = "distrl.environments.worlds.toy"
SPEC = EnvSpec("X", {"observation": ArraySpec((4,), "float32")}, {"action": DiscreteSpec(2)})


def description(tmp_path, **sections):
    config = RunConfig.model_validate({"environment": {"id": "X"}, "seed": 3, **sections})
    return RunDescription(run_id="r1", run_dir=str(tmp_path), config=config, spec=SPEC)


def test_a_url_with_another_namespace_is_refused_before_anything_is_made(tmp_path):
    loaded = load(
        sets=["environment.id=CartPole-v1", "memory.url=redis://127.0.0.1:1?namespace=a", "memory.namespace=b"]
    )
    with pytest.raises(ConfigError, match="'b' and the URL's namespace 'a' differ"):
        train(loaded, run_dir=tmp_path / "run", resume=None, view=PlainView(print))
    assert not (tmp_path / "run").exists()


def test_hindsight_without_goals_is_refused_before_anything_is_made(tmp_path):
    sets = ["environment.id=CartPole-v1", "algorithm={name: dqn, replay: {hindsight: {}}}"]
    with pytest.raises(ConfigError, match=r"hindsight: environment CartPole-v1 has no observation 'achieved_goal'"):
        train(load(sets=sets), run_dir=tmp_path / "run", resume=None, view=PlainView(print))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"kwargs": {"n": 3}}, r"hard: \S+:Identity does not fit the policy: its observation 'observation' has .*"),
        ({"kwargs": {"wind": 1}}, r"hard: .*unexpected keyword argument 'wind'.*"),
        pytest.param({"id": f"{TOY}:Nowhere"}, r"hard: .*Nowhere.*", marks=pytest.mark.long),
    ],
)
def test_another_environment_that_does_not_fit_is_refused_before_anything_is_made(tmp_path, other, told):
    tree = {
        "environment": {"id": f"{TOY}:Identity", "kwargs": {"n": 2}},
        "actors": {"count": 0},
        "evaluation": {
            "every_env_steps": 100,
            "other_environments": {"easy": {"kwargs": {"length_steps": 2}}, "hard": other},
        },
    }
    with pytest.raises(ConfigError) as caught:
        train(
            LoadedConfig(RunConfig.model_validate(tree), {}),
            run_dir=tmp_path / "run",
            resume=None,
            view=PlainView(print),
        )
    assert caught.value.exit_code == 2
    assert re.fullmatch(rf"evaluation\.other_environments\.{told}", str(caught.value)), caught.value
    assert not (tmp_path / "run").exists()


def test_a_host_without_the_environment_does_not_try_the_others_either(tmp_path, monkeypatch):
    (tmp_path / "spec.json").write_text(SPEC.to_json())
    tree = {
        "environment": {"id": "X", "spec_file": str(tmp_path / "spec.json")},
        "launch": {"start_actors": False},
        "memory": {"url": "redis://elsewhere"},
        "evaluation": {"every_env_steps": 100, "other_environments": {"hard": {"id": "Y"}}},
    }
    config = RunConfig.model_validate(tree)
    monkeypatch.setattr(checks, "_check_launchable", lambda *_: None)
    tried = []
    monkeypatch.setattr(checks, "probe", lambda environment, **_: tried.append(environment.id) or SPEC)
    checks.check(LoadedConfig(config, {}), tmp_path, "r", print, (), new=True)
    assert tried == ["X"]


def monitor(latest=None, ledger=None, restarts=0, rate=lambda name: 0.0):
    told = []
    totals = SimpleNamespace(latest=latest or {}, peak_rss_mb={}, rate=rate)
    return SimpleNamespace(
        totals=totals,
        fleet=FleetState(actors=1, restarts=restarts),
        ledger=ledger or LedgerCounts(),
        events=told,
        event=told.append,
        update=lambda *_: None,
    )


def test_a_run_that_trained_nothing_has_a_summary_without_numbers(tmp_path):
    outcome = Outcome(6, "memory backend", "Redis is gone")
    summary = summarize(description(tmp_path), monitor(), outcome, started=1e9, wall_s=7.5)
    assert (summary.run_id, summary.env, summary.algorithm, summary.seed) == ("r1", "X", "impala", 3)
    assert (summary.exit_code, summary.stop_reason, summary.error) == (6, "memory backend", "Redis is gone")
    assert (summary.updates, summary.mean_return_100, summary.time_to_first_update_s) == (0, None, None)
    assert (summary.policy_lag.mean, summary.bottleneck, summary.imbalance) == (None, "-", 0)


def test_a_summary_is_the_newest_snapshot_and_the_ledger(tmp_path):
    latest = {
        "updates": 40,
        "env_steps": 5000,
        "trained_steps": 4900,
        "episodes": 50,
        "weights_version": 41,
        "mean_return_100": 99.5,
        "policy_lag_mean": 1.5,
        "policy_lag_max": 3,
        "bottleneck": "learner",
        "first_update_unix_s": 1007.5,
        "evaluation_in_hard_mean_return": 3.5,
    }
    ledger = LedgerCounts(
        produced=45, foreign=1, trained=40, queued=2, in_flight=1, dropped={"stale": 3}, rolled_back=4
    )
    told = monitor(latest=latest, ledger=ledger, restarts=2, rate={"env_steps": 10.0, "updates": 0.1}.get)
    others = {"every_env_steps": 9, "other_environments": {"hard": {"id": "Y"}, "far": {"id": "Z"}}}
    made = description(tmp_path, evaluation=others)
    summary = summarize(made, told, Outcome(0, "updates"), started=1000.0, wall_s=7.5)
    assert summary.other_evaluation_returns == {"hard": 3.5, "far": None}
    assert (summary.updates, summary.env_steps, summary.trained_steps, summary.weights_version) == (40, 5000, 4900, 41)
    assert (summary.mean_return_100, summary.best_mean_return_100) == (99.5, None)
    assert (summary.policy_lag.mean, summary.policy_lag.p95, summary.policy_lag.max) == (1.5, None, 3.0)
    assert (summary.time_to_first_update_s, summary.env_steps_per_s, summary.updates_per_s) == (7.5, 10.0, 0.1)
    assert (summary.produced, summary.foreign, summary.imbalance, summary.rolled_back) == (45, 1, 0, 4)
    assert (summary.restarts, summary.bottleneck, summary.error) == (2, "learner", None)


@pytest.fixture
def told(tmp_path):
    """A run's monitor and a view that keeps its lines, in a directory that takes no summary."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "summary.json").mkdir()
    lines = []
    view = PlainView(tmp_path, write=lines.append)
    made = description(tmp_path)
    return made, Monitor("r1", tmp_path, made.config, view), view, lines


@pytest.mark.parametrize(
    ("outcome", "code", "error"),
    [
        (Outcome(0, "updates"), 1, "the summary cannot be written: [Errno 21] Is a directory: "),
        (Outcome(130, "Ctrl-C"), 130, "the summary cannot be written: [Errno 21] Is a directory: "),
        (Outcome(6, "memory backend", "Redis is gone"), 6, "Redis is gone"),
    ],
)
def test_a_summary_that_cannot_be_written_hides_neither_the_cause_nor_the_ledger(told, tmp_path, outcome, code, error):
    made, monitor, view, lines = told
    checked = checks.Checked(loaded(), SPEC, ())
    trial = Trial(view.event)
    begun = PlannedRun(tmp_path, None, None, "r1", True, None)
    launch = training._Launch(begun, checked, StartPlan(), trial, view, None, None, (0.0, 0.0), ())
    found = launch._sum_up(made, monitor, None, outcome)
    assert found.exit_code == code
    assert found.error.startswith(error)
    text = "\n".join(lines)
    assert "unrolls  0 produced = " in text
    assert (str(tmp_path / "summary.json") in text) == (outcome.error is not None)  # else it is the run's error


@pytest.mark.parametrize(
    ("error", "code", "reason", "text"),
    [
        (ZeroDivisionError("x"), 1, "unexpected error", "unexpected ZeroDivisionError: x"),
        (KeyboardInterrupt(), 130, "interrupted", None),
    ],
)
def test_what_is_raised_is_in_the_summary_and_in_the_closing_lines(tmp_path, monkeypatch, error, code, reason, text):
    def fails(*_):
        raise error

    monkeypatch.setattr(training, "train_here", fails)
    lines = []
    given = loaded(actors={"count": 0})
    with pytest.raises(type(error)):
        train(given, run_dir=tmp_path / "run", resume=None, view=PlainView(write=lines.append), interrupt=Interrupt())
    found = Summary.read(tmp_path / "run" / "summary.json")
    assert (found.exit_code, found.stop_reason, found.error) == (code, reason, text)
    assert f"ended early: {reason} (exit code {code})" in lines[-1]


def test_a_server_that_does_not_start_leaves_nothing_behind(tmp_path, monkeypatch):
    def fails(*_):
        raise MemoryBackendError("the server did not start")

    monkeypatch.setattr(training, "train_here", fails)
    lines = []
    with pytest.raises(MemoryBackendError, match="the server did not start"):
        train(loaded(actors={"count": 0}), run_dir=tmp_path / "run", resume=None, view=PlainView(write=lines.append))
    assert "ended early: memory backend (exit code 6)" in lines[-1]
    assert "files" not in lines[-1]
    assert not (tmp_path / "run").exists()


TRACKER = """
import json
class Mine:
    def begin(self, run): self.calls = [["begin", run.run_id, run.resumed, run.config["environment"]["kwargs"]]]
    def record(self, row, step): self.calls.append(["record", row["updates"], step])
    def end(self, ending):
        self.calls.append(["end", ending.exit_code, ending.stop_reason, ending.error])
        json.dump(self.calls, open("calls.json", "w"))
        raise ValueError("late")
"""


@pytest.mark.parametrize("resume", [pytest.param(None, marks=pytest.mark.long), "auto"])
def test_a_tracker_sees_the_run_its_rows_and_its_end_and_changes_no_exit_code(tmp_path, monkeypatch, resume):
    def trains(description, monitor, interrupt):
        with closing(connect("local:", "r7", QueueCaps(8, 2**20), name="test", give_up_s=1.0)) as backend:
            backend.create("{}")
            for number in (1, 2):
                backend.registry.add_snapshot({"updates": number, "env_steps": 64 * number, "wall_s": float(number)})
            monitor.update(backend, [])
        return Outcome(0, "updates")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(training, "train_here", trains)
    (tmp_path / "mine.py").write_text(TRACKER)
    if resume:
        save(tmp_path / "run" / "checkpoints", 1, {}, {"env_steps": 64}, keep=1)
    lines = []
    given = tracked("mine:Mine", actors={"count": 0}, environment={"id": "CartPole-v1"})
    view, interrupt = PlainView(write=lines.append), Interrupt()
    summary = train(
        given,
        run_dir=tmp_path / "run",
        resume=resume,
        run_id="r7",
        view=view,
        interrupt=interrupt,
        observers=[Trackers],
    )
    assert json.loads((tmp_path / "calls.json").read_text()) == [
        ["begin", "r7", resume is not None, {}],
        ["record", 1, 64],
        ["record", 2, 128],
        ["end", 0, "updates", None],
    ]
    assert (summary.exit_code, summary.untracked) == (0, {"mine:Mine": "ValueError: late"})
    assert any(
        line.endswith("tracker mine:Mine is not called again: ValueError: late (logs/trackers.log)") for line in lines
    )
    assert "\n  tracker  mine:Mine: ValueError: late" in lines[-1]


def tracked(name, **sections):
    return LoadedConfig.of(Configuration.model_validate({"trackers": {"own": {name: {}}}, **sections}))


def test_a_class_that_cannot_track_is_refused_before_anything_is_made(tmp_path):
    given = tracked("nowhere:Mine")
    with pytest.raises(ConfigError, match="module 'nowhere' cannot be imported"):
        train(given, run_dir=tmp_path / "run", resume=None, view=PlainView(print), observers=[Trackers])
    assert not (tmp_path / "run").exists()


def test_the_last_look_at_a_redis_that_is_gone_is_told_and_no_error(tmp_path, monkeypatch):
    monkeypatch.setattr(distributed, "LAST_LOOK_S", 0.1)
    told = monitor()
    distributed._last_look(
        LaunchedRun(RunAddress(f"unix://{tmp_path}/gone.sock", "r1", Trust()), description(tmp_path)), told
    )
    (event,) = told.events
    assert event.startswith("the numbers are those of the last look, and keys may be left behind: Redis at unix://")


@pytest.mark.redis
def test_the_last_look_leaves_a_later_launch_alone(tmp_path, redis_url):
    """A supervisor that was suspended comes back after another launch of its run has begun."""
    earlier, later = (LaunchedRun(RunAddress(redis_url, "r1", Trust()), description(tmp_path)) for _ in range(2))
    with closing(later.open_backend("test")) as backend:
        backend.create("{}")
        backend.registry.register_actor(0)
        told = monitor()
        distributed._last_look(earlier, told)
        assert backend.registry.register_actor(0) == 2
        backend.delete()
    (event,) = told.events
    assert "run r1" in event
    assert "was launched again" in event


def test_a_run_keeps_its_id_and_a_new_one_may_be_chosen(tmp_path):
    assert start._settled_id(tmp_path, "cartpole-1") == "cartpole-1"
    made = start._settled_id(tmp_path, None)
    assert re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{6}", made)
    write_run_json(tmp_path, made, "a", None)
    assert (start._settled_id(tmp_path, None), start._settled_id(tmp_path, made)) == (made, made)
    with pytest.raises(ConfigError, match=f"has the id {made}, not other; leave --run-id out to resume it"):
        start._settled_id(tmp_path, "other")


def test_a_bad_run_id_is_refused_before_anything_is_made(tmp_path):
    with pytest.raises(ConfigError, match="run id 'a b' is not allowed"):
        train(loaded(), run_dir=tmp_path / "run", resume=None, run_id="a b", view=PlainView(print))
    assert not (tmp_path / "run").exists()


@pytest.mark.redis
@pytest.mark.parametrize("damaged", ["unrolls:0", "ledger", "actors", "metrics", "requests", "weights"])
@pytest.mark.parametrize("how", ["wrong type", "gone"])
def test_the_last_look_removes_every_key_of_a_run_that_cannot_be_read(tmp_path, redis_url, damaged, how):
    given, (key, prefix) = description(tmp_path), (f"distrl:default:{{r1}}:{damaged}", "distrl:default:{r1}:*")
    (tmp_path / "logs").mkdir()
    run = LaunchedRun(RunAddress(redis_url, "r1", Trust()), given)
    with closing(run.open_backend("test")) as backend, redis.Redis.from_url(redis_url) as client:
        backend.create("{}", "")
        backend.unrolls.push(UnrollHeader(0, backend.registry.register_actor(0), 0, 1, 1), b"x")
        backend.registry.add_snapshot({"updates": 1})
        backend.registry.add_request(Request("ada", "pause"))
        backend.become_learner().weights.publish(1, b"w", Progress())
        client.delete(key)
        if how == "wrong type":
            client.set(key, "nothing of distrl")
        watching = Monitor("r1", tmp_path, given.config, PlainView(write=lambda line: None))
        distributed._last_look(run, watching)
        watching.end(None)
        assert list(client.scan_iter(prefix)) == []


def test_roles_on_other_hosts_cannot_share_an_embedded_redis(tmp_path):
    config = RunConfig.model_validate({"launch": {"launcher": "ray", "ray_address": "10.0.0.1:6379"}})
    with pytest.raises(ConfigError, match="cannot reach an embedded Redis; name one that they can with --redis-url"):
        train(LoadedConfig.of(config), run_dir=tmp_path / "run", resume=None, view=PlainView(print))


def loaded(**sections):
    return LoadedConfig.of(RunConfig.model_validate(sections))


@pytest.mark.parametrize("resume", [True, 7, ["auto"]])
def test_a_resume_that_is_no_text_is_refused(tmp_path, resume):
    with pytest.raises(ConfigError, match=r'^resume: .* names no run; give "auto", or a run\'s directory as a str$'):
        distrl.train(RunConfig(), run_dir=tmp_path / "run", resume=resume)
    assert not (tmp_path / "run").exists()


def test_the_package_lists_its_public_names_alone():
    assert dir(distrl) == sorted(distrl.__all__)
    assert {"load", "View", "RunConfig"} <= set(dir(distrl))


def test_what_takes_long_before_the_launch_is_told_to_the_view(tmp_path, monkeypatch, capfd):
    """A view that is silent prints nothing, then."""
    monkeypatch.setattr(probe, "_PATIENCE_S", 0.0)
    told = []
    checks.check(
        loaded(actors={"count": 0}, environment={"id": "CartPole-v1"}), tmp_path, "r", told.append, (), new=True
    )
    assert (told, *capfd.readouterr()) == (["trying out CartPole-v1 …"], "", "")


def test_config_yaml_is_private(tmp_path):
    for seed in (1, 2):
        write_config(tmp_path, loaded(seed=seed))
        assert load(file=tmp_path / "config.yaml").config.seed == seed
        assert (tmp_path / "config.yaml").stat().st_mode & 0o777 == 0o600


def test_a_configuration_that_is_no_text_is_refused_with_its_path(tmp_path):
    (tmp_path / "config.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"config\.yaml"):
        require_same_task(tmp_path, loaded(seed=1).config)


def test_a_run_that_another_took_the_directory_from_leaves_it_alone(tmp_path, monkeypatch):
    """Two runs that start at once find an empty directory; the environment of one takes longer to try out."""
    run_dir, first = tmp_path / "run", ExitStack()
    probe = checks.probe

    def slow(*given, **named):
        first.enter_context(locked(run_dir))
        (run_dir / "run.json").write_text("{}")
        return probe(*given, **named)

    monkeypatch.setattr(checks, "probe", slow)
    with first, pytest.raises(ConfigError, match="already holds a run"):
        train(loaded(environment={"id": "CartPole-v1"}), run_dir=run_dir, resume=None, view=PlainView(print))
    assert (run_dir / "run.json").read_text() == "{}"


@pytest.mark.redis
def test_an_id_that_is_taken_is_refused_before_the_environment_is_tried_out(tmp_path, redis_url, monkeypatch):
    monkeypatch.setattr(presence, "LOOK_S", 0.2)
    given = loaded(environment={"id": "no_such_module:Environment"}, memory={"url": redis_url})
    with closing(connect(redis_url, "pong", name="test", give_up_s=1.0)) as backend:
        backend.create(description(tmp_path / "other").published())
        backend.registry.beat_supervisor(SupervisorStatus("h", 1, 1))
        with pytest.raises(ConfigError, match=f"its directory is {tmp_path}/other; choose another --run-id"):
            train(given, run_dir=tmp_path / "run", resume=None, run_id="pong", view=PlainView(print))
        backend.delete()
    assert not (tmp_path / "run").exists()


def test_a_run_is_not_resumed_as_another_task(tmp_path):
    write_config(tmp_path, loaded(environment={"id": "CartPole-v1"}))
    told = r"the run to resume has environment.id CartPole-v1, not CartPole-v0"
    with pytest.raises(ConfigError, match=told):
        require_same_task(tmp_path, loaded(environment={"id": "CartPole-v0"}).config)
    assert load(file=tmp_path / "config.yaml").config.environment.id == "CartPole-v1"


def test_without_the_framework_nothing_is_touched(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"tensorflow\), is not installed: pip install '.*\[cpu\]'"):
        train(LoadedConfig.of(RunConfig()), run_dir=tmp_path / "run", resume=None, view=PlainView(print))
    assert not (tmp_path / "run").exists()


def test_without_the_compressions_library_nothing_is_touched(tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "lz4" else find(name))
    config = RunConfig.model_validate({"memory": {"compression": "lz4"}})
    with pytest.raises(
        MissingExtraError, match=r"lz4, which memory.compression: lz4 needs, is not installed: pip inst"
    ):
        train(LoadedConfig.of(config), run_dir=tmp_path / "run", resume=None, view=PlainView(print))
    assert not (tmp_path / "run").exists()


def test_the_parent_of_a_run_carries_no_framework():
    code = "import sys, distrl.launch.training, distrl.launch.processes\n"
    code += "print(sorted({'tensorflow', 'keras', 'jax', 'ray'} & {name.split('.')[0] for name in sys.modules}))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"


@pytest.mark.parametrize(
    ("resume", "words"), [("auto", "has not ended; stop it first"), (None, "already holds a run; add --resume auto")]
)
def test_a_directory_that_is_taken_is_refused_before_the_environment_is_tried_out(tmp_path, resume, words):
    """The trial may take seconds and print that it does; the directory alone says that the command is in vain."""
    (tmp_path / "run.json").write_text("{}")
    config = loaded(environment={"id": "no_such_module:Environment"})
    with locked(tmp_path), pytest.raises(ConfigError, match=words):
        train(config, run_dir=tmp_path, resume=resume, view=PlainView(print))
    assert not (tmp_path / "config.yaml").exists()


@pytest.mark.parametrize("error", [ConfigError("no"), CheckpointError("no")])
def test_a_branch_that_is_refused_leaves_nothing(tmp_path, monkeypatch, error):
    """The source has another environment, or the learner refuses the checkpoint."""
    run, other = tmp_path / "run", tmp_path / "other"
    save(run / "checkpoints", 10, {}, {}, keep=1)
    (run / "config.yaml").write_text("environment: {id: Acrobot-v1}\n")
    monkeypatch.setattr(training, "check", lambda loaded, *_, **__: Checked(loaded, SPEC, ()))
    given = loaded(environment={"id": "CartPole-v1"})
    with pytest.raises(ConfigError, match=r"the run to resume has environment\.id Acrobot-v1, not CartPole-v1"):
        train(given, run_dir=other, resume=f"{run}@10", view=PlainView(print))
    assert not other.exists()

    def refused(*_):
        assert (other / "checkpoints" / "ckpt-000000000010").is_dir()
        raise error

    monkeypatch.setattr(training._Launch, "run", refused)
    (run / "config.yaml").unlink()
    with pytest.raises(type(error), match="no"):
        train(given, run_dir=other, resume=f"{run}@10", view=PlainView(print))
    assert not other.exists()
    assert (run / "checkpoints" / "ckpt-000000000010").is_dir()
