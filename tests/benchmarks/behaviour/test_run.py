"""Which trainings are run, kept and reported."""

import json

import pytest

from benchmarks.behaviour import run
from benchmarks.behaviour.tasks import TASKS, Task
from benchmarks.measurement import FailedError
from benchmarks.publishing import PAGE, RESULTS
from benchmarks.report import markers

MEMORY = TASKS[0]


@pytest.fixture
def ran(monkeypatch):
    """Commands that were run; each writes a log of a memory that gave nine right answers in ten."""
    commands = []

    def write(arguments):
        commands.append(arguments)
        (log,) = [json.loads(word.partition("=")[2]) for word in arguments if "kwargs.folder" in word] or arguments[-1:]
        folder = run.Path(log)
        folder.mkdir(parents=True)
        (folder / "bsuite_id_-_memory_len-2.csv").write_text("episode,total_perfect\n10000,9000\n")
        return ""

    monkeypatch.setattr(run, "run", write)
    return commands


def test_both_sides_train_the_same_task_once(ran, tmp_path, capsys):
    given = ["--only", MEMORY.name, "--seeds", "7", "--out", str(tmp_path)]
    assert run.main(given) == 0
    ours, theirs = ran
    assert ours[:3] == ["-m", "distrl", "train"]
    assert 'environment.kwargs.bsuite_id="memory_len/2"' in ours
    assert theirs[:6] == ["-m", "benchmarks.behaviour.agent", "actor_critic_rnn", "memory_len/2", "7", "10000"]
    printed = capsys.readouterr().out
    assert "[2/2] actor_critic_rnn-memory_len-2 bsuite seed 7: right answers 0.90" in printed
    assert (
        "| memory_len | 3 steps (`memory_len/2`) | right answers | `actor_critic_rnn` | 0.90, learned | 0.90, learned |"
        in printed
    )
    assert "deep_sea" not in printed  # not measured
    assert run.main(given) == 0
    assert len(ran) == 2
    assert "2 of 2 are there already" in capsys.readouterr().out


def test_a_result_of_another_configuration_is_measured_again(ran, tmp_path):
    outcome = run.measure(MEMORY, "distrl", 1, tmp_path)
    assert run.kept((MEMORY, "distrl", 1), tmp_path) == outcome
    other = Task(MEMORY.bsuite_id, MEMORY.what, MEMORY.agent, 4, {**MEMORY.settings, "algorithm.discount": 0.9})
    assert run.kept((other, "distrl", 1), tmp_path) is None
    assert run.kept((MEMORY, "bsuite", 1), tmp_path) is None
    theirs = run.measure(MEMORY, "bsuite", 1, tmp_path)
    assert run.kept((other, "bsuite", 1), tmp_path) == theirs  # it knows none of our settings


def test_a_failed_training_is_reported_and_not_kept(monkeypatch, tmp_path, capsys):
    def fail(arguments):
        raise FailedError("distrl: error: no", 2)

    monkeypatch.setattr(run, "run", fail)
    assert run.main(["--only", MEMORY.name, "--seeds", "1", "--out", str(tmp_path)]) == 1
    assert "failed: [1/2] actor_critic_rnn-memory_len-2 distrl seed 1: distrl: error: no" in capsys.readouterr().out
    assert not (tmp_path / "results").exists()


def test_a_training_that_ended_early_is_a_failure(monkeypatch, tmp_path):
    def write(arguments):
        folder = run.Path(arguments[-1])
        folder.mkdir(parents=True)
        (folder / "log.csv").write_text("episode,total_perfect\n5000,4000\n")
        return ""

    monkeypatch.setattr(run, "run", write)
    with pytest.raises(FailedError, match=r"last row is of episode 5,000, and 10,000 are needed"):
        run.measure(MEMORY, "bsuite", 1, tmp_path)


def outcome(seed, value, learned, task=MEMORY.name, learner="distrl"):
    return run.Outcome(task, learner, seed, value, learned, 60.0, "same", "abc", "2026-01-02", "a machine")


@pytest.mark.parametrize(
    ("outcomes", "cell"),
    [
        ([], "–"),
        ([outcome(1, 0.5, False)], "0.50, not learned"),
        ([outcome(1, 1.08, None)], "1.08"),
        ([outcome(1, 0.5, False), outcome(2, 0.9, True)], "0.70 (0.50, 0.90), learned 1 of 2"),
        ([outcome(1, 0.5, False), outcome(2, 0.5, False)], "0.50 (0.50, 0.50), not learned"),
    ],
)
def test_a_cell_has_every_seed(outcomes, cell):
    assert run._cell(outcomes) == cell


def test_published_tasks_stay_when_others_are_measured(monkeypatch, tmp_path):
    monkeypatch.setattr(run, "RESULTS", tmp_path)
    monkeypatch.setattr(run, "PAGE", tmp_path / "results.md")
    run.PAGE.write_text("\n".join(["before", *markers("behaviour"), "after"]))
    for one in (outcome(1, 0.5, False), outcome(2, 0.9, True), outcome(1, 0.8, True)):
        run.publish({"outcomes": [run.asdict(one)]})
    kept = json.loads((tmp_path / "behaviour.json").read_text())["outcomes"]
    assert [(one["seed"], one["value"]) for one in kept] == [(1, 0.8), (2, 0.9)]
    page = run.PAGE.read_text()
    assert "0.85 (0.80, 0.90), learned 2 of 2" in page
    assert f"commit abc: 1 of {len(TASKS)} tasks, seed 1, 2, on a machine, 0.033 h together." in page


def test_the_page_has_what_the_committed_report_says():
    first, last = markers("behaviour")
    written = PAGE.read_text("utf-8").partition(first)[2].partition(last)[0].strip()
    assert written == run.block(json.loads((RESULTS / "behaviour.json").read_text("utf-8")))


def test_a_name_without_a_task_is_refused(capsys):
    with pytest.raises(SystemExit) as caught:
        run.main(["--only", "typo"])
    assert caught.value.code == 2
    assert "no row is named typo; there are actor_critic_rnn-memory_len-2" in capsys.readouterr().err
