import pytest

from distrl.apps.commands.run_tables import age, comparison_tables, jobs_table, runs_table
from distrl.errors import printable
from distrl.runs.directories import open_run
from distrl.runs.listing import compare_runs, entry
from tests.run_folders import make_run

WIDE = """\
name  state   environment  algorithm  seed  steps  return  best  steps/s   wall           started     age
a     solved  CartPole-v1  impala        1  3,000    20.0  25.0   62,057  9.8 s  {started}     8 s
?[2J  gone    –            –             –  3,000    20.0  20.0        –  3.5 s                 –       –
2 runs"""


@pytest.fixture
def entries(tmp_path):
    ended = make_run(tmp_path / "a", started=1.7e9)
    gone = make_run(tmp_path / "\x1b[2J", summary=None, pid=2**22 + 1, started=0.0)
    return [entry(open_run(run), run.name) for run in (ended, gone)]


def cells(text):
    return [" ".join(line.split()) for line in text.splitlines()]


def test_all_columns_where_there_is_room(entries, monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    told = runs_table(entries, now=1.7e9 + 8, width=200)
    assert cells(told) == cells(WIDE.format(started="2023-11-14 22:13"))


def test_columns_are_left_out_by_their_weight_where_there_is_none(entries):
    told = runs_table(entries, now=1.7e9 + 8, width=60)
    assert max(map(len, told.splitlines()[:-1])) <= 60
    assert told.splitlines()[0].split() == ["name", "state", "environment", "steps", "return", "steps/s", "age"]
    assert told.endswith("2 runs; not shown for want of width: algorithm, seed, best, wall, started (--json has all)")
    assert runs_table(entries, now=0.0, width=1).splitlines()[0].split() == ["name", "state", "steps", "return", "age"]


def test_columns_stand_below_each_other(entries):
    first, *rows, _ = runs_table(entries, now=1.7e9 + 8, width=200).splitlines()
    assert all(row.index("3,000") + 5 == first.index("steps") + 5 for row in rows)


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(-3, "0 s"), (12.4, "12 s"), (59, "59 s"), (300, "5 min"), (7300, "2 h"), (86400 * 8, "8 d"), (1e9, "11,574 d")],
)
def test_ages(seconds, told):
    assert age(seconds) == told


def test_a_terminal_is_given_no_commands():
    assert printable("a\x1b[2J\u202eé\n") == "a?[2J?é?"


@pytest.fixture
def comparison(tmp_path):
    runs = [make_run(tmp_path / name, sets=(f"seed={seed}",)) for seed, name in enumerate(["first", "second", "third"])]
    return compare_runs([open_run(run) for run in runs])


def test_runs_beside_each_other(comparison):
    told = cells(comparison_tables(comparison, width=200))
    assert told[:6] == ["first second third", "configuration", "seed 0 1 2", "", "outcome", "end solved solved solved"]
    assert told[-1] == "peak memory 905 MB 905 MB 905 MB"


def test_runs_that_do_not_fit_go_below(comparison):
    blocks = comparison_tables(comparison, width=45).split("\n\n")
    headings = [block.splitlines()[0].split() for block in blocks]
    assert headings == [["first", "second"], ["outcome"], ["third"], ["outcome"]]
    assert max(len(line) for block in blocks for line in block.splitlines()) <= 45
    assert len(comparison_tables(comparison, width=1).split("\n\n")) == 6


def test_equal_configurations_are_told(tmp_path):
    runs = [open_run(make_run(tmp_path / name)) for name in "ab"]
    assert "configuration: no difference" in comparison_tables(compare_runs(runs), width=99)


def test_jobs_have_a_line_each():
    facts = {"run_id": "pong", "target": "here", "state": "failed", "actors": 32, "submitted": 1000.0}
    table = jobs_table(
        [{**facts, "reason": "no\nroom \x1b[2J"}, {**facts, "run_id": "\x1b\u202eb", "reason": ""}], now=1300.0
    )
    assert table.splitlines() == [
        "run   target  state   actors  submitted  reason",
        "pong  here    failed  32      5 min ago  no room ?[2J",
        "??b   here    failed  32      5 min ago",
    ]


ENVIRONMENT = "my_package.worlds:" + "Labyrinth" * 40


@pytest.mark.parametrize("width", [60, 120])
def test_what_is_wider_than_the_terminal_is_broken_into_lines(tmp_path, width):
    first = make_run(tmp_path / ("a" * 130), sets=(f"environment.id={ENVIRONMENT}", "algorithm.name=dqn"))
    runs = [open_run(first), open_run(make_run(tmp_path / "b"))]
    table = comparison_tables(compare_runs(runs), width=width)
    assert max(map(len, table.splitlines())) <= width
    whole = table[table.index("environment.id") + len("environment.id") :]
    assert whole.replace("CartPole-v1", "").replace("\n", "").replace(" ", "").startswith(ENVIRONMENT)
    jobs = [
        {
            "run_id": "pong",
            "target": "here",
            "state": "failed",
            "actors": 1,
            "submitted": 1.0,
            "reason": "no room " * 60,
        }
    ]
    table = jobs_table(jobs, now=2.0, width=width)
    assert max(map(len, table.splitlines())) <= width
    assert table.count("room") == 60
    names = runs_table([entry(run, run.path.name) for run in runs], now=1.7e9, width=width)
    assert max(map(len, names.splitlines()[:-1])) <= width
    assert names.count("a") >= 130
