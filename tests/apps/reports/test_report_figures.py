import re
from xml.etree import ElementTree

import numpy as np

from distrl.apps.reports.report import figures
from distrl.runs.metrics_csv import read_table
from tests.run_folders import make_run


def drawn(tmp_path):
    return [*figures(read_table(make_run(tmp_path / "a") / "metrics.csv"))]


def test_curves_are_drawn_of_what_has_numbers_and_told_to_who_cannot_see_them(tmp_path):
    found = drawn(tmp_path)
    assert [figure.find("svg").get("aria-label") for figure in found] == [
        "mean undiscounted return of the last 100 episodes: from 10 to 20 over 3,000 environment steps",
        "environment steps per second of all actors: from 900 to 1,000 over 3,000 environment steps",
        "mean age of the trained unrolls' weights: from 1.5 to 1.5 over 3,000 environment steps; "
        "highest age of the trained unrolls' weights: from 4 to 4 over 3,000 environment steps",
        "total loss: from 0.5 to 0.25 over 2,000 environment steps",
    ]
    captions = ["".join(figure.find("figcaption").itertext()).split() for figure in found]
    assert captions[2] == ["Policy", "lag,", "updates", "policy_lag_mean", "policy_lag_max"]


def test_estimates_are_drawn_with_their_intervals_over_updates(tmp_path):
    table = read_table(make_run(tmp_path / "a") / "metrics.csv")
    rows = len(table["updates"])
    table = {"updates": table["updates"], "evaluation_mean_discounted_return": np.full(rows, 4.5)}
    for name, value in (("fqe", 5.0), ("fqe_low", 4.0), ("fqe_high", 6.0), ("wis", np.nan), ("wis_low", np.nan)):
        table[f"evaluation_off_policy_{name}"] = np.full(rows, value)
    (figure,) = figures(table, "updates")
    last = int(table["updates"][-1])
    assert figure.find("svg").get("aria-label") == (
        f"mean discounted return of the newest evaluation's episodes: from 4.5 to 4.5 over {last} updates; "
        "estimate of the discounted return from recorded episodes, at the newest evaluation: from 5 to 5 "
        f"over {last} updates"
    )
    markup = ElementTree.tostring(figure, encoding="unicode")
    assert "fill: var(--line-1)" in markup  # the interval


def test_all_colours_are_the_pages_own(tmp_path):
    lag = drawn(tmp_path)[2]
    markup = ElementTree.tostring(lag, encoding="unicode")
    colours = {*re.findall(r"(?:fill|stroke): ?([^;\"]+)", markup)}
    assert colours == {"none", *(f"var(--{name})" for name in ("dim", "grid", "line-0", "line-1"))}
