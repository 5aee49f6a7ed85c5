"""Figures of the source, on a small tree whose counts are known."""

import sys

from benchmarks import house

ACTOR = """
class Actor:
    rows: int

    def __init__(self, config):
        self.config = config
        self.a, self.rows = None, 1

    def step(self):
        return self.a is None or self.rows is not None
"""


def test_counts_of_a_known_tree(tmp_path):
    files = {
        "actors/actor.py": ACTOR,
        "actors/policy.py": "from distrl.actors import actor\nclass Policy: ...\nclass _Own: ...",
        "learner/learner.py": "import distrl.actors.policy\nclass Policy: ...\nclass _Own: ...",
        "apps/jobs/record.py": "from distrl.actors.policy import Policy",
        "launch/training.py": "from distrl.apps.jobs.record import Policy",
    }
    for name, text in files.items():
        (tmp_path / "distrl" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "distrl" / name).write_text(text)
    (tmp_path / "docs").mkdir()
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/a.md"):
        (tmp_path / name).write_text("two words")
    assert house.figures(tmp_path) == {
        "actor.py: lines · tests for None": "10 · 2",
        "learner.py: lines · tests for None": "3 · 0",
        "training.py: lines · tests for None": "1 · 0",
        "attributes of Actor": "3",
        "attributes of Monitor": "0",
        "attributes of Supervisor": "0",
        "hot path: files · lines": "3 · 16",
        "core: files · lines": "4 · 17",
        "all: files · lines": "5 · 18",
        "names of classes that are used twice": "1",
        "modules of at most 60 lines with one importer": "2",
        "imports of applications by the core": "1",
        "words of documentation": "8",
    }
    modules = house.sources(tmp_path)
    assert house.twice(modules) == ["Policy"]
    assert house.thin(modules) == ["actors/actor.py", "apps/jobs/record.py"]


def test_a_walk_notes_what_gets_a_configuration_until_both_loops_have_begun():
    walk = house.Walk((int,))

    def call(file, name, argument):
        """A call of a function of that file and name, which shows its own frame to the walk."""
        code = compile(f"def {name}(config): show()", str(house.ROOT / "distrl" / file), "exec")
        space = {"show": lambda: walk(sys._getframe(1), "call", None)}
        exec(code, space)
        space[name](argument)

    call("a.py", "takes", 1)
    call("a.py", "takes_not", "1")
    walk._ends.clear()
    call("b.py", "comes_later", 1)
    assert walk.functions == {("a.py", "takes")}
