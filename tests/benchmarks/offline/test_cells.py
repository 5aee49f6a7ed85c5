from collections import Counter

import pytest

from benchmarks.offline.cells import Cell, all_cells, missing, normalised, remaining_s

HOPPER = all_cells(["Hopper-v5"], [0, 1, 2])


def entry(cell, wall_s):
    return {**cell.__dict__, "name": cell.name, "wall_s": wall_s}


def test_each_set_is_learned_from_as_soon_as_it_is_there_and_slow_cells_come_last():
    assert [cell.name for cell in HOPPER[:8]] == [
        "sac-hopper",
        "offline-hopper-medium-replay-td3_bc-distrl-0",
        "offline-hopper-medium-replay-td3_bc-d3rlpy-0",
        "offline-hopper-medium-replay-iql-distrl-0",
        "offline-hopper-medium-replay-iql-d3rlpy-0",
        "offline-hopper-medium-replay-bc-distrl-0",
        "offline-hopper-medium-replay-bc-d3rlpy-0",
        "record-hopper-medium",
    ]
    needed = {"medium-replay": "sac", "medium-expert": "expert"}
    for place, cell in enumerate(HOPPER):
        if cell.kind == "offline":
            before = [(each.kind, each.data) for each in HOPPER[:place]]
            assert {(needed.get(cell.data), ""), ("record", cell.data)} & {*before}
    assert {cell.seed for cell in HOPPER if cell.kind == "offline"} == {0, 1, 2}
    assert {cell.seed for cell in HOPPER[1:30] if cell.kind != "record"} == {0, None}
    assert {cell.algorithm for cell in HOPPER[-24:]} == {"cql"}


def test_every_algorithm_learns_from_every_set_with_every_seed_by_both_libraries():
    assert Counter(cell.kind for cell in HOPPER) == {
        **{"sac": 1, "expert": 1, "record": 3, "offline": 4 * 4 * 3 * 2, "online": 3}
    }
    assert len({cell.name for cell in HOPPER}) == len(HOPPER)
    both = all_cells(["Walker2d-v5", "Hopper-v5"], [0, 1, 2])
    assert [cell.environment for cell in both] == ["Walker2d-v5"] * len(HOPPER) + ["Hopper-v5"] * len(HOPPER)


def test_finished_cells_are_not_measured_again():
    assert missing(HOPPER, {cell.name for cell in HOPPER[:5]}) == HOPPER[5:]


def test_the_time_left_is_that_of_the_same_algorithm_and_library_else_of_the_same_kind():
    iql, bc = (Cell("offline", "Hopper-v5", "medium", name, "distrl", 0) for name in ("iql", "bc"))
    theirs = Cell("offline", "Hopper-v5", "medium", "iql", "d3rlpy", 0)
    done = [entry(iql, 100.0), entry(iql, 300.0), entry(theirs, 500.0)]
    assert remaining_s([iql, theirs], done) == 200.0 + 500.0
    assert remaining_s([bc], done) == 300.0
    assert remaining_s([HOPPER[0]], done) is None
    assert remaining_s([], []) == 0.0


def test_scores_are_shares_of_the_way_from_random_actions_to_the_expert():
    assert normalised("Hopper-v5", -20.272305) == 0.0
    assert normalised("HalfCheetah-v5", 12135.0) == 100.0
    # (1,000 + 20.272305) / (3234.3 + 20.272305)
    assert normalised("Hopper-v5", 1000.0) == pytest.approx(31.34889, abs=1e-5)
