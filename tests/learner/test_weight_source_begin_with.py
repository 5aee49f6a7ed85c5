"""A new training begins with another one's weights, and with nothing else of it."""

import logging
from pathlib import Path

import numpy as np
import pytest

import distrl
from distrl.algorithms import make_algorithm
from distrl.config import RunConfig
from distrl.errors import CheckpointError, ConfigError
from distrl.learner.session import Session
from distrl.learner.weight_source import WeightSource, begin_with, read_source
from distrl.serving.export import export_run
from distrl.types import ArraySpec, BoxSpec, EnvSpec

RUNS = ("first", "second")
EARLIER = Path(distrl.__file__).parents[1] / "tests" / "earlier"
CONTINUOUS = EnvSpec("Toy", {"observation": ArraySpec((2,), "float32")}, {"action": BoxSpec((1,), (-1.0,), (1.0,))})


@pytest.fixture
def trained(prepared, acting, toy_config, tmp_path):
    """Trains for four updates in runs/NAME; the learner as it was."""

    def make(name="first", **paths):
        config = toy_config(stop__updates=4, **paths)
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text("seed: 1\n")
        made = prepared(config, run_dir=tmp_path / name)
        Session(made, acting(made), lambda _: None, lambda: False).run()
        return made

    return make


def weights(made, copy="online", network="main"):
    return made.networks[network].by_name[copy].named_weights()


def test_weights_are_the_sources_and_everything_else_begins_anew(
    trained, prepared, toy_config, acting, tmp_path, caplog, same
):
    first = trained()
    config = toy_config(learner__init_from=str(tmp_path / "first"), stop__updates=2, algorithm__reward_normalization={})
    with caplog.at_level(logging.INFO, "distrl"):
        second = prepared(config, run_dir=tmp_path / "second")
    assert same(weights(second), weights(first))
    assert f"the learner begins with the weights of {tmp_path / 'first'}: took 6 of 6" in caplog.messages
    state, main = second.state, second.networks["main"]
    assert (state.updates, state.env_steps, state.trained_steps, state.episodes, state.wall_s) == (0, 0, 0, 0, 0.0)
    assert (state.weights_version, state.best_mean_return_100, state.recent_returns) == (1, None, [])
    optimizer = main.state_arrays()["optimizer"]
    assert int(optimizer.pop("optimizer/iteration")) == 0
    assert all((array == 0.0).all() for array in optimizer.values())
    assert not all((array == 0.0).all() for array in first.networks["main"].state_arrays()["optimizer"].values())
    assert (main.rewards.moments.count, main.rewards.deviation) == (0.0, 1.0)
    assert not second.origin.resumed
    assert Session(second, acting(second), lambda _: None, lambda: False).run() == "updates"
    assert not same(weights(second), weights(first))
    # The run goes on with its own.
    third = prepared(config, run_dir=tmp_path / "second")
    assert third.state.updates == 2
    assert same(weights(third), weights(second))


def test_a_named_checkpoint_and_every_kind_of_policy(trained, prepared, toy_config, tmp_path, same):
    first = trained(checkpoint__every_updates=1)
    exported, _ = export_run(tmp_path / "first", None, checkpoint="newest", force=False, version="0")
    names = [tmp_path / "first", exported, tmp_path / "first" / "policy", f"{tmp_path / 'first'}@4"]
    for number, name in enumerate(names):
        made = prepared(toy_config(learner__init_from=str(name)), run_dir=tmp_path / f"from{number}")
        assert same(weights(made), weights(first))
    made = prepared(toy_config(learner__init_from=f"{tmp_path / 'first'}@1"), run_dir=tmp_path / "from1update")
    assert not same(weights(made), weights(first))
    saved = read_source(f"{tmp_path / 'first'}@1").weights["main"]
    assert same(weights(made), {name: saved[name] for name in weights(made)})


def build(spec=CONTINUOUS, **sections):
    tree = {"network": {"middleware_parameters": {"scheme": [4]}}, **sections}
    config = RunConfig.model_validate(tree)
    return make_algorithm(config).build(spec)


def filled(networks, number):
    """The weights of networks, each `number`, as a source."""
    return WeightSource(
        "theirs",
        {
            name: {key: np.full_like(array, number) for key, array in network.online.named_weights().items()}
            for name, network in networks.items()
        },
    )


def numbers(copy):
    """Layer -> the numbers that its weights are."""
    return {name: set(map(float, array.flat)) for name, array in copy.named_weights().items()}


@pytest.mark.parametrize("algorithm", ["sac", "td3", "ddpg", "tqc"])
def test_all_copies_of_all_networks_of_a_checkpoint_and_only_the_acting_one_of_a_policy(algorithm):
    section = {"name": algorithm, "replay": {"capacity_steps": 10_000}}
    networks = build(algorithm=section, actors={"environments": 2, "unroll_length_steps": 4})
    total = sum(len(network.online.weight_names) for network in networks.values())
    before = [
        variable.numpy().copy() for variables in networks["main"].beside.values() for variable in variables.values()
    ]
    told = begin_with(networks, filled(networks, 3.0))
    assert told == f"begins with the weights of theirs: took {total} of {total}"
    copies = {(name, kind): copy for name, network in networks.items() for kind, copy in network.by_name.items()}
    assert {("critic", "online"), ("critic", "target"), ("main", "online")} <= copies.keys()
    assert all(found == {3.0} for copy in copies.values() for found in numbers(copy).values())
    after = [variable.numpy() for variables in networks["main"].beside.values() for variable in variables.values()]
    np.testing.assert_equal(after, before)

    policy = WeightSource("policy", {"main": filled(networks, 5.0).weights["main"]})
    told = begin_with(networks, policy)
    mine = len(networks["main"].online.weight_names)
    assert told.startswith(f"begins with the weights of policy: took {mine} of {total}; new: critic/")
    found = {key: set().union(*numbers(copy).values()) for key, copy in copies.items()}
    assert all(values == ({5.0} if name == "main" else {3.0}) for (name, _), values in found.items())


def test_frozen_layers_are_those_of_the_source_also_in_the_exported_policy(
    trained, prepared, toy_config, acting, tmp_path, caplog
):
    first = trained()
    frozen = ["*/middleware_dense_0/*"]
    config = toy_config(learner__init_from=str(tmp_path / "first"), stop__updates=3, network__frozen=frozen)
    (tmp_path / "second").mkdir()
    (tmp_path / "second" / "config.yaml").write_text("seed: 1\n")
    with caplog.at_level(logging.INFO, "distrl"):
        second = prepared(config, run_dir=tmp_path / "second")
    assert f"begins with the weights of {tmp_path / 'first'}: took 6 of 6; frozen: 2 weights" in caplog.text
    Session(second, acting(second), lambda _: None, lambda: False).run()
    files = [export_run(tmp_path / name, None, checkpoint="newest", force=False, version="0")[0] for name in RUNS]
    theirs, mine = (read_source(str(file)).weights["main"] for file in files)
    assert theirs.keys() == mine.keys() == weights(first).keys()
    assert {name for name, array in theirs.items() if array.tobytes() == mine[name].tobytes()} == {
        "main/middleware_dense_0/kernel", "main/middleware_dense_0/bias"
    }  # fmt: skip
    # The run goes on with them, and not with others.
    third = prepared(config, run_dir=tmp_path / "second")
    assert (third.state.updates, third.networks["main"].online.frozen) == (3, second.networks["main"].online.frozen)
    with pytest.raises(CheckpointError, match=r"does not fit the configuration: .*network\.frozen or optimizer\?"):
        prepared(toy_config(), run_dir=tmp_path / "second")


def test_the_report_counts_frozen_weights_that_are_new():
    networks = build(network={"middleware_parameters": {"scheme": [4]}, "frozen": ["*/middleware_*"]})
    source = filled(networks, 1.0)
    del source.weights["main"]["main/middleware_dense_0/bias"]
    assert begin_with(networks, source).endswith("; new: main/middleware_dense_0; frozen: 2 weights, 1 of them new")


def test_a_learner_refuses_a_pattern_that_matches_nothing(prepared, toy_config):
    with pytest.raises(ConfigError, match=r"^network\.frozen: 'main/a/\*' matches no weight that training changes; "):
        prepared(toy_config(network__frozen=["main/a/*"]))


def test_another_head_is_new_and_the_report_says_so():
    others = build(algorithm={"name": "sac"}, network={"middleware_parameters": {"scheme": [4]}})
    here = build(algorithm={"name": "ppo"}, network={"middleware_parameters": {"scheme": [4]}})["main"]
    fresh = here.online.named_weights()
    source = filled(others, 2.0)
    told = begin_with({"main": here}, WeightSource("theirs", {"main": source.weights["main"]}))
    shared = [name for name in here.online.weight_names if name in source.weights["main"]]
    assert shared
    assert told == (
        f"begins with the weights of theirs: took {len(shared)} of {len(fresh)}; "
        "new: main/policy_head_action_log_sigma, main/value_head; not used: main/policy_head_action_log_sigma"
    )  # one number for each action there, and a layer here
    for name, array in here.online.named_weights().items():
        np.testing.assert_array_equal(array, np.full_like(array, 2.0) if name in shared else fresh[name])


def test_another_shape_and_nothing_at_all_are_refused_and_nothing_is_changed():
    here = build()
    fresh = numbers(here["main"].online)
    wider = build(network={"middleware_parameters": {"scheme": [5]}})
    with pytest.raises(CheckpointError) as refused:
        begin_with(here, filled(wider, 1.0))
    assert str(refused.value) == (
        "theirs has another network: main: weight main/middleware_dense_0/kernel has shape (2, 4), given (2, 5); "
        "configure the network as it was there, or begin without"
    )
    with pytest.raises(
        CheckpointError, match=r"theirs has no weight of the same name as this run: there other/a, here main/"
    ):
        begin_with(here, WeightSource("theirs", {"main": {"other/a/kernel": np.ones(2)}}))
    broken = filled(here, 1.0)
    broken.weights["main"]["main/middleware_dense_0/bias"][0] = np.nan
    with pytest.raises(CheckpointError, match="bias: the given values are not finite"):
        begin_with(here, broken)
    assert numbers(here["main"].online) == fresh


def test_statistics_of_observations_come_along_with_their_rows():
    network = {
        "input_embedders_parameters": {"observation": {"normalize": True}},
        "middleware_parameters": {"scheme": [4]},
    }
    here = build(network=network)["main"]
    source = filled({"main": here}, 2.0)
    begin_with({"main": here}, WeightSource("theirs", source.weights, {"main": {"observation": 50.0}}))
    (moments,) = here.statistics.moments.values()
    assert (moments.count, set(moments.mean), set(moments.variance)) == (50.0, {2.0}, {2.0})
    plain = build()["main"]
    begin_with({"main": here}, WeightSource("plain", filled({"main": plain}, 4.0).weights))
    assert (moments.count, set(moments.mean)) == (50.0, {2.0})  # the plain network has none to take


def test_a_policy_that_an_earlier_version_has_exported_is_taken(tmp_path):
    source = read_source(str(EARLIER / "cartpole.onnx"))
    names = {name.rpartition("/")[0] for name in source.weights["main"]}
    assert names == {"main/middleware_dense_0", "main/policy_head_action", "main/value_head"}
    checkpoint = read_source(str(EARLIER / "cartpole")).weights["main"]
    for name, array in source.weights["main"].items():
        np.testing.assert_array_equal(array, checkpoint[name])
