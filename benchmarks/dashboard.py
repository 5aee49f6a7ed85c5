"""Answers of the dashboard with thousands of runs, its processor time beside 200 actors, and the cost of an open page.

    python -m benchmarks.dashboard
    python -m benchmarks.dashboard --only list --runs 1000
    python -m benchmarks.dashboard --browser --pairs 8

A real `distrl dashboard` answers over HTTP, from run directories that this benchmark writes: `list` has thousands of
finished runs, `compare` has 60 of 1,500 rows. Each request of a list asks for another number of lines, as the server
keeps pages of finished runs. A comparison is first asked of a server that has just started, with and without an index.
`actors` is one job with the heartbeats of 200 actors at 1 Hz; the reader polls its page at 1 Hz.

`frames` and `browser` need Chromium and two cores. `frames` opens that job's page and an empty one in turns, and counts
frames, which Chromium draws here without a GPU. `browser` is a training; it and its dashboard share the first core, the
browser has the second one. The page of the run is open or not, in turns, and the ratio is of neighbouring windows.
"""

import argparse
import contextlib
import itertools
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import numpy as np
import psutil

from benchmarks.measurement import FailedError
from benchmarks.publishing import say
from benchmarks.speed import NOTHING, PAGE, Entry, around, goal, heading, measure_each, parser, stamp, table
from distrl.apps.dashboard.files import id_of
from distrl.apps.dashboard.index_store import INDEX_NAME
from distrl.apps.reports.intervals import median_interval
from distrl.config.load import dump, load
from distrl.memory_backend.backend import connect
from distrl.memory_backend.embedded_redis import EmbeddedRedis
from distrl.memory_backend.records import HostLoad, RoleStatus
from distrl.memory_backend.registry import Registry
from distrl.metrics.snapshot import COLUMNS
from distrl.runs.directories import RunRecord, process_mark
from distrl.runs.last_row import last_row
from distrl.runs.summary import Summary

RUNS, ROWS = 10_000, 30
COMPARED, COMPARED_ROWS, COLD_STARTS, REPEATED = 60, 1500, 3, 3
ACTORS = 200
REQUESTS = 15
QUERY = "algo:impala lr>=3e-4 state:ended"
KINDS = [*itertools.product(("cartpole-impala", "cartpole-ppo", "cartpole-dqn", "pendulum-sac"), (1e-4, 3e-4, 1e-3))]
POLL_S = 1.0
WINDOW_S, SETTLE_S, WARM_UP_S, PATIENCE_S = 12.0, 5.0, 30.0, 600.0
MOST_S = {"list": 0.3, "query": 0.1, "compare": 1.0}
MOST_PERCENT = 2.0
FRAMES_S, MOST_FRAME_MS = 5.0, 16.7
COUNT_FRAMES = """(seconds) => new Promise((resolve) => {
  let frames = 0;
  const begin = performance.now();
  const count = (now) => {
    if (now - begin >= 1000 * seconds) resolve((now - begin) / frames);
    else { frames += 1; requestAnimationFrame(count); }
  };
  requestAnimationFrame(count);
})"""
UNITS = {"s": "{:.3f} s", "ms": "{:.1f} ms", "%": "{:.1f} %", "ratio": "{:.3f}"}
EMPTY = ("dropped", "policy_lag", "peak_rss_mb", "untracked", "other_evaluation_returns")

Figure = dict[str, Any]
"""`what`, `values`, `unit`, the `bytes` of an answer or None, and the goal `most` or None."""


def figure(
    what: str, values: Sequence[float], most: float | None = None, size: int | None = None, unit: str = "s"
) -> Figure:
    """Return one line of the table, and print it."""
    found = {"what": what, "values": [round(value, 5) for value in values], "unit": unit, "bytes": size, "most": most}
    say("  " + ": ".join(_line(found)[:2]))
    return found


@lru_cache
def configuration(preset: str, rate: float) -> tuple[str, str, str]:
    """Return config.yaml, with seed 1, and the names of algorithm and environment."""
    loaded = load(preset=preset, sets=[f"network.learning_rate={rate}"])
    return dump(loaded), loaded.config.algorithm.name, loaded.config.environment.id


@lru_cache
def metrics(rows: int, level: int) -> str:
    """Return metrics.csv with every column filled, and a return that rises by `level` in every row."""
    noise, lines = np.random.default_rng(level).normal(size=rows), [",".join(COLUMNS)]
    for row in range(1, rows + 1):
        known: dict[str, Any] = {"updates": row, "env_steps": 1000 * row, "episodes": 10 * row, "wall_s": 0.5 * row}
        known |= {"mean_return_100": level * row + noise[row - 1], "bottleneck": "actors"}
        lines.append(",".join(str(known.get(name, 0.123456789)) for name in COLUMNS))
    return "\n".join(lines) + "\n"


def make_runs(root: Path, runs: int, rows: int, kinds: Sequence[tuple[str, float]]) -> None:
    """Write the directories of finished runs, which differ in preset, learning rate, seed and return."""
    shutil.rmtree(root, ignore_errors=True)
    ended: dict[str, Any] = {**dict.fromkeys(Summary.model_fields, 0), **{name: {} for name in EMPTY}}
    ended |= {"launch": "", "error": None, "bottleneck": "actors", "stop_reason": "env_steps"}
    ended |= {"env_steps": 1000 * rows, "updates": rows}
    for number in range(runs):
        if number and number % 2000 == 0:
            say(f"  {number:,} of {runs:,} runs are written")
        (text, algorithm, env), level = configuration(*kinds[number % len(kinds)]), number % 9
        folder, seed = root / f"{number // 500}" / f"run-{number:05}", number // len(kinds)
        folder.mkdir(parents=True)
        record = RunRecord(run_id=folder.name, redis_url=None, pid=os.getpid(), started=1.7e9 + 60.0 * number)
        (folder / "run.json").write_text(record.model_dump_json(), encoding="utf-8")
        (folder / "config.yaml").write_text(text.replace("seed: 1 ", f"seed: {seed} ", 1), encoding="utf-8")
        (folder / "metrics.csv").write_text(metrics(rows, level), encoding="utf-8")
        own = {"run_id": folder.name, "algorithm": algorithm, "env": env, "seed": seed}
        summary = Summary.model_validate({**ended, **own, "mean_return_100": float(level * rows)})
        (folder / "summary.json").write_text(summary.model_dump_json(indent=2), encoding="utf-8")


@contextlib.contextmanager
def serving(root: Path) -> Iterator[tuple[psutil.Process, str]]:
    """A dashboard in a process of its own, and its address; raises FailedError if it does not start."""
    command = [sys.executable, "-m", "distrl", "dashboard", str(root), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            found = re.search(r"http://[^ /]+", process.stdout.readline())
            if found is None:
                raise FailedError("distrl dashboard has not started")
            yield psutil.Process(process.pid), found[0]
        finally:
            process.terminate()


def ask(url: str, path: str, **parameters: Any) -> tuple[float, bytes]:
    """Return the seconds of one request, and its answer; raises FailedError without one."""
    began = time.perf_counter()
    try:
        with urlopen(f"{url}/api/{path}?{urlencode(parameters, doseq=True)}", timeout=PATIENCE_S) as answer:
            body: bytes = answer.read()
    except OSError as error:
        raise FailedError(f"{path}: {error}") from error
    return time.perf_counter() - began, body


def tick() -> None:
    """Sleep until the next whole multiple of `POLL_S`."""
    time.sleep(POLL_S - time.monotonic() % POLL_S)


def polls(url: str, **shown: Any) -> Iterator[tuple[float, int, dict[str, Any]]]:
    """Poll as a page does, and yield seconds, bytes and changes; raises FailedError after `PATIENCE_S`."""
    began, mark = time.monotonic(), ""
    while time.monotonic() - began < PATIENCE_S:
        tick()
        took, body = ask(url, "changes", since=mark, **shown)
        told = json.loads(body)
        mark = told["mark"]
        yield took, len(body), dict(told["changes"])
    raise FailedError(f"the page has still changes after {PATIENCE_S:g} s")


def measure_list(out: Path, given: argparse.Namespace) -> list[Figure]:
    """Measure the list of many finished runs: the first index, polls without changes, a page, a query."""
    root, unread, size = out / "runs" / "list", 1, 0
    quiet: list[float] = []
    make_runs(root, given.runs, ROWS, KINDS)
    with serving(root) as (_, url):
        began = time.monotonic()
        what = f"{given.runs:,} runs: first list after the start, without an index"
        found, polled = [figure(what, [ask(url, "runs", limit=100)[0]])], polls(url, limit=100)
        while unread:
            unread = next(polled)[2].get("list", {}).get("unread", unread)
        found.append(figure("the same: first index with all settings", [time.monotonic() - began]))
        while len(quiet) < REQUESTS:  # one after the other; small curves come after the first ones
            took, size, changes = next(polled)
            quiet = [] if changes else [*quiet, took]
        found.append(figure("poll of the list without changes", quiet, size=size))
        query = {"query": QUERY, "sort": "-mean_return_100"}
        for name, what, asked in (("list", "list, first 100 runs", {}), ("query", f"`{QUERY}` by return", query)):
            pages = [ask(url, "runs", limit=100 + number, **asked) for number in range(REQUESTS)]
            matched = json.loads(pages[0][1])["matched"]
            what = f"{what} of {matched:,}"
            found.append(figure(what, [took for took, _ in pages], MOST_S[name], len(pages[0][1])))
    return found


def measure_compare(out: Path, given: argparse.Namespace) -> list[Figure]:
    """Measure both requests of a comparison's page: settings and outcomes, then curves with the bands of groups."""
    root = out / "runs" / "compare"
    make_runs(root, COMPARED, COMPARED_ROWS, [kind for kind in KINDS if kind[0] == KINDS[0][0]])
    ids = [id_of(path.parent.relative_to(root).as_posix()) for path in sorted(root.rglob("run.json"))]
    found: dict[str, list[float]] = {"without an index": [], "with one": [], "again": []}
    for start in range(2 * COLD_STARTS):
        for path in root.glob(f"{INDEX_NAME}*") if start % 2 == 0 else ():
            path.unlink()
        with serving(root) as (_, url):
            for number in range(1 + REPEATED):
                both = [ask(url, "compare/settings", id=ids), ask(url, "compare", id=ids, points=800)]
                found["again" if number else [*found][start % 2]].append(sum(seconds for seconds, _ in both))
    size, what = sum(len(body) for _, body in both), f"{COMPARED} runs with {COMPARED_ROWS:,} rows each compared"
    names = [f"{what}, first request after the start, {when}" for when in [*found][:2]] + [f"{what}, again"]
    return [figure(name, values, MOST_S["compare"], size) for name, values in zip(names, found.values(), strict=True)]


@contextlib.contextmanager
def job_of_actors(root: Path) -> Iterator[tuple[Registry, psutil.Process, str]]:
    """The registry of a job in a Redis of its own, without roles, and a dashboard that shows it."""
    loaded = load("cartpole-impala")
    shutil.rmtree(root, ignore_errors=True)
    (root / "job").mkdir(parents=True)
    with EmbeddedRedis.start(maxmemory_bytes=2**28, max_bulk_bytes=2**20) as redis, contextlib.ExitStack() as stack:
        backend = connect(redis.url, "job", name="benchmark", give_up_s=5.0)
        stack.callback(backend.close)
        backend.create(json.dumps({"config": loaded.config.model_dump(mode="json")}))
        record = RunRecord(run_id="job", redis_url=redis.url, pid=os.getpid(), process=process_mark(os.getpid()))
        (root / "job" / "run.json").write_text(record.model_dump_json(), encoding="utf-8")
        (root / "job" / "config.yaml").write_text(dump(loaded), encoding="utf-8")
        process, url = stack.enter_context(serving(root))
        yield backend.registry, process, url


def measure_actors(out: Path, given: argparse.Namespace) -> list[Figure]:
    """Measure the dashboard's share of a core beside a job with `ACTORS` actors, without and with a reader."""
    found: list[Figure] = []
    beats = itertools.count(1)
    with job_of_actors(out / "runs" / "actors") as (registry, process, url):
        for reads, seconds in ((True, 3.0), (False, given.seconds), (True, given.seconds)):  # the first one warms up
            page = polls(url, run=id_of("job")) if reads else None
            began, before_s = time.monotonic(), sum(process.cpu_times()[:2])
            while time.monotonic() - began < seconds:
                beat(registry, next(beats))
                tick() if page is None else next(page)
            share = 100.0 * (sum(process.cpu_times()[:2]) - before_s) / (time.monotonic() - began)
            what = f"{ACTORS} actors: share of a core {'with' if reads else 'without'} a reader of the job's page"
            found.append(figure(what, [share], MOST_PERCENT, unit="%"))
    return found[1:]


def measure_frames(out: Path, given: argparse.Namespace) -> list[Figure]:
    """Measure the milliseconds of a frame of the page of a job with `ACTORS` actors, and of an empty page, in turns."""
    empty: list[float] = []
    full: list[float] = []
    over = threading.Event()
    with job_of_actors(out / "runs" / "frames") as (registry, _, url), chromium() as browser:
        beats = threading.Thread(target=beat_on, args=(registry, over), daemon=True)
        beats.start()
        try:
            with contextlib.closing(browser.new_page()) as blank, contextlib.closing(browser.new_page()) as page:
                page.goto(f"{url}/#/run/{id_of('job')}")
                page.locator(".flow .cells button").nth(ACTORS - 1).wait_for()
                for _ in range(given.pairs):
                    for tab, found in ((blank, empty), (page, full)):
                        tab.bring_to_front()
                        time.sleep(POLL_S)
                        found.append(tab.evaluate(COUNT_FRAMES, FRAMES_S))
        finally:
            over.set()
            beats.join()
    what = f"a frame of the page of a job with {ACTORS} actors"
    return [figure("a frame of an empty page", empty, unit="ms"), figure(what, full, MOST_FRAME_MS, unit="ms")]


def beat_on(registry: Registry, over: threading.Event) -> None:
    """Write heartbeats at 1 Hz until it is over."""
    for number in itertools.count(1):
        beat(registry, number)
        tick()
        if over.is_set():
            return


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """A browser; raises FailedError where Chromium fails."""
    from playwright.sync_api import Error, sync_playwright  # imported here: only two parts need it

    path, flags = shutil.which("chromium"), ["--no-sandbox", "--disable-gpu", "--no-first-run"]
    try:
        with sync_playwright() as playwright:
            yield playwright.chromium.launch(executable_path=path, args=flags)
    except Error as error:
        raise FailedError(f"Chromium: {error.message.splitlines()[0]}") from error


def beat(registry: Registry, number: int) -> None:
    """Write one heartbeat of the learner and of every actor, and a row of metrics."""
    for actor in range(ACTORS):
        odd = (actor + number) % 10 / 10
        moving: dict[str, Any] = {"beat": number, "env_steps": 1000 * number, "env_steps_per_s": 1000.0 + odd}
        moving |= {"rss_mb": 130.0, "cpu_share": odd, "waits": {"room": odd / 2, "ticket": 0.1}}
        machine = HostLoad(32, odd, 64000, 30000 + 1000 * odd)
        registry.beat(RoleStatus("actor", actor, 1, f"host-{actor % 8}", 9, "acting", machine=machine, **moving))
    registry.beat(RoleStatus("learner", 0, 1, "host-0", 99, "training", beat=number, weights_version=number))
    row = {"updates": number, "env_steps": 200_000 * number, "wall_s": float(number), "mean_return_100": float(number)}
    registry.add_snapshot({**row, "env_steps_per_s": 2e5, "updates_per_s": 1.0, "weights_version": number})


def measure_browser(out: Path, given: argparse.Namespace) -> list[Figure]:
    """Measure a training's rate with its page open in Chromium, relative to its rate without, in turns."""
    root, cores = out / "runs" / "browser", sorted(os.sched_getaffinity(0))
    shutil.rmtree(root, ignore_errors=True)
    minutes = (given.pairs * 2 * (WINDOW_S + 2 * SETTLE_S) + WARM_UP_S + 120.0) / 60.0
    sets = ["stop.mean_return=null", "stop.env_steps=null", "stop.evaluation_return=null", f"stop.minutes={minutes}"]
    command = [sys.executable, "-m", "distrl", "train", "--preset", KINDS[0][0], "--run-dir", str(root / "job")]
    command += ["--quiet", *(word for value in sets for word in ("--set", value))]
    silent: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.STDOUT}  # its logs have the errors
    with bound_to(cores[0]), subprocess.Popen(command, **silent) as training, contextlib.ExitStack() as stack:
        stack.callback(training.terminate)
        stack.enter_context(bound_to(cores[1]))
        browser = stack.enter_context(chromium())
        while counted(training, root)[1] < WARM_UP_S:
            time.sleep(1.0)
        ratios = [ratio(training, root, browser, cores[0], pair) for pair in range(given.pairs)]
    what = f"a training's rate with its page open to that without, windows of {WINDOW_S:g} s [95 %]"
    return [figure(what, ratios, unit="ratio")]


def ratio(training: subprocess.Popen[bytes], root: Path, browser: Any, core: int, pair: int) -> float:
    """Return the rate with a dashboard on `core` and an open page to that without; odd pairs begin with the page."""
    rates = {}
    for is_open in (True, False) if pair % 2 else (False, True):
        with contextlib.ExitStack() as turn:
            if is_open:
                with bound_to(core):
                    _, url = turn.enter_context(serving(root))
                page = turn.enter_context(contextlib.closing(browser.new_page()))
                page.goto(f"{url}/#/run/{id_of('job')}")
                page.get_by_role("heading", name="job", exact=True).wait_for()
            time.sleep(SETTLE_S)
            before = counted(training, root)
            time.sleep(WINDOW_S)
            after = counted(training, root)
        rates[is_open] = (after[0] - before[0]) / (after[1] - before[1])
    say(f"  pair {pair + 1}: {rates[True]:,.0f} steps/s with the page, {rates[False]:,.0f} without")
    return rates[True] / rates[False]


@contextlib.contextmanager
def bound_to(core: int) -> Iterator[None]:
    """Bind this thread, and processes that it starts, to one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def counted(training: subprocess.Popen[bytes], root: Path) -> tuple[float, float]:
    """Return environment steps and seconds in the newest row of metrics; raises FailedError if the training ended."""
    if training.poll() is not None:
        raise FailedError(f"the training has ended with exit code {training.returncode}")
    path = root / "job" / "metrics.csv"
    row = last_row(path) if path.exists() else {}
    return float(row.get("env_steps") or 0), float(row.get("wall_s") or 0)


PARTS = {
    "list": measure_list,
    "compare": measure_compare,
    "actors": measure_actors,
    "frames": measure_frames,
    "browser": measure_browser,
}
WITH_CHROMIUM = ("frames", "browser")


def block(report: Mapping[str, Any]) -> str:
    """Return the part of the page."""
    lines = [_line(one) for entry in report["results"] for one in entry["figures"]]
    heads = ["Measured", "Median", "Greatest", "Goal of the median", "Answer", "Measurements"]
    return f"{heading(report)}\n\n{table(heads, lines)}" if lines else NOTHING


def _line(one: Figure) -> list[str]:
    values, most, shown = one["values"], one["most"], UNITS[one["unit"]].format
    centre = statistics.median(values)
    return [
        one["what"],
        around(median_interval(values), 3) if one["unit"] == "ratio" else shown(centre),
        shown(max(values)) if len(values) > 1 else "–",
        "–" if most is None else goal(centre, most=most),
        "–" if one["bytes"] is None else f"{one['bytes']:,} bytes",
        str(len(values)),
    ]


def main(arguments: list[str] | None = None) -> int:
    """Measure and report; return 1 if something failed."""
    made = parser(__doc__, "dashboard", list(PARTS))
    made.add_argument("--runs", type=int, default=RUNS, metavar="N", help="in the list (default: %(default)s)")
    made.add_argument("--seconds", type=float, default=30.0, help="of each share of a core (default: %(default)s)")
    made.add_argument("--browser", action="store_true", help="measure `frames` and `browser`, too")
    made.add_argument(
        "--pairs", type=int, default=8, metavar="N", help="of `frames` and `browser` (default: %(default)s)"
    )
    given = made.parse_args(arguments)
    lacks = [] if find_spec("playwright") else ["the package playwright"]
    lacks += [] if shutil.which("chromium") else ["chromium on PATH"]
    lacks += [] if len(os.sched_getaffinity(0)) > 1 else ["a second core"]
    if given.browser and lacks:
        say(f"frames and browser are skipped: there is no {' and no '.join(lacks)}")

    def measure(name: str, out: Path) -> Entry:
        say(f"{name} …")
        return {"name": name, **stamp(), "figures": PARTS[name](out, given)}

    names = [name for name in PARTS if name not in WITH_CHROMIUM or (given.browser and not lacks)]
    return measure_each("dashboard", names, measure, given, block, PAGE)


if __name__ == "__main__":
    raise SystemExit(main())
