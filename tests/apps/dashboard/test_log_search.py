import pytest

from distrl.apps.dashboard import log_search
from distrl.apps.dashboard.files import NotThereError
from distrl.apps.dashboard.log_search import levelled, search, tail, whole

AT = "2026-01-02 03:04:05.678+00:00"


@pytest.fixture
def run_dir(tmp_path):
    (tmp_path / "logs").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("line", "level"),
    [
        (f"{AT} learner INFO x", "info"),
        (f"{AT} actor 12 WARNING x", "warning"),
        (f"{AT} evaluator CRITICAL x", "error"),
        (f"{AT} actor 0 DEBUG ERROR", "debug"),
        ("Traceback (most recent call last):", "error"),
        ("WARNING: All log messages before absl", "warning"),
        ("I0000 00:00:1795731008.584552   26899 port.cc:153] oneDNN", "info"),
        ("E0000 00:00:1795731008.584552 x", "error"),
        ("anything", ""),
    ],
)
def test_levels(line, level):
    assert levelled(line) == [(level, line)]


def test_a_line_continues_the_level_before():
    text = f"first\n{AT} learner ERROR no\nTraceback (most recent call last):\n  File\n{AT} learner INFO yes\n"
    assert [line.level for line in levelled(text)] == ["", "error", "error", "error", "info"]


def test_search_is_bounded(run_dir, monkeypatch):
    path = run_dir / "logs" / "learner.log"
    path.write_text("".join(f"line {number:04}\n" for number in range(1000)))
    monkeypatch.setattr(log_search, "SCAN_BYTES", 1005)
    monkeypatch.setattr(log_search, "MOST_MATCHES", 3)
    found = search(run_dir, "learner", ["LINE"], "debug")
    assert [line.text for line in found.lines] == ["line 0997", "line 0998", "line 0999"]
    assert (found.found, found.scanned_bytes, found.size_bytes) == (100, 1000, 10_000)
    path.write_text("x" * 5000)
    assert search(run_dir, "learner", ["x"], "debug").found == 0  # a torn line may hold a secret


def test_search_finds_no_secret(run_dir):
    (run_dir / "logs" / "learner.log").write_text("redis://me:hunter2@host password=abc\n")
    assert search(run_dir, "learner", ["hunter2"], "debug").found == 0
    assert search(run_dir, "learner", ["•••"], "debug").found == 1


def test_lines_of_unknown_level_count_as_info(run_dir):
    (run_dir / "logs" / "learner.log").write_text(f"odd\n{AT} learner DEBUG low\n{AT} learner ERROR high\n")
    told = [len(search(run_dir, "learner", [], level).lines) for level in ("debug", "info", "error")]
    assert told == [3, 2, 1]


@pytest.mark.parametrize("role", ["../run", "", "a/b", "linked", "none"])
@pytest.mark.parametrize("action", [whole, lambda run, role: search(run, role, [], "debug")])
def test_no_other_file_is_read(run_dir, role, action):
    (run_dir / "logs" / "linked.log").symlink_to("/etc/passwd")
    with pytest.raises(NotThereError):
        action(run_dir, role)


def test_a_whole_log_comes_in_pieces_and_masked(run_dir, monkeypatch):
    monkeypatch.setattr("distrl.apps.dashboard.files.PIECE_BYTES", 64)
    lines = [f"line {number} redis://me:pw@host\n" for number in range(50)]
    (run_dir / "logs" / "learner.log").write_text("".join(lines) + "torn")
    pieces = [*whole(run_dir, "learner")]
    assert len(pieces) > 10
    assert "".join(pieces) == "".join(lines).replace("me:pw", "•••") + "torn"


def test_the_last_lines(run_dir):
    (run_dir / "logs" / "learner.log").write_text("a\nb\nc\n")
    assert [line.text for line in tail(run_dir, "learner", 2)] == ["b", "c"]
