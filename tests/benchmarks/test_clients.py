import pytest

from benchmarks import clients
from benchmarks.measurement import keep, train_command
from benchmarks.report import report_tree

CARTPOLE = [row for row in clients.ROWS if row.name.startswith("cartpole-")]


def block(tmp_path, result, scores):
    """The block of a report of CartPole; `scores` are way -> greedy returns of its seeds."""
    results = [
        result(f"cartpole-{way}", seed, score) for way, found in scores.items() for seed, score in enumerate(found, 1)
    ]
    keep(tmp_path / "report.json", report_tree(CARTPOLE, results, {"CartPole-v1": 22.25}, "c", [1, 2, 3]))
    return clients.block(tmp_path / "report.json").splitlines()


def test_ways_differ_in_nothing_but_the_program(tmp_path):
    for name in clients.TASKS:
        rows = [row for row in clients.ROWS if row.name.startswith(f"{name}-")]
        assert len(rows) == len(clients.WAYS)
        assert len({(row.preset, row.env_steps, row.sets) for row in rows}) == 1
        commands = [train_command(row, 1, tmp_path) for row in rows]
        given = [command[command.index("--preset") :] for command in commands]
        assert given == [given[0]] * len(rows)


ALIKE = {"actors": (480, 490, 500), "agent": (490, 500, 500), "http": (400, 480, 490), "websocket": (470, 481, 500)}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, "the intervals of all four overlap; under the same seed, ways differ by up to 90."),
        (
            {"http": (400, 410, 479)},
            "**apart: actors and http, agent and http**; under the same seed, ways differ by up to 90.",
        ),
        ({"http": (480, None, 490)}, "the intervals of all four overlap."),
        ({"websocket": (470, 481)}, "**incomplete.**"),
    ],
)
def test_ways_whose_intervals_lie_apart_are_named(result, tmp_path, change, words):
    lines = block(tmp_path, result, ALIKE | change)
    known = "CartPole-v1 by `cartpole-appo` (the best return is 500, random actions return 22.2)"
    assert lines[-3] == f"- {known}: {words}"
    assert lines[-2].endswith("**incomplete.**")


def test_each_way_has_a_line_with_its_interval(result, tmp_path):
    lines = block(tmp_path, result, ALIKE | {"agent": (500, 500, None)})
    assert "| CartPole-v1 | 100,000 | a run of actors | 480 | 490 | 500 | 490 [480, 500] |" in lines
    failed = "| CartPole-v1 | 100,000 | `distrl.Agent`, one loop | 500 | 500 | **failed** (mean_return) |"
    assert any(line.startswith(failed) for line in lines)


def test_without_results_the_page_says_so(tmp_path, result):
    assert block(tmp_path, result, {}) == ["Not measured yet."]


def test_the_page_is_what_the_committed_report_says(page_agrees):
    assert page_agrees("clients", clients.block)
