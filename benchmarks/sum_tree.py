"""Time of the replay memory's sum tree: python benchmarks/sum_tree.py [--json] [--items N] [--batch N]."""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable

import numpy as np

from distrl.replay.sum_tree import FAN_OUT, SumTree


def median_ms(call: Callable[[], object], repeats: int) -> float:
    """Return the median time of one call, after a warm-up."""
    times_s = []
    for repeat in range(repeats + 10):
        began = time.perf_counter()
        call()
        if repeat >= 10:
            times_s.append(time.perf_counter() - began)
    return 1000.0 * statistics.median(times_s)


def measure(items: int, batch: int, repeats: int) -> dict[str, float | int | str]:
    """Return the median times to draw and to change `batch` of `items` items."""
    rng = np.random.default_rng(0)
    tree = SumTree(items)
    tree.update(np.arange(items), rng.random(items))
    drawn = tree.sample(rng, batch)
    weights = rng.random(batch)
    return {
        "items": items,
        "batch": batch,
        "fan_out": FAN_OUT,
        "sample_ms": round(median_ms(lambda: tree.sample(rng, batch), repeats), 4),
        "update_ms": round(median_ms(lambda: tree.update(drawn, weights), repeats), 4),
        "numpy": np.__version__,
        "machine": platform.machine(),
    }


def main() -> None:
    """Print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=500)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = measure(given.items, given.batch, given.repeats)
    if given.json:
        print(json.dumps(found))
    else:
        print(f"{found['items']:,} items, median of {given.repeats}:")
        print(f"  sample {found['batch']}: {found['sample_ms']} ms")
        print(f"  update {found['batch']}: {found['update_ms']} ms")


if __name__ == "__main__":
    main()
