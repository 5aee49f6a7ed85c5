import math
import sys

import pytest

from benchmarks.peers import measure as measuring
from benchmarks.peers.contenders import TASKS, Contender, Task
from benchmarks.peers.measure import Watch, failed, judge, last_line, measure, watch
from benchmarks.peers.processes import Usage
from benchmarks.peers.rows import Row

SOLVE, CARTPOLE = TASKS["solve"], TASKS["cartpole"]


def row(wall_s, env_steps, mean=None):
    return Row(wall_s, env_steps, 1, mean)


def test_a_clock_behind_the_command_is_set_right_by_the_row_seen_soonest(tmp_path):
    path = tmp_path / "metrics.csv"
    seen = Watch(path)
    seen.look(1.0)
    assert seen.offset_s == math.inf
    path.write_text("wall_s,env_steps,updates,mean_return_100\n2.0,64,1,\n")
    seen.look(3.5)
    path.write_text("wall_s,env_steps,updates,mean_return_100\n2.0,64,1,\n3.0,128,2,\n")
    seen.look(4.25)
    seen.look(9.0)  # nothing new
    assert seen.offset_s == 1.25
    assert [one.wall_s for one in seen.since_command(counts_from_command=False)] == [3.25, 4.25]
    assert [one.wall_s for one in seen.since_command(counts_from_command=True)] == [2.0, 3.0]


def test_the_most_memory_counts(tmp_path):
    seen = Watch(tmp_path / "p.jsonl")
    for now_s, pss_bytes in ((1.0, 10), (4.0, 30), (7.0, 20)):
        seen.sample(now_s, Usage(pss_bytes, 2 * now_s, 1))
    assert (seen.pss_bytes, seen.samples) == (30, [(1.0, 2.0), (4.0, 8.0), (7.0, 14.0)])


def test_the_time_is_up_after_the_command_or_the_first_update(tmp_path):
    seen = Watch(tmp_path / "p.jsonl")
    assert [seen.over(now_s, SOLVE, 120.0) for now_s in (119.9, 120.0)] == [False, True]
    assert [seen.over(now_s, CARTPOLE, 30.0) for now_s in (179.9, 180.0)] == [False, True]  # no update comes
    seen.rows, seen.offset_s = [row(4.0, 10), row(5.0, 20)], 0.5
    assert [seen.over(now_s, CARTPOLE, 30.0) for now_s in (34.4, 34.5)] == [False, True]


def test_a_run_is_solved_when_it_ended_by_itself_with_the_return(tmp_path):
    seen = Watch(tmp_path / "p.jsonl", samples=[(5.0, 4.0), (9.0, 12.0)], pss_bytes=400)
    told = [row(2.0, 100), row(4.0, 300), row(10.0, 900, 480.0)]
    judged = judge(SOLVE, told, seen, 0, 11.5)
    assert judged == {
        "steps_per_s": 100.0,
        "first_update_s": 2.0,
        "solved_s": 11.5,
        "mean_return": 480.0,
        "pss_bytes": 400,
        "cpu_us_per_step": pytest.approx(8.0 / 400 * 1e6),
        "env_steps": 900,
        "wall_s": 11.5,
    }
    assert judge(SOLVE, told, seen, None, 120.0)["solved_s"] is None  # it had to be ended
    assert judge(SOLVE, [*told, row(11.0, 990, 474.9)], seen, 0, 120.0)["solved_s"] is None
    assert judge(CARTPOLE, told, seen, 0, 40.0)["solved_s"] is None  # was not asked to
    nothing = judge(SOLVE, [], Watch(tmp_path / "q"), 1, 2.0)
    assert {name for name, value in nothing.items() if value is not None} == {"env_steps", "wall_s"}


def test_the_last_line_that_speaks_of_an_error_says_why(tmp_path):
    log = tmp_path / "log"
    log.write_text("starting\nImportError: no module named x\nbye\n\n")
    assert last_line(log) == "ImportError: no module named x"
    assert failed(log, [row(1.0, 1)], 1) == {"failure": "ImportError: no module named x"}
    assert failed(log, [row(1.0, 1)], 0) == {"failure": None}
    assert failed(log, [row(1.0, 1)], None) == {"failure": None}  # the time was up
    assert failed(log, [], None) == {"failure": "no update came; ImportError: no module named x"}
    log.write_text("starting\n")
    assert failed(log, [], 0) == {"failure": "starting"}
    log.write_text("")
    assert last_line(log) == "it printed nothing"


SCRIPT = """
import sys
from pathlib import Path
from tests.waiting import lasts
path = Path(sys.argv[1])
for index in range(1, 1000):
    with path.open("a") as file:
        file.write('{"wall_s": %s, "env_steps": %d, "updates": 1, "mean_return_100": 1.0}\\n' % (index, 10 * index))
    if index == int(sys.argv[2]):
        sys.exit(int(sys.argv[3]))
    lasts(0.02)
"""


@pytest.mark.parametrize(("ends_at", "code"), [(3, 0), (3, 5), (999, None)])
def test_a_command_is_watched_to_its_end_or_the_end_of_its_time(tmp_path, monkeypatch, ends_at, code):
    monkeypatch.setattr(measuring, "EXIT_WITHIN_S", 0.0)
    path, task = tmp_path / "p.jsonl", Task("x", 1.0, "command", None, 1.0)
    began = []

    def start(began_s):
        began.append(began_s)
        return [sys.executable, "-c", SCRIPT, str(path), str(ends_at), str(code or 0)]

    seen, ended, wall_s = watch(start, path, tmp_path / "log", task, 1.0 if code is None else 60.0, own_end=True)
    assert ended == code
    assert len(began) == 1
    assert seen.rows[0] == row(1, 10, 1.0)
    if code is None:
        assert 1.0 <= wall_s < 30.0
    else:
        assert [one.env_steps for one in seen.rows] == [10, 20, 30]


def test_what_cannot_run_is_a_failure(tmp_path):
    script = tmp_path / "broken.py"
    script.write_text("raise SystemExit('ValueError: no such game')")
    (tmp_path / "made" / "bin").mkdir(parents=True)
    (tmp_path / "made" / "bin" / "python").symlink_to(sys.executable)
    broken = Contender("broken", "Broken", ("cartpole",), "made", str(script))
    (tmp_path / "run" / "left").mkdir(parents=True)
    found = measure(broken, CARTPOLE, 1, 1.0, tmp_path / "run", tmp_path)
    assert found["failure"] == "ValueError: no such game"
    assert (found["steps_per_s"], found["env_steps"]) == (None, 0)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["log"]
