"""Exports by a child process: what it is given, how it fails, and what a learner on JAX makes of it."""

import contextlib
import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import distrl
from distrl.config.heads import PolicyHeadParameters, ValueHeadParameters
from distrl.config.network import NetworkParameters
from distrl.errors import ConfigError, DistrlError, MissingExtraError
from distrl.networks.policy import export_process
from distrl.networks.policy.export_process import ExportRequest, export_in_child
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec

SPEC = EnvSpec("Vector-v0", {"observation": ArraySpec((4,), "float32")}, {"action": DiscreteSpec(2)})
HEADS = (PolicyHeadParameters(), ValueHeadParameters())
SMALL = {
    "input_embedders_parameters": {"observation": {"scheme": [6], "normalize": True}},
    "middleware_parameters": {"kind": "lstm", "number_of_lstm_cells": 8},
}
JAX_MISSING = find_spec("jax") is None and "CI" not in os.environ

LEARNER = """
import json, sys
from pathlib import Path
from distrl.config.heads import PolicyHeadParameters, ValueHeadParameters
from distrl.config.network import NetworkParameters
from distrl.errors import DistrlError
from distrl.networks.policy import bundle, export_process
from distrl.networks.network import Network
from distrl.types import EnvSpec

cache, spec, parameters = Path(sys.argv[1]), EnvSpec.from_json(sys.argv[2]), json.loads(sys.argv[3])
heads = (PolicyHeadParameters(), ValueHeadParameters())

def network(**changes):
    return Network(NetworkParameters.model_validate(parameters | changes), spec, heads, "main", 1)

first = bundle.export_bundle(network(), cache_dir=cache)
(file,) = cache.iterdir()
modified = file.stat().st_mtime_ns
again = bundle.export_bundle(network(), cache_dir=cache)
assert again == first
assert file.stat().st_mtime_ns == modified

def verify(**changes):
    made = network(**changes)
    bundle.verify_graph(first.graph, made.model, made.policy_variables)

verify()
attempts = [
    lambda: verify(softmax_temperature=3.0),
    lambda: bundle.export_graph(network().model),
    lambda: export_process.export_in_child(network().parameters, (), spec, "main", True),
]
for attempt in attempts:
    try:
        attempt()
    except DistrlError as error:
        print(error)
print(json.dumps([name for name in ("tensorflow", "tf2onnx") if name in sys.modules]))
"""


class Double:
    """In place of `Child`."""

    def __init__(self, exit_code=0, output="", messages=(), writes=None):
        self.exit_code, self.text, self.answers, self.writes = exit_code, output, list(messages), writes

    def __call__(self, function, request, *, timeout_s, variables):
        self.function, self.timeout_s, self.variables = function, timeout_s, variables
        self.request = ExportRequest.from_json(request)
        if self.writes is not None:
            Path(self.request.path).write_bytes(self.writes)
        return contextlib.nullcontext(self)

    def wait(self, timeout_s):
        assert timeout_s == self.timeout_s
        return self.exit_code

    def messages(self):
        return self.answers

    def output(self):
        return self.text


def export(monkeypatch, child):
    monkeypatch.setattr(export_process, "Child", child)
    return export_in_child(NetworkParameters.model_validate(SMALL), HEADS, SPEC, "main", as_inputs=False)


def test_the_child_is_told_the_structure_and_runs_on_tensorflow(monkeypatch):
    child = Double(writes=b"graph", output="what TensorFlow has to say for itself")
    assert export(monkeypatch, child) == b"graph"
    assert child.function == "distrl.networks.policy.bundle_export:export"
    assert child.request.parameters == NetworkParameters.model_validate(SMALL)
    assert (child.request.heads, child.request.spec, child.request.name) == (HEADS, SPEC, "main")
    assert not child.request.as_inputs
    assert not Path(child.request.path).parent.exists()
    assert child.variables["KERAS_BACKEND"] == "tensorflow"
    assert (child.variables["CUDA_VISIBLE_DEVICES"], child.variables["XLA_FLAGS"]) == ("", None)


@pytest.mark.parametrize(
    ("output", "messages", "why"),
    [
        ("Traceback …\n  deep\nValueError: no such layer\n\n", [], "ValueError: no such layer"),
        ("noise\n", [{"error": "it does not fit", "detail": ""}], "it does not fit"),
        ("", [], "it said nothing"),
    ],
)
def test_a_child_that_fails_is_one_line(monkeypatch, output, messages, why):
    with pytest.raises(DistrlError, match=f"^policy export: the TensorFlow process ended with -9: {why}$"):
        export(monkeypatch, Double(-9, output, messages))


def test_a_network_without_room_in_the_child_is_a_wrong_configuration(monkeypatch):
    said = [
        {"error": "ResourceExhaustedError: OOM when allocating tensor with shape[9,9] and type float", "detail": ""}
    ]
    with pytest.raises(ConfigError, match=r"^the network does not fit into memory: .* shape\[9,9\]; set narrower"):
        export(monkeypatch, Double(1, "", said))


def test_a_network_that_cannot_be_exported_is_a_wrong_configuration(monkeypatch):
    refused = [{"error": "layer a cannot be exported", "detail": "", "exit_code": 2}]
    with pytest.raises(ConfigError, match=r"^layer a cannot be exported$"):
        export(monkeypatch, Double(2, "", refused))


def test_a_child_that_does_not_end_is_told(monkeypatch):
    with pytest.raises(DistrlError, match="did not end within 600 s"):
        export(monkeypatch, Double(None))


@pytest.mark.parametrize("missing", ["tensorflow", "tf2onnx"])
def test_missing_packages_name_the_extra(monkeypatch, missing):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == missing else find_spec(name))
    with pytest.raises(MissingExtraError, match=r"exports policies, is not installed: pip install '.*\[cpu\]'"):
        export(monkeypatch, Double())


@pytest.mark.slow
@pytest.mark.skipif(JAX_MISSING, reason="JAX is not installed")
@pytest.mark.long
def test_a_learner_on_jax_has_tensorflow_export_what_it_cannot(tmp_path):
    environment = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    environment["PYTHONPATH"] = str(Path(distrl.__file__).parents[1])
    ranks = {"kind": "custom", "layer": "tests.networks.policy.ranks:Ranks"}
    parameters = SMALL | {"input_embedders_parameters": {"observation": {"scheme": [6, ranks], "normalize": True}}}
    command = [sys.executable, "-c", LEARNER, str(tmp_path / "cache"), SPEC.to_json(), json.dumps(parameters)]
    done = subprocess.run(
        command,
        env=environment,
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = done.stdout.splitlines()
    assert told[0].startswith("policy export: output 'policy/action' differs from the network by")
    assert re.match(r"policy export: layer \S+ \(Ranks\) computes sort of several arrays, which cannot be", told[1])
    assert told[2].startswith("network.heads_parameters: a network")
    assert told[3] == "[]"
