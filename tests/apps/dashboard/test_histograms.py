import numpy as np
import pytest

from distrl.apps.dashboard.files import NotThereError, id_of
from distrl.apps.dashboard.histograms import heat_map_of, tags_of
from distrl.metrics.event_file import EventFile


@pytest.fixture
def run(make_run):
    folder = make_run("a")
    file = EventFile(folder / "tensorboard" / "learner")
    for step in (10, 20):
        file.histogram("variables/w", np.linspace(-1.0, 1.0, 100), step)
    file.close()
    return folder


def test_a_run_has_its_tags_and_a_heat_map_of_each(run, page):
    client = page()
    address = f"/api/runs/{id_of('a')}/histograms"
    assert client.get(address).json() == {"tags": ["variables/w"], "complete": True}
    told = client.get(address, params={"tag": "variables/w"}).json()
    assert (told["steps"], told["count"], told["complete"]) == ([10, 20], 2, True)
    assert len(told["edges"]) == len(told["shares"][0]) + 1
    assert sum(told["shares"][0]) == pytest.approx(1.0, abs=1e-3)
    answer = client.get(address, params={"tag": "none_such"})
    assert (answer.status_code, answer.json()) == (404, {"error": "the run has no histogram of 'none_such'"})


def test_files_outside_of_the_run_are_not_read(run, tmp_path):
    (run / "tensorboard" / "learner").rename(tmp_path / "learner")
    (run / "tensorboard" / "learner").symlink_to(tmp_path / "learner")
    assert tags_of(run) == {"tags": [], "complete": True}
    with pytest.raises(NotThereError):
        heat_map_of(run, "variables/w")
