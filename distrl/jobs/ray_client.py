"""The job server of a Ray cluster: each error is one line, and no request waits for ever."""

import asyncio
import contextlib
import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from distrl.errors import ConfigError, require
from distrl.launch.ray_cluster import Node, one_line, token_refused

ANSWER_S = 10.0
PACKAGE_S = 300.0
"""Longest wait for a piece of the code package to be taken."""


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
        """Connect to a job server; None: the one that Ray finds (RAY_API_SERVER_ADDRESS, RAY_ADDRESS, this machine).

        Raises:
            ConfigError: Ray is not installed, the server does not answer, or it refuses the token.
        """
        require("ray", "Ray", "ray")
        require("aiohttp", "the client of Ray's job server", "ray")
        with _one_line(address or "the default address"):
            return cls(_make_client(address))

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

        with _one_line(self.address):
            found = list_nodes(address=self.address, filters=[("state", "=", "ALIVE")], timeout=int(ANSWER_S))
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
        try:
            with _one_line(self.address):
                self._client.submit_job(entrypoint=entrypoint, submission_id=submission_id, runtime_env=runtime_env)
        except ConfigError as error:
            if "already exists" in str(error):
                raise ConfigError(
                    f"the run id {submission_id} is taken: the Ray cluster at {self.address} has had a job of that "
                    "name; choose another --run-id"
                ) from error
            raise

    def job(self, job_id: str) -> Any:
        """Return Ray's details of a job; None if the cluster does not know it."""
        with _one_line(self.address):
            try:
                return self._client.get_job_info(job_id)
            except RuntimeError as error:
                if "404" in str(error):
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
        """Yield what a job prints, from its beginning, until it ends or the connection breaks."""
        chunks = self._client.tail_job_logs(job_id)
        with asyncio.Runner() as runner, contextlib.suppress(StopAsyncIteration):
            while True:
                yield runner.run(anext(chunks))


def _make_client(address: str | None) -> Any:
    import requests
    from ray.job_submission import JobSubmissionClient

    class Bounded(JobSubmissionClient):
        """Waits for a limited time: Ray's own requests have no limit."""

        def _do_request(self, method: str, endpoint: str, **more: Any) -> requests.Response:
            limit_s = PACKAGE_S if method == "PUT" else ANSWER_S
            return super()._do_request(method, endpoint, timeout=(ANSWER_S, limit_s), **more)

    return Bounded(address)


@contextlib.contextmanager
def _one_line(address: str) -> Iterator[None]:
    """Raise ConfigError for what Ray and its HTTP client raise."""
    import requests
    from ray.exceptions import AuthenticationError, RayError
    from ray.util.state.exception import RayStateApiException

    try:
        yield
    except AuthenticationError as error:
        raise token_refused(f"Ray's job server at {address}") from error
    except (RayError, RayStateApiException, requests.RequestException, OSError, RuntimeError, ValueError) as error:
        raise ConfigError(f"Ray's job server at {address}: {one_line(error)}") from error
