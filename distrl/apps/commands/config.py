"""`distrl config`: a configuration with the origin of every value, and the meaning of settings."""

import json
from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated

import typer

from distrl.apps.commands import completion
from distrl.apps.commands.help import App, takes
from distrl.apps.commands.options import Layers, RunOrConfigArgument
from distrl.apps.commands.printing import echo
from distrl.apps.config.configuration import Configuration, load
from distrl.config.document import shown
from distrl.config.explain import ALIASES, known_paths
from distrl.config.load import dump
from distrl.config.presets import nearest
from distrl.config.secrets import masked_text
from distrl.errors import ConfigError
from distrl.files import read_small

if TYPE_CHECKING:
    from distrl.apps.config.reference import SettingRow

app = App(help="Look at configurations.")


@app.command()
@takes(Layers)
def show(
    layers: Layers,
    config: RunOrConfigArgument = None,
) -> None:
    """Show every value of a configuration, passwords masked, and where it comes from; without arguments, the defaults.

    [cyan]distrl config show runs/first[/]

    [cyan]distrl config show --preset cartpole-impala --set actors.count=4[/]
    """
    if config is None or not config.is_dir():
        from distrl.launch.external_algorithm import settled

        echo(masked_text(dump(settled(layers.load()))), nl=False)
        return
    if given := layers.given():
        raise ConfigError(f"{config} is a run, whose configuration is settled: {' and '.join(given)} cannot change it")
    effective = config / "config.yaml"
    load(file=effective)  # a damaged or foreign file is an error in one line, not a page
    echo(masked_text(read_small(effective).decode()), nl=False)


@app.command()
def explain(
    key: Annotated[
        str,
        typer.Argument(
            metavar="KEY",
            help="A setting or a section, like network.learning_rate; or the last part of its name.",
            autocompletion=completion.settings,
        ),
    ],
    kind: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="One kind of a section that has several, like ppo.")
    ] = None,
) -> None:
    """Explain a setting: its type, bounds, default and meaning. `make site` builds a page of all settings.

    [cyan]distrl config explain network.learning_rate[/]

    [cyan]distrl config explain algorithm ppo[/]
    """
    # Imported here: it makes the JSON schema of everything, which takes a fifth of a second.
    from distrl.apps.config import reference

    paths = _paths(key)
    for number, path in enumerate(paths):
        echo("\n" * bool(number) + "\n".join(_explained(path, reference.find(path), kind)))


@app.command()
def schema() -> None:
    """Print the JSON schema of a configuration file, for editors and other programs.

    [cyan]distrl config schema > distrl.schema.json[/], and in the first line of a YAML file:
    [cyan]# yaml-language-server: $schema=distrl.schema.json[/]
    """
    from distrl.apps.config import reference

    echo(json.dumps(reference.schema(), indent=2))


def _paths(key: str) -> list[str]:
    """Return the paths of the settings that a key names: one, or all with this last part."""
    from distrl.apps.config import reference

    if reference.find(key):
        return [key]
    known, last = known_paths(Configuration), key.rpartition(".")[2]
    found = [path for path in known if path.rpartition(".")[2] == key]
    if not found and last.lower() in ALIASES:
        found = [ALIASES[last.lower()]]
    if not found:
        close = get_close_matches(key, [*known, *(path.rpartition(".")[2] for path in known)], n=1)
        hint = f"did you mean {close[0]}?" if close else f"the sections are {', '.join(Configuration.model_fields)}"
        raise ConfigError(f"unknown setting {shown(key)}; {hint}")
    return found


def _explained(path: str, settings: "Iterable[SettingRow]", kind: str | None) -> list[str]:
    """Return lines about a setting. Kinds of a section with the same setting share them."""
    same: dict[tuple[str, str, str], list[SettingRow]] = {}
    for setting in settings:
        same.setdefault((setting.values, setting.default, setting.meaning), []).append(setting)
    lines = []
    for (values, default, meaning), together in same.items():
        field = together[0].kind.partition(": ")[0]
        kinds = dict.fromkeys(setting.kind.removeprefix(f"{field}: ") for setting in together if setting.kind)
        of = f"  ({field}: {', '.join(kinds)})" if kinds else ""
        lines.append(f"{typer.style(path, bold=True)}: {values}{f', default {default}' if default else ''}{of}")
        lines += [f"    {meaning}"] if meaning else []
        lines += _inner(path, together[0], kind)
    return lines


def _inner(path: str, setting: "SettingRow", kind: str | None) -> list[str]:
    """Return the settings of a section, one line each; of several kinds, those of one, or the names of all.

    Raises:
        ConfigError: It has no such kind.
    """
    from distrl.apps.config import reference

    kinds: dict[str, list[SettingRow]] = {}
    for found in reference.settings_of(setting.schema):
        kinds.setdefault(found.kind, []).append(found)
    names = {key.partition(": ")[2]: key for key in kinds if key}
    if kind is not None and kind not in names:
        has = f"its kinds are {', '.join(names)}" if names else "it has no kinds"
        raise ConfigError(f"{path} has no kind {shown(kind)}: {nearest(kind, [*names]) if names else has}")
    if kind is None and len(names) > 1:
        first, key = next(iter(names.items()))
        field = key.partition(": ")[0]
        return [f"  {field}: {', '.join(names)}", f"  the settings of one: distrl config explain {path} {first}"]
    lines = []
    for key in [*kinds] if kind is None else [names[kind]]:
        lines += [f"  {typer.style(key, dim=True)}"] if key else []
        for each in kinds[key]:
            if f"{each.name}: {each.default}" == key:
                continue
            default = f" = {each.default}" if each.default else ""
            lines.append(f"  {each.name}{default}{typer.style(f'  {each.meaning}'.rstrip(), dim=True)}")
    return lines
