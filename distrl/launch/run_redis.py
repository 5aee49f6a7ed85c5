"""The Redis of a run: the one that the configuration names, or one that the launch starts, with or without a port."""

import secrets
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from distrl.config.memory import MemoryConfig
from distrl.config.secrets import PASSWORD_FILE_OPTION, check_private, with_password_file
from distrl.data_store.atomic import put_file
from distrl.launch.checks import run_url
from distrl.memory_backend.embedded_redis import EmbeddedRedis
from distrl.memory_backend.keys import with_namespace
from distrl.memory_backend.listening import find_port, port_url, server_settings
from distrl.runs.directories import PASSWORD_FILE
from distrl.runs.run_directory import usable


@dataclass(frozen=True)
class RunRedis:
    """The run's Redis.

    Attributes:
        here: URL for roles on this host, which save the way over the network where they can.
        elsewhere: URL for other hosts, if they can reach it.
        password_file: The file in the run's directory; None: the environment has the password, if there is one.
    """

    here: str
    elsewhere: str
    password_file: Path | None = None

    @property
    def of_any_host(self) -> str:
        """URL for roles that may run on any host."""
        return self.elsewhere if self.password_file is None else with_password_file(self.elsewhere, self.password_file)


def open_redis(memory: MemoryConfig, run_dir: Path, cleanup: ExitStack) -> RunRedis:
    """Return the Redis that the configuration names, or start one, which `cleanup` ends.

    Raises:
        ConfigError: `memory.listen` names no free address of this host, or others may read the password's file.
    """
    if memory.url is not None:
        url = run_url(memory.url, memory)
        return RunRedis(url, url)
    if memory.listen is None:
        url = with_namespace(_start_redis(memory, cleanup, {}).url, memory.namespace)
        return RunRedis(url, url)
    password_file = run_dir / PASSWORD_FILE
    with usable(run_dir):
        make_password_file(password_file)
    port = find_port(memory.listen)
    server = _start_redis(memory, cleanup, server_settings(port, password_file, memory.tls))
    here, elsewhere = (with_namespace(url, memory.namespace) for url in (server.url, port_url(port, memory.tls)))
    return RunRedis(with_password_file(here, password_file), elsewhere, password_file)


def _start_redis(memory: MemoryConfig, cleanup: ExitStack, further: Mapping[str, str]) -> EmbeddedRedis:
    # Room for the queue, one unroll per actor beyond it, and weights of any size that fits a laptop.
    most_bytes = 4 * memory.queue_bytes + 2**30
    server = EmbeddedRedis.start(maxmemory_bytes=most_bytes, max_bulk_bytes=2**29, further=further)
    return cleanup.enter_context(server)


def make_password_file(path: Path) -> None:
    """Write a new password, unless an earlier launch has left one.

    Raises:
        ConfigError: Others may read the one that is there.
        OSError: It cannot be written.
    """
    if path.exists():
        check_private(str(path), PASSWORD_FILE_OPTION)
    else:
        put_file(path, f"{secrets.token_hex(32)}\n".encode(), private=True)
