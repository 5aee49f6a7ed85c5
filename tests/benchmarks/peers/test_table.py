import pytest

from benchmarks.peers.contenders import TASKS
from benchmarks.peers.table import report, table

SECONDS = {name: task.seconds for name, task in TASKS.items()}


@pytest.fixture
def results(measured):
    """distrl against one peer that solves, one that does not, and one that fails."""

    def cartpole(name, *speeds, **more):
        return [measured(name, "cartpole", index, steps_per_s=speed, **more) for index, speed in enumerate(speeds, 1)]

    return [
        *cartpole("distrl", 500_000.0, 300_000.0, 520_000.0, first_update_s=3.0, pss_bytes=800_000_000),
        *(measured("distrl", "solve", index, solved_s=each) for index, each in enumerate((8.0, 6.0, 9.0), 1)),
        measured("distrl", "halfcheetah", steps_per_s=30_000.0, mean_return=2500.0),
        *cartpole("sf-appo", 40_000.0, 50_000.0, 60_000.0, first_update_s=9.04, pss_bytes=1_100_000_000),
        *(measured("sf-appo", "solve", index, solved_s=each) for index, each in enumerate((14.0, 12.0, 16.0), 1)),
        measured("sf-appo", "halfcheetah", steps_per_s=20_000.0, mean_return=-100.0),
        *cartpole("sb3-ppo", 18_000.0, first_update_s=2.0, pss_bytes=350_000_000),
        measured("sb3-ppo", "solve", 1, solved_s=3.0),
        measured("sb3-ppo", "solve", 2),
        measured("rllib-ppo", failure="ImportError: x", first_update_s=1.0, pss_bytes=1),
        measured("rllib-ppo", repetition=2, failure="ImportError: y"),
    ]


def test_the_table_has_medians_ratios_to_the_best_peer_and_what_failed(results):
    assert table(results, SECONDS).splitlines() == [
        "| | CartPole-v1, steps/s | HalfCheetah-v5, steps/s | return after 300 s | Pong 84×84×4, skip 4, steps/s "
        "| first update after | CartPole ≥ 475 | memory (PSS) |",
        "|---|---|---|---|---|---|---|---|",
        "| distrl | 500,000 | 30,000 (1) | 2,500 (1) | – | 3.0 s | 8.0 s / 6.0 s / 9.0 s | 0.80 GB |",
        "| Sample Factory APPO, EnvPool | 50,000 | 20,000 (1) | -100 (1) | – | 9.0 s | 14.0 s / 12.0 s / 16.0 s "
        "| 1.10 GB |",
        "| Stable-Baselines3 PPO | 18,000 (1) | – | – | – | 2.0 s (1) | 3.0 s / not in 120 s | 0.35 GB (1) |",
        "| RLlib PPO | failed | – | – | – | failed | – | failed |",
        "| *distrl / best peer* | 10.00× | 1.50× | – | – | 1.50× | 0.57× | 2.29× |",
        "",
        "- rllib-ppo, cartpole: failed 2 times: ImportError: y",
    ]


def test_without_peers_there_is_no_ratio(results):
    ours = [one for one in results if one.contender == "distrl"]
    assert len(table(ours, SECONDS).splitlines()) == 3


def test_the_report_has_every_run_and_the_conditions(results, measured):
    told = report([*results, measured("sb3-a2c", load=1.5, date="2026-01-03")], SECONDS, "the command")
    assert told["conditions"] == ["2 cores (X), 2026-01-02, distrl abc1234", "2 cores (X), 2026-01-03, distrl abc1234"]
    assert told["highest_load_before_a_run"] == 1.5
    assert told["seconds"] == {"cartpole": 30.0, "solve": 120.0, "halfcheetah": 300.0, "pong": 60.0}
    assert len(told["results"]) == len(results) + 1
    assert told["results"][0]["steps_per_s"] == 500_000.0
    assert told["table"][2].startswith("| distrl | 500,000 |")
