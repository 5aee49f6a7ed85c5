"""Writes the pages of the documentation's site from README, docs/ and examples/; `make site` then builds it.

GitHub and the site differ in what they allow: the site has one folder of pages, and fences without tags. So this copies
all pages into one folder, sets links anew, and turns notebooks and source files that pages link to into pages.
`GENERATED` names the scripts in docs/ whose pages exist in the site alone.
"""

import json
import os
import re
import runpy
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "build/pages"
FENCED = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
GENERATED = ("settings", "capabilities", "modules", "comparisons")
LINK = re.compile(r'(?P<before>\]\(|src=")(?P<path>[^)\s"#]*)(?P<anchor>#[^)\s"]*)?(?P<after>\)|")')


def sources() -> list[Path]:
    """Return the pages that are written by hand or made by other scripts, and the style sheet."""
    own = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"]
    return [*(ROOT / name for name in own), *sorted((ROOT / "docs").glob("*.md")), ROOT / "docs/site.css"]


def place(source: Path) -> Path:
    """Return where a file of the repository lies in the site, relative to its root."""
    path = source.relative_to(ROOT)
    if path.suffix in (".py", ".ipynb"):
        return path.with_suffix(".md")
    if path.parts[0] == "docs":
        return path.relative_to("docs")
    return {"README.md": Path("index.md"), "LICENSE": Path("license.txt")}.get(path.name, Path(path.name.lower()))


def relinked(text: str, source: Path, linked: set[Path]) -> str:
    """Return a page for the site: links lead to places of the site, and fences have a language alone.

    Args:
        text: The page.
        source: Its file, from which its links start.
        linked: Gets every file that the page links to.

    Raises:
        ValueError: A link leads to no file of the repository.
    """

    def moved(link: re.Match[str]) -> str:
        if not link["path"] or "://" in link["path"]:
            return link[0]
        target = (source.parent / link["path"]).resolve()
        if not (target.is_file() and target.is_relative_to(ROOT)):
            raise ValueError(f"{source.relative_to(ROOT)}: {link['path']} is no file of the repository")
        linked.add(target)
        path = os.path.relpath(place(target), place(source).parent)
        return f"{link['before']}{path}{link['anchor'] or ''}{link['after']}"

    parts, end = [], 0
    for fence in FENCED.finditer(text):
        parts += [LINK.sub(moved, text[end : fence.start()]), re.sub(r"\A( *```\S*)[^\n]*", r"\1", fence[0])]
        end = fence.end()
    return "".join([*parts, LINK.sub(moved, text[end:])])


def page_of_notebook(text: str) -> str:
    """Return a notebook as Markdown."""
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"]]
    return "\n\n".join(f"```python\n{source}\n```" if kind == "code" else source for kind, source in cells) + "\n"


def page(source: Path) -> str:
    """Return a page, a notebook or a source file as Markdown."""
    text = source.read_text(encoding="utf-8")
    if source.suffix == ".ipynb":
        return page_of_notebook(text)
    return text if source.suffix == ".md" else f"# {source.relative_to(ROOT)}\n\n```python\n{text}```\n"


def write(output: Path) -> None:
    """Write all pages, generated ones too, and all files that they link to, into a folder that is emptied first."""
    shutil.rmtree(output, ignore_errors=True)
    waiting, written = set(sources()), set()
    while waiting:
        source = waiting.pop()
        written.add(source)
        path, linked = output / place(source), set[Path]()
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            path.write_text(relinked(page(source), source, linked), encoding="utf-8")
        else:
            shutil.copyfile(source, path)
        waiting |= linked - written
    for name in GENERATED:
        text = runpy.run_path(str(ROOT / f"docs/{name}.py"))["page"]()
        (output / f"{name}.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else OUTPUT)
