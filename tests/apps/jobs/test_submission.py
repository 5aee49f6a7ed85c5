import re
import resource
import stat
from contextlib import nullcontext

import pytest

from distrl.apps.config.configuration import load
from distrl.apps.jobs import submission
from distrl.apps.jobs.record import Job, JobRecord
from distrl.apps.jobs.submission import new_run_id, require_free, submit, withdraw_unfinished
from distrl.apps.jobs.target import JobState, NoAnswerError
from distrl.data_store.opening import open_objects
from distrl.errors import ConfigError
from distrl.memory_backend.keys import checked_run_id


class Place:
    """A target that takes every job, or raises; it keeps what it was called with."""

    name = "place"

    def __init__(self, error=None, spoil=None):
        self.error, self.spoil, self.withdrawn = error, spoil, []

    def submit(self, job, record, report):
        assert (job.run_dir / "job.yaml").exists()
        begun = JobRecord.read(job.run_dir)
        assert (begun.run_id, begun.target, begun.handles, begun.complete) == (job.run_id, "place", {}, False)
        record.write(address="head", handles={"learner": "4711"})
        begun = JobRecord.read(job.run_dir)
        assert (begun.content, begun.under_way) == (record.record.content, True)
        (job.run_dir / "logs").mkdir()
        if self.error is not None:
            raise self.error
        if self.spoil is not None:
            self.spoil(job.run_dir)
        report("part 1")

    def withdraw(self, record):
        self.withdrawn.append(record.run_id)

    def state(self, record):
        return self.found


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def job(tmp_path):
    return Job("pong", load(sets=["environment.kwargs={password: s3cret}"]), tmp_path / "runs" / "pong")


def test_a_job_has_a_directory_with_configuration_and_record(job):
    told = []
    record = submit(job, Place(), told.append, told.append)
    assert told == ["part 1"]
    assert JobRecord.read(job.run_dir) == record
    assert not record.under_way
    assert (record.complete, record.address, record.handles) == (True, "head", {"learner": "4711"})
    assert stat.S_IMODE((job.run_dir / "job.yaml").stat().st_mode) == 0o600
    assert load(file=job.run_dir / "job.yaml").config == job.loaded.config


@pytest.mark.parametrize("error", [ConfigError("no room"), OSError(7, "odd"), KeyboardInterrupt()])
def test_a_target_that_refuses_leaves_nothing(job, error):
    with pytest.raises(type(error)):
        submit(job, Place(error), print, print)
    assert not job.run_dir.exists()
    job.run_dir.mkdir()  # made by the user, and empty
    with pytest.raises(type(error)):
        submit(job, Place(error), print, print)
    assert [*job.run_dir.iterdir()] == []
    submit(job, Place(), print, print)


@pytest.mark.parametrize("error", [None, ConfigError("no room")])
def test_an_empty_directory_of_the_user_stays_the_same(job, workplace, error):
    """With its rights; it is a link here, which nothing can take the name of."""
    own = workplace / "disk"
    own.mkdir(mode=0o700)
    before = own.stat()
    job.run_dir.parent.mkdir()
    job.run_dir.symlink_to(own)
    with pytest.raises(ConfigError) if error else nullcontext():
        submit(job, Place(error), print, print)
    assert (own.stat().st_ino, own.stat().st_mode, job.run_dir.is_symlink()) == (before.st_ino, before.st_mode, True)
    assert (own / "job.json").exists() is (error is None)
    assert bool([*own.iterdir()]) is (error is None)


def test_a_full_disk_is_one_line(job):
    """The limit of this process stands for it: job.json can be opened, and no byte be written."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with pytest.raises(ConfigError, match=r"job.json cannot be written: File too large; there is no job$"):
            submit(job, Place(), print, print)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not job.run_dir.exists()


def test_a_job_whose_record_cannot_be_written_is_ended(job):
    def spoil(run_dir):
        (run_dir / "job.json").unlink()
        (run_dir / "job.json").mkdir()

    place = Place(spoil=spoil)
    with pytest.raises(ConfigError, match=r"job.json cannot be written: Is a directory; there is no job"):
        submit(job, place, print, print)
    assert place.withdrawn == ["pong"]
    assert not job.run_dir.exists()


@pytest.mark.parametrize(
    ("error", "withdrawn"),
    [(KeyboardInterrupt(), ["pong"]), (NoAnswerError("silent"), ["pong"]), (ConfigError("no room"), [])],
)
def test_a_job_that_its_target_may_have_after_an_error_is_withdrawn(job, error, withdrawn):
    place = Place(error)
    with pytest.raises(type(error)):
        submit(job, place, print, print)
    assert (place.withdrawn, job.run_dir.exists()) == (withdrawn, False)


def test_a_job_that_cannot_be_withdrawn_keeps_its_record(job, monkeypatch):
    place = Place(KeyboardInterrupt())

    def silent(record):
        raise NoAnswerError("no answer from head")

    monkeypatch.setattr(place, "withdraw", silent)
    told = r"^KeyboardInterrupt; the submission of pong has not finished; distrl stop removes .*: no answer from head$"
    with pytest.raises(ConfigError, match=told):
        submit(job, place, print, print)
    left = JobRecord.read(job.run_dir)
    assert (left.complete, left.handles) == (False, {"learner": "4711"})


@pytest.mark.parametrize("state", ["waiting", "gone"])
def test_a_job_that_may_have_begun_is_not_withdrawn(job, monkeypatch, state):
    place = Place()
    record = submit(job, place, print, print).model_copy(update={"complete": False})
    record.write(job.run_dir)
    monkeypatch.setattr(submission, "open_target", lambda _: place)
    monkeypatch.setattr(submission, "state_of", place.state)
    place.found = JobState(state, may_have_begun=True)
    assert not withdraw_unfinished(record, job.run_dir)
    assert (place.withdrawn, JobRecord.read(job.run_dir).complete) == ([], True)
    record.write(job.run_dir)
    place.found = JobState(state)
    assert withdraw_unfinished(record, job.run_dir)
    assert (place.withdrawn, job.run_dir.exists()) == (["pong"], False)


def test_a_name_is_taken_once(job, workplace):
    submit(job, Place(), print, print)
    for folder, why in ((job.run_dir, "exists"), (workplace / "elsewhere", "has it")):
        with pytest.raises(ConfigError, match=rf"^the run id pong is taken: {job.run_dir} {why}; choose another"):
            require_free("pong", folder)
    with pytest.raises(ConfigError, match="is taken"):
        submit(job, Place(), print, print)
    assert (job.run_dir / "job.json").exists()
    require_free("breakout", workplace / "runs" / "breakout")


def test_a_directory_that_cannot_be_made_is_one_line(job, workplace):
    (workplace / "runs").write_text("a file")
    with pytest.raises(ConfigError, match=r"cannot be made: (Not a directory|File exists)"):
        submit(job, Place(), print, print)


@pytest.mark.parametrize("env", ["CartPole-v1", "ALE/Pong-v5", "my_package.worlds:Läb", "x" * 200])
def test_ids_say_what_is_trained_and_fit_everywhere(env):
    config = load(sets=[f"environment.id={env}"]).config
    first, second = new_run_id(config), new_run_id(config)
    assert first != second
    assert checked_run_id(first) == first
    assert re.fullmatch(r"[a-z0-9-]{1,46}-[0-9a-f]{6}", first)
    assert new_run_id(config, dry=True) == new_run_id(config, dry=True)


@pytest.mark.parametrize("name", ["checkpoints/writer-000001", "job.json"])
def test_an_id_that_the_store_has_is_taken(tmp_path, name):
    store = f"file://{tmp_path}/store"
    open_objects(store).put(f"pong/{name}", b"{}")
    job = Job("pong", load(sets=[f"checkpoint.store={store}"]), tmp_path / "runs" / "pong")
    with pytest.raises(ConfigError, match=r"the run id pong is taken: file://.*/store/pong is a run; choose another"):
        submit(job, Place(), print, print)
    assert not job.run_dir.exists()
    assert open_objects(store).get(f"pong/{name}") == b"{}"
