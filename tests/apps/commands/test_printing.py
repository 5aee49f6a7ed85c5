"""Texts out of files and Redis on a terminal: each is printed as text."""

import json
import os
import re

import pytest

from distrl.apps.commands.main import main
from distrl.data_store.opening import open_objects
from distrl.data_store.stored_run import StoredRun, Writer
from distrl.errors import printable, printable_lines
from tests.run_folders import make_run

HOSTILE = "\x1b]0;pwned\x07\x1b[2J\n\rpwned\u202e\x9b2J\x08"
STYLE = re.compile(r"\x1b\[[0-9]{1,2}m")


def test_styles_and_lines_stay_and_all_else_is_shown():
    assert printable_lines(f"a\x1b[36mb\x1b[0m\tc\n{HOSTILE}é") == "a\x1b[36mb\x1b[0m\tc\n?]0;pwned??[2J\n?pwned??2J?é"
    assert printable(f"{HOSTILE}\udcff\ud800") == "?]0;pwned??[2J??pwned??2J?\\xff?"


def hostile_run(folder):
    """A run whose files are hostile wherever they hold a text."""
    texts = {"stop_reason": HOSTILE, "error": HOSTILE, "env": HOSTILE, "algorithm": HOSTILE, "bottleneck": HOSTILE}
    names = {"other_evaluation_returns": {HOSTILE: 1.0}, "untracked": {HOSTILE: HOSTILE}, "dropped": {HOSTILE: 1}}
    run = make_run(folder, summary=texts | names | {"exit_code": 1}, manifest={"environment": HOSTILE}, run_id=HOSTILE)
    (run / "logs" / "actor-\x1b]0;pwned\x07.log").write_text(HOSTILE)
    record = {"schema_version": 1, "run_id": HOSTILE, "target": "here", "address": None, "run_dir": printable(str(run))}
    (run / "job.json").write_text(json.dumps(record | {"store": None, "actors": 1, "submitted": 1.0, "handles": {}}))
    return run


NAMED = "runs/a\x1b[2J\udcff"
COMMANDS = {
    "runs": ("runs",),
    "an unknown folder": ("runs", "nowhere\x1b[2J\udcff"),
    "compare": ("compare", "runs"),
    "status": ("status", NAMED),
    "doctor": ("doctor", NAMED),
    "logs": ("logs", NAMED),
    "jobs": ("jobs",),
    "jobs --store": ("jobs", "--store", "file://{here}/store"),
}


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)
def test_no_command_lets_foreign_text_command_the_terminal(tmp_path, monkeypatch, capfd, arguments):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "10000")  # a cell that is broken into lines may begin with any word
    hostile_run(tmp_path / "runs" / os.fsdecode(b"a\x1b[2J\xff"))
    hostile_run(tmp_path / "runs" / "b")
    store = open_objects(f"file://{tmp_path}/store")
    Writer.claim(StoredRun(store, "r1"), 0, "launch")
    for name in ("job.json", "summary.json", "manifest.json"):
        store.put(f"r1/{name}", (tmp_path / "runs" / "b" / name).read_bytes())
    assert main([word.format(here=tmp_path) for word in arguments]) in (0, 1, 2)
    told = "".join(capfd.readouterr())
    assert "pwned" in told or "nowhere" in told
    assert not any("pwned" in line[:6] for line in told.splitlines())
    assert {letter for letter in STYLE.sub("", told) if not letter.isprintable()} <= {"\n"}
