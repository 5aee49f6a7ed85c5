import os
import time

import pytest

from distrl.apps.dashboard.files import (
    PIECE_BYTES,
    LogPart,
    NotThereError,
    events,
    film,
    films,
    id_of,
    inside,
    log_names,
    log_piece,
)


@pytest.fixture
def run_dir(tmp_path):
    folder = tmp_path / "run"
    (folder / "logs").mkdir(parents=True)
    return folder


def test_a_file_of_the_run(run_dir):
    (run_dir / "logs" / "learner.log").write_text("x")
    assert inside(run_dir, "logs", "learner.log") == (run_dir / "logs" / "learner.log").resolve()


@pytest.mark.parametrize(
    "parts", [("..", "secret"), ("logs",), ("nothing",), ("a\0b",), ("link",), ("logs", "linked.log")]
)
def test_nothing_else_is_read(run_dir, parts):
    secret = run_dir.parent / "secret"
    secret.write_text("secret")
    (run_dir / "link").symlink_to(secret)
    (run_dir / "logs" / "linked.log").symlink_to("/etc/passwd")
    with pytest.raises(NotThereError):
        inside(run_dir, *parts)


def test_a_folder_of_logs_that_leads_elsewhere(run_dir, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "learner.log").write_text("secret")
    (run_dir / "logs").rmdir()
    (run_dir / "logs").symlink_to(elsewhere)
    with pytest.raises(NotThereError, match=r"no file logs/learner\.log of its own"):
        log_piece(run_dir, "learner", None)


def test_a_pipe_does_not_hold_its_reader(run_dir):
    os.mkfifo(run_dir / "logs" / "pipe.log")
    with pytest.raises(NotThereError):
        log_piece(run_dir, "pipe", None)


@pytest.mark.parametrize("role", ["../run", "", ".", "..", "a/b", "/etc/passwd", "learner.log\n"])
def test_names_of_roles(run_dir, role):
    with pytest.raises(NotThereError, match="no role has a log of that name"):
        log_piece(run_dir, role, None)


def test_logs_by_name(run_dir):
    for name in ("learner", "actor-1", "events", "-odd"):
        (run_dir / "logs" / f"{name}.log").touch()
    assert log_names(run_dir) == ["actor-1", "learner"]


def test_logs_of_another_directory_are_not_named(run_dir, tmp_path):
    (run_dir / "logs").rmdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "syslog.log").write_text("x")
    (run_dir / "logs").symlink_to(tmp_path / "elsewhere")
    assert log_names(run_dir) == []


def test_control_and_direction_characters_of_a_log_are_visible(run_dir):
    (run_dir / "logs" / "learner.log").write_text("\x1b[31mred\t\u202eturned\n")
    (run_dir / "logs" / "events.log").write_text("2026-01-02 03:04:05 a\u202eb\n")
    assert log_piece(run_dir, "learner", None).text == "\u241b[31mred\t\u27e8U+202E\u27e9turned\n"
    assert events(run_dir)[0].text == "a\u27e8U+202E\u27e9b"


def test_a_log_is_followed_by_whole_lines(run_dir):
    path = run_dir / "logs" / "learner.log"
    path.write_text("one\ntwo\nthr")
    first = log_piece(run_dir, "learner", None)
    assert first == LogPart("one\ntwo\n", 8)
    assert log_piece(run_dir, "learner", 8) == LogPart("thr", 11)  # nothing but a torn line: it may stay one
    path.write_text("one\ntwo\nthree\nfour\n")
    assert log_piece(run_dir, "learner", 8) == LogPart("three\nfour\n", 19)
    assert log_piece(run_dir, "learner", 19) == LogPart("", 19)


def test_of_a_long_log_the_end(run_dir):
    path = run_dir / "logs" / "learner.log"
    path.write_text("".join(f"line {number:06}\n" for number in range(100_000)))
    piece = log_piece(run_dir, "learner", None)
    assert piece.text.startswith("line 0")
    assert piece.text.endswith("line 099999\n")
    assert len(piece.text) <= 64 * 1024
    assert piece.after == path.stat().st_size


def test_a_log_that_has_begun_anew(run_dir):
    (run_dir / "logs" / "learner.log").write_text("new\n")
    assert log_piece(run_dir, "learner", 1000) == LogPart("new\n", 4)


def test_passwords_in_logs_and_events(run_dir):
    (run_dir / "logs" / "learner.log").write_bytes(b"redis://me:pw@host:1/0 \xff\n")
    (run_dir / "logs" / "events.log").write_text("2026-01-02 03:04:05 lost rediss://:pw@host\nodd\n")
    assert log_piece(run_dir, "learner", None).text == "redis://•••@host:1/0 \ufffd\n"
    assert [event[:2] for event in events(run_dir)] == [("2026-01-02 03:04:05", "lost rediss://•••@host"), ("", "odd")]


def test_no_events(run_dir):
    assert events(run_dir) == []


def test_a_torn_event_is_left_out(run_dir):
    long = "password=" + "x" * PIECE_BYTES
    (run_dir / "logs" / "events.log").write_text(f"{long}\n2026-01-02 03:04:05 whole\n")
    assert [event[:2] for event in events(run_dir)] == [("2026-01-02 03:04:05", "whole")]


def test_no_offset_shows_what_the_whole_line_would_not(run_dir):
    line = "connected to redis://user:hunter2@host:6379 now, password=abc\n"
    (run_dir / "logs" / "learner.log").write_text("before\n" + line + "after\n")
    for after in range(len("before\n" + line) + 1):
        shown = log_piece(run_dir, "learner", after).text
        assert "hunter2" not in shown
        assert "abc" not in shown


def test_events_have_a_severity_and_a_time(run_dir):
    lines = "2026-01-02 03:04:05 actor 0 ended (signal 9); starting again\n2026-99-02 03:04:05 odd\n"
    (run_dir / "logs" / "events.log").write_text(lines)
    first, second = events(run_dir)
    assert (first.severity, time.localtime(first.at)[:6]) == ("bad", (2026, 1, 2, 3, 4, 5))
    assert (second.severity, second.at) == ("info", None)


def test_films_by_the_steps_that_they_show(run_dir, tmp_path):
    assert films(run_dir) == []
    for at, name in enumerate(
        ["films/steps-000000200-2.webm", "films/best.webm", "old.mp4", "films/steps-000000100.webm"], 1
    ):
        path = run_dir / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"film" * at)
        os.utime(path, (at, at))
    (run_dir / ".tmp-x.mp4").touch()
    (run_dir / "films" / ".tmp-y.webm").touch()
    (run_dir / "linked.mp4").symlink_to("/etc/passwd")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.mp4").touch()
    (run_dir / "outside").symlink_to(tmp_path / "elsewhere")
    (run_dir / "inside").symlink_to(run_dir / "films")
    assert [(one.name, one.env_steps, one.is_best, one.size_bytes) for one in films(run_dir)] == [
        ("films/steps-000000100.webm", 100, False, 16),
        ("films/steps-000000200-2.webm", 200, False, 4),
        ("old.mp4", None, False, 12),
        ("films/best.webm", None, True, 8),
    ]


@pytest.mark.parametrize(
    "name",
    ["../secret.webm", "linked.webm", "films", "", "films/../../secret.webm", "/etc/passwd", "a\0b.webm", "x/y/z.webm"],
)
def test_only_listed_films_are_served(run_dir, name):
    (run_dir.parent / "secret.webm").touch()
    (run_dir / "linked.webm").symlink_to(run_dir.parent / "secret.webm")
    (run_dir / "films").mkdir()
    (run_dir / "films" / "best.webm").touch()
    with pytest.raises(NotThereError, match="no film of that name"):
        film(run_dir, name)
    assert film(run_dir, "films/best.webm") == (run_dir / "films" / "best.webm").resolve()


def test_ids_say_nothing_and_stay():
    assert id_of("cartpole") == id_of("cartpole") != id_of("cartpole2")
    assert len(id_of("../../etc")) == 16
    assert id_of("\udcff").isalnum()
