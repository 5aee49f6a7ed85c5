"""Checkpoints in a store: one writer at a time, whole or not at all, and the order in which readers take them."""

import pytest

from distrl.data_store.stored_run import CheckpointPosition, GoingBack, StoredRun, Writer
from distrl.errors import FencedError, StoreError
from tests.data_store.stores import KINDS, Breaking, make_store, saved, store_steps


@pytest.fixture(params=KINDS)
def run(request, tmp_path):
    return StoredRun(make_store(request.param, tmp_path), "r")


def names(run):
    return [position.name for position in run.look().complete]


@pytest.mark.row("D60")
def test_a_run_begins_with_its_first_claim(run, tmp_path):
    assert not run.look().is_begun
    store_steps(run, tmp_path)
    assert run.look().is_begun
    assert names(run) == []


def test_of_two_launches_of_a_new_run_one_begins_it(run, tmp_path):
    other = StoredRun(run.objects, "r")
    assert (run.begin(), other.begin()) == (True, False)
    run.withdraw()
    assert not run.objects.sizes("r")
    assert other.begin()
    store_steps(run, tmp_path, 10)  # the first learner
    assert (run.look().is_begun, run.look().newest, run.begin()) == (True, CheckpointPosition(1, 10), False)


def test_a_launch_knows_its_own_claim_again(run, monkeypatch):
    created = run.objects.create
    monkeypatch.setattr(run.objects, "create", lambda name, content: created(name, content) and False)
    assert run.begin()


def test_a_return_counts_until_the_next_learner_claims(run, tmp_path):
    store_steps(run, tmp_path, 10, 20, 30)
    back = StoredRun(run.objects, "r", GoingBack(1, CheckpointPosition(1, 20)))
    assert (back.look().newest, run.look().newest) == (CheckpointPosition(1, 20), CheckpointPosition(1, 30))
    Writer.claim(back, 1, "two", CheckpointPosition(1, 20)).store(saved(tmp_path, 25), 25, {}, best=False, keep=5)
    assert names(back) == names(run) == ["000002-000000000025", "000001-000000000020", "000001-000000000010"]


def test_newest_first_by_writer_and_step(run, tmp_path):
    store_steps(run, tmp_path, 10, 20)
    store_steps(run, tmp_path, 30)
    assert run.look().newest == CheckpointPosition(2, 30)
    assert names(run) == ["000002-000000000030", "000001-000000000020", "000001-000000000010"]


@pytest.mark.row("D63", "T08")
def test_of_two_writers_the_earlier_is_fenced_and_never_the_newest(run, tmp_path):
    stale = store_steps(run, tmp_path / "a", 10, 20)
    newer = store_steps(run, tmp_path / "b")
    with pytest.raises(FencedError, match=r"another learner has taken over the run in .*writer 2"):
        stale.store(saved(tmp_path / "a", 30), 30, {}, best=True, keep=1)
    assert run.look().newest == CheckpointPosition(1, 20)
    assert run.best(run.look()) is None
    newer.store(saved(tmp_path / "b", 25), 25, {}, best=False, keep=5)
    assert run.look().newest == CheckpointPosition(2, 25)


@pytest.mark.row("D63", "T08")
def test_a_manifest_that_a_stale_writer_writes_after_its_last_look_does_not_count(run, tmp_path, monkeypatch):
    stale = store_steps(run, tmp_path / "a", 10, 20)
    monkeypatch.setattr(stale, "require_own", lambda: stale.run.look())  # its look was a moment too early
    newer = store_steps(run, tmp_path / "b")
    stale.store(saved(tmp_path / "a", 30), 30, {}, best=False, keep=1)
    assert "000001-000000000030" not in names(run)
    assert run.look().newest == CheckpointPosition(1, 20)  # which its pruning has left
    newer.store(saved(tmp_path / "b", 22), 22, {}, best=False, keep=5)
    assert names(run)[:2] == ["000002-000000000022", "000001-000000000020"]


def test_what_an_earlier_writer_stored_after_the_base_of_a_claim_does_not_count(run, tmp_path):
    store_steps(run, tmp_path / "a", 10, 20, 30)  # 30 while the other host built its network
    Writer.claim(run, 1, "b", CheckpointPosition(1, 20))
    assert names(run) == ["000001-000000000020", "000001-000000000010"]
    assert run.claim(2)["base"] == "000001-000000000020"


def test_a_base_that_only_the_directory_has(run, tmp_path):
    store_steps(run, tmp_path, 10)
    Writer.claim(run, 1, "b", CheckpointPosition(1, 99))
    assert run.claim(2)["base"] == "000001-000000000010"


@pytest.mark.row("T08")
def test_of_two_that_claim_at_once_one_is_refused(run, tmp_path):
    store_steps(run, tmp_path, 10)
    Writer.claim(run, 1, "a")
    with pytest.raises(FencedError):
        Writer.claim(run, 1, "b")


@pytest.mark.row("T08")
def test_the_exclusive_creation_decides_where_both_looked_before(run, tmp_path, monkeypatch):
    before = run.look()
    Writer.claim(run, 0, "a")
    monkeypatch.setattr(run, "look", lambda: before)
    with pytest.raises(FencedError):
        Writer.claim(run, 0, "b")


def test_the_newest_and_the_best_are_kept(run, tmp_path):
    writer = store_steps(run, tmp_path)
    for step in range(1, 8):
        writer.store(saved(tmp_path, step), step, {}, best=step == 2, keep=3)
    listing = run.look()
    assert [position.step for position in listing.complete] == [7, 6, 5, 2]
    assert run.best(listing) == CheckpointPosition(1, 2)
    assert listing.all.keys() == listing.complete.keys()  # and nothing of the others is left


def test_two_stay_even_with_keep_1(run, tmp_path):
    store_steps(run, tmp_path, 1, 2, 3, keep=1)
    assert [position.step for position in run.look().complete] == [3, 2]


def test_remains_of_a_crash_are_no_checkpoint_and_go_with_the_next_one(run, tmp_path):
    writer = store_steps(run, tmp_path, 1)
    run.objects.put("r/checkpoints/000001-000000000002/meta.json", b"{}")
    assert [position.step for position in run.look().complete] == [1]
    writer.store(saved(tmp_path, 3), 3, {}, best=False, keep=5)
    assert [position.step for position in run.look().all] == [1, 3]


@pytest.mark.row("D63", "T08")
def test_a_break_at_any_request_leaves_the_previous_or_the_new_version(tmp_path):
    """Every request of a `store` in turn is the last one that arrives."""
    objects = Breaking(f"file://{tmp_path}/s")
    run = StoredRun(objects, "r")
    writer = store_steps(run, tmp_path / "run", 1, 2, 3, keep=2)
    seen = set()
    for step in range(4, 40):
        objects.writes, objects.down, number = 0, False, step - 4

        def stop(at, number=number):
            objects.down = at >= number

        objects.before_write = stop
        try:
            writer.store(saved(tmp_path / "run", step), step, {}, best=False, keep=2)
        except StoreError:
            pass
        else:
            break
        objects.down = False
        newest = run.look().newest
        assert newest is not None
        seen.add(newest.step == step)
        assert len(run.look().complete) >= 2
    assert seen == {False, True}


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b'{"base": "x"}'])
def test_a_damaged_claim_is_an_error_in_one_line(run, tmp_path, text):
    store_steps(run, tmp_path, 1)
    run.objects.put("r/checkpoints/writer-000002", text)
    with pytest.raises(StoreError, match="the claim writer-000002 is damaged"):
        run.look()


def test_a_name_that_leads_out_of_the_store_is_refused(run):
    with pytest.raises(ValueError, match="no name of a folder"):
        StoredRun(run.objects, "..")
