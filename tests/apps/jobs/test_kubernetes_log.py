import pytest

from distrl.apps.jobs import kubernetes_log
from distrl.apps.jobs.kubernetes_log import RETRIES, PodLogs
from distrl.errors import ConfigError

FIRST = (
    "[pod/pong-learner-1-abcde/learner] 2026-11-25T10:00:01.5Z 2026-11-25 10:00:01 run pong\n"
    "[pod/pong-actors-7c-x2x2x/actors] 2026-11-25T10:00:01Z joined\n"
    "error: container is waiting\n"
)
SECOND = (
    "[pod/pong-learner-1-abcde/learner] 2026-11-25T10:00:01.5Z 2026-11-25 10:00:01 run pong\n"
    "[pod/pong-learner-1-abcde/learner] 2026-11-25T10:00:04.000000001Z\n"
    "[pod/pong-actors-7c-y3y3y/actors] 2026-11-25T10:00:03Z [pod/x/y] is text\n"
)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr(kubernetes_log.time, "sleep", lambda seconds: None)


def test_lines_come_once_in_the_order_of_time_also_of_pods_that_are_new():
    asked, texts = [], [FIRST, SECOND, SECOND]

    def read(since):
        asked.append(since)
        return texts[len(asked) - 1]

    lines = [*PodLogs(read).lines(lambda: len(asked) == 2)]
    assert [(line.role, line.text) for line in lines] == [
        ("actors x2x2x", "joined"),
        ("job", "run pong"),
        ("actors y3y3y", "[pod/x/y] is text"),
        ("job", ""),
    ]
    assert [line.at - lines[0].at for line in lines] == [0.0, 0.5, 2.0, pytest.approx(3.0)]
    assert asked == [None, "2026-11-25T09:59:01Z", "2026-11-25T09:59:04Z"]


def test_an_api_that_does_not_answer_is_asked_again_and_then_ends_the_log():
    answers = iter([*["away"] * RETRIES, FIRST, *["away"] * (RETRIES + 1)])

    def read(since):
        if (answer := next(answers)) == "away":
            raise ConfigError("no answer")
        return answer

    log = PodLogs(read).lines(lambda: False)
    assert [next(log).text, next(log).text] == ["joined", "run pong"]
    with pytest.raises(ConfigError, match="no answer"):
        next(log)
