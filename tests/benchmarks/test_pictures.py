from xml.etree import ElementTree

import pytest

from benchmarks.pictures import draw_curves, draw_scores

TAG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def drawn(row, result, tmp_path):
    rows = [row(), row("cartpole-dqn", algorithm="DQN"), row("pong", None, "Pong")]
    by_row = {entry.name: [result(entry.name, seed, 100.0 * seed) for seed in (1, 2, 3)] for entry in rows}
    draw_curves(tmp_path / "curves.svg", rows, by_row, {"CartPole-v1": 22.0})
    draw_scores(tmp_path / "scores.svg", rows, by_row)
    again = tmp_path / "again.svg"
    draw_scores(again, rows, by_row)
    assert again.read_bytes() == (tmp_path / "scores.svg").read_bytes()
    return tmp_path


def test_a_training_that_failed_is_named(row, result, tmp_path):
    by_row = {"cartpole-ppo": [result("cartpole-ppo", 1, 480.0), result("cartpole-ppo", 2, None)]}
    draw_scores(tmp_path / "scores.svg", [row()], by_row)
    draw_curves(tmp_path / "curves.svg", [row()], by_row, {"CartPole-v1": 22.0})
    texts = {text.text for text in ElementTree.parse(tmp_path / "scores.svg").getroot().iter(f"{TAG}text")}
    assert "PPO, 1 failed" in texts


def test_every_task_and_algorithm_is_named(drawn):
    for name, expected in (
        ("curves", {"CartPole-v1", "Pong", "PPO", "DQN", "random", "environment steps"}),
        ("scores", {"CartPole-v1", "Pong", "PPO", "DQN", "mean return of 100 greedy episodes"}),
    ):
        texts = {text.text for text in ElementTree.parse(drawn / f"{name}.svg").getroot().iter(f"{TAG}text")}
        assert expected <= texts
