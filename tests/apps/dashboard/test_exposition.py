from dataclasses import asdict

import pytest
from prometheus_client.parser import text_string_to_metric_families

from distrl.apps.dashboard.exposition import ROLE_NUMBERS, exposition
from distrl.apps.dashboard.payloads import Runs
from distrl.memory_backend.backend import connect
from distrl.memory_backend.records import WHOLE, GpuLoad, HostLoad, RoleStatus
from distrl.memory_backend.stream import QueueCaps
from distrl.metrics.snapshot import METRICS
from distrl.types import UnrollHeader

pytestmark = pytest.mark.redis
SNAPSHOT = {
    **{metric.name: 2 if metric.name in WHOLE else 1.5 for metric in METRICS if metric.group},
    "bottleneck": "actors",
    "of_my_own": 3,
    "network/relu_zeros/dense": 0.5,
    "unsaved": "disk full",
    "first_update_unix_s": 5.0,
    "loss": float("nan"),
}


@pytest.fixture
def told(root, make_run, alive, redis_url):
    make_run("job", ended=False, pid=alive, redis_url=redis_url, run_id="expo", rows=0)
    make_run("over")
    backend = connect(redis_url, "expo", QueueCaps(8, 1000), name="test", give_up_s=1.0)
    backend.create("{}")
    backend.registry.add_snapshot(SNAPSHOT)
    gpus = (GpuLoad("H100", 0.5, 80_000.0, 10.0), GpuLoad("H100", 0.0, 80_000.0, 0.0))
    machine = HostLoad(2.0, 0.25, 4000.0, 1000.0, gpus)
    for number in range(2):
        own = {"rss_mb": 7.5 + number, "machine": machine if number else None}
        backend.registry.beat(RoleStatus("actor", number, 1, 'host\n"x"', 5, "acting", **own))
    backend.unrolls.push(UnrollHeader(0, 1, 1, 1, 8), b"x")
    runs = Runs(root)
    text = exposition(runs, {}).decode()
    counts = backend.ledger.counts()
    runs.live.let_go(0.0)
    runs.index.close()
    backend.delete()
    backend.close()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return samples, counts


def values(samples, name):
    return {
        tuple(v for k, v in sample.labels.items() if k not in ("run", "env", "algorithm")): sample.value
        for sample in samples
        if sample.name == name
    }


def test_every_number_of_a_snapshot_under_its_name(told):
    samples, _ = told
    own = {"labels": {"run": "job", "env": "CartPole-v1", "algorithm": "impala"}}
    found = {sample.name: sample.value for sample in samples if sample.labels == own["labels"]}
    expected = {
        f"distrl_{metric.name}": float(SNAPSHOT[metric.name])
        for metric in METRICS
        if metric.group and metric.name not in ("bottleneck", "loss")
    }
    expected |= {
        "distrl_actors_up": 2.0,
        "distrl_actors_blocked_share": 0.0,
        "distrl_of_my_own": 3.0,
        "distrl_run_up": 1.0,
        "distrl_redis_failovers": 0.0,
    }
    assert found == expected


def test_unrolls_are_the_ledgers(told):
    samples, counts = told
    where = {key[0]: value for key, value in values(samples, "distrl_unrolls").items()}
    assert where == {name: float(asdict(counts)[name]) for name in where}
    assert where["produced"] == where["queued"] == 1.0
    assert set(values(samples, "distrl_dropped_unrolls")) == {(reason,) for reason in counts.dropped}


def test_hosts_and_their_gpus(told):
    samples, _ = told
    assert values(samples, "distrl_host_cores") == {('host?"x"',): 2.0}
    assert values(samples, "distrl_host_busy_share") == {('host?"x"',): 0.25}
    assert values(samples, "distrl_host_memory_used_mb") == {('host?"x"',): 1000.0}
    assert values(samples, "distrl_gpu_busy_share") == {("0", 'host?"x"', "H100"): 0.5, ("1", 'host?"x"', "H100"): 0.0}


def test_roles(told):
    samples, _ = told
    # The line break in the host's name is replaced where Redis is read.
    assert values(samples, "distrl_role_rss_mb") == {('host?"x"', "0", "actor"): 7.5, ('host?"x"', "1", "actor"): 8.5}
    assert {f"distrl_role_{name}" for name in ROLE_NUMBERS} <= {sample.name for sample in samples}


def test_a_job_whose_redis_is_gone_is_down(root, make_run, alive, tmp_path, monkeypatch):
    monkeypatch.setattr("distrl.apps.dashboard.live_runs.GIVE_UP_S", 0.01)
    make_run("job", ended=False, pid=alive, redis_url=f"unix://{tmp_path}/none")
    runs = Runs(root)
    text = exposition(runs, {}).decode()
    runs.index.close()
    assert 'distrl_run_up{algorithm="impala",env="CartPole-v1",run="job"} 0.0' in text


def test_no_series_is_there_twice(root, make_run, alive, redis_url):
    backends = []
    for folder in ("lr1/seed1", "lr2/seed1"):
        run_id = folder.replace("/", "-")
        make_run(folder, ended=False, pid=alive, redis_url=redis_url, run_id=run_id, rows=0)
        backend = connect(redis_url, run_id, QueueCaps(8, 1000), name="test", give_up_s=1.0)
        backends.append(backend)
        backend.create("{}")
        backend.registry.add_snapshot({**SNAPSHOT, "run_up": 7, "unrolls": 8, "role_rss_mb": 9})
        backend.registry.beat(RoleStatus("actor", 0, 1, "h", 5, "acting"))
    runs = Runs(root)
    text = exposition(runs, {}).decode()
    families = [*text_string_to_metric_families(text)]
    series = [(sample.name, *sorted(sample.labels.items())) for family in families for sample in family.samples]
    assert len(series) == len(set(series))
    assert {sample.labels["run"] for family in families for sample in family.samples} == {"lr1/seed1", "lr2/seed1"}
    assert len({family.name for family in families}) == len(families)
    assert {sample.value for family in families for sample in family.samples if sample.name == "distrl_run_up"} == {1.0}
    runs.live.let_go(0.0)
    runs.index.close()
    for backend in backends:
        backend.delete()
        backend.close()


def test_without_jobs(root):
    runs = Runs(root)
    assert exposition(runs, {}) == b""
    runs.index.close()
