import json

import pytest

from distrl.apps.dashboard.payloads import Answer, encoded


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"a": [1, 2.5, "\u00e9", None, True]}, {"a": [1, 2.5, "\u00e9", None, True]}),
        (
            {"a": float("nan"), "b": (float("inf"), {"c": -float("inf")}), "d": 1.0},
            {"a": None, "b": [None, {"c": None}], "d": 1.0},
        ),
        ([10**5000, 10**100], [None, 10**100]),
        ({"half": "\ud800"}, {"half": "\ud800"}),
    ],
)
def test_whatever_files_and_redis_hold_can_be_encoded(data, told):
    assert json.loads(encoded(data)) == told
    assert json.loads(Answer(data).body.decode("ascii")) == told
