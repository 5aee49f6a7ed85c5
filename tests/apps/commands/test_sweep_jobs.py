"""The target of a sweep's jobs on the command line; tests/cluster/test_jobs.py submits."""

import json

import pytest

from distrl.apps.commands.main import main

SWEEP = "set: {environment.id: CartPole-v1, actors.count: 0}\nseeds: 1..2\n"
TOO_FEW = "a sweep reads the directories of its runs, as with here, ray, slurm"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "seeds.yaml").write_text(SWEEP)
    return tmp_path


def begun(folder, target):
    """Make a sweep whose runs are jobs."""
    (folder / "seeds").mkdir()
    (folder / "seeds/sweep.yaml").write_text("seeds: 1..2\n")
    (folder / "seeds/base.yaml").write_text("environment: {id: CartPole-v1}\n")
    (folder / "seeds/jobs.json").write_text(json.dumps({"target": target, "address": None}))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--on", "here"], "nothing is submitted without your consent, and standard input is no terminal"),
        (["--on", "kubernetes", "--yes"], f"--on kubernetes: {TOO_FEW}"),
        (["--on", "nowhere", "--dry-run"], f"--on nowhere: {TOO_FEW}"),
        (["--on", "here", "--yes", "--address", "x"], "--address x has no use with --on here"),
        (["--address", "x"], "--address, --wait and --yes are for jobs; add --on"),
        (["--wait"], "--address, --wait and --yes are for jobs; add --on"),
        (["--yes", "--dry-run"], "--address, --wait and --yes are for jobs; add --on"),
    ],
)
def test_what_cannot_be_submitted_is_one_line_and_leaves_nothing(folder, capsys, options, told):
    assert main(["sweep", "seeds.yaml", "--dir", "seeds", *options]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("distrl: error: ")
    assert told in line
    assert [path.name for path in folder.iterdir()] == ["seeds.yaml"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--on", "slurm"], "--on slurm: the jobs of seeds are on here; leave it out"),
        (["--address", "x"], "--address x: the jobs of seeds are on here; leave it out"),
    ],
)
def test_a_sweep_stays_where_its_jobs_are(folder, capsys, options, told):
    begun(folder, "here")
    assert main(["sweep", "seeds", *options]) == 2
    assert capsys.readouterr().err.endswith(f"{told}\n")
    assert not (folder / "seeds/sweep.json").exists()


def test_a_dry_run_shows_the_plan_and_submits_nothing(folder, capsys):
    assert main(["sweep", "seeds.yaml", "--on", "here", "--dir", "seeds", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("2 runs like this one:\nplan  run cartpole-v1-")
    assert "-xxxxxx on here" in out
    assert out.endswith("0002  seed 2    waiting\n2 runs\n")
    assert not (folder / "seeds").exists()
