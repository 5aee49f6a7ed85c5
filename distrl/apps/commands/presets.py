"""`distrl presets`: the configurations that come with distrl, with facts about each."""

import json
import re
from typing import Annotated, Any

import typer

from distrl.apps.commands import completion
from distrl.apps.commands.printing import echo
from distrl.config.presets import missing_extras, preset_facts, preset_tree, read_preset
from distrl.config.presets import presets as described_presets
from distrl.errors import ConfigError

_SECTION = re.compile(r"^preset:.*\n(?:[ \t]+.*\n|\n)*", re.MULTILINE)


def presets(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="Print this preset, as a file to start from.", autocompletion=completion.presets
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="All facts about all presets, as JSON.")] = False,
) -> None:
    """List the configurations that come with distrl: what they must reach, and what they need.

    [cyan]distrl presets[/]

    [cyan]distrl presets cartpole-impala > mine.yaml[/]
    """
    if name is not None and as_json:
        raise ConfigError("--json prints the whole list; leave out the name, or --json")
    if as_json:
        echo(json.dumps([_known(name) for name in described_presets()], indent=2))
    elif name is not None:
        echo(_as_file(name), nl=False)
    else:
        for name, description in described_presets().items():
            echo(f"{name}  {typer.style(_facts(name), dim=True)}\n    {description}")


def _known(name: str) -> dict[str, Any]:
    tree, facts = preset_tree(name), preset_facts(name)
    missing = missing_extras(facts)
    return {
        "name": name,
        "description": described_presets()[name],
        "environment": tree["environment"]["id"],
        "algorithm": tree["algorithm"]["name"],
        **facts.model_dump(mode="json", exclude={"needs"}),
        "needs": [{"extra": extra, "installed": extra not in missing} for extra in facts.needs],
    }


def _facts(name: str) -> str:
    """Return environment, algorithm, threshold and needs in one line."""
    known = _known(name)
    acceptance = known["acceptance"]
    goal = f"{_number(acceptance['mean_return'])} within {acceptance['env_steps']:,} steps ({acceptance['measure']})"
    parts = [known["environment"], known["algorithm"], goal]
    for need in known["needs"]:
        parts.append(f"needs {need['extra']}" + ("" if need["installed"] else " (not installed)"))
    return " · ".join(parts)


def _as_file(name: str) -> str:
    """Return the configuration as a file for `distrl train`, with facts as comments."""
    first, rest = _SECTION.sub("", read_preset(name)).split("\n", 1)
    facts, comments = preset_facts(name), [first, f"# {_facts(name)}"]
    if facts.expected:
        expected = ", ".join(f"{mean:,g} at {steps:,}" for steps, mean in facts.expected)
        comments.append(f"# as measured with {facts.expected_from}: mean return {expected} steps")
    return "\n".join([*comments, rest])


def _number(value: float) -> str:
    return f"≥ {value:,g}".replace("-", "−")
