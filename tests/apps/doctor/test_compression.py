"""The advice on compression: right on both sides of the limit, and from the committed measurement."""

import json

import pytest

from benchmarks.publishing import RESULTS
from distrl.apps.doctor.compression import CODEC_BYTES_PER_S, SHARE, WORTH_SAVING, compression, saved

LIMIT = (1.0 - SHARE - WORTH_SAVING) * CODEC_BYTES_PER_S


def test_the_share_of_the_time_on_the_way_that_is_saved():
    assert saved(0.0) == pytest.approx(1.0 - SHARE)
    sent, speed = 1e6, 1e8
    with_compression_s = SHARE * sent / speed + sent / CODEC_BYTES_PER_S
    assert saved(speed) == pytest.approx(1.0 - with_compression_s / (sent / speed))


def test_it_is_named_where_it_pays():
    found = compression(0.99 * LIMIT)
    assert (found.health, found.name) == ("ok", "compression")
    assert found.advice.startswith("memory.compression: zstd where observations are images")
    assert compression(1.01 * LIMIT).advice == ""
    assert compression(125e6).found == "at 125 MB/s it would save images 91% of their time on the way"
    assert compression(5e9).found == "at 5,000 MB/s it would hardly pay"


def test_the_figures_are_of_the_committed_report():
    report = json.loads((RESULTS / "compression.json").read_text("utf-8"))
    (entry,) = (entry for entry in report["results"] if entry["name"] == "riverraid")
    found = entry["methods"]["zstd"]
    assert pytest.approx(found["bytes"] / entry["bytes"], rel=0.03) == SHARE
    measured = entry["bytes"] / (found["compress_s"] + found["decompress_s"])
    assert measured == pytest.approx(CODEC_BYTES_PER_S, rel=0.05)
