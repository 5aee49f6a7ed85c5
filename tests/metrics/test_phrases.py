import pytest

from distrl.metrics.phrases import digits_apart, return_words, role_states, verdict, waiting_words

ACTOR = {"role": "actor", "id": 0, "state": "starting"}
LEARNER = {"role": "learner", "id": 0, "state": "starting: importing the framework"}


def test_role_states_are_summed_up():
    assert role_states([]) == "no role has reported yet"
    assert role_states([LEARNER, ACTOR, {**ACTOR, "id": 1}, {**ACTOR, "id": 2, "state": "acting"}]) == (
        "learner starting: importing the framework, 2 actors starting, 1 actor acting"
    )
    evaluator = {"role": "evaluator", "id": 0, "state": "waiting: weights"}
    assert role_states([ACTOR, evaluator]) == "evaluator waiting: weights, 1 actor starting"
    server = {"role": "inference", "id": 0, "state": "waiting: actors"}
    assert role_states([ACTOR, server]) == "1 actor starting, 1 inference server waiting: actors"


@pytest.mark.parametrize(
    ("snapshot", "words"),
    [
        (
            {"bottleneck": "actors", "learner_wait_share": 0.625},
            "actors: the learner waits for unrolls 62% of its time",
        ),
        ({"bottleneck": "learner"}, "learner: the queue is full and actors wait for it"),
        (
            {"bottleneck": "learner", "actors_blocked_share": 0.4},
            "learner: the queue is full and actors wait for it 40% of their time",
        ),
        ({"bottleneck": "environment"}, "environment: stepping it takes most of the actors' time"),
        ({"bottleneck": "-"}, "none: actors and learner keep pace"),
        ({}, "not known yet"),
    ],
)
def test_the_verdict_in_words(snapshot, words):
    assert verdict(snapshot) == words


@pytest.mark.parametrize(
    ("idle", "blocked", "words"),
    [(0.03, 0.814, "learner 3%, actors 81% of the time"), (1.0, None, "learner 100% of the time"), (None, 0.5, "")],
)
def test_who_waits_in_words(idle, blocked, words):
    assert waiting_words(idle, blocked) == words


def test_small_returns_have_two_decimals():
    assert [return_words(value) for value in (0.904, -0.5, 9.99, 10.0, 475.0, -1234.56, 1e30)] == [
        "0.90",
        "-0.50",
        "9.99",
        "10.0",
        "475.0",
        "-1,234.6",
        "1e+30",
    ]


def test_numbers_have_as_many_digits_as_tell_them_apart():
    assert digits_apart([0.001, 0.1]) == 3
    assert digits_apart([1.00001, 1.00002, 1.00002]) == 6
    assert digits_apart([0.1 + 0.2, 0.3]) == 17
    assert digits_apart([float("nan"), float("nan")]) == 3
