"""The page's script and styles: each one file, compressed, kept by browsers, with every module in it."""

import re

import pytest

from distrl.apps.dashboard.assets import STATIC, STYLES, script
from distrl.apps.dashboard.files import id_of


def test_the_page_is_few_compressed_files_that_a_browser_keeps(page, make_run):
    client = page()
    html = client.get("/").text
    for path in re.findall(r'(?:src|href)="(/page/[^"]+)"', html):
        told = client.get(path)
        assert told.headers["cache-control"] == "private, max-age=31536000, immutable"
        assert told.headers.get("content-encoding") == (None if path.endswith("theme.js") else "gzip")
    assert len(re.findall(r"<(?:script|link)\b", html)) <= 6
    assert client.get(re.sub("page/[0-9a-f]+", "page/0123", path)).status_code == 404
    make_run("a", rows=500)
    assert client.get(f"/api/runs/{id_of('a')}/curve").headers["content-encoding"] == "gzip"
    plain = client.get(f"/api/runs/{id_of('a')}/curve", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers


def test_modules_become_one_script_in_which_names_do_not_collide(tmp_path):
    (tmp_path / "main.js").write_text('import { a as first } from "./a.js";\nconst b = 1;\nfirst(b);\n')
    (tmp_path / "a.js").write_text("const b = 2;\nexport const a = (x) => x + b;\nexport { b };\n")
    assert script(tmp_path).splitlines() == [
        "const $a = (() => {", "const b = 2;", "const a = (x) => x + b;", "", "", "return { a, b };", "})();",
        "const $main = (() => {", "const { a: first } = $a;", "const b = 1;", "first(b);", "", "return {  };", "})();",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('import { b } from "./main.js";\n', "main -> a -> main"),
        ("export default 1;\n", "a.js: this form of import or export is not known: export default 1;"),
        ("export let a = 1;\n", "export let a = 1;"),
        ('import "./b.js";\n', 'import "./b.js";'),
    ],
)
def test_modules_of_unknown_forms_are_refused(tmp_path, text, problem):
    (tmp_path / "main.js").write_text('import { a } from "./a.js";\n')
    (tmp_path / "a.js").write_text(text)
    with pytest.raises(ValueError, match=re.escape(problem)):
        script(tmp_path)


def test_no_module_and_no_style_is_left_out():
    modules = re.findall(r"^const \$(\w+) = \(\(\) => \{$", script(STATIC / "js"), re.MULTILINE)
    assert sorted(modules) == sorted({path.stem for path in (STATIC / "js").glob("*.js")} - {"theme"})
    sheets = {str(path.relative_to(STATIC).with_suffix("")) for path in STATIC.rglob("*.css")}
    assert sorted(STYLES) == sorted(sheets)
