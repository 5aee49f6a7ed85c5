import pytest

from benchmarks import ablations
from benchmarks.measurement import keep
from benchmarks.provenance import resolved
from benchmarks.report import report_tree
from distrl.environments.worlds.bit_flip import BitFlip

ROWS = {row.name: row for row in ablations.rows()}


def test_names_are_their_own():
    assert len(ROWS) == len(ablations.rows())


@pytest.mark.parametrize("name", [name for name in ROWS if "bits" in name])
def test_bits_end_at_the_environments_threshold(name):
    config = resolved(ROWS[name])
    bits = config.environment.kwargs["n"]
    assert name.startswith(f"{bits}-bits-")
    assert config.stop.mean_return == pytest.approx(BitFlip(bits).reward_threshold)
    assert config.actors.unroll_length_steps == 4 * (bits + 1)
    assert (config.algorithm.replay.hindsight is None) == name.endswith("plain")


@pytest.mark.parametrize("name", ablations.CURIOUS)
def test_curiosity_is_all_that_differs(name):
    with_it, without = (resolved(ROWS[row]).model_dump() for row in (name, name.replace("rnd", "plain")))
    assert with_it["stop"]["env_steps"] == ROWS[name].env_steps
    assert with_it["algorithm"].pop("curiosity") is not None
    assert without["algorithm"].pop("curiosity") is None
    assert with_it == without


def test_the_table_says_when_a_training_ended(result, tmp_path):
    rows = [ROWS["mountaincar-ppo-rnd"], ROWS["mountaincar-ppo-plain"]]
    results = [
        result("mountaincar-ppo-rnd", 1, -119.0, training_mean_return=-125.0),
        result("mountaincar-ppo-plain", 1, -200.0, env_steps=500_001),
    ]
    keep(tmp_path / "ablations.json", report_tree(rows, results, {"MountainCar-v0": -200.0}, "c", [1]))
    *_, first, second = ablations.block(tmp_path / "ablations.json").splitlines()
    assert first.startswith(
        "| MountainCar-v0 | with curiosity (`mountaincar-ppo-rnd`) | none, 500,000 steps | −119 after 200,000 |"
    )
    assert first.endswith("| −119 | −200 | −125 [−125, −125] |")
    assert "−200 after 500,001" in second


def test_the_page_is_what_the_committed_report_says(page_agrees):
    assert page_agrees("ablations", ablations.block)
