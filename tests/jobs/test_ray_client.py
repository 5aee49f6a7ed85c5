"""The client of Ray's job server, against a server that answers as it is told to."""

import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from distrl.errors import ConfigError

pytest.importorskip("ray")
pytest.importorskip("aiohttp")

from distrl.jobs import ray_client
from distrl.jobs.ray_client import RayClient, server_url
from tests.faults.arguments import environment

pytestmark = pytest.mark.ray
VERSION = {"ray_version": "2.60.0", "version": "4", "ray_commit": "", "session_name": ""}
JOB = {"type": "SUBMISSION", "status": "RUNNING", "entrypoint": "true", "submission_id": "pong"}


class Server(ThreadingHTTPServer):
    """A job server.

    Attributes:
        jobs: Ids of the jobs that it has.
        asked: Paths of all requests.
        refusals: Texts with which it refuses the next submissions.
        silent: It takes a submission, and never answers it.
    """

    daemon_threads = True

    def __init__(self):
        self.jobs, self.asked, self.refusals, self.silent = set(), [], [], False
        self.done = threading.Event()
        super().__init__(("127.0.0.1", 0), Answers)
        self.url = f"http://127.0.0.1:{self.server_port}"


class Answers(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        self.server.asked.append(self.path)
        job_id = self.path.rpartition("/")[2]
        if self.path == "/api/version":
            self.answer(200, VERSION)
        elif self.path.startswith("/api/v0/nodes"):
            node = {"node_id": "1", "node_ip": "10.0.0.1", "resources_total": {"CPU": 4.0}, "state": "ALIVE"}
            node |= {"is_head_node": True, "state_message": None, "node_name": "one", "labels": {}}
            node |= {"start_time_ms": 0, "end_time_ms": 0}
            rows = {"total": 1, "num_after_truncation": 1, "num_filtered": 1, "result": [node]}
            self.answer(200, {"result": True, "msg": "", "data": {"result": rows}})
        elif job_id in self.server.jobs:
            self.answer(200, JOB)
        else:
            self.answer(404, f"Job {job_id} does not exist")

    def do_PUT(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(200, "")

    def do_POST(self):
        job_id = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["submission_id"]
        if self.server.refusals:
            self.answer(500, self.server.refusals.pop())
            return
        self.server.jobs.add(job_id)
        if self.server.silent:
            self.server.done.wait(60)
            return
        self.answer(200, {"job_id": job_id, "submission_id": job_id})

    def answer(self, code, body):
        text = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "text/plain" if isinstance(body, str) else "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


@pytest.fixture(autouse=True)
def variables(monkeypatch):
    """Ray's variables of this process stay as they are."""
    for name in ("RAY_API_SERVER_ADDRESS", "RAY_RUNTIME_ENV_IGNORE_GITIGNORE", "RAY_ADDRESS", "RAY_AUTH_MODE"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@pytest.fixture
def server():
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.done.set()
    server.shutdown()
    thread.join()
    server.server_close()


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
from distrl.jobs.ray_client import RayClient
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


def test_the_address_comes_before_ray_s_variables(server, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "http://127.0.0.1:1")
    client = RayClient.at(server.url)
    assert client.address == server.url
    assert [(node.cpus, node.host) for node in client.nodes()] == [(4.0, "10.0.0.1")]


def test_clusters_of_more_than_a_hundred_nodes_are_seen_whole(server):
    RayClient.at(server.url).nodes()
    assert "limit=10000&" in server.asked[-1]


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


def test_a_job_whose_submission_is_not_answered_in_time_is_found(server, monkeypatch):
    client = RayClient.at(server.url)
    monkeypatch.setattr(ray_client, "SUBMIT_S", 0.2)
    quick = RayClient.at(server.url)
    server.silent = True
    submit(quick)
    assert client.job("pong").status == "RUNNING"


def test_ray_s_notes_on_an_upload_are_not_shown(server, tmp_path, caplog):
    (tmp_path / "job.yaml").write_text("seed: 1\n")
    RayClient.at(server.url).submit(str(tmp_path), entrypoint="true", submission_id="pong")
    assert server.jobs == {"pong"}
    assert [record.message for record in caplog.records if record.name.startswith("ray")] == []


def test_a_job_server_whose_agent_is_not_up_yet_is_asked_again(server):
    server.refusals = ["No available agent to submit job, please try again later."] * 2
    submit(RayClient.at(server.url))
    assert (server.jobs, server.refusals) == ({"pong"}, [])


def test_a_job_server_without_an_agent_is_one_line_with_a_remedy(server, monkeypatch):
    monkeypatch.setattr(ray_client, "SUBMIT_S", 0.5)
    server.refusals = ["No available agent to submit job, please try again later."] * 10_000
    with pytest.raises(ConfigError, match=r"has had no agent that takes jobs for 0\.5 s; see dashboard_agent\.log"):
        submit(RayClient.at(server.url))


def test_a_refused_submission_is_one_line(server):
    server.refusals = ["disk\nfull"]
    with pytest.raises(ConfigError, match=r"^Ray's job server at http://127.0.0.1:\d+: Request failed .*: disk full"):
        submit(RayClient.at(server.url))
    assert not server.jobs


def test_a_name_that_is_taken(server):
    client = RayClient.at(server.url)
    client.require_free("pong")
    server.jobs = {"pong", "404"}
    server.refusals = ["Job with submission_id pong already exists."]
    for attempt in (lambda: client.require_free("pong"), lambda: submit(client)):
        with pytest.raises(ConfigError, match="the run id pong is taken: the Ray cluster at"):
            attempt()


@pytest.mark.filterwarnings("ignore:ssl=None")  # Ray's own call
def test_a_broken_connection_to_a_followed_log_is_one_line(server):
    with pytest.raises(ConfigError, match="Ray's job server at http://127"):
        list(RayClient.at(server.url).follow("pong"))  # the server speaks no websocket


def test_silence_is_told_from_a_server_that_is_gone(server, monkeypatch):
    client = RayClient.at(server.url)
    monkeypatch.setattr(ray_client, "SILENT_S", 0.1)

    async def nothing(job_id):
        await ray_client.asyncio.sleep(60)
        yield ""

    monkeypatch.setattr(client._client, "tail_job_logs", nothing)
    server.jobs = {"pong"}
    with pytest.raises(TimeoutError):
        list(client.follow("pong"))
    server.shutdown()
    server.server_close()
    with pytest.raises(ConfigError, match="Ray's job server at http://127"):
        list(client.follow("pong"))
