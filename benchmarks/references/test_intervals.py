"""Statistics of sweeps beside rliable's: interquartile means and probabilities of improvement."""

import numpy as np
from rliable import metrics

from benchmarks.references.figures import agree, differ
from distrl.apps.reports.intervals import improvement, interquartile_mean

GROUP = "Sweeps"


def scores(seed, runs, environments=1):
    """Scores [runs, environments] in steps of a half, so that some are equal."""
    return np.round(2.0 * np.random.default_rng(seed).normal(size=(runs, environments))) / 2.0


def test_interquartile_means():
    drawn = [scores(seed, 8, environments) + 3.0 for seed, environments in enumerate((1, 2, 5))]
    found = [interquartile_mean(each.ravel()) for each in drawn]
    expected = [metrics.aggregate_iqm(each) for each in drawn]
    agree(
        GROUP,
        "interquartile mean of 8, 16 and 40 scores",
        "rliable.metrics.aggregate_iqm",
        found,
        expected,
        allowed=1e-9,
    )
    odd = np.array([[0.0], [1.0], [2.0], [4.0], [9.0]])
    why = "scores at the edges count by their share; rliable leaves out whole ones, here one of five at each end"
    found, expected = interquartile_mean(odd.ravel()), metrics.aggregate_iqm(odd)
    differ(
        GROUP, "interquartile mean of 5 scores", "rliable.metrics.aggregate_iqm", found, expected, least=1e-3, note=why
    )


def test_probabilities_of_improvement():
    pairs = [(scores(seed, 7, 3), scores(seed + 10, 4, 3) - 0.5) for seed in range(5)]
    found = [improvement(list(ours.T), list(theirs.T)).centre for ours, theirs in pairs]
    expected = [metrics.probability_of_improvement(ours, theirs) for ours, theirs in pairs]
    what = "probability of improvement, 7 against 4 runs in 3 environments, with ties"
    agree(GROUP, what, "rliable.metrics.probability_of_improvement", found, expected, allowed=1e-9)
