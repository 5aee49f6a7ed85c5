"""Writes the table at the top of docs/algorithms.md: what each algorithm takes, from the sections of the configuration.

Actions and networks are those that the section does not refuse. Paper and use are in its docstring: "NAME (Authors
year, arXiv:number): …", and a paragraph "Use it …".

    python docs/algorithms.py
"""

import inspect
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distrl.config import RunConfig
from distrl.config.algorithms import ALGORITHMS, AlgorithmSection
from distrl.errors import ConfigError
from distrl.types import ActionSpec, ArraySpec, BoxSpec, DiscreteSpec, EnvSpec, MultiBinarySpec, MultiDiscreteSpec

PAGE = Path(__file__).resolve().parent / "algorithms.md"
BEGIN = "<!-- table: begin, written by make algorithms -->\n"
END = "<!-- table: end -->\n"
HEADER = "| Algorithm | Actions | Network | Learns from | Paper | Use it |\n|---|---|---|---|---|---|\n"

CHOICE, BOUNDED = DiscreteSpec(3), BoxSpec((2,), (-1.0, -1.0), (1.0, 1.0))
ACTIONS: dict[str, list[ActionSpec]] = {
    "choice": [CHOICE],
    "multi_discrete": [MultiDiscreteSpec((2, 3), (0, 0))],
    "switches": [MultiBinarySpec((2,))],
    "choices": [CHOICE, CHOICE],
    "bounded": [BOUNDED],
    "several bounded": [BOUNDED, BOUNDED],
    "unbounded": [BoxSpec((1,), (None,), (None,))],
    "mixed": [CHOICE, BOUNDED],
}
WORDS = {
    frozenset(ACTIONS): "every kind",
    frozenset({"choice", "multi_discrete", "switches", "choices"}): "choices, one or several",
    frozenset({"choice"}): "one choice",
    frozenset({"bounded", "several bounded"}): "bounded numbers",
    frozenset({"bounded"}): "one bounded action",
}
NETWORKS = {"dense": "fc", "recurrent": "lstm"}
ITEMS = ("transition", "sequence")
LINKS = {"arXiv": "https://arxiv.org/abs/", "doi": "https://doi.org/"}
PAPER = re.compile(r"\(([A-Z][^()]* \d{4})(?:, (arXiv|doi):([^()\s]+))?\)")


def page(before: str) -> str:
    """The page with a new table in place of the one between the marks."""
    head, table = before.split(BEGIN)
    return head + BEGIN + HEADER + "".join(map(_row, ALGORITHMS.values())) + END + table.split(END)[1]


def _row(section: type[AlgorithmSection]) -> str:
    name = section.model_fields["name"].default
    paper, use = told(section)
    cells = (f"`{name}`", actions(section), networks(name), learns_from(section), paper, use)
    return f"| {' | '.join(cells)} |\n"


def told(section: type[AlgorithmSection]) -> tuple[str, str]:
    """Paper and use, from the docstring.

    Raises:
        ValueError: It lacks one of them.
    """
    text = inspect.cleandoc(vars(section)["__doc__"])
    first, *paragraphs = (" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
    paper = PAPER.search(first)
    use = next((each.removeprefix("Use it ") for each in paragraphs if each.startswith("Use it ")), None)
    if paper is None or use is None:
        raise ValueError(f"{section.__name__}: its docstring has no paper, (Authors year), or no 'Use it …'")
    name, kind, number = paper.groups()
    return f"[{name}]({LINKS[kind]}{number})" if kind else name, use.rstrip(".")


def actions(section: type[AlgorithmSection]) -> str:
    """The actions that the section does not refuse, in words."""
    taken = frozenset(kind for kind, given in ACTIONS.items() if _takes(section, given))
    if taken not in WORDS:
        raise ValueError(f"{section.__name__} takes {', '.join(sorted(taken))}: docs/algorithms.py has no words for it")
    return WORDS[taken]


def _takes(section: type[AlgorithmSection], given: Sequence[ActionSpec]) -> bool:
    spec = EnvSpec("x", {"observation": ArraySpec((3,), "float32")}, {f"action {i}": a for i, a in enumerate(given)})
    try:
        section().check_actions(spec)
    except ConfigError:
        return False
    return True


def networks(name: str) -> str:
    """The networks that the algorithm does not refuse, of transitions or of sequences, in words."""
    from_replay = "replay" in ALGORITHMS[name].model_fields
    items = ITEMS if from_replay else (None,)
    taken = [words for words, kind in NETWORKS.items() if any(_learns(name, kind, item) for item in items)]
    if not taken:
        raise ValueError(f"algorithm {name} refuses every network that docs/algorithms.py knows")
    return " or ".join(taken)


def _learns(name: str, network: str, item: str | None) -> bool:
    """Whether the algorithm learns with a network of this kind, from a replay memory's items of that kind."""
    algorithm: dict[str, Any] = {"name": name} if item is None else {"name": name, "replay": {"item": {"kind": item}}}
    section = {"middleware_parameters": {"kind": network}, "use_separate_networks_per_head": True}
    recorded = {"data": {"sets": "recorded"}, "actors": {"count": 0}}  # imitation refuses actors
    source = recorded if ALGORITHMS[name].learns_from == "anybody" else {}
    try:
        RunConfig.model_validate({"algorithm": algorithm, "network": section, **source})
    except ValueError as error:
        if not re.search(r"middleware|replay\.item", str(error)):
            raise
        return False
    return True


def learns_from(section: type[AlgorithmSection]) -> str:
    """Return the data of its updates, in words."""
    if section.ships == "gradients":
        return f"gradients of actors, {'in rounds' if section.rounds else 'applied as they come'}"
    replay = section().replay_parameters
    if replay is None:
        return "unrolls, also slightly old ones" if section().max_staleness_updates is None else "fresh unrolls"
    return "prioritised replay" if replay.sampler.kind == "prioritized" else "replay"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"wrote docs/{PAGE.name}")
