"""Contenders, tasks and commands of the comparison."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent / "scripts"
SOLVED_RETURN = 475.0


@dataclass(frozen=True)
class Task:
    """What a run is about.

    Attributes:
        name: As `--task` has it.
        seconds: How long a run takes, unless `--seconds` says otherwise.
        since: What `seconds` counts from, "command" or "first-update".
        until_return: A mean return of 100 training episodes that ends the run.
        expected_s: Of a run, all in all, for what is not known yet.
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
        name: As `--only` has it; up to the first "-" it is the library.
        label: As the table has it.
        tasks: What it is measured at.
        environment: The virtual environment that it runs in; "" is this one, of distrl.
        program: What runs it: a file of `scripts/`, or distrl's preset for each task.
        arguments: Added to every command.
    """

    name: str
    label: str
    tasks: tuple[str, ...]
    environment: str
    program: str | dict[str, str] = field(hash=False)
    arguments: tuple[str, ...] = ()

    @property
    def ours(self) -> bool:
        """distrl itself."""
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
    """Those of these names or libraries, in the table's order; all of them without a name.

    Raises:
        ValueError: Nothing is called so.
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
    """The file that tells how far a run is."""
    return folder / "run" / "metrics.csv" if contender.ours else folder / "progress.jsonl"


def command(
    contender: Contender, task: Task, seconds: float, seed: int, folder: Path, python: str, began_s: float
) -> list[str]:
    """What is run. distrl ends when it is interrupted or has solved its task; a peer ends by itself.

    Args:
        folder: Of this run alone.
        python: The interpreter of the contender's environment.
        began_s: Now, in seconds since 1970: the peers count from then.
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
    """The interpreter that runs it."""
    return sys.executable if contender.ours else str(environments / contender.environment / "bin" / "python")
