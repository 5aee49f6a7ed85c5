import json

import pytest

from benchmarks.offline import measure
from benchmarks.offline.cells import Cell
from benchmarks.offline.measure import evaluations, newest_checkpoint, parts_of, sets_of
from benchmarks.offline.settings import ALGORITHMS, OFFLINE, ONLINE, RECORDED, SQUASHED
from distrl.config.load import load

PART = {"name": "hopper/medium-v0", "episodes": 7, "rows": 900, "mean_return": 300.0}


def config(settings):
    return load(sets=[f"{path}={json.dumps(value)}" for path, value in settings.items()]).config


def test_each_evaluation_counts_once(tmp_path):
    path = tmp_path / "metrics.csv"
    rows = ["10,,", "20,15,1.5", "30,15,1.5", "40,35,2.5"]
    path.write_text("\n".join(["env_steps,evaluation_env_steps,evaluation_mean_return", *rows]) + "\n")
    assert evaluations(path) == [(15, 1.5), (35, 2.5)]


def test_medium_expert_is_both_sets_and_medium_replay_what_sac_recorded():
    entries = {
        "sac-hopper": {"parts": [{**PART, "name": "hopper/replay-v0"}]},
        "record-hopper-medium": {"parts": [PART]},
        "record-hopper-expert": {"parts": [{**PART, "name": "hopper/expert-v0"}]},
    }
    found = {name: parts_of(Cell("offline", "Hopper-v5", name), entries) for name in ("medium-expert", "medium-replay")}
    assert {name: sets_of(parts) for name, parts in found.items()} == {
        "medium-expert": [{"name": "hopper/medium-v0", "episodes": 7}, {"name": "hopper/expert-v0", "episodes": 7}],
        "medium-replay": [{"name": "hopper/replay-v0", "episodes": 7}],
    }


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_offline_training_is_one_process_with_the_settings_of_its_paper(algorithm):
    found = config(measure._offline_settings(algorithm, [PART]))
    assert (found.algorithm.name, found.actors.count, found.launch.mode) == (algorithm, 0, "here")
    assert (found.learner.batch_size, found.algorithm.discount) == (256, 0.99)
    assert (found.network.middleware_parameters.scheme, found.stop.updates) == ((256, 256), OFFLINE["stop.updates"])
    assert [(each.name, each.episodes) for each in found.data.sets] == [("hopper/medium-v0", 7)]


def test_sac_makes_one_update_of_256_transitions_for_each_step_also_beside_data():
    alone = config({**RECORDED, "environment.id": "Hopper-v5", "recording.name": "hopper/replay"})
    beside = config({**ONLINE, "environment.id": "Hopper-v5", "data.sets": sets_of([PART])})
    for found in (alone, beside):
        assert found.algorithm.replay.samples_per_insert == found.learner.batch_size
    assert beside.learner.batch_size + beside.data.items_beside(beside.learner.batch_size) == 256
    policy = config({**measure._offline_settings("iql", [PART]), **SQUASHED}).network.heads_parameters
    assert [(each.kind, each.distribution) for each in policy] == [("policy", "squashed_gaussian")]


def test_the_expert_begins_in_a_directory_of_its_own_with_the_newest_checkpoint(tmp_path):
    for updates in (200, 1_000):
        (tmp_path / "run" / "checkpoints" / f"ckpt-{updates:012}").mkdir(parents=True)
    assert newest_checkpoint(tmp_path / "run") == f"{tmp_path}/run@1000"


@pytest.mark.parametrize(("exit_code", "ended"), [(None, False), (0, True), (1, False), (130, True)])
def test_a_training_that_failed_is_no_finished_one(tmp_path, exit_code, ended):
    if exit_code is not None:
        (tmp_path / "summary.json").write_text(json.dumps({"exit_code": exit_code}))
    assert measure._has_ended(tmp_path) == ended
