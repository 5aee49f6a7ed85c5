import json
import subprocess
import sys

import numpy as np
import pytest

from benchmarks import accelerator
from benchmarks.accelerator import CASES, configuration, operations
from benchmarks.speed import NOTHING


def of_preset(name):
    """Return the operations of the case's network on one stack of four frames of 84 x 84, from the learner's model."""
    from distrl.algorithms import make_algorithm
    from distrl.types import ArraySpec, DiscreteSpec, EnvSpec

    config = configuration(CASES[name], "tensorflow", 1)
    seen = {"observation": ArraySpec((84, 84, 4), "uint8")}
    networks = make_algorithm(config).build(EnvSpec("p", observations=seen, actions={"action": DiscreteSpec(6)}))
    return operations(networks["main"].online.model)


def test_operations_of_the_nature_network():
    convolutions = [8 * 8 * 4 * 32 * 20 * 20, 4 * 4 * 32 * 64 * 9 * 9, 3 * 3 * 64 * 64 * 7 * 7]
    dense = [7 * 7 * 64 * 512, 512 * 6, 512 * 1]
    assert of_preset("nature-float32") == 2 * (3 * sum(convolutions + dense) - convolutions[0])


def test_operations_of_the_deep_network():
    places = [84 * 84, 42 * 42, 21 * 21, 11 * 11]
    first = 9 * 4 * 16 * places[0]
    convolutions = [9 * 16 * 32 * places[1], 9 * 32 * 32 * places[2]]
    residual = [4 * 9 * 16 * 16 * places[1], 4 * 9 * 32 * 32 * places[2], 4 * 9 * 32 * 32 * places[3]]
    dense = [11 * 11 * 32 * 256, 256 * 6, 256]
    assert of_preset("resnet-float32") == 2 * (3 * sum([first, *convolutions, *residual, *dense]) - first)


def test_the_page_s_figures():
    entry = {
        "name": "nature-float32, jax, cpu",
        "commit": "abc1234",
        "date": "2026-01-02",
        "machine": "2 cores (X)",
        "load_before": 0.1,
        "frames_per_update": 640,
        "update_s": 0.5,
        "flops_per_update": 5e10,
        "peak_flops_per_s": 2e11,
        "batch_bytes": 5_000_000,
        "feed_s": 0.01,
        "threads_feed_s": {"2": 0.008},
        "copy_s": 0.005,
    }
    assert accelerator.block({"command": "c", "results": []}) == NOTHING
    text = accelerator.block({"command": "c", "results": [entry]})
    assert text.splitlines()[-1] == (
        "| nature-float32, jax, cpu | 640 | 2.00 | 1,280 | 0.1 of 0.2 (50%) | 64,000 | 80,000 | 128,000 (1.0 GB/s) |"
    )


@pytest.mark.long
@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_a_case_is_measured(backend, tmp_path):
    small = "from benchmarks import accelerator; accelerator.PEAK_SIZE = {'cpu': 64, 'gpu': 64}; accelerator.main()"
    arguments = ["--only", "nature-float32", "--backend", backend, "--unrolls", "1", "--seconds", "0.01"]
    # In a process of its own, which has one numeric framework.
    subprocess.run([sys.executable, "-c", small, *arguments, "--out", str(tmp_path)], check=True)
    entry = json.loads((tmp_path / "accelerator.json").read_text())["results"][0]
    assert entry["frames_per_update"] == 640
    assert entry["batch_bytes"] > 640 * 84 * 84
    taken = [entry[key] for key in ("update_s", "peak_flops_per_s", "feed_s", "copy_s")]
    assert np.isfinite([*taken, *(entry["threads_feed_s"][count] for count in ("2", "4", "8"))]).all()
