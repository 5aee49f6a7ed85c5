"""The child process that exports policies, called as the module that it is."""

import json
from pathlib import Path

import pytest

from distrl.config.heads import PolicyHeadParameters, ValueHeadParameters
from distrl.config.network import NetworkParameters
from distrl.errors import ConfigError
from distrl.networks.network import Network
from distrl.networks.policy import bundle, bundle_export
from distrl.networks.policy.export_process import ExportRequest
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec

SPEC = EnvSpec("Vector-v0", {"observation": ArraySpec((4,), "float32")}, {"action": DiscreteSpec(2)})
HEADS = (PolicyHeadParameters(), ValueHeadParameters())


def request(path, **parameters):
    return ExportRequest(NetworkParameters.model_validate(parameters), HEADS, SPEC, "main", False, str(path))


def test_the_graph_is_that_of_the_network_asked_for(tmp_path):
    path = tmp_path / "policy.onnx"
    scheme = {"middleware_parameters": {"scheme": [8]}}
    bundle_export.export(request(path, **scheme).to_json(), None)
    network = Network(NetworkParameters.model_validate(scheme), SPEC, HEADS, "main", seed=7)
    bundle.verify_graph(path.read_bytes(), network.model, network.policy_variables)
    assert [file.name for file in tmp_path.iterdir()] == ["policy.onnx"]


def test_what_cannot_be_exported_is_one_line(tmp_path):
    path = Path(tmp_path / "policy.onnx")
    given = request(path, middleware_parameters={"scheme": [{"kind": "conv2d", "filters": 4, "kernel_size": 3}]})
    with pytest.raises(ConfigError, match=r"^network\.middleware_parameters\.scheme\.0 \(conv2d\) does not fit"):
        bundle_export.export(given.to_json(), None)
    assert not path.exists()


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_requests_come_back_from_json(kind, tmp_path):
    spec = EnvSpec("x", {"a/b": ArraySpec((2, 2), "uint8", 0, 255)}, {"action": DiscreteSpec(3, 1)}, 475.0, 500)
    parameters = NetworkParameters.model_validate({"middleware_parameters": {"kind": kind}, "clip_gradients": 0.5})
    heads = (ValueHeadParameters(units=(3,)), PolicyHeadParameters())
    given = ExportRequest(parameters, heads, spec, "main", True, "/x")
    assert ExportRequest.from_json(json.loads(json.dumps(given.to_json()))) == given
