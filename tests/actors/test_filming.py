"""Films beside the training: which evaluations are filmed; nothing else changes, and an error ends nothing."""

import resource
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest

from distrl.actors.filming import Films
from distrl.actors.published_evaluator import PublishedEvaluator
from distrl.environments.films import _pictures_in as pictures_in
from distrl.environments.vector import VectorEnvironment
from distrl.environments.worlds.toy import Bandit
from tests.actors.test_published_evaluator import World

pytest.importorskip("cv2")


class Noise(Bandit):
    """Shows pictures that cannot be compressed."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 12}

    def __init__(self, means=(0.0, 0.5, 1.0), render_mode=None):
        super().__init__(means)
        self.render_mode = render_mode

    def render(self):
        return np.random.default_rng(0).integers(0, 255, (120, 160, 3), np.uint8)


class Filmed(World):
    def __init__(self, directory, films, **evaluation):
        super().__init__(every_env_steps=100, films=films, **evaluation)
        environment = self.config.environment.model_copy(update={"id": f"{__name__}:Noise"})
        self.config = self.config.model_copy(update={"environment": environment})
        self.directory, self.reports = directory, []

    def evaluator(self, after=0):
        films = None
        if self.config.evaluation.films.used:
            films = Films(self.config.evaluation, self.config.environment, self.directory, self.reports.append)
        environment = VectorEnvironment(self.config.environment, self.config.evaluation.environments_used)
        incarnation = self.backend.registry.register("evaluator")
        return PublishedEvaluator(self.config, self.backend, self.policy, environment, after, incarnation, films)

    def evaluate(self, evaluator, *told):
        """Evaluate weights that take an arm, after so many steps each."""
        for env_steps, arm in told:
            self.publish(env_steps, arm)
            assert evaluator.evaluate()

    @property
    def films(self):
        return sorted(path.name for path in self.directory.iterdir())


@pytest.mark.row("M05")
def test_every_nth_evaluation_is_filmed_and_a_film_of_another_launch_stays(tmp_path):
    world = Filmed(tmp_path / "films", {"every": 2})
    evaluator = world.evaluator()
    world.evaluate(evaluator, (110, 0), (200, 0), (250, 0), (390, 0), (401, 0))  # at 250 an operator asked for it
    assert world.films == ["steps-000000110.webm", "steps-000000390.webm"]
    assert pictures_in(world.directory / "steps-000000390.webm") == 2  # after the reset and after the only step
    (world.directory / "steps-000000510.webm").write_text("of another launch")
    world.evaluate(world.evaluator(after=401), (450, 0), (510, 0))
    assert world.films[-2:] == ["steps-000000510-2.webm", "steps-000000510.webm"]
    assert (world.directory / "steps-000000510.webm").read_text() == "of another launch"
    assert world.reports == []


@pytest.mark.row("P06")
def test_the_best_evaluation_is_filmed_only_when_it_is_new(tmp_path):
    world = Filmed(tmp_path, {"best": True})
    evaluator, best = world.evaluator(), tmp_path / "best.webm"

    def filmed(env_steps, arm):
        best.unlink(missing_ok=True)
        world.evaluate(evaluator, (env_steps, arm))
        return best.exists()

    assert [filmed(100, 0), filmed(200, 0), filmed(300, 2), filmed(400, 0), filmed(500, 2)] == [1, 0, 1, 0, 0]
    other = Filmed(tmp_path, {"best": True})
    other.backend.registry.restore_evaluated(0, 1.0)  # of an earlier launch
    other.evaluate(other.evaluator(), (100, 2))
    assert not best.exists()
    arms = Filmed(tmp_path, {"best": True}, best_by="success")  # which falls where the return rises
    found = iter([0.25, 0.5, 0.375])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("distrl.actors.evaluator.success_rate", lambda episodes: next(found))
        evaluator, filmed_at = arms.evaluator(), []
        for env_steps, arm in ((100, 1), (200, 0), (300, 2)):
            best.unlink(missing_ok=True)
            arms.evaluate(evaluator, (env_steps, arm))
            filmed_at.append(best.exists())
    assert filmed_at == [True, True, False]
    best.unlink(missing_ok=True)
    unknown = Filmed(tmp_path, {"best": True}, best_by="success")  # of which this environment says nothing
    unknown.evaluate(unknown.evaluator(), (100, 2))
    assert not best.exists()
    assert [(one.best_by, one.score) for one in unknown.told] == [("success", None)]


def test_one_that_is_both_has_two_films_and_the_oldest_go(tmp_path):
    world = Filmed(tmp_path, {"every": 1, "best": True, "keep": 2})
    world.evaluate(world.evaluator(), (100, 0), (200, 0), (300, 2))
    assert world.films == ["best.webm", "steps-000000200.webm", "steps-000000300.webm"]
    assert (tmp_path / "best.webm").read_bytes() == (tmp_path / "steps-000000300.webm").read_bytes()


def test_what_a_killed_evaluator_was_filming_is_removed_by_the_next_one(tmp_path):
    (tmp_path / ".tmp-steps-000000100.webm").write_text("half of a film")
    (tmp_path / "steps-000000050.webm").write_text("a film")
    world = Filmed(tmp_path, {"every": 1})
    world.evaluator()
    assert world.films == ["steps-000000050.webm"]


def test_filming_changes_no_evaluation(tmp_path):
    def told(films):
        world = Filmed(tmp_path, films, episodes=40, epsilon=0.5)
        world.evaluate(world.evaluator(), (100, 1), (200, 1), (300, 1))
        return [replace(evaluation, wall_s=0.0) for evaluation in world.told]

    assert told({}) == told({"every": 1, "best": True})
    assert len({evaluation.mean_return for evaluation in told({})}) > 1  # so that an exchange of seeds would show


def test_a_film_that_is_cut_short_is_dropped_and_the_evaluation_counts(tmp_path):
    world = Filmed(tmp_path, {"best": True}, episodes=1, environments=1)
    evaluator = world.evaluator()
    world.publish(100)
    asked = iter([False, True])  # before the step of the evaluation, and of the film
    assert evaluator.evaluate(lambda: next(asked))
    assert (len(world.told), world.films, world.reports) == (1, [], [])


def test_a_film_that_cannot_be_made_is_reported_once_and_ends_nothing(tmp_path):
    directory = tmp_path / "films"
    directory.write_text("a file")
    world = Filmed(directory, {"every": 1})
    evaluator = world.evaluator()
    world.evaluate(evaluator, (100, 0), (200, 0))
    (told,) = world.reports
    assert told.startswith("no film of the evaluation at 100 steps: ")
    assert "File exists" in told
    directory.unlink()
    world.evaluate(evaluator, (300, 0))
    assert (world.reports[1:], world.films) == ([""], ["steps-000000300.webm"])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (9_000, before[1]))  # as a full disk: OpenCV raises nothing
        world.evaluate(evaluator, (400, 0), (500, 0))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [told.partition(": ")[0] for told in world.reports[2:]] == ["no film of the evaluation at 400 steps"]
    assert world.reports[2].endswith("of 2 pictures could be written; is the disk full?")
    assert world.films == ["steps-000000300.webm"]
    assert [one.env_steps for one in world.told] == [100, 200, 300, 400, 500]
