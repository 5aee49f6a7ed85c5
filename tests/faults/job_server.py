"""A job server of Ray's that answers as a test wants, without a cluster."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

VERSION = {"ray_version": "2.60.0", "version": "4", "ray_commit": "", "session_name": ""}
JOB = {"type": "SUBMISSION", "status": "RUNNING", "entrypoint": "true", "submission_id": "pong"}


class Server(ThreadingHTTPServer):
    """A job server.

    Attributes:
        jobs: Ids of the jobs that it has.
        asked: Paths of all requests.
        refusals: Texts with which it refuses the next submissions.
        silent: It takes a submission, and never answers it.
        stuck: It neither takes nor answers one.
    """

    daemon_threads = True

    def __init__(self):
        self.jobs, self.asked, self.refusals = set(), [], []
        self.silent = self.stuck = False
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
        if self.path.endswith("/stop"):
            self.server.asked.append(self.path)
            self.answer(200, {"stopped": True})
            return
        job_id = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["submission_id"]
        if self.server.refusals:
            self.answer(500, self.server.refusals.pop())
            return
        if self.server.stuck:
            self.server.done.wait(60)
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
