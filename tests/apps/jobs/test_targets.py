import re
from pathlib import Path

import pytest

from distrl.apps.config.configuration import load
from distrl.apps.jobs.here import Here
from distrl.apps.jobs.targets import TARGETS, open_target
from distrl.errors import ConfigError


def test_targets_are_opened_by_name():
    assert isinstance(open_target("here"), Here)


def test_an_unknown_target_is_answered_with_the_known_ones():
    with pytest.raises(ConfigError) as caught:
        open_target("mars")
    assert str(caught.value) == f"unknown target mars: the targets are {', '.join(TARGETS)}"


@pytest.mark.parametrize("target", TARGETS)
def test_the_documentation_has_a_file_for_each_target_that_goes_with_a_preset(target, tmp_path):
    pages = "".join(path.read_text() for path in (Path(__file__).parents[3] / "docs").glob("*.md"))
    begins = rf"# {target}\.yaml: distrl submit {target}\.yaml --preset ([a-z-]+) --on {target}\b"
    preset, content = re.search(rf"^```yaml\n{begins}[^\n]*\n(.*?)^```$", pages, re.MULTILINE | re.DOTALL).groups()
    (tmp_path / "place.yaml").write_text(content)
    loaded = load(preset, tmp_path / "place.yaml")
    assert f"file {tmp_path}/place.yaml" in loaded.origins.values()
