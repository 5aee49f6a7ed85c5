"""Contenders, tasks and commands of the comparison."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent / "scripts"
SOLVED_RETURN = 475.0


@dataclass(frozen=True)
class Task:
    """The task of a run.

    Attributes:
        name: Name for `--task`.
        seconds: Duration of a run, unless `--seconds` sets another one.
        since: Start of `seconds`: "command" or "first-update".
        until_return: Mean return of 100 training episodes that ends the run.
        expected_s: Estimated duration of a whole run, before one was measured.
    """

    name: str
    seconds: float
    since: str
    until_return: float | None
    expected_s: float


TASKS = {
    task.name: task
    for task in (
        Task("cartpole", 30.0, "first-update", None, 45.0),
        Task("solve", 120.0, "command", SOLVED_RETURN, 40.0),
        Task("halfcheetah", 300.0, "command", None, 310.0),
        Task("pong", 60.0, "first-update", None, 80.0),
    )
}


@dataclass(frozen=True)
class Contender:
    """One algorithm of one library.

    Attributes:
        name: Name for `--only`; up to the first "-" it is the library.
        label: Name in the table.
        tasks: Its tasks.
        environment: Its virtual environment; "" is distrl's own.
        program: Its program: a file of `scripts/`, or distrl's preset for each task.
        arguments: Further arguments of every command.
    """

    name: str
    label: str
    tasks: tuple[str, ...]
    environment: str
    program: str | dict[str, str] = field(hash=False)
    arguments: tuple[str, ...] = ()

    @property
    def ours(self) -> bool:
        """Whether it is distrl."""
        return not self.environment


ALL = tuple(TASKS)
WITHOUT_HALFCHEETAH = ("cartpole", "solve", "pong")
PRESETS = {
    "cartpole": "cartpole-impala",
    "solve": "cartpole-impala",
    "halfcheetah": "halfcheetah-appo",
    "pong": "pong-impala",
}
JAX = ("--set", "learner.backend=jax")

CONTENDERS = (
    Contender("distrl", "distrl", ALL, "", PRESETS),
    Contender("distrl-jax", "distrl, JAX learner", ALL, "", PRESETS, JAX),
    Contender("sf-appo", "Sample Factory APPO, EnvPool", ALL, "sf", "sample_factory_appo.py"),
    Contender("cleanrl-ppo", "CleanRL-style PPO, EnvPool", ALL, "cleanrl", "cleanrl_style_ppo.py"),
    Contender("sb3-ppo", "Stable-Baselines3 PPO", ALL, "sb3", "sb3.py"),
    Contender("sb3-a2c", "Stable-Baselines3 A2C", WITHOUT_HALFCHEETAH, "sb3", "sb3.py", ("--algorithm", "a2c")),
    Contender("rllib-ppo", "RLlib PPO", ALL, "rllib", "rllib.py"),
    Contender("rllib-impala", "RLlib IMPALA", WITHOUT_HALFCHEETAH, "rllib", "rllib.py", ("--algorithm", "impala")),
    Contender("rllib-appo", "RLlib APPO", WITHOUT_HALFCHEETAH, "rllib", "rllib.py", ("--algorithm", "appo")),
)


def selected(names: Sequence[str]) -> tuple[Contender, ...]:
    """Return the contenders of these names or libraries, in the table's order; without names, all.

    Raises:
        ValueError: No contender or library has that name.
    """
    if not names:
        return CONTENDERS
    chosen = set()
    for name in names:
        exactly = {contender.name for contender in CONTENDERS if contender.name == name}
        found = exactly or {contender.name for contender in CONTENDERS if contender.name.startswith(f"{name}-")}
        if not found:
            raise ValueError(f"--only {name}: there is {', '.join(contender.name for contender in CONTENDERS)}")
        chosen |= found
    return tuple(contender for contender in CONTENDERS if contender.name in chosen)


def progress_path(contender: Contender, folder: Path) -> Path:
    """Return the path of a run's progress file."""
    return folder / "run" / "metrics.csv" if contender.ours else folder / "progress.jsonl"


def command(
    contender: Contender, task: Task, seconds: float, seed: int, folder: Path, python: str, began_s: float
) -> list[str]:
    """Return the command of a run. distrl ends when interrupted or when it has solved its task; a peer ends by itself.

    Args:
        folder: Folder of this run.
        python: Interpreter of the contender's environment.
        began_s: Now, in seconds since 1970: the start of the peers' clock.
    """
    if isinstance(contender.program, dict):
        endless = () if task.until_return is not None else ("--set", "stop.mean_return=null")
        budget = ("--set", "stop.env_steps=null")
        where = ("--seed", str(seed), "--run-dir", str(folder / "run"), "--quiet")
        preset = contender.program[task.name]
        return [python, "-m", "distrl", "train", "--preset", preset, *where, *endless, *budget, *contender.arguments]
    until = () if task.until_return is None else ("--until-return", str(task.until_return))
    when = ("--seconds", str(seconds), "--since", task.since, "--began", repr(began_s))
    where = ("--progress", str(progress_path(contender, folder)), "--seed", str(seed))
    return [python, str(SCRIPTS / contender.program), "--task", task.name, *where, *when, *until, *contender.arguments]


def python_of(contender: Contender, environments: Path) -> str:
    """Return the contender's interpreter."""
    return sys.executable if contender.ours else str(environments / contender.environment / "bin" / "python")
