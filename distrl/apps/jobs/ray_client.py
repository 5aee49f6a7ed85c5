"""The job server of a Ray cluster: each error is one line, and no request waits for ever."""

import asyncio
import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from distrl.apps.jobs.target import NoAnswerError
from distrl.errors import ConfigError, require
from distrl.interrupt import interruptible
from distrl.launch.ray_cluster import Node, shortened, token_refused

ANSWER_S = 10.0
SUBMIT_S = 30.0
"""Longest wait for a job to be taken: the job server itself waits 10 s for its agent, which may still be starting."""
PACKAGE_S = 300.0
"""Longest wait for a piece of the code package to be taken."""
SILENT_S = 60.0
"""A followed log without a line for so long may have a connection that is broken in silence; it is made again."""
MOST_NODES = 10_000
"""Ray's own limit; its default would show the first hundred nodes."""
DEFAULT_ADDRESS = "http://127.0.0.1:8265"
_VARIABLES = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")
_preferring = threading.Lock()
"""Held from the setting of the variable until a client has read it: jobs at several addresses are asked at once."""
_NO_AGENT_YET = "No available agent"


class RayClient:
    """A connection to a job server.

    Attributes:
        address: Its URL.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self.address: str = client.get_address()

    @classmethod
    def at(cls, address: str | None) -> "RayClient":
        """Connect to a job server; None: the one that Ray's variables name, or else the one of this host.

        Raises:
            ConfigError: Ray is not installed, or the address is no URL.
            NoAnswerError: The server does not answer, or refuses the token.
        """
        require("ray", "Ray", "ray")
        require("aiohttp", "the client of Ray's job server", "ray")
        url = server_url(address)
        _import_ray()
        try:
            with _one_line(url):
                return cls(_make_client(url))
        except ConfigError as error:
            raise NoAnswerError(str(error)) from error

    @property
    def unprotected(self) -> list[str]:
        """A line for each protection that the connection lacks."""
        url = urlsplit(self.address)
        lacks = []
        if url.scheme != "https" and url.hostname not in ("localhost", "127.0.0.1", "::1"):
            lacks.append("traffic with Ray's job server is not encrypted (use https or a tunnel)")
        if os.environ.get("RAY_AUTH_MODE") != "token":
            lacks.append("Ray is used without a token (RAY_AUTH_MODE=token)")
        return lacks

    def nodes(self) -> list[Node]:
        """Return the nodes that are alive."""
        from ray.util.state import list_nodes

        _prefer(self.address)
        with _one_line(self.address):
            found = list_nodes(self.address, filters=[("state", "=", "ALIVE")], limit=MOST_NODES, timeout=int(ANSWER_S))
        resources = [(node.node_ip, node.resources_total) for node in found]
        return [Node(total.get("CPU", 0.0), total.get("GPU", 0.0), host, {}) for host, total in resources]

    def submit(self, folder: str | None, *, entrypoint: str, submission_id: str, env_vars: Any = None) -> None:
        """Submit a job.

        Args:
            folder: Becomes its working directory.

        Raises:
            ConfigError: The id is taken, or the server refuses.
        """
        runtime_env: dict[str, Any] = {} if folder is None else {"working_dir": folder}
        if env_vars:
            runtime_env["env_vars"] = env_vars
        # What git ignores has been left out; a rule of .gitignore must not leave out the configuration.
        os.environ["RAY_RUNTIME_ENV_IGNORE_GITIGNORE"] = "1"
        deadline = time.monotonic() + SUBMIT_S
        while True:
            try:
                with _one_line(self.address):
                    self._client.submit_job(entrypoint=entrypoint, submission_id=submission_id, runtime_env=runtime_env)
            except ConfigError as error:
                if _NO_AGENT_YET in str(error):
                    if time.monotonic() < deadline:
                        continue
                    raise ConfigError(
                        f"Ray's job server at {self.address} has had no agent that takes jobs for {SUBMIT_S:g} s; see "
                        "dashboard_agent.log on its host: another Ray there may hold the port of the agent "
                        "(ray start --dashboard-agent-listen-port)"
                    ) from error
                if "already exists" in str(error):
                    raise self._taken(submission_id) from error
                if not _is_lost(error):
                    raise
                if self.job(submission_id) is None:
                    late = f"if the job begins all the same, end it with ray job stop {submission_id}"
                    raise ConfigError(f"{error}; {late}") from error
            return

    def require_free(self, submission_id: str) -> None:
        """Raise ConfigError if the cluster has had a job of that name."""
        if self.job(submission_id) is not None:
            raise self._taken(submission_id)

    def _taken(self, submission_id: str) -> ConfigError:
        return ConfigError(
            f"the run id {submission_id} is taken: the Ray cluster at {self.address} has had a job of that name; "
            "choose another --run-id"
        )

    def job(self, job_id: str) -> Any:
        """Return Ray's details of a job; None if the cluster does not know it."""
        with _one_line(self.address):
            try:
                return self._client.get_job_info(job_id)
            except RuntimeError as error:
                if "status code 404" in str(error):
                    return None
                raise

    def stop(self, job_id: str) -> None:
        with _one_line(self.address):
            self._client.stop_job(job_id)

    def delete(self, job_id: str) -> None:
        with _one_line(self.address):
            self._client.delete_job(job_id)

    def output(self, job_id: str) -> str:
        """Return all that a job has printed."""
        with _one_line(self.address):
            return str(self._client.get_job_logs(job_id))

    def follow(self, job_id: str) -> Iterator[str]:
        """Yield what a job prints, from its beginning, until it ends.

        Raises:
            TimeoutError: Nothing has come for `SILENT_S`, and the server answers.
            ConfigError: The connection broke.
        """
        chunks = self._client.tail_job_logs(job_id)
        with asyncio.Runner() as runner, contextlib.suppress(StopAsyncIteration):
            while True:
                try:
                    with _one_line(self.address):
                        chunk = runner.run(asyncio.wait_for(anext(chunks), SILENT_S))
                except ConfigError as error:
                    if isinstance(error.__cause__, TimeoutError):
                        self.job(job_id)
                        raise TimeoutError from error
                    raise
                yield chunk


def server_url(address: str | None) -> str:
    """Return the URL of the job server that an address or, for None, Ray's variables name.

    Raises:
        ConfigError: It is no URL of a job server, or holds a password, which the job's record would show.
    """
    name, found = "--address", address
    for variable in _VARIABLES:
        if found is None:
            name, found = variable, os.environ.get(variable)
    if found is None:
        return DEFAULT_ADDRESS
    url = urlsplit(found)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ConfigError(f"{name} {found!r} is no URL of a job server; write --address http://head:8265")
    if url.password is not None:
        raise ConfigError(f"{name} holds a password, which plans and records would show; leave it out")
    return found.rstrip("/")


def _import_ray() -> None:
    """Import Ray, and let signals wait for it: modules of Cython's swallow a KeyboardInterrupt that meets them."""
    if "ray.util.state" in sys.modules:
        return
    with interruptible() as interrupt:
        import ray.job_submission
        import ray.util.state  # noqa: F401
    if interrupt.code is not None:
        raise KeyboardInterrupt


def _prefer(address: str) -> None:
    """Set the variable that Ray's clients prefer to the address that they are given."""
    os.environ[_VARIABLES[0]] = address


def _make_client(address: str) -> Any:
    import requests
    from ray.job_submission import JobSubmissionClient

    limits_s = {"GET": ANSWER_S, "PUT": PACKAGE_S}

    class Bounded(JobSubmissionClient):
        """Waits for a limited time: Ray's own requests have no limit."""

        def _check_connection_and_version(self, *_: Any, **__: Any) -> None:
            """Do nothing, so that no request is sent while the variable is held; `connect` does it."""

        def connect(self) -> None:
            super()._check_connection_and_version("2.0", "distrl needs Ray 2.0 or higher on the cluster")

        def _do_request(self, method: str, endpoint: str, **more: Any) -> requests.Response:
            return super()._do_request(method, endpoint, timeout=(ANSWER_S, limits_s.get(method, SUBMIT_S)), **more)

    for notes in ("ray", "ray.dashboard.modules.dashboard_sdk", "ray.dashboard.modules.job.sdk"):
        logging.getLogger(notes).setLevel(logging.WARNING)
    with _preferring:
        _prefer(address)
        client = Bounded(address)
    client.connect()
    return client


def _is_lost(error: ConfigError) -> bool:
    """Whether the request may have been carried out: it was sent, and no answer came."""
    import requests

    return isinstance(error.__cause__, requests.RequestException)


@contextlib.contextmanager
def _one_line(address: str) -> Iterator[None]:
    """Raise ConfigError for what Ray and its HTTP clients raise."""
    import aiohttp
    import requests
    from ray.exceptions import AuthenticationError, RayError
    from ray.util.state.exception import RayStateApiException

    clients = (requests.RequestException, aiohttp.ClientError)
    try:
        yield
    except AuthenticationError as error:
        raise token_refused(f"Ray's job server at {address}") from error
    except requests.Timeout as error:
        raise NoAnswerError(f"Ray's job server at {address}: {shortened(error)}") from error
    except (RayError, RayStateApiException, *clients, OSError, RuntimeError, ValueError) as error:
        raise ConfigError(f"Ray's job server at {address}: {shortened(error)}") from error
