import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distrl.config import RunConfig
from distrl.config.load import LoadedConfig, config_of_run, dump, dump_given, load
from distrl.config.presets import preset_names
from distrl.errors import ConfigError

PRESET = "preset cartpole-impala"


def refused(**layers):
    with pytest.raises(ConfigError) as caught:
        load(**layers)
    message = str(caught.value)
    assert "\n" not in message
    assert caught.value.exit_code == 2
    return message


@pytest.fixture
def file(tmp_path):
    def write(text, name="run.yaml"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_without_layers_everything_is_default():
    loaded = load()
    assert loaded.config == RunConfig()
    assert set(loaded.origins.values()) == {"default"}
    assert loaded.origins["network.middleware_parameters.scheme"] == "default"


def test_later_layers_win_and_say_where_they_came_from(file):
    path = file("actors: {count: 3, environments: 8}\nnetwork: {middleware_parameters: {scheme: [32]}}\nseed: 5\n")
    loaded = load("cartpole-impala", path, ["actors.environments=16", "seed=7"], {"--actors": 4, "--env": None})
    config, origins = loaded.config, loaded.origins
    assert (config.actors.count, origins["actors.count"]) == (4, "flag --actors")
    assert (config.actors.environments, origins["actors.environments"]) == (16, "flag --set")
    assert (config.network.optimizer_type, origins["network.optimizer_type"]) == ("Adam", PRESET)
    assert (config.seed, origins["seed"]) == (7, "flag --set")
    units = "network.middleware_parameters.scheme"
    assert (config.network.middleware_parameters.scheme, origins[units]) == ((32,), f"file {path}")
    # A file merges into a preset key by key: what it does not name stays.
    assert (config.network.middleware_parameters.activation, config.environment.id) == ("tanh", "CartPole-v1")
    assert origins["memory.give_up_s"] == "default"


@pytest.mark.parametrize(
    ("flag", "value", "path"),
    [
        ("--env", "Acrobot-v1", ("environment", "id")),
        ("--algorithm", "impala", ("algorithm", "name")),
        ("--launcher", "ray", ("launch", "launcher")),
        ("--redis-url", "redis://h:1/0", ("memory", "url")),
        ("--seed", 0, ("seed",)),
    ],
)
def test_every_flag_sets_its_path(flag, value, path):
    loaded = load(flags={flag: value})
    found = loaded.config
    for key in path:
        found = getattr(found, key)
    assert found == value
    assert loaded.origins[".".join(path)] == f"flag {flag}"


@pytest.mark.row("D41")
def test_set_is_typed_and_validated():
    loaded = load(
        sets=["network.learning_rate=1e-3", "stop.env_steps=2e6", "network.middleware_parameters.scheme=[8, 8]"]
    )
    assert loaded.config.network.learning_rate == 0.001
    assert loaded.config.stop.env_steps == 2_000_000
    assert loaded.config.network.middleware_parameters.scheme == (8, 8)


@pytest.mark.row("D41", "T06")
def test_set_never_evaluates(tmp_path):
    marker = tmp_path / "executed"
    attack = f"__import__('pathlib').Path({str(marker)!r}).touch()"
    assert "must be a valid number" in refused(sets=[f"network.learning_rate={attack}"])
    assert "python/object/apply" in refused(sets=[f"seed=!!python/object/apply:os.system ['touch {marker}']"])
    assert not marker.exists()


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("foo", "--set wants path=value, like network.learning_rate=1e-3, not 'foo'"),
        ("=1", "--set wants path=value, like network.learning_rate=1e-3, not '=1'"),
        ("a..b=1", "--set wants path=value, like network.learning_rate=1e-3, not 'a..b=1'"),
        ("stop.env_steps=", "--set stop.env_steps= has no value; write stop.env_steps=null to unset it"),
        ("seed=true", "seed: true (from flag --set) must be a number, not a boolean"),
        ("stop.mean_return=.nan", "stop.mean_return: nan (from flag --set) must be a finite number"),
        ("network.learning_rate=.inf", "network.learning_rate: inf (from flag --set) must be a finite number"),
        ("environment.kwargs={low: [-.inf]}", "environment.kwargs.low: -inf (from flag --set) must be a finite number"),
        ("stop.mean_return=nan", "stop.mean_return: nan (from flag --set) must be a finite number"),
        (
            "network.lerning_rate=1",
            "unknown key network.lerning_rate (from flag --set); did you mean network.learning_rate?",
        ),
        ("seed.x=1", "seed: {x: 1} (from flag --set) must be a valid integer"),
        ("actors.count=-1", "actors.count: -1 (from flag --set) must be greater than or equal to 0"),
    ],
)
def test_set_mistakes_are_one_line(assignment, message):
    assert refused(sets=[assignment]) == message


def test_an_empty_section_changes_nothing_and_an_empty_mapping_empties(file):
    path = file("network: {}\nenvironment: {kwargs: {}}\n")
    loaded = load("cartpole-impala", path)
    assert loaded.config.network == load("cartpole-impala").config.network
    assert loaded.origins["network.learning_rate"] == "preset cartpole-impala"
    assert loaded.origins["environment.kwargs"] == f"file {path}"


def test_null_unsets_and_a_set_replaces_as_a_whole():
    loaded = load("cartpole-impala", sets=["stop.mean_return=null"])
    assert loaded.config.stop.mean_return is None
    assert loaded.origins["stop.mean_return"] == "flag --set"
    loaded = load(sets=["environment.kwargs.a=1", "environment.kwargs={b: 2}", "environment.kwargs.c=3"])
    assert loaded.config.environment.kwargs == {"b": 2, "c": 3}


def test_files_that_are_not_configurations(file, tmp_path):
    assert refused(file=tmp_path / "no.yaml") == f"file {tmp_path / 'no.yaml'} does not exist"
    assert refused(file=Path("cartpole-impala")) == (
        "file cartpole-impala does not exist; there is a preset of that name: --preset cartpole-impala"
    )
    assert refused(file=tmp_path) == f"file {tmp_path} cannot be read: Is a directory"
    (tmp_path / "config.yaml").touch()
    assert refused(file=tmp_path).endswith(f"Is a directory; the configuration of this run is {tmp_path}/config.yaml")
    assert "must hold a mapping" in refused(file=file("- 1\n"))
    assert "is not valid YAML: " in refused(file=file("a: [1\n"))
    assert "the key 'seed' is there twice" in refused(file=file("seed: 1\nseed: 2\n"))
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"seed: 1 # \xe9\n")
    assert refused(file=latin) == f"file {latin} is not UTF-8 text"


def test_an_impossible_combination_gives_the_reason():
    message = refused(sets=["algorithm.max_staleness_updates=0", "actors.weight_mixing_rate=0.5"])
    assert message.startswith("actors.weight_mixing_rate < 1 mixes old weights")


def test_dump_names_origins_and_reads_back(file):
    loaded = load("cartpole-impala", sets=["environment.kwargs={x: 1e-3, s: '1e-3'}"], flags={"--actors": 3})
    text = dump(loaded)
    lines = {line.split(":")[0].strip(): line for line in text.splitlines()}
    assert lines["count"].split() == ["count:", "3", "#", "flag", "--actors"]
    assert lines["mean_return"].split("  # ")[1] == PRESET
    assert lines["seed"].split() == ["seed:", "1", "#", "default"]
    assert lines["s"].split("#")[0].strip() == "s: '1e-3'"
    assert "#" not in lines["environment"]
    assert load(file=file(text)).config == loaded.config


@pytest.mark.parametrize("preset", preset_names())
def test_the_values_that_are_not_defaults_are_a_whole_configuration(file, preset):
    sets = ["environment.kwargs={x: 1e-3, s: '1e-3', empty: {}}", "stop.minutes=null", "seed=1"]
    loaded = load(preset, sets=sets, flags={"--actors": 3})
    text = dump_given(loaded)
    assert load(file=file(text)).config == loaded.config
    assert len(text.splitlines()) < len(dump(loaded).splitlines()) / 2
    assert "# default" not in text


def test_the_defaults_alone_are_an_empty_file(file):
    assert dump_given(load()) == ""
    assert load(file=file("")).config == RunConfig()


def test_values_can_be_shown_otherwise(file):
    text = dump_given(load(sets=["seed=3", "environment.id=X-v0"]), lambda path, value: f"<{path}>")
    assert [line.split("  #")[0].strip() for line in text.splitlines()] == [
        "seed: <seed>",
        "environment:",
        "id: <environment.id>",
    ]


def test_a_config_made_in_python_knows_what_was_changed():
    config = RunConfig.model_validate({"seed": 3, "actors": {"count": 2}, "environment": {"kwargs": {"a": 1}}})
    origins = LoadedConfig.of(config).origins
    assert origins["seed"] == "python"
    assert origins["environment.kwargs.a"] == "python"
    assert origins["actors.count"] == "default"


def test_twice_the_keys_cost_twice_the_steps(file):
    def steps(keys):
        """Function calls of Python and C that reading a file of so many keys takes."""
        path, counted = file("environment: {kwargs: {" + ", ".join(f"k{i}: 1" for i in range(keys)) + "}}"), 0

        def count(frame, event, argument):
            nonlocal counted
            counted += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            load(file=path, sets=["environment.kwargs.k1=2"])
        finally:
            sys.setprofile(None)
        return counted

    load()  # what is only done once is not counted
    none, some, twice = steps(0), steps(100), steps(200)
    assert twice - none < 2.2 * (some - none)


def test_replacing_a_mapping_forgets_where_its_values_came_from(file):
    path = file("environment: {kwargs: {a: {b: {c: 1}, d: 2}}}")
    loaded = load(file=path, sets=["environment.kwargs.a.b.e=3", "environment.kwargs.a=5"])
    origins = {dotted: origin for dotted, origin in loaded.given.items() if dotted.startswith("environment.kwargs")}
    assert origins == {"environment.kwargs.a": "flag --set"}


def test_a_mapping_is_a_layer_of_python():
    loaded = load({"environment": {"id": "CartPole-v1", "kwargs": {"size": (1, 2)}}, "actors": {"count": 4}})
    assert (loaded.config.environment.id, loaded.config.actors.count) == ("CartPole-v1", 4)
    assert loaded.origins["actors.count"] == "python"
    assert loaded.origins["actors.environments"] == "default"
    loaded = load("cartpole-impala", {"actors": {"count": 4}}, sets=["seed=3"])
    assert (loaded.config.actors.count, loaded.config.seed) == (4, 3)
    assert loaded.origins["environment.id"] == PRESET


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"actors": {"cuont": 4}}, "unknown key actors.cuont (from python); did you mean actors.count?"),
        ({"environment": {"kwargs": {1: 2}}}, "the mapping: the key 1 must be text; write it in quotes"),
        ({"environment": {"kwargs": {"x": object}}}, "the mapping: a value of type type is not plain data"),
    ],
)
def test_a_mapping_is_checked_as_a_file_is(mapping, message):
    assert refused(preset=mapping) == message


def test_a_path_of_too_many_levels_is_refused():
    message = refused(sets=["environment.kwargs" + ".a" * 300 + "=1"])
    assert message.startswith("--set 'environment.kwargs.a.a.a.")
    assert message.endswith("has 302 levels; 64 are the most")


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(min_size=1), inner, max_size=2),
    max_leaves=4,
)
trees = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**40),
        "environment": st.fixed_dictionaries(
            {"id": st.text(min_size=1), "kwargs": st.dictionaries(st.text(min_size=1), values, max_size=3)}
        ),
        "network": st.fixed_dictionaries(
            {
                "learning_rate": st.floats(1e-12, 1e3),
                "clip_gradients": st.none() | st.floats(1e-9, 1e9),
                "middleware_parameters": st.fixed_dictionaries({"scheme": st.lists(st.integers(1, 512), max_size=3)}),
                "input_embedders_parameters": st.dictionaries(
                    st.text(min_size=1), st.fixed_dictionaries({"input_rescaling": st.floats(1e-3, 255)}), max_size=2
                ),
            }
        ),
        "stop": st.fixed_dictionaries({"mean_return": st.none() | st.floats(-1e6, 1e6)}),
    }
)


@pytest.mark.row("G01")
@settings(max_examples=50)
@given(trees)
def test_any_configuration_survives_its_file(tree):
    config = RunConfig.model_validate(tree)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "config.yaml"
        path.write_text(dump(LoadedConfig.of(config)), encoding="utf-8")
        assert load(file=path).config == config


def test_a_path_as_the_preset_is_refused_instead_of_ignored(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("seed: 7\n")
    with pytest.raises(ConfigError, match=r"run.yaml.*file="):
        load(path)  # type: ignore[arg-type]
    assert load(file=path).config.seed == 7


def test_other_values_of_some_keys_keep_the_origins_of_the_rest():
    loaded = load("cartpole-impala", sets=["seed=3"])
    changed = loaded.with_values({"launch": {"launcher": "ray", "ray_address": "auto"}}, "--on ray")
    assert changed.config.launch.ray_address == "auto"
    assert changed.config.actors == loaded.config.actors
    assert (changed.origins["seed"], changed.origins["launch.launcher"]) == ("flag --set", "--on ray")
    with pytest.raises(ConfigError, match=r"launch\.ray_address needs launch\.launcher: ray"):
        loaded.with_values({"launch": {"ray_address": "auto"}}, "--on ray")


def test_the_core_reads_its_own_sections_of_a_run_and_leaves_those_of_applications(file):
    path = file("seed: 7\nslurm: {python: python3}\nactors: {count: 3}\n", "config.yaml")
    config = config_of_run(path.parent)
    assert (type(config), config.seed, config.actors.count) == (RunConfig, 7, 3)
    assert refused(file=path) == (
        f"unknown key slurm (from file {path}); valid keys: {', '.join(RunConfig.model_fields)}"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("actors: {cuont: 3}\n", "unknown key actors.cuont (from file {}); did you mean actors.count?"),
        ("seeed: 3\n", "unknown key seeed (from file {}); did you mean seed?"),
        ("seed: [1\n", "file {} is not valid YAML: "),
    ],
)
def test_a_damaged_configuration_of_a_run_is_refused(file, text, message):
    path = file(text, "config.yaml")
    with pytest.raises(ConfigError) as caught:
        config_of_run(path.parent)
    assert str(caught.value).startswith(message.format(path))
