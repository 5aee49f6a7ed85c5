"""Scripts and styles of the page as one file each, so that a slow connection waits for few answers."""

import hashlib
import re
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from distrl.apps.dashboard.files import NotThereError

STATIC = Path(__file__).parent / "static"
FIRST_MODULE = "main"
STYLES = ("vendor/uplot.min", "style", "compare", "details", "flow", "front", "alerts", "start")
FOREVER = {"Cache-Control": "private, max-age=31536000, immutable"}
"""For addresses that name their content."""
_IMPORT = re.compile(r'^import \{ ([^}]*) \} from "\./(\w+)\.js";$', re.MULTILINE)
_NAMED = re.compile(r"^export (?:async )?(?:function|class|const) (\w+)", re.MULTILINE)
_LISTED = re.compile(r"^export \{ ([^}]*) \};$", re.MULTILINE)
_MODULE = re.compile(r"^\s*(?:import|export)\b.*$", re.MULTILINE)


class Assets:
    """The page, its script and its styles. The addresses of the last two name their content: browsers keep them.

    Attributes:
        edition: Hash of the content, a part of the addresses.
        page: HTML.
    """

    def __init__(self) -> None:
        sheets = [STATIC / f"{name}.css" for name in STYLES]
        self._files = {
            "page.js": (script(STATIC / "js"), "text/javascript"),
            "page.css": ("\n".join(sheet.read_text(encoding="utf-8") for sheet in sheets), "text/css"),
            "uplot.js": ((STATIC / "vendor/uplot.min.js").read_text(encoding="utf-8"), "text/javascript"),
            "theme.js": ((STATIC / "js/theme.js").read_text(encoding="utf-8"), "text/javascript"),
        }
        content = "\0".join(text for text, _ in self._files.values())
        self.edition = hashlib.sha256(content.encode()).hexdigest()[:16]
        self.page = (STATIC / "index.html").read_text(encoding="utf-8").replace("{edition}", self.edition)

    def index(self, request: Request) -> Response:
        """Return the page, about which a browser asks each time."""
        return Response(self.page, media_type="text/html", headers={"Cache-Control": "no-cache"})

    def file(self, request: Request) -> Response:
        """Return the script or the styles of this edition; a page of another edition has to be loaded again."""
        found = self._files.get(request.path_params["name"])
        if found is None or request.path_params["edition"] != self.edition:
            raise NotThereError("the page has changed; load it again")
        return Response(found[0], media_type=found[1], headers=FOREVER)


def script(folder: Path) -> str:
    """Return the modules that `FIRST_MODULE` needs as one script: each is a function that returns what it exports.

    Raises:
        ValueError: Modules import each other in a circle, or use a form of import or export that is not known here.
    """
    written: dict[str, str] = {}
    _add(FIRST_MODULE, folder, written, ())
    return "\n".join(written.values())


def _add(name: str, folder: Path, written: dict[str, str], above: tuple[str, ...]) -> None:
    if name in above:
        raise ValueError(f"modules import each other: {' -> '.join((*above, name))}")
    if name in written:
        return
    text = (folder / f"{name}.js").read_text(encoding="utf-8")
    for _, needed in _IMPORT.findall(text):
        _add(needed, folder, written, (*above, name))
    exported = _NAMED.findall(text) + [one.strip() for names in _LISTED.findall(text) for one in names.split(",")]
    body = _LISTED.sub("", _IMPORT.sub(_taken, text))
    body = _NAMED.sub(lambda found: found[0].removeprefix("export "), body)
    if unknown := _MODULE.search(body):
        raise ValueError(f"{name}.js: this form of import or export is not known: {unknown[0].strip()}")
    written[name] = f"const ${name} = (() => {{\n{body}\nreturn {{ {', '.join(exported)} }};\n}})();"


def _taken(found: re.Match[str]) -> str:
    return f"const {{ {found[1].replace(' as ', ': ')} }} = ${found[2]};"
