"""Every way to begin, as docs/runs.md lists them: what the learner has before its first update, and the notes."""

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import distrl
from distrl.data_store.checkpoints import load
from distrl.launch import deterministic
from distrl.learner.origin import Place
from distrl.learner.preparation import Parts, prepare
from distrl.roles.description import RunDescription
from distrl.terminal.console import PlainView

LAST = 6  # updates of the first training; it saves after each


class PreparedError(Exception):
    """The learner has been prepared; the training is not needed."""


class Way(NamedTuple):
    """A way to begin, and what the learner has then.

    Attributes:
        resume: As `train` takes it; RUN and STORE stand for those of the first training. None: a new run.
        here: Whether it begins in the directory of the first training, not in an empty one.
        kind: That of the plan; None: another learner of the first launch begins.
        update: Updates that its counters, its schedules and its best score belong to; 0: they begin anew.
        weights: Updates of the checkpoint that has its weights; 0: they are fresh.
        optimizer: Number of the optimizer's steps.
        replay: Whether it has the replay memory, with the generator of its draws.
        notes: Parts of the lines for the operator, in this order.
        note: The beginning of what the learner reports; None: nothing.
    """

    resume: str | None = None
    here: bool = False
    kind: str | None = "new"
    update: int = 0
    weights: int = 0
    optimizer: int = 0
    replay: bool = False
    notes: tuple[str, ...] = ()
    note: str | None = None


ALL = {"update": LAST, "weights": LAST, "optimizer": LAST, "replay": True}
RESUMED = f"resuming from ckpt-{LAST:012d} (update {LAST})"
WAYS = {
    "`distrl train`": Way(),
    "`--resume auto` without a checkpoint": Way("auto", notes=("no checkpoint in", "starting from the beginning")),
    "`--resume auto`": Way("auto", here=True, kind="resumed", **ALL, notes=(RESUMED,)),
    "`--resume RUN`": Way("RUN", here=True, kind="resumed", **ALL, notes=(RESUMED,)),
    "`--resume RUN@STEP`": Way(
        *("RUN@5", True, "resumed", 5, 5, 5),
        notes=(
            "resuming from ckpt-000000000005 (update 5)",
            "1 later checkpoint is set aside: distrl train --run-id NAME --resume",
            "the replay memory begins empty, and nothing is learned until it has filled again: there is no replay-",
        ),
    ),
    "`--resume STORE/RUN`": Way(
        "STORE", kind="resumed", **ALL, notes=(f"fetched checkpoint 000001-{LAST:012d} from the data store", RESUMED)
    ),
    "`--resume RUN@STEP --run-dir OTHER`": Way(
        f"RUN@{LAST}", kind="branched", **ALL, notes=(RESUMED, "a new run with all the state of ")
    ),
    "`--init-from RUN`": Way(kind="warm", weights=LAST, note="begins with the weights of "),
    "a learner that is started again": Way(here=True, kind=None, **ALL),
    "a learner without the run's directory": Way(
        *(None, False, None, LAST, LAST),
        note=f"goes on from the published weights (version {LAST + 1}, update {LAST}): no checkpoint of the run is in ",
    ),
}


def config(store: str, init_from: Path | None = None):
    return distrl.load(
        {
            "environment": {"id": "distrl.environments.worlds.toy:Identity", "kwargs": {"n": 2, "length_steps": 3}},
            "network": {"middleware_parameters": {"scheme": [4]}, "learning_rate": 0.01},
            "algorithm": {
                "name": "dqn",
                "replay": {"capacity_steps": 256, "samples_per_insert": 1, "min_size_steps": 8},
            },
            "learner": {"batch_size": 4, "init_from": None if init_from is None else str(init_from)},
            "actors": {"count": 0, "environments": 2, "unroll_length_steps": 4},
            "checkpoint": {"every_updates": 1, "every_s": None, "keep": 9, "store": store},
            "evaluation": {"every_env_steps": 8, "episodes": 1},
            "stop": {"updates": LAST},
        }
    )


class First(NamedTuple):
    """A training that has ended: its directory, its store, its learner as it was, and what that was made of."""

    folder: Path
    made: Parts
    arguments: tuple[Any, ...]


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    folder, seen = tmp_path_factory.mktemp("ways"), []

    def keep(*arguments):
        seen.append((prepare(*arguments), arguments))
        return seen[-1][0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deterministic, "prepare", keep)
        summary = distrl.train(config(f"file://{folder}/store"), run_dir=folder / "run", run_id="r1", view="silent")
    assert (summary.exit_code, summary.updates) == (0, LAST)
    return First(folder, *seen[0])


@pytest.fixture
def first(ended, tmp_path):
    """The training's directory and store in a place of its own."""
    for name in ("run", "store"):
        shutil.copytree(ended.folder / name, tmp_path / name)
    return ended._replace(folder=tmp_path)


@pytest.fixture
def begin(first, monkeypatch):
    """Begins in one of the ways; the learner before its first update, its plan, and the lines for the operator."""
    seen = []

    def only(*arguments):
        seen.append((prepare(*arguments), arguments[-1]))
        raise PreparedError

    def launched(way):
        store, lines = f"file://{first.folder}/store", []
        resume = way.resume and way.resume.replace("RUN", str(first.folder / "run")).replace("STORE", f"{store}/r1")
        monkeypatch.setattr(deterministic, "prepare", only)
        with pytest.raises(PreparedError):
            distrl.train(
                config(store, first.folder / "run" if way.kind == "warm" else None),
                run_dir=first.folder / ("run" if way.here else "other"),
                resume=resume,
                run_id=None if way.kind == "resumed" else "r2",
                view=PlainView(write=lines.append),
            )
        made, backend = seen[0]
        return made, RunDescription.model_validate_json(backend.config_json()).start, "\n".join(lines)

    def another(way):
        given, spec, _, run_id, backend = first.arguments
        without_store = given.model_copy(update={"checkpoint": given.checkpoint.model_copy(update={"store": None})})
        place = Place(first.folder / ("run" if way.here else "elsewhere"), own=way.here)
        # As the first learner of a later launch does.
        backend.registry.restore_evaluated(0, first.made.state.best_score)
        return prepare(without_store, spec, place, run_id, backend), None, ""

    yield lambda way: another(way) if way.kind is None else launched(way)
    for made, _ in seen:
        if made.mirror is not None:
            made.mirror.close()


def equal(arrays, others):
    return all(np.array_equal(arrays[name], others[name]) for name in arrays)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_way_to_begin(begin, first, way):
    made, plan, told = begin(way)
    if plan is not None:
        assert (plan.kind, plan.update) == (way.kind, way.update)
        assert (made.state.run_id == "r1") == (way.kind == "resumed")
    main, state = made.networks["main"], made.state
    saved = {int(path.name[5:]): path for path in first.folder.glob("run/**/ckpt-*")}
    assert len(saved) == LAST
    weights = main.online.named_weights()
    assert [step for step, path in saved.items() if equal(weights, load(path).arrays["main.online"])] == (
        [way.weights] if way.weights else []
    )
    assert int(main.state_arrays()["optimizer"]["optimizer/iteration"]) == way.optimizer
    before = load(saved[way.update]).meta if way.update else {"env_steps": 0, "episodes": 0, "best_score": None}
    assert (state.updates, state.env_steps, state.episodes) == (way.update, before["env_steps"], before["episodes"])
    assert state.best_score == before["best_score"]
    assert made.replay.is_empty != way.replay
    if way.replay:
        assert equal(made.replay.state_arrays(), first.made.replay.state_arrays())
    at = 0
    for note in way.notes:
        assert note in told[at:], told
        at = told.index(note, at)
    assert (made.origin.note or "").startswith(way.note or "")
    assert (made.origin.note is None) == (way.note is None)


def test_the_documentation_has_these_ways():
    page = (Path(__file__).parents[2] / "docs" / "runs.md").read_text()
    table = page.partition("| Way to begin |")[2].partition("\n\n")[0]
    assert [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines()[2:]] == [*WAYS]
