import pytest

from distrl.apps.dashboard.severities import severity


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("run a in runs/a", "info"),
        ("evaluation at 31,559 steps: return 67.1 ± 16.1 over 20 episodes", "info"),
        ("asked: pause (by ada@host, dashboard)", "info"),
        ("asked: end without an evaluation of the last weights: none within 60 s (by learner)", "warning"),
        ("actor 0 ended (signal 9); starting again in 1.0 s", "bad"),
        ("actor 0 started again (restart 1)", "warning"),
        ("learner started again (restart 1)", "warning"),
        ("nothing learned for 40 s: learner training", "bad"),
        ("learning again after 41 s", "info"),
        ("no checkpoint can be written: disk full", "bad"),
        ("checkpoints are written again", "info"),
        ("the data store lacks the newest checkpoint: away; it is tried again", "warning"),
        ("Redis has failed over or was restarted (1 so far), and may have lost its last writes", "bad"),
        ("1,200 unrolls were lost to a fail-over of Redis", "bad"),
        ("evaluator: no film of the evaluation at 5 steps: disk full", "warning"),
        ("not scaled to 9 actors: more than allowed", "warning"),
        ("no place for actor 3: needs 1 core", "warning"),
        ("actor 2, joined by hand, has been silent for 30 s: forgotten", "warning"),
        ("rounds go on without 1, 2", "warning"),
        ("rounds have every worker again", "info"),
        ("ignored an entry in Redis that distrl has not written: another program", "warning"),
        ("passed over ckpt-000000000009: damaged", "warning"),
        ("stopping: asked", "info"),
        ("stopping: interrupted", "warning"),
        ("the learner goes on from update 5", "info"),
    ],
)
def test_severities(text, found):
    assert severity(text) == found
