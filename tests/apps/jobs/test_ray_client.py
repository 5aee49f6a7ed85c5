"""The client of Ray's job server, against a server that answers as it is told to."""

import subprocess
import sys

import pytest

from distrl.errors import ConfigError

pytest.importorskip("ray")
pytest.importorskip("aiohttp")

from distrl.apps.jobs import ray_client
from distrl.apps.jobs.ray_client import RayClient, server_url
from tests.faults.arguments import environment

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_variables")]

SWALLOWS = """
import os, signal
try:
    os.kill(os.getpid(), signal.SIGINT)
    sum(range(1000))
except KeyboardInterrupt:
    pass
"""
CONNECTS = """
import sys
sys.path.insert(0, sys.argv[1])
from distrl.apps.jobs.ray_client import RayClient
try:
    RayClient.at("http://127.0.0.1:1")
except KeyboardInterrupt:
    print("interrupted")
"""


def test_ctrl_c_is_not_lost_in_the_import_of_ray(tmp_path):
    for name, text in (("__init__", SWALLOWS), ("job_submission", ""), ("util/__init__", ""), ("util/state", "")):
        (tmp_path / "ray" / f"{name}.py").parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "ray" / f"{name}.py").write_text(text)
    command = [sys.executable, "-c", CONNECTS, str(tmp_path)]
    assert subprocess.run(command, env=environment(), capture_output=True, text=True).stdout == "interrupted\n"


def submit(client):
    client.submit(None, entrypoint="true", submission_id="pong")


def test_the_address_comes_before_ray_s_variables(job_server, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "http://127.0.0.1:1")
    client = RayClient.at(job_server.url)
    assert client.address == job_server.url
    assert [(node.cpus, node.host) for node in client.nodes()] == [(4.0, "10.0.0.1")]


def test_clusters_of_more_than_a_hundred_nodes_are_seen_whole(job_server):
    RayClient.at(job_server.url).nodes()
    assert "limit=10000&" in job_server.asked[-1]


@pytest.mark.parametrize(
    ("address", "variable", "url"),
    [
        ("https://head/ray/", "http://other:1", "https://head/ray"),
        (None, "http://other:1", "http://other:1"),
        (None, None, "http://127.0.0.1:8265"),
    ],
)
def test_addresses(monkeypatch, address, variable, url):
    if variable is not None:
        monkeypatch.setenv("RAY_ADDRESS", variable)
    assert server_url(address) == url


@pytest.mark.parametrize(
    ("address", "variable", "message"),
    [
        ("head:8265", "", r"--address 'head:8265' is no URL of a job server; write --address http://head:8265"),
        ("ray://head:10001", "", "no URL of a job server"),
        ("subprocess://head", "", "no URL of a job server"),
        ("http://", "", "no URL of a job server"),
        ("", "", "no URL of a job server"),
        (None, "head:6380", "RAY_ADDRESS 'head:6380' is no URL of a job server"),
        ("https://me:pw@head", "", "--address holds a password"),
    ],
)
def test_wrong_addresses_are_refused_at_once(monkeypatch, address, variable, message):
    monkeypatch.setenv("RAY_ADDRESS", variable)
    with pytest.raises(ConfigError, match=message) as raised:
        RayClient.at(address)
    assert "pw" not in str(raised.value)


def test_a_job_whose_submission_is_not_answered_in_time_is_found(job_server, monkeypatch):
    client = RayClient.at(job_server.url)
    monkeypatch.setattr(ray_client, "SUBMIT_S", 0.2)
    quick = RayClient.at(job_server.url)
    job_server.silent = True
    submit(quick)
    assert client.job("pong").status == "RUNNING"


def test_a_job_that_may_begin_late_is_named(job_server, monkeypatch):
    monkeypatch.setattr(ray_client, "SUBMIT_S", 0.2)
    job_server.stuck = True
    with pytest.raises(
        ConfigError, match=r"timed out.*; if the job begins all the same, end it with ray job stop pong"
    ):
        submit(RayClient.at(job_server.url))


def test_ray_s_notes_on_an_upload_are_not_shown(job_server, tmp_path, caplog):
    (tmp_path / "job.yaml").write_text("seed: 1\n")
    RayClient.at(job_server.url).submit(str(tmp_path), entrypoint="true", submission_id="pong")
    assert job_server.jobs == {"pong"}
    assert [record.message for record in caplog.records if record.name.startswith("ray")] == []


def test_a_job_server_whose_agent_is_not_up_yet_is_asked_again(job_server):
    job_server.refusals = ["No available agent to submit job, please try again later."] * 2
    submit(RayClient.at(job_server.url))
    assert (job_server.jobs, job_server.refusals) == ({"pong"}, [])


def test_a_job_server_without_an_agent_is_one_line_with_a_remedy(job_server, monkeypatch):
    monkeypatch.setattr(ray_client, "SUBMIT_S", 0.5)
    job_server.refusals = ["No available agent to submit job, please try again later."] * 10_000
    with pytest.raises(ConfigError, match=r"has had no agent that takes jobs for 0\.5 s; see dashboard_agent\.log"):
        submit(RayClient.at(job_server.url))


def test_a_refused_submission_is_one_line(job_server):
    job_server.refusals = ["disk\nfull"]
    with pytest.raises(ConfigError, match=r"^Ray's job server at http://127.0.0.1:\d+: Request failed .*: disk full"):
        submit(RayClient.at(job_server.url))
    assert not job_server.jobs


def test_a_name_that_is_taken(job_server):
    client = RayClient.at(job_server.url)
    client.require_free("pong")
    job_server.jobs = {"pong", "404"}
    job_server.refusals = ["Job with submission_id pong already exists."]
    for attempt in (lambda: client.require_free("pong"), lambda: submit(client)):
        with pytest.raises(ConfigError, match="the run id pong is taken: the Ray cluster at"):
            attempt()


@pytest.mark.filterwarnings("ignore:ssl=None")  # Ray's own call
def test_a_broken_connection_to_a_followed_log_is_one_line(job_server):
    with pytest.raises(ConfigError, match="Ray's job server at http://127"):
        list(RayClient.at(job_server.url).follow("pong"))  # the server speaks no websocket


def test_silence_is_told_from_a_server_that_is_gone(job_server, monkeypatch):
    client = RayClient.at(job_server.url)
    monkeypatch.setattr(ray_client, "SILENT_S", 0.1)

    async def nothing(job_id):
        await ray_client.asyncio.Event().wait()
        yield ""

    monkeypatch.setattr(client._client, "tail_job_logs", nothing)
    job_server.jobs = {"pong"}
    with pytest.raises(TimeoutError):
        list(client.follow("pong"))
    job_server.shutdown()
    job_server.server_close()
    with pytest.raises(ConfigError, match="Ray's job server at http://127"):
        list(client.follow("pong"))
