"""Populations of members that train and answer as a test says, without processes."""

import contextlib
import json
import os
import signal
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from distrl.apps.config.configuration import load
from distrl.apps.experiments import evolving
from distrl.apps.experiments.directory import SweepDirectory
from distrl.apps.experiments.evolving import check_population, evolve, outcome_lines
from distrl.apps.experiments.population_picture import draw_picture
from distrl.apps.experiments.population_record import Lesson, open_record, read_record
from distrl.apps.experiments.search import Search
from distrl.config.load import validated
from distrl.errors import ConfigError, DistrlError, MemoryBackendError
from tests.apps.experiments.trainings import Trainings

RATE, WEIGHT = "network.learning_rate", "algorithm.entropy_weight"
STALENESS = "algorithm.max_staleness_updates"
VARY = {RATE: {"low": 1e-4, "high": 1e-2, "log": True}, WEIGHT: [0.0, 0.01, 0.1]}
NAMES = ["0001", "0002", "0003"]
FOUR = [*NAMES, "0004"]


class Members(Trainings):
    """Members that make 60 steps at each look and end at 600, or as `ends` says; each has a return of its own.

    Attributes:
        told: Member -> requests, in order.
        refuses: Members that refuse networks.
        busy: Members that answer nothing.
        away: Members -> the number of attempts at which they cannot be reached.
    """

    def __init__(self, place, returns=(1.0, 2.0, 3.0), ends=None):
        super().__init__(ends)
        self.place, self.returns = place, dict(zip(FOUR, returns, strict=False))
        self.steps, self.told, self.refuses, self.away = {}, {name: [] for name in FOUR}, set(), {}
        self.busy = set()
        self.settings = {}

    def start(self, name, arguments, log, inherited):
        super().start(name, arguments, log, inherited)
        self.settings[name] = [argument for argument in arguments if argument.startswith((RATE, WEIGHT))]
        newest = self.place.path / name / "checkpoints" / "ckpt-000000000001"
        newest.mkdir(parents=True, exist_ok=True)

    def ended(self):
        for name in self.running:
            steps = self.steps[name] = self.steps.get(name, 0) + 60
            mean = "" if self.returns.get(name) is None else self.returns[name]
            table = f"env_steps,episodes,mean_return_100\n{steps},{steps // 2},{mean}\n"
            (self.place.path / name / "metrics.csv").write_text(table)
        done = {name: self.ends.get(name, self._end(name)) for name in FOUR}
        self.ends, kept = done, self.ends
        yield from super().ended()
        self.ends = kept

    def _end(self, name):
        ends = {"env_steps": self.steps.get(name, 0), "mean_return_100": self.returns.get(name)}
        return ends if self.steps.get(name, 0) >= 600 or self.stopped else None

    def stop(self, name=None):
        super().stop(name)
        self.ends |= {name: {"stop_reason": "SIGTERM"} for name in self.running}

    @contextlib.contextmanager
    def steering(self, target, by):
        name = target.name
        if name not in self.running or self.away.get(name, 0) > 0:
            self.away[name] = self.away.get(name, 0) - 1
            raise MemoryBackendError(f"{name} is away")

        def note(*request):
            self.told[name].append(request)
            return len(self.told[name])

        def is_done(errand, number):
            if errand == "networks" and name in self.refuses:
                raise ConfigError("networks not taken: they do not fit")
            return name not in self.busy

        yield SimpleNamespace(
            change=lambda values: note("change", values),
            checkpoint=lambda: note("checkpoint"),
            take_networks=lambda checkpoint: note("networks", checkpoint),
            is_done=is_done,
        )


@pytest.fixture
def launch(tmp_path, monkeypatch):
    """launch(members, **population) -> (exit code, lines, record)."""
    place = SweepDirectory(tmp_path / "search", "search.yaml")

    def run(trained, minutes=None, vary=VARY, sets=(), **population):
        section = {"members": 3, "every_env_steps": 300, "share": 0.3, "redraw": 0.0, **population}
        search = validated(Search, {"vary": vary, "population": section, "minutes": minutes}, {})
        if not place.exists:
            place.create(search, load(sets=[*sets]))
        monkeypatch.setattr(evolving, "Pool", trained)
        monkeypatch.setattr(evolving, "_POLL_S", 0.0)
        monkeypatch.setattr(
            evolving, "open_run", lambda run: SimpleNamespace(steering=lambda by: trained.steering(run, by))
        )
        said = []
        run.search = search
        code = evolve(search, place, said.append)
        return code, said, read_record(place)

    run.place = place
    return run


def test_the_worst_takes_over_from_the_best_at_the_right_steps(launch):
    members = Members(launch.place)
    code, said, record = launch(members)
    assert (code, members.started, members.at_once) == (0, NAMES, 3)
    (first,) = record.lessons
    assert (first.member, first.env_steps, first.score) == ("0001", 300, 1.0)
    assert (first.teacher, first.teacher_score) == ("0003", 3.0)
    assert first.checkpoint == "0003/checkpoints/ckpt-000000000001"
    best = record.members["0003"].values
    assert first.after[RATE] in (0.8 * best[RATE], 1.25 * best[RATE]) or first.after[RATE] in (1e-4, 1e-2)
    assert (launch.place.path / first.checkpoint).resolve() == members.told["0001"][1][1]
    assert members.told["0001"][1:4] == [
        ("networks", (launch.place.path / first.checkpoint).resolve()),
        ("change", first.after),
        ("checkpoint",),
    ]
    assert members.told["0002"] == [("change", record.members["0002"].values)]
    assert ("checkpoint",) in members.told["0003"]  # its newest networks are taken
    assert record.members["0001"].values == first.after
    assert record.under_way == {}
    assert any(
        line.startswith("0001 at 300 steps (1.00) takes over from 0003 (3.00) and goes on with") for line in said
    )
    index = {run["run"]: run for run in json.loads((launch.place.path / "sweep.json").read_text())["runs"]}
    assert {name: index[name]["settings"] for name in NAMES} == {
        name: member.values for name, member in record.members.items()
    }
    assert outcome_lines(launch.place)[0].startswith("0003          3.00 after 600 steps  network.learning_rate=")
    tree = yaml.safe_load((launch.place.path / "best.yaml").read_text())
    assert tree["network"]["learning_rate"] == best[RATE]
    none = Members(launch.place)
    assert launch(none)[0] == 0
    assert none.started == []


def test_networks_that_were_taken_over_have_no_score_until_they_have_episodes_of_their_own(launch):
    """The member keeps its rank meanwhile: 0002 does not become the worst in its place."""
    _, _, record = launch(Members(launch.place), every_env_steps=70)
    assert {lesson.member for lesson in record.lessons} == {"0001"}
    steps = [lesson.env_steps for lesson in record.lessons]
    assert steps[0] == 120
    assert len(steps) > 1
    assert all(later - earlier >= 120 for earlier, later in pairwise(steps))  # 60 steps are 30 episodes


def test_equal_scores_and_members_without_an_episode_change_nothing(launch):
    _, _, record = launch(Members(launch.place, returns=(None, 2.0, 2.0)))
    assert record.lessons == []
    assert record.members["0001"].score is None
    assert outcome_lines(launch.place)[2].startswith("0001       unknown after 600 steps")


def test_evaluations_count_alone_where_there_are_any(launch):
    _, _, record = launch(Members(launch.place), sets=["evaluation.every_env_steps=100"])
    assert [member.score for member in record.members.values()] == [None, None, None]
    assert record.lessons == []


def test_a_member_that_fails_goes_on_and_is_given_up_if_it_comes_no_further(launch):
    ends = {"0001": {"exit_code": 5, "error": "losses are not finite", "stop_reason": "failed"}}
    members = Members(launch.place, ends=ends)
    start = members.start

    def began(name, arguments, log, inherited):
        start(name, arguments, log, inherited)
        members.steps[name] = min(members.steps.get(name, 0), 120)  # from its checkpoint

    members.start = began
    code, said, _ = launch(members)
    assert (code, members.started.count("0001"), members.started.count("0002")) == (0, 6, 1)
    assert said.count("0001: losses are not finite; it goes on from its last checkpoint") == 5
    assert "0001: FAILED: losses are not finite; the next launch tries again" in said
    again = Members(launch.place)
    assert launch(again)[0] == 0
    assert again.started == ["0001"]


def test_if_every_member_fails_the_exit_code_is_1(launch):
    members = Members(launch.place, ends={name: {"exit_code": 2, "log": "distrl: error: no\n"} for name in NAMES})
    members.steps = dict.fromkeys(NAMES, -60)
    start = members.start
    members.start = lambda name, *rest: (start(name, *rest), members.steps.update({name: -60}))
    code, said, _ = launch(members)
    assert (code, len(members.started)) == (1, 3 * evolving.FRUITLESS)
    assert sum(": FAILED: " in line for line in said) == 3


def test_a_member_that_another_program_stops_goes_on_with_the_next_launch(launch):
    members = Members(launch.place, ends={"0002": {"stop_reason": "SIGTERM"}})
    code, said, _ = launch(members)
    assert (code, members.started) == (0, NAMES)
    assert "0002: stopped at 60 steps (SIGTERM); it goes on with the next launch" in said
    again = Members(launch.place)
    launch(again)
    assert again.started == ["0002"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_stops_all_and_the_next_launch_has_settings_and_lessons(launch, number, code):
    members = Members(launch.place)
    look = members.ended

    def interrupted():
        if members.steps.get("0001", 0) == 360 and not members.stopped:
            os.kill(os.getpid(), number)
        yield from look()

    members.ended = interrupted
    found, said, record = launch(members)
    assert found == code
    assert sum(line.endswith("it goes on with the next launch") for line in said) == 3
    (lesson,) = record.lessons
    again = Members(launch.place)
    again.steps = dict(members.steps)
    found, _, record = launch(again)
    assert (found, again.started) == (0, NAMES)
    assert record.lessons[0] == lesson
    assert again.settings["0001"] == [f"{path}={json.dumps(value)}" for path, value in lesson.after.items()]
    assert again.told["0001"][0] == ("change", lesson.after)


def test_when_the_minutes_are_over_all_are_stopped(launch):
    code, said, _ = launch(Members(launch.place), minutes=1e-9)
    assert code == 0
    assert "the 1e-09 minutes are over: stopping 3 members after a last checkpoint …" in said


def test_a_member_that_cannot_be_reached_takes_over_later_and_a_teacher_has_a_checkpoint_anyway(launch):
    members = Members(launch.place)
    look = members.ended

    def lost():
        members.away |= {"0001": 2, "0003": 999} if members.steps.get("0003") == 240 else {}
        yield from look()

    members.ended = lost
    _, _, record = launch(members)
    assert (record.lessons[0].member, record.lessons[0].teacher) == ("0001", "0003")
    assert record.lessons[0].env_steps > 300
    assert ("checkpoint",) not in members.told["0003"]


def test_networks_that_do_not_fit_change_nothing(launch):
    members = Members(launch.place)
    members.refuses = {"0001"}
    _, said, record = launch(members)
    assert (record.lessons, record.under_way) == ([], {})
    assert "0001 does not learn from 0003: networks not taken: they do not fit" in said
    assert members.told["0001"][-1] == ("change", record.members["0001"].values)


def test_one_that_answers_nothing_keeps_no_other_from_learning(launch):
    """It ends before its networks are replaced."""
    members = Members(launch.place, returns=(1.0, 2.0, 3.0, 4.0))
    members.busy = {"0001"}
    _, _, record = launch(members, members=4, share=0.5)
    assert {lesson.member for lesson in record.lessons} == {"0002"}
    assert ("checkpoint",) not in members.told["0001"]
    assert record.under_way == {}


def test_a_lesson_that_was_cut_short_is_repeated(launch):
    """The command was killed after it had requested the networks."""
    search = validated(Search, {"vary": VARY, "population": {"members": 3}}, {})
    launch.place.create(search, load())
    record = open_record(search, launch.place)
    before, after = record.members["0001"].values, {RATE: 1e-3, WEIGHT: 0.1}
    record.under_way["0001"] = Lesson(0.0, "0001", 300, 1.0, "0002", 2.0, "0002/checkpoints/c", before, after)
    record.write(launch.place)
    members = Members(launch.place, returns=(None, None, None))
    _, _, record = launch(members)
    assert members.settings["0001"] == [f"{path}={json.dumps(value)}" for path, value in before.items()]
    assert [request[0] for request in members.told["0001"]] == ["networks", "change", "checkpoint"]
    assert (record.members["0001"].values, record.under_way) == (after, {})
    assert [lesson.after for lesson in record.lessons] == [after]


def test_a_full_disk_ends_the_launch_in_one_line(launch, monkeypatch):
    def full(path, content, **_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("distrl.apps.experiments.population_record.put_file", full)
    with pytest.raises(
        DistrlError, match=r"population\.json cannot be written: No space left on device; make room and"
    ):
        launch(Members(launch.place))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "Invalid JSON"),
        ('{"vary": {}, "members": {}}', "population.members is 3, and the population in .* has 0"),
        ('{"vary": {}, "members": {"0001": {"values": 1, "next_at": 1}}}', "members.0001.values: "),
        ('{"members": {}}', "vary: Field required"),
    ],
)
def test_a_damaged_record_is_one_line(launch, text, told):
    launch(Members(launch.place))
    path = launch.place.path / "population.json"
    path.write_text(text.replace('"vary": {}', f'"vary": {json.dumps(asdict(read_record(launch.place))["vary"])}'))
    with pytest.raises(ConfigError, match=told) as refused:
        launch(Members(launch.place))
    assert "\n" not in str(refused.value)


def test_another_population_is_refused(launch):
    launch(Members(launch.place))
    with pytest.raises(ConfigError, match=r"population.members is 4, and the population in .* has 3; go on with these"):
        launch(Members(launch.place), members=4)
    with pytest.raises(ConfigError, match=r"vary \(from file .*search\.yaml\) has changed since the population began"):
        launch(Members(launch.place), vary={RATE: [1e-3, 1e-4]})
    (launch.place.path / "population.json").unlink()
    with pytest.raises(ConfigError, match=r"search holds runs and no population\.json; begin the population elsewhere"):
        launch(Members(launch.place))


@pytest.mark.parametrize(
    ("vary", "sets", "told"),
    [
        (VARY, ["actors.count=0"], "population: members are steered while they train, which needs actors.count >= 1"),
        ({"learner.batch_size": [1, 2]}, [], r"vary.learner.batch_size: it cannot change while a member trains; these"),
        ({RATE: [1e-3, -1.0]}, [], "network.learning_rate: -1.0 .* must be greater than 0"),
        ({STALENESS: {"low": 1, "high": 8.0}}, [], "max_staleness_updates: .* must be a valid integer"),
        ({RATE: {"low": -1.0, "high": 1.0}}, [], "network.learning_rate: -1.0 .* must be greater than 0"),
    ],
)
def test_settings_that_cannot_change_are_found_before_anything_is_trained(vary, sets, told):
    base = load(flags={"--env": "CartPole-v1"}, sets=["algorithm.max_staleness_updates=4", *sets])
    with pytest.raises(ConfigError, match=told):
        check_population(validated(Search, {"vary": vary, "population": {}}, {}), base)


def test_the_picture_has_scores_and_settings(launch):
    pytest.importorskip("matplotlib")
    launch(Members(launch.place, returns=(None, None, None)))
    assert draw_picture(launch.search, launch.place) == []
    for name in NAMES:
        (launch.place.path / name / "summary.json").unlink()
    launch(Members(launch.place))
    (picture,) = draw_picture(launch.search, launch.place)
    text = Path(picture).read_text()
    assert all(name in text for name in ("mean_return_100", RATE, WEIGHT, *NAMES))
