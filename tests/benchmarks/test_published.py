from dataclasses import replace

import numpy as np
import pytest

from benchmarks import published
from benchmarks.published import Published, equal_steps, published_curves
from benchmarks.table import ROWS

THEIRS = Published(
    "Theirs",
    "https://x.example/y",
    "What it is.",
    np.array([100, 200]),
    np.array([[1.0, 3.0], [-2.0, 6.0], [5.0, 7.0]]),
)


@pytest.fixture
def of_pong(row, result, monkeypatch):
    monkeypatch.setattr(published, "published_curves", lambda: {"Pong": THEIRS})
    rows = [row("pong", None, "Pong", "IMPALA")]
    return rows, lambda curve: {"pong": [replace(result("pong", 1, 3.0), curve=curve)]}


def test_between_two_points_a_curve_is_a_line():
    np.testing.assert_array_equal(THEIRS.at(150), [2.0, 2.0, 6.0])


def test_both_stand_side_by_side_at_their_steps(of_pong):
    rows, results = of_pong
    (text,) = equal_steps(rows, results(((50, -21.0), (150, -11.0), (250, -1.0))))
    assert text.splitlines() == [
        "Pong beside [Theirs](https://x.example/y): What it is. Ours are of the 100 training episodes before.",
        "",
        "| Steps | IMPALA, seed 1 | Theirs: median | least … greatest |",
        "|---|---|---|---|",
        "| 100 | −16.0 | 1.0 | −2.0 … 5.0 |",
        "| 200 | −6.0 | 6.0 | 3.0 … 7.0 |",
    ]


def test_nothing_is_compared_beyond_our_last_step(of_pong):
    rows, results = of_pong
    (text,) = equal_steps(rows, results(((50, -21.0), (150, -11.0))))
    assert [line.split(" | ")[0] for line in text.splitlines()[4:]] == ["| 100"]


def test_without_a_curve_there_is_no_comparison(of_pong):
    rows, results = of_pong
    assert equal_steps(rows, results(())) == []


def test_what_is_published_of_pong():
    pong = published_curves()["ALE/Pong-v5"]
    assert pong.steps.tolist() == [250_000 * point for point in range(1, 25)]
    assert pong.returns.shape == (5, 24)
    np.testing.assert_allclose(pong.returns[:, -1], [7.361, 11.519, 13.859, -11.92, 14.148])
    assert "ALE/Pong-v5" in {row.task for row in ROWS}
