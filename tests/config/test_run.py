"""Combinations of settings that no run can have."""

import traceback

import pytest

from distrl.config import RunConfig
from distrl.errors import ConfigError


def replicas(count=4, backend="jax", **sections):
    return RunConfig.model_validate({"learner": {"replicas": count, "backend": backend}, **sections})


def test_replicas_need_jax():
    with pytest.raises(ValueError, match=r"learner\.replicas: 2 devices need learner\.backend: jax; the TensorFlow"):
        replicas(2, "tensorflow")
    assert replicas(1, "tensorflow").learner.replicas == 1


def test_replicas_share_sequences_evenly():
    assert replicas(4, actors={"environments": 5}).sequences_per_batch == 20
    with pytest.raises(ValueError, match=r"learner\.replicas: 3 devices cannot share 20 sequences"):
        replicas(3, actors={"environments": 5})


def test_replicas_are_refused_where_nothing_is_shared():
    with pytest.raises(ValueError, match="actors of algorithm a3c ship gradients"):
        replicas(algorithm={"name": "a3c"})
    with pytest.raises(ValueError, match="LBFGS searches on one device"):
        replicas(network={"optimizer_type": "LBFGS"})


@pytest.mark.parametrize(
    ("sections", "told"),
    [
        ({"actors": {"weight_mixing_rate": 0.5}}, "actors.weight_mixing_rate < 1 mixes old weights .* algorithm a2c"),
        (
            {"memory": {"queue_batches": 4}},
            "memory.queue_batches, memory.queue_bytes: a2c queues one gradient of every",
        ),
        ({"memory": {"compression": "zstd"}}, "memory.compression: zstd is for unrolls; actors of a2c ship gradients"),
        ({"learner": {"batch_size": 2}}, "learner.batch_size: a2c applies one gradient of every worker; leave it out"),
        (
            {"actors": {"autoscale": {"enabled": True}}},
            "actors.autoscale.enabled: a2c makes each update of one gradient of every actor: their number is the size",
        ),
    ],
)
def test_rounds_leave_no_room_for_some_settings(sections, told):
    with pytest.raises(ValueError, match=told):
        RunConfig.model_validate({"algorithm": {"name": "a2c"}, **sections})


@pytest.mark.parametrize(
    ("actors", "message"),
    [
        ({"autoscale": {"min_count": 3, "max_count": 2}}, "min_count: 3 is more than max_count: 2; set one of them"),
        ({"max_count": 4, "autoscale": {"max_count": 5}}, r"autoscale\.max_count: 5 is more than actors\.max_count: 4"),
        ({"max_count": 4, "autoscale": {"min_count": 5}}, r"autoscale\.min_count: 5 is more than actors\.max_count: 4"),
        ({"count": 0, "autoscale": {"enabled": True}}, r"autoscale\.enabled needs actors\.count >= 1"),
        ({"autoscale": {"window_s": 0}}, "window_s"),
    ],
)
def test_autoscaling_needs_bounds_that_agree(actors, message):
    with pytest.raises(ValueError, match=message):
        RunConfig.model_validate({"actors": actors})


@pytest.mark.parametrize("algorithm", ["impala", "a3c"])
def test_a_time_out_of_rounds_needs_rounds(algorithm):
    with pytest.raises(ValueError, match=rf"learner\.sync_timeout_s is of workers .* \(a2c\), not of {algorithm}"):
        RunConfig.model_validate({"algorithm": {"name": algorithm}, "learner": {"sync_timeout_s": 5.0}})


def test_keys_outlive_the_longest_outage():
    def memory(**fields):
        return RunConfig.model_validate({"memory": {"give_up_s": 500.0, **fields}})

    url = "redis://h"
    with pytest.raises(ValueError, match=r"memory.keep_s: 999 is too short.*; set it to 1000 or more"):
        memory(url=url, keep_s=999)
    assert memory(url=url, keep_s=1000).memory.keep_s == 1000


def test_a_redis_of_the_runs_own_keeps_no_keys():
    with pytest.raises(ValueError, match=r"memory.keep_s has no use without memory.url: the embedded Redis ends with"):
        RunConfig.model_validate({"memory": {"keep_s": 999}})


def test_what_actors_tell_of_their_rewards_follows_from_how_they_are_normalised():
    def discount(**algorithm):
        return RunConfig.model_validate({"algorithm": {"discount": 0.9, **algorithm}}).algorithm.reward_moments_discount

    assert discount() is None
    assert discount(reward_normalization={}) == 0.9
    assert discount(name="a2c", reward_normalization={"kind": "reward"}) == 0.0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("url", "redis://localhost"), ("listen", "auto"), ("namespace", "team-a"), ("compression", "lz4")),
        ("tls", {"ca_file": "a"}),
    ],
)
def test_one_process_refuses_what_only_redis_would_use(name, value):
    with pytest.raises(ValueError, match=rf"memory\.{name} has no use with actors\.count: 0"):
        RunConfig.model_validate({"actors": {"count": 0}, "memory": {name: value}})


@pytest.mark.parametrize("url", ["redis://me:s3cret@h", "rediss://:s3cret@h:1/0", "unix:///x?password=s3cret"])
def test_a_password_in_the_url_is_refused_and_not_shown(url):
    with pytest.raises(ConfigError, match=r"memory\.url holds a password.* DISTRL_REDIS_PASSWORD") as caught:
        RunConfig.model_validate({"memory": {"url": url}})
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))


def test_a_redis_that_is_named_does_not_listen_and_one_that_listens_with_tls_has_certificate_and_key():
    def memory(**settings):
        return RunConfig.model_validate({"memory": {"listen": "auto", **settings}}).memory

    assert memory().reachable
    assert not RunConfig().memory.reachable
    with pytest.raises(ValueError, match=r"memory\.listen is for the embedded Redis"):
        memory(url="redis://h")
    with pytest.raises(ValueError, match=r"needs the server's memory\.tls\.cert_file and key_file"):
        memory(tls={"cert_file": "server.crt"})
    assert memory(tls={"cert_file": "/s.crt", "key_file": "/s.key"}).tls.key_file == "/s.key"
    assert not RunConfig.model_validate(
        {"memory": {"listen": "auto"}, "launch": {"start_actors": False}}
    ).started_actors


def test_files_of_tls_count_from_the_directory_of_the_launch(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    files = {"ca_file": "ca.crt", "cert_file": "~/own.crt", "key_file": "/x/own.key"}
    for scheme in ("rediss", "valkeys", "rediss+sentinel", "rediss+cluster"):
        tls = RunConfig.model_validate({"memory": {"url": f"{scheme}://h", "tls": files}}).memory.tls
        assert (tls.ca_file, tls.cert_file, tls.key_file) == (f"{tmp_path}/ca.crt", "/home/me/own.crt", "/x/own.key")


@pytest.mark.parametrize("url", [None, "redis://h", "unix:///x"])
def test_files_of_tls_need_a_url_with_tls(url):
    with pytest.raises(ValueError, match=r"memory\.tls has no use without a memory\.url that asks for TLS: rediss://"):
        RunConfig.model_validate({"memory": {"url": url, "tls": {"ca_file": "ca.crt"}}})
