"""Requests to a run of this host, as a command: `python -m distrl.apps.jobs.run_requests RUN_DIR REQUEST [ARGUMENT]…`.

A target sends them from the host of the run where no other host reaches the run's Redis. They do not look at job.json,
which would lead back to the target.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from distrl.errors import ConfigError, DistrlError
from distrl.runs.directories import open_run

REFUSED = "refused: "
"""Begins the line with the error."""


def send(run_dir: Path, request: str, arguments: Sequence[str]) -> None:
    """Send a request: scale N FORCE, autoscale LEAST MOST OFF, or stop. "-" stands for what is not given.

    Raises:
        ConfigError: There is no such run, it has ended, or it refuses.
        MemoryBackendError: Its Redis does not answer.
    """
    if not (run_dir / "run.json").exists():
        raise ConfigError("it has not begun to train; repeat the command in a few seconds")
    given = [None if word == "-" else int(word) for word in arguments]
    with open_run(run_dir).steering("command line") as run:
        match request, given:
            case "scale", [int(actors), int(force)]:
                run.scale(actors, force=bool(force))
            case "autoscale", [_, _, 1]:
                run.fix_actors()
            case "autoscale", [least, most, 0]:
                run.autoscale(least, most)
            case "stop", []:
                run.stop()
            case _:
                raise ConfigError(f"no request: {request} {' '.join(arguments)}")


def main(words: Sequence[str]) -> int:
    """Send the request, and print an error in one line; return the exit code."""
    run_dir, request, *arguments = words
    try:
        send(Path(run_dir), request, arguments)
    except DistrlError as error:
        print(f"{REFUSED}{error}")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
