"""Commands with a run in a data store: its policy, its logs, its list, and what is refused."""

import json

import pytest

from distrl.apps.commands import main
from distrl.apps.commands.options import Layers
from distrl.apps.commands.stored import stored_configuration, with_weights
from distrl.apps.config.configuration import load
from distrl.config.load import dump
from distrl.config.secrets import masked
from distrl.data_store.opening import open_objects
from distrl.data_store.stored_run import StoredRun, Writer
from distrl.errors import ConfigError
from tests.data_store.stores import saved


@pytest.fixture
def url(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    url = f"file://{tmp_path}/store"
    objects = open_objects(url)
    writer = Writer.claim(StoredRun(objects, "r1"), 0, "l")
    for step in (1, 2, 3):
        writer.store(saved(tmp_path / "run", step), step, {}, best=step == 2, keep=5)
    loaded = load("cartpole-impala", sets=[f"checkpoint.store={url}", "environment.kwargs={token: x}", "seed=7"])
    objects.put("r1/config.yaml", dump(loaded, masked).encode())
    objects.put("r1/policy/weights.msgpack", b"w")
    objects.put("r1/logs/learner.log", b"2026-01-01 10:00:00,000 learner INFO one\n")
    return url


@pytest.mark.parametrize(("checkpoint", "step"), [("newest", 3), ("best", 2)])
def test_what_a_policy_needs_is_fetched(url, checkpoint, step):
    folder, _ = with_weights(f"{url}/r1", checkpoint)
    assert (folder / "policy" / "weights.msgpack").read_bytes() == b"w"
    assert (folder / "config.yaml").is_file()
    assert [path.name for path in (folder / "checkpoints").glob("ckpt-*")] == [f"ckpt-{step:012d}"]
    assert (folder / "checkpoints" / "best").exists() == (checkpoint == "best")


def test_a_directory_is_taken_as_it_is(tmp_path):
    assert with_weights(str(tmp_path), "newest") == (tmp_path, "newest")


def test_a_misspelt_section_of_a_run_is_refused(tmp_path):
    (tmp_path / "config.yaml").write_text("evaluatoin: {}\n")
    with pytest.raises(ConfigError, match=r"unknown key evaluatoin .*; did you mean evaluation\?"):
        with_weights(str(tmp_path), "newest")


def test_a_checkpoint_by_its_path_is_none_of_a_store(url):
    with pytest.raises(ConfigError, match="there are newest and best"):
        with_weights(f"{url}/r1", "checkpoints/ckpt-1")


def test_the_configuration_lies_below_the_command_line(url):
    loaded = stored_configuration(Layers(sets=["seed=9"]), f"{url}/r1")
    assert (loaded.config.seed, loaded.config.checkpoint.store) == (9, url)
    assert loaded.config.environment.kwargs == {"token": "•••"}


def test_a_secret_must_be_given_again(url, capsys):
    assert main.main(["train", "--resume", f"{url}/r1", "--plain"]) == 2
    assert "environment.kwargs.token holds a secret, which the store does not keep" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["evaluate", "{url}/none"], "there is no such run (no config.yaml)"),
        (["export", "{url}/r1"], "name a file here with --output"),
        (["train", "--resume", "{url}/none"], "there is no such run (no config.yaml)"),
        (["train", "--resume", "s4://x/none"], "s4://x/none is no data store"),
        (["logs", "{url}/r1", "-f"], "--follow and --address are for jobs"),
        (["logs", "{url}/none"], "no log of such a run is in the store"),
        (["jobs", "--store", "runs"], "runs is no data store"),
    ],
)
def test_refused_in_one_line_and_nothing_is_made(url, capsys, tmp_path, arguments, says):
    before = sorted(tmp_path.iterdir())
    assert main.main([part.format(url=url) for part in arguments]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert says in captured.err
    assert sorted(tmp_path.iterdir()) == before


def test_logs_and_jobs(url, capsys):
    assert main.main(["logs", f"{url}/r1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == "INFO one"
    open_objects(url).put("r1/manifest.json", b"{}")
    assert main.main(["jobs", "--store", url, "--json"]) == 0
    (facts,) = json.loads(capsys.readouterr().out)
    assert (facts["run_id"], facts["store"], facts["state"]) == ("r1", url, "unknown")
    assert main.main(["jobs", "--store", url]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:5] == ["r1", "-", "unknown", "0", "-"]
