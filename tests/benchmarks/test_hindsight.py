import pytest

from benchmarks import hindsight
from benchmarks.provenance import resolved
from distrl.environments.worlds.bit_flip import BitFlip


@pytest.mark.parametrize("row", hindsight.rows(), ids=lambda row: row.name)
def test_every_variant_is_a_training_that_ends_at_the_environments_threshold(row):
    config = resolved(row)
    bits = config.environment.kwargs["n"]
    assert row.name.startswith(f"{bits}-bits-")
    assert config.stop.mean_return == pytest.approx(BitFlip(bits).reward_threshold)
    assert config.actors.unroll_length_steps == 4 * (bits + 1)
    assert (config.algorithm.replay.hindsight is None) == row.name.endswith("plain")


def test_the_page_is_what_the_committed_report_says(page_agrees):
    assert page_agrees("hindsight", hindsight.block)
