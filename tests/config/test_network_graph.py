import pytest
from pydantic import ValidationError

from distrl.config.load import load
from distrl.config.network import GraphMiddlewareParameters, NetworkParameters, order
from distrl.errors import ConfigError


def blocks(**inputs):
    return {name: {"inputs": given} for name, given in inputs.items()}


def test_order_puts_every_block_after_those_that_it_takes():
    parsed = GraphMiddlewareParameters(blocks=blocks(output=["b", "c"], c=["b", "x"], b=["a"], a=["x"])).blocks
    assert order(parsed) == ["a", "b", "c", "output"]


@pytest.mark.row("L14")
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (blocks(output=["a"], a=["b", "x"], b=["a"]), "blocks run in a circle: a -> b -> a"),
        (blocks(output=["output"]), "blocks run in a circle: output -> output"),
        (blocks(a=["x"]), "blocks has no 'output', whose result goes to the heads; there are a"),
        ({}, "there are none"),
        (blocks(output=["x"], a=["x"]), "blocks.a leads to no 'output'"),
        (blocks(output=["x", "x"]), "blocks.output.inputs has 'x' twice"),
        (blocks(output=["a"], a=[]), "blocks.a.inputs is empty"),
    ],
)
def test_blocks_that_are_no_graph_are_refused(given, message, tmp_path):
    with pytest.raises(ValidationError, match=message):
        GraphMiddlewareParameters(blocks=given)
    lines = "".join(f"      {name}: {{inputs: {block['inputs']}}}\n" for name, block in given.items())
    text = f"network:\n  middleware_parameters:\n    kind: graph\n    blocks:{' {}' if not given else ''}\n{lines}"
    (tmp_path / "run.yaml").write_text(text)
    with pytest.raises(ConfigError, match=f"^network.middleware_parameters: .*{message}"):
        load(file=tmp_path / "run.yaml")


def test_it_is_a_kind_of_middleware():
    middleware = {"kind": "graph", "blocks": {"output": {"inputs": ["x"], "layers": [64]}}}
    parameters = NetworkParameters.model_validate({"middleware_parameters": middleware}).middleware_parameters
    assert isinstance(parameters, GraphMiddlewareParameters)
    assert parameters.blocks["output"].layers == (64,)
