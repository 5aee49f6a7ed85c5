import os
import time

import pytest

from distrl.apps.jobs.run_logs import lines, role_of
from distrl.apps.jobs.target import LogLine
from distrl.errors import ConfigError


def at(text, thousandths=0):
    return time.mktime(time.strptime(text, "%Y-%m-%d %H:%M:%S")) + thousandths / 1000


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "job.log").write_text(
        "distrl 0.1.0\n"
        "2026-01-02 03:04:05 run pong in runs/pong\n"
        "2026-01-02 03:04:09 stopped as asked (exit code 0)\n"
        "  return   no episode finished\n"
    )
    (tmp_path / "events.log").write_text("2026-01-02 03:04:05 run pong in runs/pong\n")
    (tmp_path / "learner.log").write_text("2026-01-02 03:04:06,250 learner INFO begins\r\nTraceback\n")
    (tmp_path / "actor-12.log").write_text("2026-01-02 03:04:06,125 actor 12 INFO joins\n2026-01-02 03:04:07,000 x\n")
    (tmp_path / "stall.txt").write_text("no log\n")
    return tmp_path


def test_lines_of_all_roles_come_in_the_order_of_time(folder):
    assert list(lines(folder)) == [
        LogLine(at("2026-01-02 03:04:05"), "job", "distrl 0.1.0"),
        LogLine(at("2026-01-02 03:04:05"), "job", "run pong in runs/pong"),
        LogLine(at("2026-01-02 03:04:06", 125), "actor 12", "INFO joins"),
        LogLine(at("2026-01-02 03:04:06", 250), "learner", "INFO begins"),
        LogLine(at("2026-01-02 03:04:06", 250), "learner", "Traceback"),
        LogLine(at("2026-01-02 03:04:07"), "actor 12", "x"),
        LogLine(at("2026-01-02 03:04:09"), "job", "stopped as asked (exit code 0)"),
        LogLine(at("2026-01-02 03:04:09"), "job", "  return   no episode finished"),
    ]


def test_tensorflows_lines_have_its_own_times(tmp_path):
    early = "I0000 00:00:1767323000.250000     367 port.cc:153] oneDNN"
    (tmp_path / "learner.log").write_text(f"WARNING: before its log\n{early}\n2026-01-02 03:04:06,250 learner INFO x\n")
    assert [line.at for line in lines(tmp_path)] == [1767323000.25, 1767323000.25, at("2026-01-02 03:04:06", 250)]
    assert [line.text for line in lines(tmp_path)][1] == early


def test_events_of_a_run_without_a_job_are_shown_and_those_of_a_later_launch(folder):
    with (folder / "events.log").open("a") as events:
        events.write("2026-01-02 03:04:15 six seconds after the job's last line: it was resumed by hand\n")
    later = [line.text for line in lines(folder) if line.role == "job"]
    assert later[-1].startswith("six seconds")
    assert later.count("run pong in runs/pong") == 1
    (folder / "job.log").unlink()
    assert next(line.text for line in lines(folder) if line.role == "job") == "run pong in runs/pong"


def test_events_of_a_job_that_has_just_begun_come_once(tmp_path):
    (tmp_path / "job.log").write_text("distrl: what the libraries say\n")
    (tmp_path / "events.log").write_text(time.strftime("%Y-%m-%d %H:%M:%S run pong\n"))
    assert [line.text for line in lines(tmp_path)] == ["distrl: what the libraries say"]


def test_a_log_that_grows_is_followed_to_its_end(folder):
    seen, steps = [], iter(("a new file", "half a line", "the rest", "over"))

    def is_over():
        step = next(steps)
        if step == "a new file":
            (folder / "actor-3.log").write_text("2026-01-02 03:05:00,000 actor 3 INFO joins\n")
        elif step == "half a line":
            with (folder / "learner.log").open("a") as log:
                log.write("2026-01-02 03:05:01,000 learner INFO up")
        elif step == "the rest":
            assert "INFO up" not in [line.text for line in seen]
            with (folder / "learner.log").open("a") as log:
                log.write("dates\n2026-01-02 03:05:02,000 learner INFO no line end")
        return step == "over"

    for line in lines(folder, is_over):
        seen.append(line)
    assert [line.text for line in seen][-3:] == ["INFO joins", "INFO updates", "INFO no line end"]
    assert len(seen) == 8 + 3


def test_a_log_that_was_begun_anew_is_read_from_its_beginning(folder):
    steps = iter((False, False, True))
    texts = []
    for line in lines(folder, lambda: next(steps)):
        texts.append(line.text)
        if line.text == "  return   no episode finished":
            (folder / "learner.log").write_text("2026-01-02 03:06:00,000 learner INFO 2\n")
    assert texts[-1] == "INFO 2"


def test_times_of_other_zones_are_compared_as_moments(tmp_path):
    stamps = ("2026-01-02 03:04:05.250+00:00", "2026-01-02 04:04:05+01:00", "2026-01-01 21:34:05.125-05:30")
    for number, stamp in enumerate(stamps):
        (tmp_path / f"actor-{number}.log").write_text(f"{stamp} actor {number} INFO acts\n")
    assert [(line.at, line.role) for line in lines(tmp_path)] == [
        (1767323045.0, "actor 1"),
        (1767323045.125, "actor 2"),
        (1767323045.25, "actor 0"),
    ]


def test_a_line_of_no_end_comes_in_pieces_and_wrong_times_are_text(tmp_path):
    (tmp_path / "learner.log").write_bytes(b"x" * 100_000 + b"\n2026-13-45 99:99:99 \xff\n")
    os.utime(tmp_path / "learner.log", (1000.0, 1000.0))
    found = list(lines(tmp_path))
    assert "".join(line.text for line in found[:-1]) == "x" * 100_000
    assert found[-1] == LogLine(1000.0, "learner", "2026-13-45 99:99:99 \N{REPLACEMENT CHARACTER}")
    assert max(len(line.text) for line in found) < 100_000


def test_a_run_that_was_removed_has_no_lines_and_a_log_that_cannot_be_read_is_named(tmp_path):
    assert list(lines(tmp_path / "gone")) == []
    (tmp_path / "learner.log").mkdir()
    with pytest.raises(ConfigError, match=r"learner\.log cannot be read: Is a directory"):
        list(lines(tmp_path))


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("actor-3.log", "actor 3"),
        ("learner.log", "learner"),
        ("train.log", "job"),
        ("job.log", "job"),
        ("actors-1.log", "actors 1"),
    ],
)
def test_roles_are_the_names_of_files(name, role):
    assert role_of(name) == role
