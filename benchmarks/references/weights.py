"""Weights of distrl's networks beside those of a PyTorch module: copied, and compared."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from benchmarks.references.figures import agree, differ
from distrl.networks.network import Network


@dataclass
class Pair:
    """One weight on both sides.

    Attributes:
        path: Name of distrl's weight after the network's name.
        theirs: The parameter or buffer; a kernel [in, out] is a torch weight [out, in].
        rows: Order in which the reference takes the inputs of distrl's kernel; None: the same.
        columns: Order in which it gives the outputs; None: the same.
    """

    path: str
    theirs: torch.Tensor
    rows: Sequence[int] | None = None
    columns: Sequence[int] | None = None
    start: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def arranged(self, ours: np.ndarray) -> np.ndarray:
        """Return distrl's array as the reference lays it out."""
        if self.rows is not None:
            ours = ours[np.asarray(self.rows)]
        if self.columns is not None:
            ours = ours[..., np.asarray(self.columns)]
        return ours.T if ours.ndim == 2 else ours


class Twins:
    """A network and its reference; the reference begins with distrl's weights."""

    def __init__(self, copy: Network, pairs: Sequence[Pair]) -> None:
        self._copy, self.pairs = copy, list(pairs)
        given = self._ours()
        assert given.keys() == {pair.path for pair in self.pairs}, "each weight has one twin"
        for pair in self.pairs:
            pair.start = pair.arranged(given[pair.path]).copy()
            with torch.no_grad():
                pair.theirs.copy_(torch.from_numpy(np.array(pair.start)))

    @property
    def found(self) -> list[np.ndarray]:
        """distrl's weights, as the reference lays them out."""
        ours = self._ours()
        return [pair.arranged(ours[pair.path]) for pair in self.pairs]

    @property
    def expected(self) -> list[np.ndarray]:
        """The reference's weights."""
        return [pair.theirs.detach().numpy() for pair in self.pairs]

    @property
    def moved(self) -> float:
        """How far the reference's weights moved at most."""
        return max(float(np.abs(now - pair.start).max()) for now, pair in zip(self.expected, self.pairs, strict=True))

    def agree(self, group: str, what: str, reference: str, *, allowed: float, note: str = "") -> None:
        """Compare all weights; see `figures.agree`."""
        agree(group, what, reference, self.found, self.expected, allowed=allowed, of=self.moved, note=note)

    def differ(self, group: str, what: str, reference: str, *, least: float, note: str) -> None:
        """Keep the difference of all weights; see `figures.differ`."""
        differ(group, what, reference, self.found, self.expected, least=least, of=self.moved, note=note)

    def gradients(self, by_name: Mapping[str, np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Return distrl's gradients, given by the weights' names, and those that the reference has now."""
        ours = {_path(name): array for name, array in by_name.items()}
        found = [pair.arranged(ours[pair.path]) for pair in self.pairs]
        return found, [pair.theirs.grad.numpy() for pair in self.pairs if pair.theirs.grad is not None]

    def _ours(self) -> dict[str, np.ndarray]:
        named = self._copy.named_weights().items()
        return {_path(name): array for name, array in named if not name.endswith("/updates")}


def dense(
    path: str, layer: Any, *, rows: Sequence[int] | None = None, columns: Sequence[int] | None = None
) -> Iterator[Pair]:
    """Return the pairs of a dense layer's kernel and bias."""
    yield Pair(f"{path}/kernel", layer.weight, rows, columns)
    yield Pair(f"{path}/bias", layer.bias, columns=columns)


def _path(name: str) -> str:
    return name.partition("/")[2]
