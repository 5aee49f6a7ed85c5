import pytest

from distrl.apps.dashboard.headline import Facts, SuggestedRequest, first_log, headline
from distrl.config.stop import StopConfig
from distrl.runs.progress import History
from tests.run_folders import summary

ACTORS = {"bottleneck": "actors", "learner_wait_share": 0.41}
ROLES = [
    {"role": "learner", "id": 0, "name": "learner", "state": "training"},
    {"role": "actor", "id": 0, "name": "actor 0", "state": "acting"},
]
SILENT = {
    "role": "actor",
    "id": 1,
    "name": "actor 1",
    "log": "actor-1",
    "state": "acting",
    "silent": True,
    "seen_s": 12.0,
}


def rising():
    """A mean return that gains one a second, and is 371 now."""
    history = History()
    for second in range(10):
        history.add({"wall_s": float(second), "mean_return_100": 362.0 + second})
    return history


def stop(**conditions):
    return StopConfig.model_validate(conditions)


def running(snapshot=None, **facts):
    return headline(Facts("running", {"env_steps": 1000, **(snapshot or {})}, **facts))


@pytest.mark.parametrize(
    ("snapshot", "facts", "sentence", "fraction"),
    [
        (
            {"mean_return_100": 371.0},
            {"stop": stop(mean_return=475), "history": rising()},
            "Running: 78 % to the target 475.0 (mean return 371.0), about 1:44 to go",
            371 / 475,
        ),
        (
            {"evaluation_mean_return": 380.0, "env_steps_per_s": 100.0},
            {"stop": stop(evaluation_return=475, env_steps=2000), "evaluation_std": 4.0},
            "Running: 80 % to the target 475.0 (evaluation 380.0 ± 4.00); the budget of steps ends it in about 10 s",
            0.8,
        ),
        ({}, {"stop": stop(mean_return=475)}, "Running: no mean return yet, target 475.0", None),
        (
            {"mean_return_100": -350.0},
            {"stop": stop(mean_return=-200)},
            "Running: mean return -350.0, target -200.0",
            None,
        ),
        ({}, {"stop": stop(env_steps=4000)}, "Running: 25 % of 4,000 steps (1,000)", 0.25),
        ({"wall_s": 30.0}, {"stop": stop(minutes=2)}, "Running: 25 % of 2 minutes, about 1:30 to go", 0.25),
        ({}, {}, "Running: 1,000 steps, without a stop condition", None),
    ],
)
def test_the_progress_of_a_running_training(snapshot, facts, sentence, fraction):
    told = running(snapshot, **facts)
    assert (told.sentence, told.tone, told.state) == (sentence, "busy", "Running")
    assert told.fraction == (None if fraction is None else pytest.approx(fraction))


def test_before_the_first_update_there_is_no_number():
    told = headline(Facts("running", roles=ROLES, stop=stop(mean_return=475)))
    assert (told.sentence, told.fraction) == ("Starting: learner training, 1 actor acting", None)


@pytest.mark.parametrize(
    ("facts", "step", "words"),
    [
        (
            {"actors": 2, "actors_wanted": 4, "wanted_because": "why"},
            SuggestedRequest("Add an actor", "scale", 3),
            "4 actors would",
        ),
        ({"actors": 4, "actors_wanted": 1}, SuggestedRequest("Remove an actor", "scale", 3), "1 actor is enough"),
        ({"actors": 2, "actors_wanted": 2}, None, "41%"),
        ({"actors": 2, "actors_wanted": 4, "autoscales": True}, None, "chooses its number of actors itself"),
        ({"actors": 2}, None, "41%"),
        ({"actors_wanted": 4}, None, "41%"),
    ],
)
def test_a_step_is_offered_where_the_measured_number_of_actors_differs(facts, step, words):
    told = running(ACTORS, **facts)
    assert told.step == step
    assert words in told.details[-1]
    assert told.details[-1].startswith("Bottleneck: actors: the learner waits for unrolls 41%")


@pytest.mark.parametrize(
    ("snapshot", "rate", "words"),
    [
        (ACTORS, 960.0, "One more actor: about +480 steps/s, if its host has the processor time"),
        ({**ACTORS, "learner_wait_share": 0.1}, 900.0, "One more actor: about +100 steps/s, if its host has"),
        ({"bottleneck": "environment", "learner_wait_share": 0.6}, 5.0, "One more actor: about +2.5 steps/s"),
        ({"bottleneck": "learner"}, 470.0, "More actors will not help: the learner is the bottleneck"),
        (ACTORS, 24690.0, "One more actor: about +12,000 steps/s"),
        (ACTORS, 0.0, ""),
        (ACTORS, None, ""),
        ({"bottleneck": "actors"}, 470.0, ""),
        ({"bottleneck": "-", "learner_wait_share": 0.02}, 470.0, ""),
    ],
)
def test_what_one_more_actor_would_bring(snapshot, rate, words):
    roles = [{**SILENT, "name": f"actor {at}", "silent": at == 2, "seen_s": 9.0} for at in range(3)]
    known = {"roles": roles, "steps_per_s": rate}
    found = [one for one in running(snapshot, **known, actors=3).details if "ore actor" in one]
    assert len(found) == bool(words)
    assert all(one.startswith(words) for one in found)
    assert not any("ore actor" in one for one in running(snapshot, **known).details)  # it starts no actors
    wanted = running(snapshot, **known, actors=3, actors_wanted=4).details
    assert not any("will not help" in one for one in wanted)  # the button beside it says that one more does
    assert not any("ore actor" in one for one in running(snapshot, **known, actors=3, autoscales=True).details)


def test_no_actor_is_advised_on_a_full_host():
    roles = [{"role": "actor", "id": at, "state": "acting", "silent": False} for at in range(2)]
    known = {"roles": roles, "steps_per_s": 960.0, "full": "the 2 cores of hera are 100 % busy"}
    told = running(ACTORS, **known, actors=2, actors_wanted=4)
    assert told.step is None
    assert told.details[-1].endswith(
        "4 actors would serve it, but the 2 cores of hera are 100 % busy: start them on another host"
    )
    assert running(ACTORS, **known, actors=4, actors_wanted=2).step == SuggestedRequest("Remove an actor", "scale", 3)


def test_a_stalled_run_offers_no_actors_and_estimates_no_end():
    known = {"actors": 2, "actors_wanted": 4, "steps_per_s": 960.0, "trouble": "stalled"}
    snapshot = {**ACTORS, "mean_return_100": 371.0, "env_steps_per_s": 100.0}
    aims = {"stop": stop(mean_return=475, env_steps=10**6), "history": rising()}
    told = running(snapshot, **known, **aims, because="No new environment steps for 2:00")
    assert (told.step, told.details) == (None, ("No new environment steps for 2:00",))
    assert told.sentence == "Stalled: 78 % to the target 475.0 (mean return 371.0)"


def test_a_silent_role_is_in_the_sentence():
    told = running(roles=[*ROLES, SILENT], actors=3)
    assert (told.tone, told.state) == ("warn", "Running, with trouble")
    assert told.details == ("actor 1 has been silent for 12 s (was acting)", "2 of 3 actors are there")
    many = running(roles=[{**SILENT, "id": number} for number in range(5)])
    assert many.details[3] == "2 more roles are silent"


def test_a_stalled_or_slow_run_says_so_with_its_numbers():
    told = headline(
        Facts("running", {"env_steps": 1000}, trouble="stalled", because="No new environment steps for 2:00")
    )
    assert (told.tone, told.state) == ("warn", "Stalled")
    assert told.sentence.startswith("Stalled: 1,000 steps")
    assert told.details == ("No new environment steps for 2:00",)
    told = headline(Facts("running", {"env_steps": 1000}, trouble="slow", because="49 steps/s now, 100 before"))
    assert told.sentence.startswith("Slow: 1,000 steps")
    assert told.details == ("49 steps/s now, 100 before",)
    for snapshot in ({}, {"env_steps": 1000}):  # without numbers that say so
        told = headline(Facts("running", snapshot, trouble="stalled"))
        assert (told.tone, told.sentence[:9]) == ("warn", "Stalled: ")


def test_a_paused_run_says_since_when():
    told = running(paused=True, paused_since="2026-01-02 03:04:05")
    assert (told.tone, told.details) == ("warn", ("Actors wait after their current unroll.",))
    assert told.sentence == "Paused since 2026-01-02 03:04:05"
    assert running(paused=True).sentence == "Paused"
    assert running(stopping=True).state == "stopping"


@pytest.mark.parametrize(
    ("changes", "snapshot", "conditions", "tone", "sentence", "resume"),
    [
        (
            {"stop_reason": "evaluation_return"},
            {"evaluation_mean_return": 482.0},
            {"evaluation_return": 475},
            "good",
            "Solved after 3:20: evaluation 482.0 ± 4.00 reached the target 475.0",
            "",
        ),
        (
            {"stop_reason": "metrics"},
            {"info_speed_100": 2.5},
            {"metrics": {"speed": 2.0}},
            "good",
            "Solved after 3:20: speed 2.50 reached the target 2.00",
            "",
        ),
        (
            {"stop_reason": "minutes"},
            {"mean_return_100": 190.0},
            {"mean_return": 475, "minutes": 3},
            "warn",
            "Not solved after 3:20: the time is up; 40 % to the target 475.0 (mean return 190.0)",
            "go on",
        ),
        (
            {"stop_reason": "env_steps"},
            {"mean_return_100": 480.0},
            {"mean_return": 475, "env_steps": 9},
            "good",
            "Ended after 3:20 at its target: the budget of environment steps is spent; "
            "100 % to the target 475.0 (mean return 480.0)",
            "go on",
        ),
        (
            {"stop_reason": "asked"},
            {"mean_return_100": 1.5},
            {},
            "plain",
            "Ended after 3:20: stopped as asked; mean return 1.50",
            "go on",
        ),
        (
            {"stop_reason": "interrupted", "exit_code": 130},
            {},
            {},
            "warn",
            "Interrupted after 3:20; no episode finished",
            "go on",
        ),
    ],
)
def test_how_a_run_has_ended(changes, snapshot, conditions, tone, sentence, resume):
    facts = {"summary": summary(wall_s=200.0, **changes), "stop": stop(**conditions), "resume": "go on"}
    told = headline(Facts("ended", snapshot, evaluation_std=4.0, **facts))
    assert (told.sentence, told.tone, told.command) == (sentence, tone, resume)


@pytest.mark.parametrize(
    ("error", "role"),
    [
        ("learner: unexpected ValueError: x", "learner"),
        ("actor 3 failed 3 times in the same way: no", "actor-3"),
        ("evaluator ended more often than allowed", "evaluator"),
        ("the disk is full", ""),
    ],
)
def test_what_failed(error, role):
    failed = summary(wall_s=5.0, exit_code=3, stop_reason="environment failed", error=error)
    told = headline(Facts("ended", summary=failed, resume="go on"))
    assert told.sentence == f"Failed after 5.0 s: environment failed: {error}"
    assert (told.tone, told.state, told.role, told.command) == ("bad", "failed", role, "go on")


def test_how_long_all_launches_took():
    found = summary(wall_s=60.0, stop_reason="asked", resumed_updates=5)
    told = headline(Facts("ended", summary=found, training_s=600.0))
    assert told.sentence.startswith("Ended after 1:00, 10:00 of training with earlier launches: stopped as asked")


def test_a_run_that_is_gone_has_the_command_that_resumes_it():
    told = headline(Facts("gone", {"env_steps": 1500}, resume="distrl train --resume runs/a"))
    assert told.command == "distrl train --resume runs/a"
    assert told.sentence == (
        "Its process is gone after 1,500 steps, without a summary; resume it from its newest checkpoint"
    )
    assert "no checkpoint" in headline(Facts("gone")).sentence


def test_a_damaged_run_says_why():
    assert headline(Facts("damaged", problem="run.json is damaged")).sentence == "Damaged: run.json is damaged"


def test_the_log_that_is_shown_first():
    failed = headline(Facts("ended", summary=summary(exit_code=3, error="actor 3: no")))
    fine = headline(Facts("ended", summary=summary()))
    names = ["actor-1", "actor-3", "learner"]
    assert first_log(failed, [], names) == "actor-3"
    assert first_log(fine, [SILENT], names) == "actor-1"
    assert first_log(fine, [], names) == "learner"
    assert first_log(failed, [], ["actor-1"]) == "actor-1"
    assert first_log(fine, [], []) == ""
