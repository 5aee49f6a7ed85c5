"""A middleware of named blocks: any acyclic graph of inputs, mergers and layers."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from distrl.config.layers import Layer, LayerDefaults
from distrl.config.section import Section

OUTPUT = "output"
"""The block whose result is the middleware's."""


class GraphBlock(Section):
    """One node: its inputs are merged, then come its layers."""

    inputs: tuple[str, ...]
    """Names of observations or of other blocks, merged in the order of the names."""
    merger: Literal["Concat", "Sum"] = "Concat"
    layers: tuple[Layer, ...] = ()


class GraphMiddlewareParameters(LayerDefaults):
    """Blocks that take embeddings of observations and results of other blocks by name; `output` feeds the heads."""

    kind: Literal["graph"] = "graph"
    blocks: dict[Annotated[str, Field(pattern=r"^\w+$")], GraphBlock]
    """Name -> block. They also replace the network's merger."""

    @model_validator(mode="after")
    def _all_leads_to_the_output(self) -> Self:
        if OUTPUT not in self.blocks:
            raise ValueError(
                f"blocks has no {OUTPUT!r}, whose result goes to the heads; there are {_listed(self.blocks)}"
            )
        for name, block in self.blocks.items():
            if not block.inputs:
                raise ValueError(f"blocks.{name}.inputs is empty")
            twice = next((given for given in block.inputs if block.inputs.count(given) > 1), None)
            if twice is not None:
                raise ValueError(f"blocks.{name}.inputs has {twice!r} twice")
        used = set(order(self.blocks))
        if idle := [name for name in self.blocks if name not in used]:
            raise ValueError(f"blocks.{idle[0]} leads to no {OUTPUT!r}")
        return self


def order(blocks: Mapping[str, GraphBlock]) -> list[str]:
    """Return the names of the blocks that `output` needs, each after its inputs; ends with `output`.

    Raises:
        ValueError: The blocks run in a circle; the message names it.
    """
    done: list[str] = []

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            raise ValueError(f"blocks run in a circle: {' -> '.join([*path[path.index(name) :], name])}")
        if name in blocks and name not in done:
            for given in blocks[name].inputs:
                visit(given, (*path, name))
            done.append(name)

    visit(OUTPUT, ())
    return done


def _listed(names: Mapping[str, GraphBlock]) -> str:
    return ", ".join(names) if names else "none"
