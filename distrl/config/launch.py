"""LaunchConfig: where roles run, what they wait for, and how they log."""

from typing import Literal

from pydantic import Field

from distrl.config.environment import EnvironmentConfig
from distrl.config.memory import MemoryConfig
from distrl.config.section import Section

LogLevel = Literal["debug", "info", "warning", "error"]
LOG_LEVELS: tuple[LogLevel, ...] = ("debug", "info", "warning", "error")


class LaunchConfig(Section):
    """Where roles run, and how they log."""

    mode: Literal["processes", "here"] | None = None
    """Run learner, actors and evaluator as processes (or as Ray actors), or all of them here, in one deterministic
    process. null: here if `actors.count` is 0 and the run has no `data`."""
    launcher: Literal["process", "ray"] = "process"
    """Run roles as processes of this machine, or as actors of a Ray cluster."""
    ray_address: str | None = None
    """The address of a Ray cluster; null: a cluster of the run's own."""
    wait_for_nodes: bool = False
    """Start on a Ray cluster that is too small for all roles, because an autoscaler adds nodes."""
    start_actors: bool = True
    """Whether the run starts `actors.count` actors. false: actors of other hosts join it (`distrl actors`), and
    `actors.count` is the number that you expect."""
    wait_s: float = Field(0.0, ge=0.0)
    """How long a launch waits for the Redis of `memory.url`, and for the end of an earlier launch of the run, where a
    cluster manager starts them together."""
    sigterm_exit_code: int = Field(0, ge=0, le=255)
    """Exit code of a training that SIGTERM has ended in order. A cluster manager that starts again what has failed, and
    not what has ended with 0, needs another one: 143."""
    log_level: LogLevel = "info"
    """Lowest level that roles log."""
    print_logs: bool = False
    """Print the lines that roles log among the run's own, where roles are Ray actors: a Ray job's log then has them."""
    role_rows_s: float | None = Field(None, gt=0.0)
    """Seconds between two rows of every role in the run directory's roles.csv: steps, speed, memory, shares of a core
    and of waiting. null: no such file."""

    def is_here(self, actors: int, *, learns_from_data: bool) -> bool:
        """Return whether the run is one deterministic process."""
        return not (actors or learns_from_data) if self.mode is None else self.mode == "here"

    def check(
        self, memory: MemoryConfig, environment: EnvironmentConfig, actors: int, *, learns_from_data: bool
    ) -> None:
        """Refuse what contradicts the mode, a Ray address without Ray, and a run that no actor can join."""
        deterministic = self.is_here(actors, learns_from_data=learns_from_data)
        self._check_mode(actors, learns_from_data=learns_from_data)
        if not self.start_actors:
            if deterministic:
                raise ValueError("launch.start_actors: false is for actors that join; this run is one process")
            if not memory.reachable:
                raise ValueError(
                    "launch.start_actors: false: actors of other hosts cannot reach an embedded Redis; name one that "
                    "they can with --redis-url, or let this one listen for them: --set memory.listen=auto"
                )
        elif environment.spec_file is not None:
            raise ValueError(
                f"environment.spec_file: {environment.spec_file} is for a host without the environment, which "
                "starts no actors; add --no-actors (launch.start_actors: false)"
            )
        elif environment.spaces is not None and not deterministic:
            raise ValueError(
                "environment.spaces: your own code steps the environment, so actors cannot; add --no-actors "
                "(launch.start_actors: false), and join the run with distrl.Agent(run=…)"
            )
        if deterministic and self.launcher == "ray":
            raise ValueError("launch.launcher: ray needs several processes; this run is one (launch.mode)")
        if self.ray_address is not None and self.launcher != "ray":
            raise ValueError("launch.ray_address needs launch.launcher: ray")
        if self.wait_s and memory.url is None:
            raise ValueError(
                "launch.wait_s has no use without memory.url: the run's own Redis starts and ends with it; leave it "
                "out (docs/kubernetes.md says how Pods wait)"
            )
        if self.wait_for_nodes and self.ray_address is None:
            raise ValueError(
                "launch.wait_for_nodes needs launch.ray_address: no autoscaler adds nodes to the run's own"
            )

    def _check_mode(self, actors: int, *, learns_from_data: bool) -> None:
        if self.mode == "here" and actors:
            raise ValueError(f"launch.mode: here has an actor of its own; set actors.count: 0, not {actors}")
        if self.mode == "processes" and not (actors or learns_from_data):
            raise ValueError("launch.mode: processes needs actors.count >= 1, or data to learn from")
