"""Networks with layers of the user's own: tried in a child process before anything is launched."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import distrl
from distrl.config.load import load
from distrl.errors import ConfigError
from distrl.launch import external_network
from distrl.launch.external_network import check_own_layers, try_out
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec

SPEC = EnvSpec("CartPole-v1", {"observation": ArraySpec((4,), "float32")}, {"action": DiscreteSpec(2)})
OWN = """
import keras

class Net(keras.Model):
    def __init__(self, width=8, exact=True, name="model"):
        super().__init__(name=name)
        self.dense = keras.layers.Dense(width, activation="gelu", name="inner")
        self.rest = None if exact else keras.layers.Discretization([0.0], name="buckets")

    def call(self, inputs):
        x = self.dense(inputs["observation"])
        return x if self.rest is None else keras.ops.cast(self.rest(x), "float32")
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_gelu.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield (
        lambda **arguments: (
            load(
                preset="cartpole-impala", sets=["network.model=own_gelu:Net", f"network.model_arguments={arguments}"]
            ).config
        )
    )
    sys.modules.pop("own_gelu", None)


class Said:
    """In place of the parent."""

    def __init__(self):
        self.messages = []

    def say(self, **message):
        self.messages.append(message)


def tried(config):
    parent = Said()
    try_out({"config": config.model_dump(mode="json", exclude_unset=True), "spec": SPEC.to_json()}, parent)
    return parent.messages


def test_networks_of_known_layers_start_no_process(monkeypatch):
    monkeypatch.setattr(external_network, "answer_of", None)
    lines = []
    check_own_layers(load(preset="cartpole-impala").config, SPEC, lines.append)
    assert lines == []


CUSTOM = "{kind: custom, layer: keras.layers:Softmax}"


@pytest.mark.parametrize(
    "where",
    [
        f"middleware_parameters.scheme=[4, {CUSTOM}]",
        f"middleware_parameters.scheme=[{{kind: residual, layers: [{CUSTOM}]}}]",
        f"input_embedders_parameters={{observation: {{scheme: [{CUSTOM}]}}}}",
        f"middleware_parameters={{kind: graph, blocks: {{output: {{inputs: [observation], layers: [{CUSTOM}]}}}}}}",
        "model=own:Net",
    ],
)
def test_they_are_tried_wherever_the_layer_is(monkeypatch, where):
    asked = []
    monkeypatch.setattr(external_network, "answer_of", lambda *request: asked.append(request))
    check_own_layers(load(preset="cartpole-impala", sets=[f"network.{where}"]).config, SPEC, lambda _: None)
    ((function, request, what, _),) = asked
    assert function == "distrl.launch.external_network:try_out"
    assert EnvSpec.from_json(request["spec"]) == SPEC
    assert what in ("the network's custom layers", "network.model own:Net")


def test_the_graph_stays_in_the_cache_for_the_learner(own, tmp_path):
    assert tried(own(width=5)) == [{"exported": True}]
    (graph,) = (tmp_path / "cache" / "distrl" / "bundles").iterdir()
    assert graph.suffix == ".onnx"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"exact": False},
            r"policy export: layer main/model/buckets \(Discretization\) computes Bucketize, which cannot be exported",
        ),
        ({"widht": 3}, r"network\.model: layer own_gelu:Net: .*unexpected keyword argument 'widht'"),
    ],
)
def test_what_is_wrong_with_it_is_one_line(own, arguments, message):
    with pytest.raises(ConfigError, match=f"^{message}") as raised:
        tried(own(**arguments))
    assert "\n" not in str(raised.value)
    assert raised.value.__cause__ is None


@pytest.mark.long
@pytest.mark.slow
def test_the_launch_is_refused_before_anything_is_written(own, tmp_path):
    """Through the real command."""
    given = {"network.model": "own_gelu:Net", "network.model_arguments": "{exact: false}"}
    given["slurm.python"] = "python3"  # a section of an application
    done = subprocess.run(
        [sys.executable, "-P", "-m", "distrl", "train", "--preset", "cartpole-impala", "--plain", "--run-dir", "run"]
        + [part for name, value in given.items() for part in ("--set", f"{name}={value}")],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(distrl.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        2,
        "distrl: error: policy export: layer main/model/buckets (Discretization) computes Bucketize, which cannot be "
        "exported to ONNX; take another layer (docs/networks.md)",
    )
    assert not (tmp_path / "run").exists()
