"""The seam: what a new algorithm has to give, and what it gets for it."""

import keras
import numpy as np
import pytest

from distrl.algorithms import context_of, make_algorithm
from distrl.algorithms.algorithm import GradientAlgorithm, Loss
from distrl.config import RunConfig
from distrl.config.algorithms import ALGORITHMS, AlgorithmContext
from distrl.config.heads import PolicyHeadParameters, ValueHeadParameters
from distrl.errors import ConfigError
from distrl.networks.inspection import LossInspection
from distrl.types import (
    CHOICE_PROBABILITIES,
    ArraySpec,
    Batch,
    BoxSpec,
    Contribution,
    DiscreteSpec,
    EnvSpec,
    UnrollHeader,
)
from tests.algorithms.one_of_each_kind import others_in_long
from tests.algorithms.recorded import with_data
from tests.traces import traces

SPEC = EnvSpec(id="toy", observations={"observation": ArraySpec((2,), "float32")}, actions={"action": DiscreteSpec(2)})


def config(**sections):
    network = {"middleware_parameters": {"scheme": "Empty"}, "optimizer_type": "SGD", "learning_rate": 0.5}
    network |= sections.pop("network", {})
    return RunConfig.model_validate({"network": network, **sections})


def context(**sections):
    return config(**sections).algorithm_context


def batch(steps=2, sequences=3):
    rows = (steps, sequences)
    return Batch(
        observations={"observation": np.ones((steps + 1, sequences, 2), "float32")},
        actions={"action": np.zeros(rows, "int32")},
        rewards=np.ones(rows, "float32"),
        terminated=np.zeros(rows, bool),
        truncated=np.zeros(rows, bool),
        valid=np.ones(rows, bool),
        behaviour_log_probabilities=np.full(rows, np.log(0.5), "float32"),
        recurrent_state={},
    )


class TowardsThree(GradientAlgorithm):
    """All that a new algorithm needs: pulls every value towards 3."""

    heads = (ValueHeadParameters(),)

    def loss(self, outputs, batch):
        """Half the squared distance of all T+1 values from 3."""
        values = outputs["value"]
        return Loss({"value": 0.5 * keras.ops.mean((values - 3.0) ** 2)}, {"mean_value": keras.ops.mean(values)})


def test_two_attributes_are_an_algorithm():
    algorithm = TowardsThree(context())
    networks = algorithm.build(SPEC)
    assert list(networks) == ["main"]
    first = algorithm.update(networks, batch()).metrics
    assert first["loss"] == pytest.approx(0.5 * (first["mean_value"] - 3.0) ** 2, rel=1e-5)
    assert first["finite"] is True
    for _ in range(20):
        last = algorithm.update(networks, batch()).metrics
    assert last["mean_value"] == pytest.approx(3.0, abs=1e-3)


def test_the_step_is_compiled_once():
    algorithm = TowardsThree(context())
    calls = []
    loss = algorithm.loss
    algorithm.loss = lambda outputs, batch: calls.append(1) or loss(outputs, batch)
    networks = algorithm.build(SPEC)
    for _ in range(3):
        algorithm.update(networks, batch())
    assert len(calls) == 1


def test_without_a_target_there_is_none():
    main = TowardsThree(context()).build(SPEC)["main"]
    assert list(main.by_name) == ["online"]


def test_equal_seeds_start_equal_and_others_do_not():
    first, same, other = (
        TowardsThree(context(seed=seed)).build(SPEC)["main"].online.get_weights() for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first[0], same[0])
    assert not np.array_equal(first[0], other[0])


def test_update_before_build_is_an_error():
    with pytest.raises(RuntimeError, match="before build"):
        TowardsThree(context()).update({}, batch())


def test_an_algorithm_knows_its_sections_and_the_size_of_a_batch():
    given = config(
        seed=3,
        actors={"unroll_length_steps": 20, "environments": 5},
        learner={"batch_size": 6},
        algorithm={"name": "vpg"},
    )
    found = make_algorithm(given).context
    assert found == AlgorithmContext(
        parameters=given.algorithm,
        network=given.network,
        seed=3,
        unroll_length_steps=20,
        sequences_per_batch=30,
        replicas=1,
        learns_from_data=False,
    )


def of_algorithm(name, **tree):
    """Return a configuration with the algorithm, and with a network that it can train."""
    needed = {
        "r2d2": {"middleware_parameters": {"kind": "lstm", "number_of_lstm_cells": 4}},
        "trpo": {"use_separate_networks_per_head": True},
    }.get(name, {})
    given = {"algorithm": {"name": name}, **tree, "network": tree.get("network", {}) | needed}
    return RunConfig.model_validate(with_data(given))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_section_names_a_class_that_takes_it(name):
    config = of_algorithm(name)
    assert type(config.algorithm) is ALGORITHMS[name]
    assert isinstance(config.algorithm, make_algorithm(config).Parameters)


class Both(TowardsThree):
    """The same with a policy beside it, which is left alone."""

    heads = (PolicyHeadParameters(), ValueHeadParameters())

    def loss(self, outputs, batch):
        terms, metrics = super().loss(outputs, batch)
        return Loss(terms | {"policy": 0.0 * keras.ops.mean(outputs["policy/action"])}, metrics)


def test_the_configuration_changes_heads_of_the_same_kind():
    configured = [{"kind": "value", "units": [5], "loss_weight": 0.5}]
    algorithm = Both(context(network={"heads_parameters": configured}))
    main = algorithm.build(SPEC)["main"]
    assert [head.name for head in main.online.heads] == ["policy", "value"]
    assert main.online.named_weights()["main/value_head_hidden_0/kernel"].shape == (2, 5)
    plain = Both(context(network={"heads_parameters": [{"kind": "value", "units": [5]}]}))
    losses = [one.update(one.build(SPEC), batch()).metrics["loss"] for one in (algorithm, plain)]
    assert losses[0] == pytest.approx(0.5 * losses[1])


@pytest.mark.parametrize(
    ("heads", "message"),
    [
        ([{"kind": "q"}], "network.heads_parameters: q: algorithm impala has the heads policy, value; leave q out"),
        ([{"kind": "value"}, {"kind": "value", "units": [3]}], "value: algorithm impala has one head of this kind"),
        ([{"kind": "value", "num_output_head_copies": 2}], "value: algorithm impala has one head of this kind"),
        ([{"kind": "value", "clip_range": 0.2}], "value: clip_range is a part of a loss that algorithm impala states"),
        ([{"kind": "policy", "beta_entropy": 0.2}], "policy: beta_entropy is a part of a loss that algorithm impala"),
    ],
)
def test_heads_that_do_not_belong_to_the_algorithm_are_refused(heads, message):
    with pytest.raises(ConfigError) as raised:
        Both(context(network={"heads_parameters": heads})).build(SPEC)
    assert message in str(raised.value)


class HalfALoss(Both):
    def loss(self, outputs, batch):
        terms, metrics = super().loss(outputs, batch)
        return Loss({"value": terms["value"]}, metrics)


def test_a_head_without_a_loss_is_an_error():
    algorithm = HalfALoss(context())
    networks = algorithm.build(SPEC)
    with pytest.raises(KeyError, match=r"the loss is of heads \['value'\], the network has \['policy', 'value'\]"):
        algorithm.update(networks, batch())


def test_rows_are_observed_after_the_update_that_they_made():
    """The loss sees what the actors saw; the next version of the weights is normalised by all rows up to here."""
    normalized = {"input_embedders_parameters": {"observation": {"normalize": True}}}
    algorithm = TowardsThree(context(network=normalized))
    networks = algorithm.build(SPEC)
    given = batch()
    given.observations["observation"][:2] = np.arange(12.0, dtype="float32").reshape(2, 3, 2)
    before = networks["main"].online.predict({"observation": given.observations["observation"].reshape(-1, 2)})
    metrics = algorithm.update(networks, given).metrics
    assert metrics["mean_value"] == pytest.approx(before.mean(), rel=1e-5)
    assert networks["main"].statistics.moments["observation"].count == 6.0
    np.testing.assert_allclose(networks["main"].statistics.moments["observation"].mean, [5.0, 6.0])


@pytest.mark.row("A21")
def test_a_target_that_the_configuration_asks_for_stays_until_it_is_updated():
    algorithm = TowardsThree(context(network={"create_target_network": True}))
    main = algorithm.build(SPEC)["main"]
    algorithm.update({"main": main}, batch())
    pairs = list(zip(main.target.get_weights(), main.online.get_weights(), strict=True))
    assert not any(np.array_equal(target, online) for target, online in pairs)
    main.update_target_network()
    for target, online in zip(main.target.get_weights(), main.online.get_weights(), strict=True):
        np.testing.assert_array_equal(target, online)


def test_16_bits_of_computing_learn_too():
    algorithm = TowardsThree(context(network={"compute_dtype": "bfloat16", "learning_rate": 0.1}))
    networks = algorithm.build(SPEC)
    for _ in range(60):
        metrics = algorithm.update(networks, batch()).metrics
    assert metrics["mean_value"] == pytest.approx(3.0, abs=0.05)
    assert {str(array.dtype) for array in networks["main"].online.get_weights()} == {"float32"}


def test_gradients_taken_in_one_place_and_applied_in_another_are_the_same_training():
    """The same algorithm where actors ship gradients: two attributes are still all that it needs."""
    alone = TowardsThree(context())
    actor, learner = (TowardsThree(context(algorithm={"name": "a3c"})) for _ in range(2))
    whole, acting, learning = (algorithm.build(SPEC) for algorithm in (alone, actor, learner))
    assert list(acting["main"].by_name) == ["global", "online"]
    for _ in range(3):
        expected = alone.update(whole, batch()).metrics
        given = actor.differentiate(acting, batch())
        none = np.zeros(0, np.float32)
        header = UnrollHeader(0, 1, 0, 1, 6)
        metrics = learner.update(learning, (Contribution(header, given, none, none.astype(np.int32)),)).metrics
        acting["main"].online.set_weights(learning["main"].online.get_weights())
        assert metrics == pytest.approx(expected, rel=1e-5)
    for one, other in zip(whole["main"].online.get_weights(), learning["main"].online.get_weights(), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5)


def test_what_ships_unrolls_differentiates_nothing():
    algorithm = TowardsThree(context())
    networks = algorithm.build(SPEC)
    with pytest.raises(RuntimeError, match="ships unrolls"):
        algorithm.differentiate(networks, batch())


class TowardsRewards(GradientAlgorithm):
    """Pulls every value towards the reward of its row, and tells what rewards it saw."""

    heads = (ValueHeadParameters(),)

    def loss(self, outputs, batch):
        """Half the squared distance."""
        distance = outputs["value"][:-1] - batch.rewards
        told = {"lowest": keras.ops.min(batch.rewards), "highest": keras.ops.max(batch.rewards)}
        return Loss({"value": 0.5 * keras.ops.mean(distance**2)}, told)


def paying(rewards, returns):
    """A batch of one column whose actors tell these discounted returns, unroll by unroll."""
    rewards = np.float32(rewards)[:, None]
    returns = [np.float64(part) for part in returns]
    moments = {
        "count": np.array([float(len(part)) for part in returns]),
        "mean": np.array([part.mean() for part in returns]),
        "squares": np.array([((part - part.mean()) ** 2).sum() for part in returns]),
    }
    return batch(len(rewards), 1)._replace(rewards=rewards, reward_moments=moments)


def test_the_loss_sees_rewards_by_the_statistics_of_earlier_updates():
    algorithm = TowardsRewards(context(algorithm={"reward_normalization": {"clip": 3.0}}))
    networks = algorithm.build(SPEC)
    first = algorithm.update(networks, paying([1.0, 9.0], [[0.0, 4.0]])).metrics  # nothing is known yet
    assert (first["lowest"], first["highest"], first["reward_deviation"]) == (1.0, 3.0, 1.0)
    # Returns of 0 and 4 deviate by 2; the new ones count from the next update on.
    second = algorithm.update(networks, paying([-1.0, 4.0], [[10.0], [6.0, 2.0]])).metrics
    assert (second["lowest"], second["highest"]) == pytest.approx((-0.5, 2.0))
    assert second["reward_deviation"] == pytest.approx(2.0)
    third = algorithm.update(networks, paying([1.0, 1.0], [[0.0]])).metrics
    assert third["reward_deviation"] == pytest.approx(np.std([0.0, 4.0, 10.0, 6.0, 2.0]))
    assert traces(algorithm._step) == 1


def test_gradient_actors_normalise_rewards_by_what_was_published_with_the_weights():
    normalization = {"reward_normalization": {"kind": "reward"}}
    alone = TowardsRewards(context(algorithm=normalization))
    actor, learner = (TowardsRewards(context(algorithm={"name": "a3c", **normalization})) for _ in range(2))
    whole, acting, learning = (algorithm.build(SPEC) for algorithm in (alone, actor, learner))
    none = np.zeros(0, np.float32)
    for rewards in ([0.0, 2.0], [4.0, 9.0], [-3.0, 1.0]):
        unroll = paying(rewards, [rewards])
        told = {name: array[0] for name, array in unroll.reward_moments.items()}
        expected = alone.update(whole, unroll).metrics
        published = learning["main"].published_weights()
        acting["main"].rewards.take(published)
        acting["main"].online.set_weights([published[name] for name in acting["main"].online.named_weights()])
        given = actor.differentiate(acting, unroll)
        ended = (none, none.astype(np.int32), none, none.astype(np.int8))
        contribution = Contribution(UnrollHeader(0, 1, 0, 1, 2), given, *ended, reward_moments=told)
        metrics = learner.update(learning, (contribution,)).metrics
        assert metrics == pytest.approx(expected, rel=1e-5)
    assert metrics["highest"] == pytest.approx((1.0 - 3.75) / np.std([0.0, 2.0, 4.0, 9.0]), rel=1e-5)


STEERED = {
    "constant": ({"learning_rate": 0.5}, {"learning_rate": 0.25}),
    "schedule": (
        {
            "learning_rate": 0.5,
            "learning_rate_schedule": "linear",
            "learning_rate_final": 0.125,
            "learning_rate_schedule_updates": 40,
        },
        {
            "learning_rate": 0.25,
            "learning_rate_schedule": "linear",
            "learning_rate_final": 0.0625,
            "learning_rate_schedule_updates": 40,
        },
    ),
    "warm-up": (
        {"learning_rate": 0.5, "learning_rate_warm_up_updates": 4, "optimizer_type": "Adam"},
        {"learning_rate": 0.25, "learning_rate_warm_up_updates": 4, "optimizer_type": "Adam"},
    ),
}
IMPALA, EPOCHS = {"name": "impala"}, {"name": "ppo", "epochs": 2, "minibatches": 2}
STEERED_IN_CI = ((IMPALA, "schedule"), (EPOCHS, "warm-up"))


@pytest.mark.parametrize(
    ("section", "how"),
    [
        pytest.param(section, how, marks=() if (section, how) in STEERED_IN_CI else pytest.mark.long)
        for section in (IMPALA, IMPALA | {"minibatches": 2}, EPOCHS, {"name": "vpg"})
        for how in STEERED
    ],
    ids=lambda given: given if isinstance(given, str) else "-".join(map(str, given.values())),
)
def test_what_is_changed_while_training_is_as_if_configured(section, how):
    before, after = STEERED[how]
    now = config(network=after, algorithm=section | {"entropy_weight": 0.5})
    was = config(network=before, algorithm=section | {"entropy_weight": 0.0})
    told, weights = {}, {}
    for name, given in (("steered", was), ("configured", now)):
        algorithm = make_algorithm(given)
        networks = algorithm.build(SPEC)
        if name == "steered":
            # Compiled before, so that nothing of the new values can have been a constant of the program.
            saved = networks["main"].state_arrays()
            algorithm.update(networks, batch(sequences=4))
            networks["main"].restore(saved)
            algorithm.steer(networks, context_of(now))
        told[name] = [algorithm.update(networks, batch(sequences=4)).metrics for _ in range(3)]
        weights[name] = networks["main"].online.get_weights()
        assert traces(algorithm._step) == 1
    for steered_metrics, configured_metrics in zip(told["steered"], told["configured"], strict=True):
        assert steered_metrics == pytest.approx(configured_metrics, rel=1e-5, abs=1e-6)
    for one, other in zip(weights["steered"], weights["configured"], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)
    assert told["steered"][-1]["learning_rate"] != pytest.approx(0.0)


def test_a_workers_own_optimizer_that_comes_later_has_the_new_rate():
    network = {"shared_optimizer": False, "async_training": True}
    algorithm = make_algorithm(config(algorithm={"name": "a3c"}, network=network))
    networks = algorithm.build(SPEC)
    main = networks["main"]
    first = main.optimizer_of(0)
    algorithm.steer(networks, context(algorithm={"name": "a3c"}, network=network | {"learning_rate": 0.125}))
    assert [float(main.optimizer_of(worker).learning_rate.numpy()) for worker in (0, 1)] == [0.125, 0.125]
    assert main.optimizer_of(0) is first


def test_what_steers_is_no_part_of_a_checkpoint():
    given = config(network=STEERED["schedule"][0])
    algorithm = make_algorithm(given)
    networks = algorithm.build(SPEC)
    before = networks["main"].state_arrays()
    algorithm.steer(networks, context(network=STEERED["schedule"][1]))
    after = networks["main"].state_arrays()
    assert {group: [*arrays] for group, arrays in after.items()} == {
        group: [*arrays] for group, arrays in before.items()
    }
    for group, arrays in after.items():
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, before[group][name])


# -------------------------------------------------------------------------------------------------- what is minimised

ONE_STEP = {  # one step of a whole batch, where others are possible
    "impala": {"minibatches": 1},
    "acer": {},
    "bootstrapped_dqn": {},
    "dqn": {},
    "apex": {},
    "r2d2": {},
    "c51": {},
    "qrdqn": {},
    "rainbow": {},
    "ppo": {"epochs": 1, "minibatches": 1},
    "appo": {"epochs": 1, "minibatches": 1},
    "trpo": {"value_epochs": 1, "value_minibatches": 1},
    "sac": {},
    "discrete_sac": {},
    "td3": {},
    "ddpg": {},
    "tqc": {},
    "naf": {},
    "crossq": {"critic_layers": [4]},
    "vpg": {},
    "bc": {},
    "marwil": {},
    "awac": {},
    "iql": {},
    "td3_bc": {},
    "cql": {},
    "discrete_cql": {},
    "discrete_bcq": {},
    "dqfd": {},
}


CONTINUOUS = ("sac", "td3", "ddpg", "tqc", "crossq", "naf", "awac", "iql", "td3_bc", "cql")


def random_batch(spec, algorithm, states):
    rng = np.random.default_rng(0)
    steps = algorithm.context.unroll_length_steps if algorithm.parameters.replay_parameters is None else 1
    action = spec.actions["action"]
    if isinstance(action, DiscreteSpec):
        actions = rng.integers(0, action.n, (steps, 4)).astype(np.int32)
    else:
        actions = rng.uniform(-1.0, 1.0, (steps, 4, 2)).astype(np.float32)
    of_replay = {}
    if algorithm.parameters.replay_parameters is not None:
        of_replay = {"bootstrap_steps": np.ones((steps, 4), np.int32), "importance_weights": np.ones(4, np.float32)}
    return Batch(
        observations={"observation": rng.standard_normal((steps + 1, 4, 3)).astype(np.float32)},
        actions={"action": actions},
        rewards=rng.standard_normal((steps, 4)).astype(np.float32),
        terminated=np.zeros((steps, 4), np.bool_),
        truncated=np.zeros((steps, 4), np.bool_),
        valid=np.ones((steps, 4), np.bool_),
        behaviour_log_probabilities=np.full((steps, 4), -0.7, np.float32),
        recurrent_state={name: np.zeros((4, *state.shape), np.float32) for name, state in states.items()},
        extras={CHOICE_PROBABILITIES: np.full((steps, 4, 2), 0.5, np.float32)},
        **of_replay,
    )


def test_all_that_ship_unrolls_are_here():
    ships = {name for name, section in ALGORITHMS.items() if section.ships == "unrolls"}
    assert ships == ONE_STEP.keys()


@pytest.mark.parametrize("name", others_in_long(ONE_STEP))
def test_the_loss_is_the_one_that_the_update_tells(name):
    action = BoxSpec((2,), (-1.0, -1.0), (1.0, 1.0)) if name in CONTINUOUS else DiscreteSpec(2)
    spec = EnvSpec("x", {"observation": ArraySpec((3,), "float32")}, {"action": action})
    tree = {
        "algorithm": {"name": name, **ONE_STEP[name]},
        "network": {"middleware_parameters": {"scheme": [4]}, "l2_regularization": 0.01},
        "actors": {"environments": 2, "unroll_length_steps": 3},
    }
    algorithm = make_algorithm(of_algorithm(name, **tree))
    networks = algorithm.build(spec)
    given = random_batch(spec, algorithm, networks["main"].online.recurrent_state)
    objective = algorithm.objective(networks)
    before = {name: network.state_arrays() for name, network in networks.items()}
    found = LossInspection(networks, objective)(given)
    for which, network in networks.items():
        for group, arrays in network.state_arrays().items():
            for path, array in arrays.items():
                np.testing.assert_array_equal(array, before[which][group][path], err_msg=path)
    told = algorithm.update(networks, given).metrics
    assert found.loss == pytest.approx(told["loss"], rel=1e-5)
    norm = np.sqrt(sum(float(np.square(gradient).sum()) for gradient in found.gradients.values()))
    if name in (
        "sac",
        "discrete_sac",
        "tqc",
        "crossq",
        "cql",
    ):  # whose temperature is no weight of a network, and is in the norm
        assert 0.0 < norm <= told["gradient_norm"]
    else:
        assert norm == pytest.approx(told["gradient_norm"], rel=1e-4)
