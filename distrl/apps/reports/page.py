"""One self-contained HTML page, built as a tree, so that texts from files never become markup.

Every text passes through `shown`, which also masks secrets and removes control characters. The page has no script, and
its policy forbids the browser any request.
"""

import re
from collections.abc import Iterable, Sequence
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from distrl.config.secrets import masked_text

SVG = "{http://www.w3.org/2000/svg}"
LINK = "{http://www.w3.org/1999/xlink}href"
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_LIGHT = """--dim: #586776; --grid: #dfe5eb; --line-0: #1f6fb4; --line-1: #c05a14; --line-2: #2e8b57; --line-3: #b23a6f;
  --line-4: #7156a8; --line-5: #8a6d1f; --line-6: #0f8a94; --line-7: #5b6b7a; --good: #1a7f4b; --bad: #b3261e;"""
_DARK = """--dim: #9aa7b4; --grid: #2a3540; --line-0: #6cb6ff; --line-1: #ffa657; --line-2: #7ee0a1; --line-3: #ff8fbf;
  --line-4: #bda6ff; --line-5: #e3c567; --line-6: #5ad4de; --line-7: #aab6c2; --good: #6fdc9a; --bad: #ff8a80;"""
LINES = 8
"""Colours of lines, --line-0 and so on."""
STYLE = f"""
:root {{ color-scheme: light dark; --paper: #ffffff; --card: #f5f7fa; --ink: #1c2733; {_LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{ --paper: #0f1419; --card: #171e26; --ink: #e6edf3; {_DARK} }} }}
@media print {{ :root {{ color-scheme: light; --paper: #ffffff; --card: #ffffff; --ink: #000000; {_LIGHT}
  --dim: #444444; --grid: #cccccc; }} }}
"""
STYLE += """
@media print { figure, tr, .tile { break-inside: avoid; } h2 { break-after: avoid; } }
@media screen { .tall { max-height: 28rem; overflow-y: auto; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 68rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2.5rem 0 .75rem; padding-bottom: .3rem; border-bottom: 1px solid var(--grid); }
p { margin: .4rem 0; overflow-wrap: anywhere; } .dim { color: var(--dim); } .good { color: var(--good); }
.bad { color: var(--bad); } .verdict { font-size: 1.1rem; font-weight: 600; }
.tiles, .figures { display: grid; gap: .75rem; grid-template-columns: repeat(auto-fit, minmax(max(8.5rem, 22%), 1fr)); }
.tiles { margin-top: 1.25rem; } 
.figures { gap: 1.25rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); }
.tile { background: var(--card); border: 1px solid var(--grid); border-radius: .5rem; padding: .6rem .8rem;
  color: var(--dim); font-size: .875rem; }
.tile b { display: block; color: var(--ink); font-size: 1.3rem; font-weight: 600; font-variant-numeric: tabular-nums; }
figure { margin: 0; min-width: 0; } figcaption { font-weight: 600; } figcaption small { font-weight: 400; }
svg { display: block; width: 100%; height: auto; } svg text { font-family: inherit; }
.swatch { display: inline-block; width: 1.1em; height: .2em; vertical-align: middle; margin-right: .3em; }
.key { display: inline-block; margin-right: .8em; } main > figure { margin-top: 1.25rem; } .scroll { margin: .75rem 0; }
.scroll { overflow-x: auto; } .tall td { overflow-wrap: break-word; }
.tall th { position: sticky; top: 0; background: var(--paper); }
table { border-collapse: collapse; font-size: .875rem; width: 100%; }
td, th { text-align: left; padding: .25rem 1rem .25rem 0; border-bottom: 1px solid var(--grid); vertical-align: top; }
th { font-weight: 400; color: var(--dim); white-space: nowrap; } td { overflow-wrap: anywhere; }
td:first-child { min-width: 11rem; } tr.dim td { color: var(--dim); }
pre { background: var(--card); border: 1px solid var(--grid); border-radius: .5rem; padding: .75rem 1rem;
  margin: .5rem 0; font: .8125rem/1.5 ui-monospace, "DejaVu Sans Mono", monospace; white-space: pre-wrap;
  overflow-wrap: anywhere; }
"""
Child = Element | str


def shown(text: str) -> str:
    """Mask secrets in a text and replace control characters."""
    return re.sub(r"[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", masked_text(text))


def element(tag: str, *children: Child, kind: str = "", **attributes: str) -> Element:
    """Make one element. `kind` is its class."""
    made = Element(tag, {name: shown(value) for name, value in attributes.items()} | ({"class": kind} if kind else {}))
    for child in children:
        if isinstance(child, Element):
            made.append(child)
        elif len(made):
            made[-1].tail = (made[-1].tail or "") + shown(child)
        else:
            made.text = (made.text or "") + shown(child)
    return made


def table(
    headings: Sequence[str], rows: Iterable[Sequence[Child]], dim: Iterable[bool] = (), *, tall: bool = False
) -> Element:
    """Make a table that scrolls if it is too wide, or too high for `tall`; `dim` tells which rows are dimmed."""
    body = element("tbody")
    quiet = [*dim]
    for place, cells in enumerate(rows):
        kind = "dim" if quiet[place : place + 1] == [True] else ""
        body.append(element("tr", *(element("td", cell) for cell in cells), kind=kind))
    parts = [element("thead", element("tr", *(element("th", one) for one in headings)))] if any(headings) else []
    return element("div", element("table", *parts, body), kind="scroll tall" if tall else "scroll")


def inline_svg(svg: str, label: str) -> Element:
    """Make a drawing part of the page: as wide as it, described by `label`, without references to other resources."""
    root = ElementTree.fromstring(svg)
    for parent in root.iter():
        # matplotlib's style sheet would be the whole page's; its metadata name other sites.
        for child in [child for child in parent if child.tag not in _DRAWN]:
            parent.remove(child)
        parent.tag = parent.tag.removeprefix(SVG)
        if target := parent.attrib.pop(LINK, None):
            parent.set("href", target)
        if parent.tag in ("g", "svg"):
            parent.attrib.pop("id", None)  # the same in every drawing, and never referred to
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.set("role", "img")
    root.set("aria-label", shown(label))
    return root


_DRAWN = {f"{SVG}{tag}" for tag in ("g", "defs", "clipPath", "rect", "path", "use", "text", "tspan", "line", "circle")}


def whole_page(title: str, *body: Element) -> bytes:
    """Return the page as UTF-8."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        Element("meta", {"http-equiv": "Content-Security-Policy", "content": POLICY}),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
    )
    SubElement(head, "style").text = STYLE
    page = element("html", head, element("body", *body), lang="en")
    markup: bytes = ElementTree.tostring(page, encoding="utf-8", method="html")
    return b"<!DOCTYPE html>\n" + markup + b"\n"
