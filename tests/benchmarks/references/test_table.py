"""The table of comparisons, and the page's part of it."""

import json

import pytest

from benchmarks.publishing import RESULTS
from benchmarks.references.table import block, number

REPORT = {
    "command": "make references",
    "date": "2026-01-02",
    "commit": "abc1234",
    "machine": "2 cores (X)",
    "wall_s": 61.4,
    "versions": {"rlax": "0.1.9", "torch": "2.13.0"},
    "figures": [
        {"group": "DQN", "what": "loss", "reference": "SB3", "error": 6e-8, "of": 0.7612, "allowed": 2e-6, "note": "a"},
        {"group": "DQN", "what": "weights", "reference": "SB3", "error": 0.0, "of": 18, "allowed": 1e-6, "note": ""},
        {
            "group": "DQN",
            "what": "weights",
            "reference": "SB3",
            "error": 8e-4,
            "of": 0.03,
            "allowed": None,
            "note": "b",
        },
    ],
}


def test_agreements_come_first_and_differences_after_them():
    assert block(REPORT).splitlines() == [
        "`make references` on 2026-01-02, commit abc1234, 2 cores (X): 3 comparisons in 61 s, with rlax 0.1.9, "
        "torch 2.13.0.",
        "",
        "|  | Compared | With | Largest error | Of | Allowed | Set to the same convention |",
        "|---|---|---|---|---|---|---|",
        "| DQN | loss | SB3 | 6e-8 | 0.76 | 2e-6 | a |",
        "|  | weights | SB3 | 0 | 18 | 1e-6 |  |",
        "",
        "Where conventions differ, and by how much that showed:",
        "",
        "|  | Compared | With | Difference | Of | Because |",
        "|---|---|---|---|---|---|",
        "| DQN | weights | SB3 | 8e-4 | 0.03 | b |",
    ]


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (3.14e-7, "3.1e-7"), (0.0123, "0.012"), (18.4, "18"), (1000.0, "1,000")]
)
def test_numbers_have_two_digits(value, text):
    assert number(value) == text


def test_all_comparisons_of_the_committed_report_agree():
    report = json.loads((RESULTS / "references.json").read_text("utf-8"))
    assert len(report["figures"]) > 80
    assert all(one["error"] <= one["allowed"] for one in report["figures"] if one["allowed"] is not None)
