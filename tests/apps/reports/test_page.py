from xml.etree import ElementTree

import pytest

from distrl.apps.reports.page import element, inline_svg, shown, table, whole_page

HOSTILE = "<script>alert(1)</script>"


def markup(made):
    return ElementTree.tostring(made, encoding="unicode", method="html")


def test_text_stays_text_wherever_it_is():
    made = element("p", HOSTILE, element("b", HOSTILE), HOSTILE, title='" onclick="x')
    safe = "&lt;script&gt;alert(1)&lt;/script&gt;"
    assert markup(made) == f'<p title="&quot; onclick=&quot;x">{safe}<b>{safe}</b>{safe}</p>'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a\x00b\x1b[31mc\x7f\x9b", "a\ufffdb\ufffd[31mc\ufffd\ufffd"),
        ("é 学 \U0001f600\n\tend", "é 学 \U0001f600\n\tend"),
        ("lone \udcff", "lone \ufffd"),
        ("redis://me:pa55@host/0", "redis://•••@host/0"),
    ],
)
def test_what_is_no_letter_and_what_is_secret_is_not_shown(text, told):
    assert shown(text) == told


def test_tables():
    made = table(("name", "value"), [("a", HOSTILE), ("b", "2")], dim=[False, True])
    rows = [["".join(cell.itertext()) for cell in row] for row in made.iter("tr")]
    assert rows == [["name", "value"], ["a", HOSTILE], ["b", "2"]]
    assert [row.get("class") for row in made.iter("tr")] == [None, None, "dim"]
    assert [*table((), [("a",)]).iter("th")] == []


SVG = f"""<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="3pt" id="top">
<metadata><a href="http://example.org"/></metadata><defs><style>*{{color: red}}</style><path id="m" d="M 0 0"/></defs>
<g id="figure_1"><use xlink:href="#m"/><script>alert(1)</script><image xlink:href="http://example.org"/>
<text>{HOSTILE.replace("<", "&lt;")}</text></g></svg>"""


def test_drawings_are_taken_in_without_what_refers_elsewhere():
    made = inline_svg(SVG, "a <drawing>")
    assert [each.tag for each in made.iter()] == ["svg", "defs", "path", "g", "use", "text"]
    assert dict(made.attrib) == {"role": "img", "aria-label": "a <drawing>"}
    assert next(made.iter("use")).attrib == {"href": "#m"}
    assert next(made.iter("path")).get("id") == "m"
    assert "&lt;script&gt;" in markup(made)


def test_the_page_has_no_script_and_a_policy_that_forbids_requests():
    page = whole_page(HOSTILE, element("p", "é")).decode()
    assert page.startswith('<!DOCTYPE html>\n<html lang="en"><head>')
    assert "<script" not in page
    assert "default-src 'none'; style-src 'unsafe-inline'" in page
    assert "<p>é</p>" in page
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in page
    assert "prefers-color-scheme: dark" in page
    assert "&gt;" not in page.partition("<style>")[2].partition("</style>")[0]  # browsers do not unescape styles
