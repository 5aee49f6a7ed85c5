"""`distrl serve` beside Ray Serve and plain Starlette: actions per second and latencies with 64 clients.

    python -m benchmarks.serving
    python -m benchmarks.serving --only mlp-* --seconds 10 --rounds 5
    python -m benchmarks.serving --publish

Clients are connections of two processes on the same machine, each with one request under way: one observation per
request, another one each time. Every server is one process of its own with one thread for the policy, an MLP of 64 × 64
for CartPole's observations, Nature's network for four frames of 84 × 84, or an LSTM of 128 cells with a session for
each client. Starlette and Ray Serve run the same ONNX session; Ray Serve in batches of up to 64, Starlette one by one,
as its users would write it. All take turns: in each round every server is started, warmed up, measured and stopped.
Latencies are seen by clients. Processor time is that of the server with its children: on a machine that others
use, it says more than the rate. A figure is the median over rounds.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

from benchmarks.publishing import say
from benchmarks.speed import Entry, chosen, finish, listed, parser, stamp

PAGE = Path(__file__).resolve().parents[1] / "docs" / "serving.md"
CLIENTS, PROCESSES = 64, 2
WARM_UP_S = 1.0
LEAST_PER_S, MOST_P99_MS = 10_000, 5.0
_PORT = re.compile(r"port (\d+)|http://127\.0\.0\.1:(\d+)/")


class Case(NamedTuple):
    """A measurement.

    Attributes:
        server: distrl, starlette or ray.
        network: mlp, cnn or lstm.
        way: http or websocket.
        shown: Its name on the page.
    """

    server: str
    network: str
    way: str
    shown: str


CASES = {
    "mlp-websocket": Case("distrl", "mlp", "websocket", "MLP, WebSocket"),
    "mlp-http": Case("distrl", "mlp", "http", "MLP, HTTP"),
    "mlp-starlette": Case("starlette", "mlp", "http", "MLP, HTTP, plain Starlette"),
    "mlp-ray": Case("ray", "mlp", "http", "MLP, HTTP, Ray Serve"),
    "lstm-websocket": Case("distrl", "lstm", "websocket", "LSTM, WebSocket, 64 sessions"),
    "cnn-websocket": Case("distrl", "cnn", "websocket", "Nature CNN, WebSocket, msgpack"),
    "cnn-http": Case("distrl", "cnn", "http", "Nature CNN, HTTP, msgpack"),
}


def export(network: str, path: str) -> None:
    """Write a policy with random weights as one file. Runs in a process of its own, which imports TensorFlow."""
    from distrl.config.heads import PolicyHeadParameters, ValueHeadParameters
    from distrl.config.network import NetworkParameters
    from distrl.networks.network import Network
    from distrl.networks.policy import onnx_graph
    from distrl.networks.policy.bundle import export_bundle
    from distrl.networks.policy.description import BundleDescription
    from distrl.networks.policy.exported_model import Exported, sealed
    from distrl.types import ArraySpec, DiscreteSpec, EnvSpec

    images = network == "cnn"
    seen = ArraySpec((84, 84, 4), "uint8", 0, 255) if images else ArraySpec((4,), "float32")
    spec = EnvSpec(network, {"observation": seen}, {"action": DiscreteSpec(6 if images else 2)})
    middleware: dict[str, Any] = {"mlp": {"scheme": [64]}, "cnn": {"scheme": [512]}}.get(
        network, {"kind": "lstm", "number_of_lstm_cells": 128}
    )
    embedders = {} if images else {"input_embedders_parameters": {"observation": {"scheme": [64]}}}
    parameters = NetworkParameters.model_validate({"middleware_parameters": middleware, **embedders})
    made = Network(parameters, spec, (PolicyHeadParameters(), ValueHeadParameters()), "main", 1)
    with tempfile.TemporaryDirectory() as cache:
        bundle = export_bundle(made, cache_dir=Path(cache))
    model = onnx_graph.embed(bundle.graph, made.policy_weights())
    Path(path).write_bytes(sealed(model, Exported(BundleDescription.from_json(bundle.description), "impala", None, 1)))


@contextmanager
def running(case: Case, policy: Path, log: Path) -> Iterator[tuple[int, psutil.Process]]:
    """Run a server in a process of its own while inside; yield its port and the process."""
    words = {
        "distrl": ["-m", "distrl", "serve", str(policy), "--port", "0"],
        "starlette": ["-m", "benchmarks.serving_peers", "starlette", str(policy)],
        "ray": ["-m", "benchmarks.serving_peers", "ray", str(policy)],
    }[case.server]
    with log.open("ab") as errors:
        server = subprocess.Popen(
            [sys.executable, *words], stdout=subprocess.PIPE, stderr=errors, text=True, env=one_thread()
        )
    with server:
        assert server.stdout is not None
        try:
            found = next((found for line in server.stdout if (found := _PORT.search(line))), None)
            if found is None:
                raise SystemExit(f"{case.server} does not serve; its messages are in {log}")
            yield int(found[1] or found[2]), psutil.Process(server.pid)
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(60)


def processor_s(server: psutil.Process) -> float:
    """Return the processor seconds of a server and of what it has started."""
    together = [server, *server.children(recursive=True)]
    return float(sum(sum(process.cpu_times()[:2]) for process in together))


def one_thread() -> dict[str, str]:
    """Return the environment of a server: NumPy on one thread, and output without delay."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


def load(case: Case, port: int, seconds: float, folder: Path) -> tuple[float, np.ndarray]:
    """Let the clients act for so long; return actions per second and the latencies in milliseconds."""
    kind = {"mlp": "numbers", "lstm": "sessions", "cnn": "images"}[case.network]
    words = [sys.executable, "-m", "benchmarks.serving_load", case.way, kind, str(port), str(CLIENTS // PROCESSES)]
    files = [folder / f"latencies-{number}.npy" for number in range(PROCESSES)]
    clients = [subprocess.Popen([*words, str(seconds), str(file)]) for file in files]
    if any([client.wait(120) for client in clients]):
        raise SystemExit(f"clients of {case.server} failed")
    latencies = np.concatenate([np.load(file) for file in files])
    return len(latencies) / seconds, 1000 * latencies


def measure(names: list[str], rounds: int, seconds: float, folder: Path, told: Callable[[str], None]) -> list[Entry]:
    """Measure cases in turns."""
    policies = {}
    for network in sorted({CASES[name].network for name in names}):
        policies[network] = folder / f"{network}.onnx"
        subprocess.run(
            [sys.executable, "-c", _EXPORT, network, str(policies[network])], check=True, capture_output=True
        )
    where = stamp()
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in names}
    for turn in range(rounds):
        for name in names if turn % 2 == 0 else reversed(names):
            case = CASES[name]
            with running(case, policies[case.network], folder / "servers.log") as (port, server):
                load(case, port, WARM_UP_S, folder)
                used_s = processor_s(server)
                per_s, latencies = load(case, port, seconds, folder)
                used_us = 1e6 * (processor_s(server) - used_s) / len(latencies)
            found[name].append((per_s, *np.percentile(latencies, (50, 99)), used_us))
            told(f"round {turn + 1}, {name}: {per_s:,.0f}/s, p99 {found[name][-1][2]:.2f} ms")
    medians = {name: np.median(rows, axis=0).tolist() for name, rows in found.items()}
    return [
        {
            "name": name,
            **where,
            "rounds": rounds,
            "seconds": seconds,
            "per_s": medians[name][0],
            "p50_ms": medians[name][1],
            "p99_ms": medians[name][2],
            "cpu_us": medians[name][3],
        }
        for name in names
    ]


_EXPORT = "import sys; from benchmarks import serving; serving.export(*sys.argv[1:])"


def block(report: Mapping[str, Any]) -> str:
    """Return the part of the page."""
    heads = ["64 clients", "Actions/s", "Median latency", "99 %", "Processor per action", "Ours to it", "By processor"]
    ours = next((entry for entry in report["results"] if entry["name"] == "mlp-http"), None)
    return listed(report, heads, lambda entry: _line(entry, ours))


def _line(entry: Entry, ours: Entry | None) -> list[str]:
    case, ratios = CASES[entry["name"]], ["", ""]
    if case.server != "distrl" and ours is not None:
        ratios = [f"{ours['per_s'] / entry['per_s']:.1f}", f"{entry['cpu_us'] / ours['cpu_us']:.1f}"]
    latencies = [f"{entry[name]:.2f} ms" for name in ("p50_ms", "p99_ms")]
    return [case.shown, f"{entry['per_s']:,.0f}", *latencies, f"{entry['cpu_us']:,.0f} µs", *ratios]


def main(arguments: list[str] | None = None) -> int:
    """Measure and report."""
    made = parser(__doc__, "serving", list(CASES), PAGE)
    made.add_argument("--rounds", type=int, default=3, help="of each case (default: %(default)s)")
    made.add_argument("--seconds", type=float, default=5.0, help="of each measurement (default: %(default)s)")
    given = made.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    entries = measure(chosen(list(CASES), given.only), given.rounds, given.seconds, given.out, say)
    finish("serving", entries, given, block, PAGE)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
