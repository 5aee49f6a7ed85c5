"""SlurmConfig: what `distrl submit --on slurm` hands on to Slurm."""

import re

from pydantic import Field, field_validator

from distrl.config.section import Section

_OPTION = re.compile(r"--([a-z][a-z-]*)(?:=([^\s\"'\\#]+))?", re.ASCII)
_OWN = {
    "array": "distrl scale sets the number of actors",
    "chdir": "the job runs in the directory in which you submit",
    "clusters": "submit from a login node of that cluster",
    "cpus-per-task": "learner.threads sets the learner's cores, and an actor has one",
    "error": "logs/ in the run's directory has the output",
    "hold": "the learner is released once its actors are submitted",
    "input": "the job reads nothing",
    "job-name": "--run-id names the job",
    "no-requeue": "a requeued learner goes on from its checkpoint",
    "nodes": "learner and actors take one node each",
    "ntasks": "learner and actors are one task each",
    "open-mode": "logs/ in the run's directory has the output",
    "output": "logs/ in the run's directory has the output",
    "parsable": "distrl reads the output of sbatch",
    "requeue": "it is set already",
    "signal": "the signal before the time limit is for the checkpoint",
    "test-only": "use --dry-run",
    "wait": "distrl logs -f waits",
    "wrap": "distrl writes the script",
}
"""Options that the scripts set themselves, or that would break them, each with the reason."""


class SlurmConfig(Section):
    """Jobs of `distrl submit --on slurm`. Nothing else reads it: `distrl train` trains on its own machine."""

    learner_options: tuple[str, ...] = ()
    """Options of sbatch for the learner, in their long form, like --partition=gpu, --gres=gpu:1 or --time=24:00:00."""
    actor_options: tuple[str, ...] = ()
    """The same for each actor, which is a task of a job array, like --partition=cpu or --time=12:00:00."""
    set_up: tuple[str, ...] = ()
    """Lines of bash that run on each node first, like `module load cuda`. If one fails, the job ends with 2."""
    python: str | None = Field(None, min_length=1)
    """The interpreter on the nodes, which has distrl installed; null: the one by which you submit, by its path.
    `python` is that of the environment that `set_up` activates."""

    @field_validator("actor_options")
    @classmethod
    def _starts_after_the_learner(cls, options: tuple[str, ...]) -> tuple[str, ...]:
        if any(option.startswith("--dep") for option in options):
            raise ValueError("--dependency is not yours to set: actors start after the learner; leave it out")
        return options

    @field_validator("learner_options", "actor_options")
    @classmethod
    def _can_be_handed_on(cls, options: tuple[str, ...]) -> tuple[str, ...]:
        for option in options:
            if (found := _OPTION.fullmatch(option)) is None:
                raise ValueError(
                    f"{option!r} is no long option of sbatch in one word, like --partition=gpu, without quotes, "
                    "backslashes and #"
                )
            if (own := _own(found[1])) is not None:
                raise ValueError(f"{option} is not yours to set: {_OWN[own]}; leave it out")
        return options

    @field_validator("set_up", "python")
    @classmethod
    def _one_line(cls, value: tuple[str, ...] | str | None) -> tuple[str, ...] | str | None:
        for line in (value,) if isinstance(value, str) else value or ():
            if not line.isprintable() or line.endswith("\\"):
                raise ValueError(f"{line!r} is not one line of printable characters")
        return value


def _own(name: str) -> str | None:
    """Return the option of the scripts' own that a name means: sbatch also takes its first letters."""
    if name in _OWN:
        return name
    return next((own for own in _OWN if own.startswith(name)), None)
