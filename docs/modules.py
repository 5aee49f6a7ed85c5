"""Prints the packages and modules of distrl, each with what its docstring says first: a page of the site.

python docs/modules.py
"""

import ast
import re
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "distrl"
MARKUP = re.compile(r"`[^`]*`|[<*]")
HEADER = """# Modules

What each package of distrl holds, and the first line of each module's docstring.
[Architecture](architecture.md) explains how they work together.
"""


def page(package: Path = PACKAGE) -> str:
    """Return the page: a section for each package, in alphabetical order, the outermost first."""
    return HEADER + "".join(_section(file, package) for file in sorted(package.rglob("__init__.py")))


def _section(file: Path, package: Path) -> str:
    lines = [f"\n## `{file.parent.relative_to(package.parent).as_posix()}/`\n", _docstring(file, package), ""]
    modules = sorted(path for path in file.parent.glob("*.py") if not path.name.startswith("__"))
    lines += [f"- `{path.name}`: {_first_line(path, package)}" for path in modules]
    return "\n".join(lines).rstrip() + "\n"


def _first_line(file: Path, package: Path) -> str:
    return " ".join(_docstring(file, package).partition("\n\n")[0].split())


def _docstring(file: Path, package: Path) -> str:
    """Return the docstring of a module as Markdown.

    Raises:
        ValueError: It has none.
    """
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
    if not text:
        name = file.relative_to(package.parent).as_posix()
        raise ValueError(f"{name} has no docstring: say what it holds, who uses it, and what must not go in")
    return MARKUP.sub(lambda found: found[0] if found[0][0] == "`" else f"\\{found[0]}", text)


if __name__ == "__main__":
    print(page(), end="")
