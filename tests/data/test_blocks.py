"""The order of data that is read round after round, by hand; and the unrolls that come of it."""

from itertools import islice

import numpy as np
import pytest

from distrl.data.blocks import Blocks, suiting
from distrl.data.playing import Playing
from tests.data.test_playing import spec_of

LENGTHS = np.array([3, 2, 4, 1, 5])


def test_blocks_by_hand():
    blocks = Blocks(LENGTHS, 1, 4, 64)  # of at least 64 / 16 steps
    assert [blocks.plan(number) for number in range(3)] == [[[0, 1]], [[2]], [[3, 4]]]
    assert blocks.unrolls.tolist() == [2, 1, 2]  # 3 + 1 + 2, 4, 1 + 1 + 5 steps in unrolls of 4
    assert (blocks.count, blocks.steps) == (5, 15)
    in_two_rows = Blocks(LENGTHS, 2, 4, 64)  # with as many episodes in each row, but for the last
    assert [in_two_rows.plan(number) for number in range(3)] == [[[0], [1]], [[2], [3]], [[4], []]]
    assert in_two_rows.unrolls.tolist() == [1, 1, 2]
    assert Blocks(LENGTHS, 2, 4, None).plan(0) == [[0, 3, 4], [1, 2]]


def test_every_round_has_every_block_in_another_order():
    blocks = Blocks(np.full(20, 8), 1, 4, 128)
    played = [*islice(blocks.following(seed=3, unroll=0), 60)]
    rounds = [[block for block, _ in played[begin : begin + 20]] for begin in (0, 20, 40)]
    assert all(sorted(order) == [*range(20)] for order in rounds)
    assert len({tuple(order) for order in [*rounds, range(20)]}) == 4
    assert [*islice(blocks.following(seed=3, unroll=0), 60)] == played
    assert [*islice(blocks.following(seed=4, unroll=0), 60)] != played


@pytest.mark.parametrize("unroll", [1, 4, 5, 7, 23])
def test_the_place_follows_from_the_number_of_unrolls(unroll):
    blocks = Blocks(LENGTHS, 1, 4, 64)

    def unrolls(first):
        for block, skipped in blocks.following(0, first):
            yield from ((block, number) for number in range(skipped, blocks.unrolls[block]))

    assert [*islice(unrolls(unroll), 9)] == [*islice(unrolls(0), unroll, unroll + 9)]


def test_rows_that_the_blocks_fill():
    assert suiting(np.full(8, 100), 8, 4, None).rows == 8
    assert suiting(np.full(10, 100), 8, 4, None).rows == 2  # 8 rows would need 201 x 8 steps for 1,010
    assert suiting(np.array([5]), 64, 4, None).rows == 1
    assert suiting(np.full(64, 100), 64, 4, None).rows == 64
    assert suiting(np.full(64, 100), 64, 4, 3_200).rows == 4  # 8 blocks of 4 episodes are in memory


def test_unrolls_of_a_later_place_are_those_that_follow(recorded, config):
    recorded(episodes=9)
    run = config(rows=1, data={"sets": "test/random", "memory_steps": 8})
    playing = Playing(run, spec_of(run))
    count = playing.blocks.count
    assert len(playing.blocks.unrolls) > 3
    whole = [*islice(playing.rounds({}, 0), 2 * count + 3)]
    rounds = [whole[:count], whole[count : 2 * count]]
    paid = [sorted(np.concatenate([unroll.rewards[unroll.valid] for unroll in unrolls])) for unrolls in rounds]
    assert paid[0] == paid[1]  # each recorded step once
    assert len({*paid[0]}) == playing.steps
    assert not all(np.array_equal(one.rewards, other.rewards) for one, other in zip(*rounds, strict=True))
    for first in (1, count - 1, count + 2):
        for one, other in zip(playing.rounds({}, first), whole[first:], strict=False):
            assert np.array_equal(one.observations["observation"], other.observations["observation"])
            assert np.array_equal(one.rewards, other.rewards)


def test_only_what_is_asked_for_is_read(recorded, config, monkeypatch):
    recorded(episodes=30)
    run = config(rows=1, data={"sets": "test/random", "memory_steps": 8})
    playing = Playing(run, spec_of(run))
    read, before = [], playing._episodes.read

    def counted(numbers):
        for number, episode in zip(numbers, before(numbers), strict=True):
            read.append(number)
            yield episode

    monkeypatch.setattr(playing._episodes, "read", counted)
    for _ in islice(playing.rounds({}, 0), 3):
        pass
    assert len(read) <= 14  # of 30: those of three unrolls of 4 steps
