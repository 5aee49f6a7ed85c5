"""The section slurm: what is handed on to sbatch, and what is refused because it would break the scripts."""

import pytest
from pydantic import ValidationError

from distrl.apps.config.slurm import SlurmConfig

pytestmark = pytest.mark.row("S23")


def test_long_options_are_handed_on():
    options = ("--partition=gpu,big", "--gres=gpu:a100:2", "--constraint=[a|b]&c", "--exclusive", "--nodelist=n[1-3]")
    section = SlurmConfig(learner_options=options, actor_options=["--account=lab", "--mem=4G"])
    assert section.learner_options == options
    assert section.actor_options == ("--account=lab", "--mem=4G")


@pytest.mark.parametrize(
    "option", ["-p gpu", "-pgpu", "gpu", "--partition gpu", "--comment=a\nb", '--comment="a b"', "--x=#"]
)
def test_an_option_that_is_not_one_word_is_refused(option):
    with pytest.raises(ValidationError, match="is no long option of sbatch in one word, like --partition=gpu"):
        SlurmConfig(actor_options=[option])


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("--array=0-3", "distrl scale sets the number of actors"),
        ("--outp=x", "logs/ in the run's directory has the output"),  # sbatch takes the first letters for the option
        ("--signal=USR1@10", "the signal before the time limit is for the checkpoint"),
        ("--no-requeue", "a requeued learner goes on from its checkpoint"),
        ("--cpus-per-task=8", "learner.threads sets the learner's cores"),
        ("--wait", "distrl logs -f waits"),
    ],
)
def test_an_option_of_the_scripts_own_is_refused_with_the_reason(option, reason):
    with pytest.raises(ValidationError, match=f"{option} is not yours to set: {reason}"):
        SlurmConfig(learner_options=[option])


def test_actors_start_after_the_learner_alone():
    assert SlurmConfig(learner_options=["--dependency=afterok:12"])
    with pytest.raises(ValidationError, match="--dependency is not yours to set: actors start after the learner"):
        SlurmConfig(actor_options=["--dependency=afterok:12"])


def test_options_whose_names_only_begin_alike_are_taken():
    assert SlurmConfig(learner_options=["--wait-all-nodes=1", "--nodelist=n1", "--ntasks-per-core=1"])


@pytest.mark.parametrize("line", ["module load a\nrm b", "module load a \\", "\x1b[2J"])
def test_lines_of_the_set_up_are_single_lines(line):
    with pytest.raises(ValidationError, match="is not one line of printable characters"):
        SlurmConfig(set_up=[line])
