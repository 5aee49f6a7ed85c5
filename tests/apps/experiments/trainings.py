"""Trainings that end as a test says, without a process."""

import contextlib

from distrl.runs.summary import Summary

FACTS = {
    **{"run_id": "x", "algorithm": "ppo", "env": "E-v0", "updates": 5, "episodes": 9, "best_mean_return_100": None},
    **{"wall_s": 4.0, "time_to_first_update_s": 1.0, "env_steps_per_s": 1.0, "updates_per_s": 1.0, "trained_steps": 5},
    **{"weights_version": 5, "produced": 5, "foreign": 0, "trained": 5, "queued": 0, "in_flight": 0, "dropped": {}},
    **{"lost": 0, "rolled_back": 0, "policy_lag": {}, "bottleneck": "actors", "peak_rss_mb": {}, "restarts": 0},
}


class Trainings:
    """In place of `Pool`: every training ends at the next look, with what `ends` says of its number."""

    def __init__(self, ends=None):
        self.ends, self.started, self.at_once, self.stopped = ends or {}, [], 0, []
        self._running = {}

    def __call__(self, places, end_s):
        self.places = places
        return contextlib.nullcontext(self)

    @property
    def running(self):
        return [*self._running]

    @property
    def has_room(self):
        return len(self._running) < self.places

    def start(self, name, arguments, log, inherited):
        self.started.append(name)
        self._running[name] = (arguments, log)
        self.at_once = max(self.at_once, len(self._running))

    def ended(self):
        for name, (arguments, log) in [*self._running.items()]:
            end = self.ends.get(name, {})
            if callable(end):
                end = end()
            if end is None:
                continue
            del self._running[name]
            folder = log.parent.parent / name
            folder.mkdir(exist_ok=True)
            if "log" in end:
                log.write_text(end["log"])
            else:
                facts = {
                    "seed": int(arguments[arguments.index("--seed") + 1]),
                    "env_steps": 100,
                    "mean_return_100": 7.0,
                }
                Summary(**FACTS, **{**facts, "stop_reason": "env_steps", "exit_code": 0, **end}).write(
                    folder / "summary.json"
                )
            yield name, end.get("exit_code", 0)

    def stop(self, name=None):
        self.stopped += self.running if name is None else [name]
