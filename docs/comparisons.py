"""Prints every comparison with other libraries, of the committed report of `make references`: a page of the site.

python docs/comparisons.py
"""

import json
import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "benchmarks/results/references.json"
HEADER = """# Comparisons

Every comparison of [References](references.md), with its largest error and what was set to the same convention.

"""


def page() -> str:
    """Return the page."""
    block = runpy.run_path(str(ROOT / "benchmarks/references/table.py"))["block"]
    return f"{HEADER}{block(json.loads(REPORT.read_text(encoding='utf-8')))}\n"


if __name__ == "__main__":
    print(page(), end="")
