"""The colours of lines: each two differ, also for colour-blind readers, and each stands out from the page."""

import itertools
import re

import numpy as np
import pytest

from distrl.apps.dashboard.assets import STATIC

# Machado, Oliveira and Fernandes 2009, "A Physiologically-based Model for Simulation of Color Vision Deficiency",
# table 1: linear RGB -> linear RGB, severity 1.
SEEN_BY = {
    "everyone": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
LEAST = {"everyone": 30.0, "protanopia": 18.0, "deuteranopia": 18.0, "tritanopia": 14.0}
"""CIE76 colour difference; 2.3 is just noticeable."""
XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
WHITE = XYZ.sum(axis=1)


def pairs_of(name):
    """Linear RGB of a custom property, in light and in dark."""
    (found,) = re.findall(rf"--{name}: light-dark\((#\w{{6}}), (#\w{{6}})\);", (STATIC / "style.css").read_text())
    values = np.array([[int(one[at : at + 2], 16) for at in (1, 3, 5)] for one in found]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(linear):
    scaled = linear @ XYZ.T / WHITE
    x, y, z = np.where(scaled > 0.008856, np.cbrt(scaled), 7.787 * scaled + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("reader", [*SEEN_BY])
@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_each_two_lines_differ(theme, reader):
    seen = [lab(np.clip(SEEN_BY[reader] @ pairs_of(f"c{at}")[theme], 0, 1)) for at in range(8)]
    nearest = min(np.linalg.norm(one - other) for one, other in itertools.combinations(seen, 2))
    assert nearest >= LEAST[reader]


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_lines_stand_out_from_the_page(theme):
    def light(name):
        return XYZ[1] @ pairs_of(name)[theme] + 0.05

    for at in range(8):
        low, high = sorted([light(f"c{at}"), light("surface")])
        assert high / low >= 3.0, at  # WCAG 2.2, 1.4.11
