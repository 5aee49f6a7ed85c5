"""The applications whose tests `make test` leaves out, in a small project."""

import subprocess

import pytest

from tests.reach import changed, left_out

FILES = {
    "pyproject.toml": "",
    "README.md": "",
    "docs/runs.md": "",
    "distrl/__init__.py": "",
    "distrl/core.py": "",
    "distrl/lazy.py": "def work():\n    from distrl import core\n",
    "distrl/presets/one.yaml": "",
    "distrl/apps/shop/__init__.py": "",
    "distrl/apps/shop/till.py": "from distrl.lazy import work\n",
    "distrl/apps/shop/static/page.js": "",
    "distrl/apps/office/__init__.py": "",
    "distrl/apps/office/desk.py": "import distrl.apps.shop.till\n",
    "distrl/apps/park/tree.py": "",
    "tests/helper.py": "",
    "tests/test_core.py": "",
    "tests/apps/commands/test_all.py": "",
    "tests/apps/shop/conftest.py": "from tests import helper\n",
    "tests/apps/shop/test_till.py": "from distrl.apps.shop import till\n",
    "tests/apps/office/test_desk.py": "from distrl.apps.office.desk import *\n",
    "tests/apps/park/test_tree.py": "from distrl.apps.park import tree\n",
}
ALL = ["office", "park", "shop"]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    root = tmp_path_factory.mktemp("project")
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("change", "left"),
    [
        ([], ALL),
        (["README.md", "tests/test_core.py"], ALL),
        (["distrl/core.py"], ["park"]),  # through a lazy import, and one application through another
        (["distrl/apps/office/desk.py"], ["park", "shop"]),
        (["distrl/apps/shop/static/page.js"], ["park"]),  # in the package above
        (["distrl/apps/park/removed.py"], ["office", "shop"]),
        (["tests/helper.py"], ["office", "park"]),  # which a conftest.py imports
        (["tests/apps/park/test_tree.py"], ["office", "shop"]),
        (["distrl/__init__.py"], []),
        (["distrl/presets/one.yaml"], []),
        (["pyproject.toml"], []),
        (["docs/runs.md"], []),  # which tests of applications read
        (None, []),
    ],
)
def test_what_the_change_does_not_reach_is_left_out(project, change, left):
    assert left_out(project, None if change is None else set(change)) == left


def test_the_change_is_all_since_the_main_branch_with_files_that_are_new(tmp_path):
    def git(*arguments):
        who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    assert changed(tmp_path) is None
    git("init")
    for name in ("kept.py", "first.py", "second.py", "third.py"):
        (tmp_path / name).write_text("")
        git("add", name)
        git("commit", "-m", name)
        if name == "first.py":
            assert changed(tmp_path) is None  # there is no main branch elsewhere
            git("update-ref", "refs/remotes/origin/main", "HEAD")
    assert changed(tmp_path) == {"second.py", "third.py"}
    (tmp_path / "kept.py").write_text("1\n")
    (tmp_path / "new.py").write_text("")
    assert changed(tmp_path) == {"second.py", "third.py", "kept.py", "new.py"}
