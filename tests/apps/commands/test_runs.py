import json
import subprocess
import sys
from contextlib import closing

import pytest

from distrl.apps.commands import main, runs
from distrl.memory_backend.backend import connect
from distrl.runs.labels import Labels
from tests.run_folders import make_run
from tests.waiting import wait_until


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """run(*arguments, code=0): what a command prints; (stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def made(*arguments, code=0):
        assert main.main([*arguments]) == code
        captured = capsys.readouterr()
        return captured.out, captured.err

    return made


def test_runs_are_listed_the_newest_first(run, tmp_path):
    make_run(tmp_path / "runs/old", started=100.0)
    make_run(tmp_path / "runs/sweep/new", started=200.0, summary=None)
    out, err = run("runs")
    assert [line.split()[:2] for line in out.splitlines()[1:-1]] == [["sweep/new", "running"], ["old", "solved"]]
    assert (out.splitlines()[-1], err) == ("2 runs", "")


def test_filters_and_order(run, tmp_path):
    make_run(tmp_path / "a", summary={"env": "Pong-v5", "mean_return_100": 3.0})
    make_run(tmp_path / "b", summary={"mean_return_100": 1.0})
    make_run(tmp_path / "c", summary={"mean_return_100": 2.0, "exit_code": 4})

    def names(*arguments):
        return [one["name"] for one in json.loads(run("runs", ".", "--json", *arguments)[0])]

    assert names("--sort", "return") == ["a", "c", "b"]
    assert names("--env", "Cart*", "--sort", "name") == ["b", "c"]
    assert names("--state", "failed") == ["c"]
    assert names("--algorithm", "ppo") == []
    assert run("runs", ".", "--algorithm", "ppo")[0] == "no run in . matches the filters\n"


def test_labels_of_the_dashboard(run, tmp_path):
    make_run(tmp_path / "a")
    Labels(name="the best", tags=("paper", "v2")).write(tmp_path / "a")
    make_run(tmp_path / "b")
    assert "tags" in run("runs", ".")[0].splitlines()[0].split()
    Labels(archived=True).write(tmp_path / "b")
    out, _ = run("runs", ".")
    _, row, *rest = out.splitlines()
    assert row.startswith("a (the best)  ")
    assert "paper v2" in row
    assert rest == ["1 run", "1 archived run is left out (--archived lists them, too)"]
    assert [one["name"] for one in json.loads(run("runs", ".", "--archived", "--json")[0])] == ["a", "b"]
    (told,) = json.loads(run("runs", ".", "--json")[0])
    assert (told["title"], told["tags"], told["archived"]) == ("the best", ["paper", "v2"], False)
    Labels().write(tmp_path / "a")
    assert "tags" not in run("runs", ".")[0].splitlines()[0].split()


def test_all_that_is_known_as_json(run, tmp_path):
    make_run(tmp_path / "runs/a")
    (told,) = json.loads(run("runs", "--json")[0])
    assert (told["path"], told["state"], told["mean_return_100"], told["exit_code"]) == ("runs/a", "ended", 20.0, 0)


DAMAGE = {
    "run.json": ("{", "run.json: the file: Invalid JSON"),
    "summary.json": (f'{{"seed": {"9" * 400}}}', "summary.json: run_id: Field required"),
    "labels.json": ("[]", "labels.json: labels: "),
    "config.yaml": ("- 1", "file config.yaml must hold a mapping"),
    "metrics.csv": ("updates,loss\n1\n", "metrics.csv: its last row does not fit its header"),
}


@pytest.mark.parametrize(("name", "content", "told"), [(name, *each) for name, each in DAMAGE.items()], ids=DAMAGE)
def test_a_damaged_run_is_a_row_that_says_so(run, tmp_path, name, content, told):
    make_run(tmp_path / "runs/good")
    (make_run(tmp_path / "runs/bad", summary=None if name == "metrics.csv" else {}) / name).write_text(content)
    compared = run("compare", "runs")
    assert f"damaged: {told}" in compared[0]
    assert compared[1] == ""
    if name != "config.yaml":  # which the list does not read
        out, err = run("runs")
        assert sorted(line.split()[:2] for line in out.splitlines()[1:3]) == [["bad", "damaged:"], ["good", "solved"]]
        assert (told in out, err) == (True, "")
        (one,) = json.loads(run("runs", "--json", "--state", "damaged")[0])
        assert (one["name"], one["state"], one["problem"].startswith(told)) == ("bad", "damaged", True)


def test_a_number_that_no_float_holds_is_a_row(run, tmp_path):
    folder = make_run(tmp_path / "runs/bad")
    text = (folder / "summary.json").read_text()
    (folder / "summary.json").write_text(text.replace('"seed": 1,', f'"seed": {"9" * 400},'))
    assert "damaged: summary.json: seed: a number of more than 64 bits" in run("runs")[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["runs"], "there is no folder runs/ in"),
        (["runs", "nowhere"], "nowhere is not a folder"),
        (["runs", ".", "--sort", "retrun"], "did you mean return?"),
        (["runs", ".", "--state", "gon"], "did you mean gone"),
        (["compare", "."], "there is nothing to compare: no run in .; name two or more"),
    ],
)
def test_mistakes_are_told_in_one_line(run, arguments, message):
    out, err = run(*arguments, code=2)
    assert (out, len(err.splitlines())) == ("", 1)
    assert message in err


def test_an_empty_folder_is_no_error(run):
    assert run("runs", ".")[0] == "no run in .\n"


def test_compare(run, tmp_path):
    make_run(tmp_path / "a", sets=("seed=1",))
    make_run(tmp_path / "b", sets=("seed=2",))
    lines = [line.split() for line in run("compare", "a", "b")[0].splitlines()]
    assert lines[:3] == [["a", "b"], ["configuration"], ["seed", "1", "2"]]
    told = json.loads(run("compare", ".", "--json")[0])
    assert told["differences"] == [{"seed": 1}, {"seed": 2}]
    assert "there is nothing to compare: one run in a; name two or more" in run("compare", "a", code=2)[1]


def test_what_takes_long_is_told_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(runs, "PATIENCE_S", 0.0)
    with monkeypatch.context() as no_timer:
        no_timer.setattr(runs.threading, "Timer", None)
        with runs.waiting("still reading"):
            pass
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    told = []
    with runs.waiting("still reading"):
        wait_until(lambda: told.append(capsys.readouterr().err) or "".join(told).endswith("\n"))
    assert "".join(told) == "still reading\n"


def test_listing_loads_neither_arrays_nor_pictures(tmp_path):
    make_run(tmp_path / "a")
    program = (
        f"import sys; from distrl.apps.commands import main as cli; cli.main(['runs', {str(tmp_path)!r}]);"
        "print([name for name in ('numpy', 'matplotlib', 'redis', 'rich') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--remove", "r1"), "--remove needs --redis-url, or the environment variable DISTRL_REDIS_URL"),
        (("runs", "--remove", "r1"), "are about runs in Redis; use them without DIR and filters"),
        (("--redis-url", "redis://h", "--state", "ended"), "are about runs in Redis; use them without DIR and filters"),
    ],
)
def test_runs_in_redis_are_no_directories(run, monkeypatch, arguments, line):
    monkeypatch.delenv("DISTRL_REDIS_URL", raising=False)
    _, error = run("runs", *arguments, code=2)
    assert line in error
    assert error.count("\n") == 1


@pytest.mark.redis
def test_runs_in_redis_are_listed_and_removed(run, redis_url):
    with closing(connect(redis_url, "r1", name="test", give_up_s=1.0)) as backend:
        assert run("runs", "--redis-url", redis_url) == ("no run in this Redis\n", "")
        description = {"run_dir": "/runs/a", "config": {"environment": {"id": "X-v1"}, "algorithm": {"name": "ppo"}}}
        backend.create(json.dumps(description))
        out = run("runs", "--redis-url", redis_url)[0]
        headings = "run namespace state environment algorithm supervisor learner actors expires in"
        assert [" ".join(line.split()) for line in out.splitlines()] == [
            headings,
            "r1 default silent X-v1 ppo – – 0 never",
        ]
        (told,) = json.loads(run("runs", "--redis-url", redis_url, "--json")[0])
        assert (told["run_id"], told["run_dir"], told["supervisor_age_s"]) == ("r1", "/runs/a", None)
        assert run("runs", "--redis-url", redis_url, "--remove", "r1") == ("removed the keys of run r1\n", "")
        _, error = run("runs", "--redis-url", redis_url, "--remove", "r1", code=6)
        assert error.startswith("distrl: error: no run r1 at ")
        assert run("runs", "--redis-url", redis_url) == ("no run in this Redis\n", "")
