"""The whole tree: what the command line and Python load, and what the core takes of it."""

import json

import pytest
from pydantic import ValidationError

import distrl
from distrl.apps.config.configuration import Configuration, load, load_text
from distrl.config import RunConfig
from distrl.config.load import LoadedConfig, dump, dump_given
from distrl.errors import ConfigError
from distrl.roles.description import RunDescription
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec

SECTIONS = {
    "slurm": {"python": "python3"},
    "kubernetes": {"values": {"images": {"registry": "r"}}},
    "trackers": {"wandb": {"project": "robots"}},
}
SPEC = EnvSpec("X", {"a": ArraySpec((4,), "float32", -1.0, 1.0)}, {"action": DiscreteSpec(3)}, 475.0, 500)


def test_it_is_the_public_configuration():
    assert (distrl.RunConfig, distrl.load) == (Configuration, load)
    assert distrl.RunConfig(trackers={"wandb": {}}).trackers.used


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"slurm": {"pyton": "p"}}, "unknown key slurm.pyton (from {}); did you mean slurm.python?"),
        ({"kubernets": {"values": {}}}, "unknown key kubernets (from {}); did you mean kubernetes?"),
        ({"wandb": {"mode": "offline"}}, "unknown key wandb (from {}); did you mean trackers.wandb?"),
        ({"trackers": {"learning_rate": 1}}, "unknown key trackers.learning_rate (from {}); did you mean network.lea"),
        ({"slurm": 3}, "slurm: 3 (from {}) must be a mapping of learner_options, actor_options, set_up, python"),
        ({"slurm": {"python": ""}}, "slurm.python: '' (from {}) must have at least 1 character"),
    ],
)
def test_what_cannot_be_is_refused_when_it_is_loaded(tmp_path, tree, message):
    path = tmp_path / "run.yaml"
    path.write_text(json.dumps(tree))
    ways = {
        "python": lambda: load(tree),
        f"file {path}": lambda: load(file=path),
        "the draft": lambda: load_text(json.dumps(tree), "the draft"),
    }
    for origin, way in ways.items():
        with pytest.raises(ConfigError) as refused:
            way()
        assert str(refused.value).startswith(message.format(origin))
        assert "\n" not in str(refused.value)


def test_sections_stay_where_other_values_change():
    loaded = load(SECTIONS, sets=["seed=3"])
    changed = loaded.with_values({"actors": {"count": 5}}, "--on ray")
    assert (changed.config.actors.count, changed.config.slurm) == (5, loaded.config.slurm)
    assert {changed.origins[path] for path in ("slurm.python", "trackers.wandb.project")} == {"python"}
    assert changed.origins["slurm.set_up"] == "default"


def test_it_reads_back_what_it_writes(tmp_path):
    loaded = load(SECTIONS)
    for number, text in enumerate((dump(loaded), dump_given(loaded), dump(LoadedConfig.of(loaded.config)))):
        path = tmp_path / f"{number}.yaml"
        path.write_text(text)
        assert load(file=path).config == loaded.config


def test_a_configuration_without_sections_of_applications_has_their_defaults():
    plain = RunConfig.model_validate({"seed": 7, "actors": {"count": 3}})
    whole = Configuration.of(plain)
    assert (whole.seed, whole.actors, whole.slurm, whole.end_s) == (7, plain.actors, Configuration().slurm, 0)
    assert Configuration.of(whole) is whole


def test_the_end_waits_for_a_store_and_then_for_trackers():
    given = ["checkpoint.store=s3://b/runs", "checkpoint.store_give_up_s=9.5", "trackers.give_up_s=2.5"]
    assert load(sets=given, track=["wandb"]).config.end_s == 2 * 10 + 3


def test_the_description_of_a_run_keeps_sections_that_its_roles_do_not_read():
    config = load(SECTIONS, sets=["seed=7"]).config
    text = RunDescription(run_id="r", run_dir="/r", config=config, spec=SPEC).published()
    written = json.loads(text)
    assert written["config"] | written["applications"] == config.model_dump(mode="json")
    read = RunDescription.read(text, "r", "1")
    assert (type(read.config), read.config.seed) == (RunConfig, 7)
    assert json.loads(read.published()) == written


def test_a_description_of_another_version_is_refused():
    text = RunDescription(run_id="r", run_dir="/r", config=Configuration(), spec=SPEC).model_dump_json()
    for known, other in (("seed", "seeed"), ("actors", "no_such_section"), ("queue_batches", "queue_rounds")):
        with pytest.raises(ValidationError, match=rf"config\..*{other}"):
            RunDescription.model_validate_json(text.replace(f'"{known}":', f'"{other}":', 1))
