import pytest

from benchmarks import ablations
from benchmarks.provenance import resolved
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


@pytest.mark.parametrize("name", [name for name in ROWS if "bits" not in name])
def test_curiosity_is_all_that_differs(name):
    with_it, this = resolved(ROWS[name.replace("plain", "rnd")]), resolved(ROWS[name])
    assert (this.algorithm.curiosity is None) == name.endswith("plain")
    assert this.algorithm.model_copy(update={"curiosity": with_it.algorithm.curiosity}) == with_it.algorithm
    assert this.environment == with_it.environment
    assert this.stop.env_steps == ROWS[name].env_steps == with_it.stop.env_steps


def test_the_page_is_what_the_committed_report_says(page_agrees):
    assert page_agrees("ablations", ablations.block)
