import json
import time
from pathlib import Path

import pytest

import distrl
from distrl.apps.commands import main
from distrl.apps.commands.jobs import is_of, role_name
from distrl.apps.jobs.record import JobRecord
from distrl.errors import ConfigError


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(distrl.__file__).parent.parent))
    monkeypatch.delenv("DISTRL_REDIS_URL", raising=False)
    monkeypatch.setenv("COLUMNS", "300")  # a worker of xdist has 80, which breaks cells into lines
    return tmp_path


def stamp(seconds_ago):
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time.time() - seconds_ago))


@pytest.fixture
def job(workplace):
    """A job that has ended, an hour after its learner's first line."""
    folder = workplace / "runs" / "pong"
    (folder / "logs").mkdir(parents=True)
    told = {"run_id": "pong", "target": "here", "address": None, "run_dir": str(folder), "store": None}
    JobRecord.model_validate({**told, "actors": 2, "submitted": time.time() - 7200, "handles": {}}).write(folder)
    (folder / "logs" / "learner.log").write_text(
        f"{stamp(3600)},000 learner INFO old\n{stamp(10)},000 learner INFO x\n"
    )
    for number in (3, 30):
        (folder / "logs" / f"actor-{number}.log").write_text(f"{stamp(9)},000 actor {number} INFO \x1b[2J{number}\n")
    (folder / "logs" / "job.log").write_text(f"{stamp(5)} end\n")
    (folder / "logs" / "job.exit").write_text("4\n")
    return folder


def run(capsys, *arguments):
    code = main.main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_jobs_are_listed_with_their_states(capsys, job, workplace):
    code, out, err = run(capsys, "jobs")
    assert (code, err) == (0, "")
    headings, line = out.splitlines()
    assert headings.split() == ["run", "target", "state", "actors", "submitted", "reason"]
    assert line.split()[:7] == ["pong", "here", "failed", "2", "2", "h", "ago"]
    (facts,) = json.loads(run(capsys, "jobs", "--json")[1])
    assert (facts["run_id"], facts["state"], facts["exit_code"]) == ("pong", "failed", 4)
    assert "schema_version" not in facts


def test_one_damaged_record_hides_no_other_job(capsys, job, workplace):
    (workplace / "runs" / "broken").mkdir()
    (workplace / "runs" / "broken" / "job.json").write_text("{")
    code, out, err = run(capsys, "jobs")
    assert (code, err) == (0, "")
    *_, line = out.splitlines()
    assert line.split()[:8] == ["broken", "-", "damaged", "0", "-", "runs/broken/job.json", "is", "damaged:"]
    assert [job["state"] for job in json.loads(run(capsys, "jobs", "--json")[1])] == ["failed", "damaged"]
    code, out, err = run(capsys, "logs", "broken")
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_without_jobs(capsys):
    assert run(capsys, "jobs") == (0, "no job under runs/; distrl submit makes one\n", "")
    assert run(capsys, "jobs", "--json") == (0, "[]\n", "")


def test_lines_of_all_roles_by_time(capsys, job):
    for name in ("pong", "runs/pong", str(job)):
        code, out, err = run(capsys, "logs", name)
        assert (code, err) == (0, "pong on here has failed: it has ended with 4 and has left no summary\n")
        assert [line[20:] for line in out.splitlines()] == [
            "learner   INFO old",
            "learner   INFO x",
            "actor 3   INFO ?[2J3",
            "actor 30  INFO ?[2J30",
            "job       end",
        ]
    assert run(capsys, "logs")[1] == out  # the newest


@pytest.mark.parametrize(
    ("arguments", "texts"),
    [
        (["--role", "learner"], ["INFO old", "INFO x"]),
        (["--role", "actor:3", "--role", "job"], ["INFO ?[2J3", "end"]),
        (["--role", "actor"], ["INFO ?[2J3", "INFO ?[2J30"]),
        (["--since", "5m", "--role", "learner"], ["INFO x"]),
        (["--since", "2h", "-f", "--role", "learner"], ["INFO old", "INFO x"]),
        (["--role", "evaluator"], []),
    ],
)
def test_lines_are_chosen_by_role_and_age(capsys, job, arguments, texts):
    code, out, err = run(capsys, "logs", "pong", *arguments, "--json")
    assert code == 0
    assert ("no line of its log matches --role and --since\n" in err) == (not texts)
    assert [json.loads(line)["text"] for line in out.splitlines()] == texts


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--role", "actr"], "--role actr: name job, learner, actor, inference, evaluator, actors"),
        (["--role", "learner:1"], "--role learner:1: name"),
        (["--role", "actor:x"], "--role actor:x: name"),
        (["--since", "yesterday"], "'yesterday' is not a length of time"),
        (["--run", "pong"], "No such option"),
        (["--address", "head"], "--address head has no use with pong, a job on here"),
    ],
)
def test_wrong_choices_are_one_line(capsys, job, arguments, message):
    code, out, err = run(capsys, "logs", "pong", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere is no run's directory, and no run under runs/ has this id; distrl jobs lists jobs"),
        (["runs/nowhere"], "runs/nowhere is not a run's directory"),
        ([], "there is no run under"),
    ],
)
def test_a_job_that_is_not_there_is_one_line(capsys, arguments, message):
    code, out, err = run(capsys, "logs", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


@pytest.mark.parametrize(("text", "name"), [("actor:3", "actor 3"), ("actor:03", "actor 3"), ("actor", "actor")])
def test_names_of_roles(text, name):
    assert role_name(text) == name


def test_names_that_begin_alike_are_told_apart():
    assert is_of(["actor 3"], "actor 3")
    assert not is_of(["actor 3"], "actor 30")
    assert is_of(["actor"], "actor 30")
    assert is_of(["actor"], "actors 1")  # whose log has the lines of its actors
    assert not is_of(["actors"], "actor 1")
    with pytest.raises(ConfigError):
        role_name("")


def test_a_role_that_the_log_of_a_target_does_not_tell_apart_is_refused(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = {"run_id": "r1", "target": "kubernetes", "address": "c", "run_dir": "/runs/r1", "store": None, "actors": 1}
    folder = tmp_path / "runs" / "r1"
    folder.mkdir(parents=True)
    JobRecord.model_validate({**told, "submitted": 1.0, "handles": {}}).write(folder)
    for role in ("learner", "actor:3"):
        assert main.main(["logs", "r1", "--role", role]) == 2
        assert capsys.readouterr().err == (
            f"distrl: error: --role {role}: the log of a job on kubernetes has the roles job, actor, actors; all "
            "others write files in logs/ of the run's directory\n"
        )
