"""`distrl train --dashboard`: the dashboard in a low-priority process that ends with the training; and its socket."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from distrl.apps.dashboard.access import access_of_environment
from distrl.apps.dashboard.files import id_of
from distrl.apps.web.listening import listen, url_of
from distrl.errors import require

PORT = 8720
"""First port to try."""
END_S = 4.0
HOST = "127.0.0.1"
USUAL_ROOT = "runs"
NEEDED = {"starlette": "starlette", "uvicorn": "uvicorn", "prometheus_client": "prometheus_client"}


def require_dashboard() -> None:
    """Raise MissingExtraError unless the extra `dashboard` is installed."""
    for module, name in NEEDED.items():
        require(module, f"{name}, which the dashboard needs,", "dashboard")


@contextmanager
def dashboard_beside(run_dir: Path) -> Iterator[str]:
    """Run a dashboard on loopback while inside; yield the address of the run's page.

    It takes its tokens from the environment, as `distrl dashboard` does. It shows the neighbouring runs if they are in
    a folder `runs`, otherwise only this one: a folder of another name may hold many unrelated files.
    """
    require_dashboard()
    access_of_environment(HOST)
    run_dir = run_dir.absolute()
    root = run_dir.parent if run_dir.parent.name == USUAL_ROOT else run_dir
    if root != run_dir:
        root.mkdir(parents=True, exist_ok=True)
    # Opened here, so that the address is known before the server is up: early connections wait in the queue.
    with listen(HOST, None, PORT) as listening:
        child = subprocess.Popen(  # our own interpreter and arguments
            [sys.executable, "-P", "-m", "distrl.apps.dashboard.server", str(root), str(listening.fileno())],
            stdin=subprocess.PIPE,  # its lifeline: closed when this process ends
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


def page_of(root: Path, run_dir: Path) -> str:
    """Return the address of a run's page, relative to the dashboard's."""
    path = run_dir.resolve().relative_to(root.resolve()).as_posix()
    return f"#/run/{id_of('' if path == '.' else path)}"
