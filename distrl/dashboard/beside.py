"""`distrl train --dashboard`: the page in a process of its own, of low priority, that ends with the training."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from distrl.dashboard.access import access_of_environment
from distrl.dashboard.sockets import listen, page_of, url_of
from distrl.errors import require

END_S = 4.0
HOST = "127.0.0.1"
USUAL_ROOT = "runs"
NEEDED = {"starlette": "starlette", "uvicorn": "uvicorn", "prometheus_client": "prometheus_client"}


def require_dashboard() -> None:
    """Raises MissingExtraError unless what serves the page is installed."""
    for module, name in NEEDED.items():
        require(module, f"{name}, which the dashboard needs,", "dashboard")


@contextmanager
def dashboard_beside(run_dir: Path) -> Iterator[str]:
    """While inside, a dashboard is up on loopback; the address of the run's page.

    It takes its tokens from the environment, as `distrl dashboard` does.

    It shows the runs beside this one if they are in a folder `runs`, and this one alone otherwise: a folder of any
    other name may hold anything, and much of it.

    Raises:
        MissingExtraError: What serves it is not installed.
        ConfigError: No port is free; a token in the environment is too short.
    """
    require_dashboard()
    access_of_environment(HOST)
    run_dir = run_dir.absolute()
    root = run_dir.parent if run_dir.parent.name == USUAL_ROOT else run_dir
    if root != run_dir:
        root.mkdir(parents=True, exist_ok=True)
    # Opened here, so that the address is known before the server is up: who comes early waits in the queue.
    with listen(HOST, None) as listening:
        child = subprocess.Popen(  # our own interpreter and arguments
            [sys.executable, "-P", "-m", "distrl.dashboard.server", str(root), str(listening.fileno())],
            stdin=subprocess.PIPE,  # its lifeline: ends when we do, however that happens
            pass_fds=[listening.fileno()],
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
            process_group=0,  # Ctrl-C is for the training
        )
        address = url_of(listening) + page_of(root, run_dir)
    try:
        yield address
    finally:
        assert child.stdin is not None
        child.stdin.close()
        try:
            child.wait(END_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
