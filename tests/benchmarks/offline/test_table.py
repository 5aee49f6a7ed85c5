import pytest

from benchmarks import publishing, speed
from benchmarks.offline.table import block, difference, difference_interval

WHERE = {"commit": "abc1234", "date": "2026-01-02", "machine": "2 cores (X)", "load_before": 0.4}
PART = {"name": "hopper/medium-v0", "episodes": 400, "rows": 199_000, "mean_return": 1000.0}


def offline(algorithm, library, seed, mean_return, rate, data="medium"):
    return {
        **{"name": f"{data}-{algorithm}-{library}-{seed}", "kind": "offline", "environment": "Hopper-v5"},
        **{"data": data, "algorithm": algorithm, "library": library, "seed": seed, "wall_s": 60.0, "parts": [PART]},
        **{"updates": 10_000, "mean_return": mean_return, "updates_per_s": rate},
        **WHERE,
    }


SAC = {
    **{"name": "sac-hopper", "kind": "sac", "environment": "Hopper-v5", "data": "", "algorithm": "", "library": ""},
    **{"env_steps": 90_000, "curve": [[5_000, 400.0], [80_000, 1100.0], [85_000, 300.0]]},
    **WHERE,
}
ONLINE = {
    **{"name": "online-hopper", "kind": "online", "environment": "Hopper-v5", "data": "medium-replay", "seed": 0},
    **{"algorithm": "sac", "library": "distrl", "offline_return": 500.0, "curve": [[2_000, 450.0], [4_000, 700.0]]},
    **{"mean_return": 900.0, "parts": [PART]},
    **WHERE,
}


def report(*entries):
    return {"command": "c", "results": [*entries]}


def lines_of(*entries):
    return block(report(*entries)).splitlines()


def test_a_line_has_the_scores_of_both_libraries_their_means_and_the_difference():
    # 1,607.014 is half of the way from -20.272 to 3,234.3; a score is 32.5457 of the return
    ours = [offline("iql", "distrl", 0, 1607.014, 30.0), offline("iql", "distrl", 2, 1607.014 + 325.457, 30.0)]
    found = lines_of(*ours, offline("iql", "d3rlpy", 0, 1607.014 - 32.5457, 20.0))
    assert "| medium | IQL | 50.0, –, 60.0 · 55.0 | 49.0 · 49.0 | +6.0 |" in found
    assert any("Algorithm, 10,000 updates" in line for line in found)


def test_three_seeds_of_both_have_the_interval_of_the_difference():
    ours, theirs = {0: 50.0, 1: 52.0, 2: 54.0}, {0: 40.0, 1: 41.0, 2: 42.0}
    centre, low, high = difference_interval([*ours.values()], [*theirs.values()])
    assert centre == 11.0
    # all 27 x 27 resamples: the extremes, 50 - 42 and 54 - 40, are less than 2.5 % of them
    assert 8.0 < low < 11.0 < high < 14.0
    assert difference(ours, theirs) == f"+11.0 [+{low:.1f}, +{high:.1f}]"
    assert difference(ours, {0: 60.0, 1: 60.0}) == "−8.0"
    assert difference(ours, {}) == "–"


def test_speed_compares_trainings_on_one_set_with_one_seed():
    entries = [
        *(offline("bc", "distrl", seed, 900.0, rate) for seed, rate in ((0, 40.0), (1, 90.0), (2, 10.0))),
        *(offline("bc", "d3rlpy", seed, 900.0, rate) for seed, rate in ((0, 20.0), (1, 30.0))),
    ]
    assert lines_of(*entries)[-1] == "| BC | 2 | 65.0 | 25.0 | 2.50 [2.00, 3.00] |"


def test_sets_are_described_by_what_trainings_used_and_sac_by_its_policies():
    found = lines_of(SAC, offline("bc", "distrl", 0, 900.0, 40.0, data="medium-expert"))
    told = "SAC's medium policy is that after 80,000 of 90,000 steps, with a mean return of 1,100 in its evaluation."
    assert found[2] == f"Hopper-v5. {told}"
    assert "| medium-expert | 199,000 | 400 | 1,000 | 31.3 |" in found


def test_sac_after_iql_is_shown_from_before_to_the_end():
    found = lines_of(ONLINE)
    assert "| 0 | 500 | 450 (2,000), 700 (4,000) | 900 |" in found
    assert not any("updates/s" in line for line in found)


def test_the_page_says_what_the_committed_report_says():
    page = publishing.PAGE.read_text("utf-8")
    assert publishing.published(page, "offline", speed.page_text("offline", block)) == page


def test_nothing_measured_is_said():
    assert block(report()) == "Not measured yet."


@pytest.mark.parametrize("seed", [0, 1])
def test_one_seed_has_no_interval(seed):
    assert "[" not in difference({seed: 1.0}, {seed: 3.0})
