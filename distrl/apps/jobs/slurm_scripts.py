"""The batch scripts of a Slurm job: one for the learner, one for each task of the actors' job array."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from distrl.apps.config.slurm import SlurmConfig
from distrl.apps.jobs.record import CONFIG_FILE, JOB_LOG
from distrl.apps.jobs.run_files import EXIT_FILE

LEARNER_SCRIPT = "learner.sbatch"
ACTORS_SCRIPT = "actors.sbatch"
BEFORE_LIMIT_S = 90
"""Time from the signal to the end at a time limit: the learner saves in 30 s, and Slurm's clock ticks in minutes. With
a data store, `checkpoint.store_give_up_s` is added for learner and parent."""
LOOK_EVERY_S = 600
"""Time between two looks of an actor's task for the learner's job, which may be killed without a word."""
STOP_SIGNAL = "USR2"
"""Signal to the learner's script by which `distrl stop` ends a run whose Redis it does not reach."""

_COMMON = """\
cd {folder} || exit 2
export PYTHONUNBUFFERED=1
{variables}end= child=
# A time limit and distrl stop send a signal to this shell alone; Slurm sends SIGTERM to all processes of the job. The
# child gets one SIGTERM, as a second one would end it at once.
on_signal() {{
    [ -z "$end" ] || return
    end=$1
    [ -z "$child" ] || [ "$end" = slurm ] || kill -TERM -- "-$child" 2> /dev/null
}}
trap 'on_signal limit' USR1
trap 'on_signal stop' {stop_signal}
trap 'on_signal slurm' TERM
# Runs a command in a process group of its own. bash may lose the exit code of a child that ends while the shell gets a
# signal, so that the child's parent writes it down.
run() {{
    [ -z "$end" ] || return 130
    local file code
    file=$(mktemp) || return 2
    set -m
    (
        trap : USR1 {stop_signal} TERM
        "$@"
        echo $? > "$file"
    ) &
    child=$!
    set +m
    [ -z "$end" ] || kill -TERM -- "-$child" 2> /dev/null  # the signal came before there was a child
    while kill -0 "$child" 2> /dev/null; do wait "$child"; done
    code=$(cat "$file")
    rm -f "$file"
    return "${{code:-137}}"
}}
"""

_LEARNER = """\
logs={logs}
rm -f "$logs/{exit_file}"
# Ends the actors, and writes the exit code down, as the job is forgotten some minutes after its end.
over() {{
    scancel --quiet --user="$(id -un)" --name={actors}
    echo "$1" > "$logs/{exit_file}"
    exit "$1"
}}
"""

_AFTER_TRAINING = """\
run {command}
code=$?
case $end in
    limit)
        # The checkpoint is saved, with 6 without Redis or the data store; the actors wait for the next launch.
        if [ "$code" = 0 ] || [ "$code" = 6 ]; then
            scontrol requeue "$SLURM_JOB_ID" && exit 0
            echo "distrl: error: at the time limit Slurm does not requeue the job; its checkpoint is saved" >&2
            code=1
        elif [ "$code" = 130 ]; then
            echo "distrl: error: the time limit is too short: the training has not begun; raise --time" >&2
            code=1
        fi ;;
    slurm)
        # Slurm counts a restart when it preempts or requeues the job, and none when the job is cancelled.
        restarts=$(scontrol --oneliner show job "$SLURM_JOB_ID" | grep -o ' Restarts=[0-9]*')
        [ "${{restarts#*=}}" -gt "${{SLURM_RESTART_COUNT:-0}}" ] 2> /dev/null && exit 0
        scancel --quiet --user="$(id -un)" --name={actors}
        exit "$code" ;;
esac
over "$code"
"""

_ACTORS = """\
learner=$1
over() {{ exit "$1"; }}
"""

_ACTING = """\
# A learner that was killed without a word leaves nothing to wait for.
set -m
(
    trap - USR1 {stop_signal} TERM
    while sleep {look_every_s}; do
        told=$(squeue --noheader --jobs="$learner" --format=%T 2>&1)
        case $told in ""|*"Invalid job id"*)
            echo "the learner's job $learner is gone"
            kill -{stop_signal} $$ ;;
        esac
    done
) &
look=$!
set +m
run {command}
code=$?
kill -- "-$look" 2> /dev/null
[ "$code" = 143 ] && [ -n "$end" ] && code=0  # it was ended in order, before it had begun
[ "$end" = limit ] && scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID"
exit "$code"
"""


@dataclass(frozen=True)
class Scripts:
    """The scripts of one job.

    Args:
        learner_cpus: Cores of the learner and of the evaluator beside it.
        gpus: GPUs of the learner, unless its options name some.
        alone: The run is one process, without Redis and actors.
        listen: The run's own Redis listens for other hosts by itself.
        end_s: How much longer the learner's end may take, for a data store or trackers.
        variables: Environment variables that actors which are added later need, too.
    """

    run_id: str
    run_dir: Path
    folder: Path
    slurm: SlurmConfig
    learner_cpus: int
    gpus: int = 0
    alone: bool = False
    listen: bool = True
    end_s: int = 0
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def learner(self) -> str:
        """The learner's script."""
        logs = self.run_dir / "logs"
        command = [*self._distrl, "train", str(self.run_dir / CONFIG_FILE), "--run-dir", str(self.run_dir)]
        command += ["--run-id", self.run_id, "--resume", "auto", "--dated"]
        if not self.alone:
            command += ["--no-actors", *(["--set", "memory.listen=auto"] if self.listen else [])]
        names = {"actors": actors_name(self.run_id), "exit_file": EXIT_FILE, "logs": shlex.quote(str(logs))}
        options = [*self.slurm.learner_options]
        if self.gpus and not any(option.startswith(("--gres", "--gpus")) for option in options):
            options.append(f"--gres=gpu:{self.gpus}")
        head = _head(self.run_id, logs / JOB_LOG, self.learner_cpus, options, BEFORE_LIMIT_S + self.end_s)
        return self._whole(head, _LEARNER.format(**names), _AFTER_TRAINING.format(command=shlex.join(command), **names))

    @property
    def actors(self) -> str:
        """The script of one actor's task; its argument is the number of the learner's job."""
        command = [*self._distrl, "actors", "--run-dir", str(self.run_dir), "--wait", "--count", "1", "--dated"]
        output = self.run_dir / "logs" / "actors-%a.log"
        head = _head(actors_name(self.run_id), output, 1, self.slurm.actor_options)
        acting = _ACTING.format(command=shlex.join(command), look_every_s=LOOK_EVERY_S, stop_signal=STOP_SIGNAL)
        return self._whole(head, _ACTORS.format(), acting)

    @property
    def _distrl(self) -> list[str]:
        return [self.slurm.python or sys.executable, "-P", "-m", "distrl"]

    def _whole(self, head: str, begin: str, rest: str) -> str:
        exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in self.variables.items())
        common = _COMMON.format(folder=shlex.quote(str(self.folder)), variables=exports, stop_signal=STOP_SIGNAL)
        return "".join(["#!/bin/bash\n", head, common, begin, self.set_up, rest])

    @property
    def set_up(self) -> str:
        """The lines that run first, each with a check."""
        failed = 'echo "distrl: error: slurm.set_up has failed: {}" >&2; over 2'
        checks = [f"{line}\n[ $? = 0 ] || {{ {failed.format(_echoed(line))}; }}\n" for line in self.slurm.set_up]
        return "".join(checks)


def actors_name(run_id: str) -> str:
    """Return the name of the job arrays with a run's actors; no run id has a colon."""
    return f"{run_id}:actors"


def _echoed(line: str) -> str:
    """Return a line of shell as it stands between double quotes."""
    return "".join(f"\\{letter}" if letter in '\\"$`' else letter for letter in line)


def _head(name: str, output: Path, cpus: int, options: Sequence[str], before_limit_s: int = BEFORE_LIMIT_S) -> str:
    own = [f"--job-name={name}", f"--output={output}", "--open-mode=append", "--requeue"]
    own += [f"--signal=B:USR1@{before_limit_s}", "--nodes=1", "--ntasks=1", f"--cpus-per-task={cpus}"]
    return "".join(f"#SBATCH {option}\n" for option in [*own, *options])
