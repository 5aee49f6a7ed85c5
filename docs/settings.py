"""Prints every setting with its values, default and meaning, of the sections' types and docstrings: a page of the site.

python docs/settings.py
"""

from distrl.apps.config.reference import SectionReference, sections

HEADER = """# Settings

Every setting of a configuration file, by section. `--set` and `distrl set` take the same names with dots, like
`--set network.learning_rate=1e-3`. `[]` stands for a place in a list, `<name>` for a name of your own.
`distrl config explain KEY` prints the entry of one setting, `distrl config schema` prints a JSON schema for editors.
"""


def page() -> str:
    """Return the page."""
    return HEADER + "".join(map(_section, sections()))


def _section(section: SectionReference) -> str:
    title = f"`{section.paths[0]}`" if section.paths != [""] else "The tree"
    title += f", `{section.kind}`" if section.kind else ""
    further = ", ".join(f"`{path}`" for path in section.paths[1:5]) + (", …" if len(section.paths) > 5 else "")
    lines = [f"\n## {title}\n", _cell(section.meaning), f"Also at {further}." if further else ""]
    text = "\n".join(filter(None, lines)) + "\n"
    rows = [row for row in section.settings if f"{row.name}: {row.default}" != section.kind]
    if not rows:
        return text
    table = [f"| `{row.name}` | {_cell(row.values)} | {_code(row.default)} | {_cell(row.meaning)} |\n" for row in rows]
    return text + "\n| Setting | Values | Default | Meaning |\n|---|---|---|---|\n" + "".join(table)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("[", "\\[")


def _code(text: str) -> str:
    return f"`{text}`" if text and text != "required" else text


if __name__ == "__main__":
    print(page(), end="")
