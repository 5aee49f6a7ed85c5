"""Actor-critics whose policy and critics have memory: they learn from sequences."""

import numpy as np
import pytest

from distrl.config.heads import QValueHeadParameters
from distrl.config.network import NetworkParameters
from distrl.errors import ConfigError
from distrl.networks.framework.backend import Gradients
from distrl.networks.network import Network
from distrl.types import Batch
from tests.algorithms.arm import (
    GAMMA,
    HIGH,
    LOW,
    SCALE,
    SPEC,
    assert_each_loss_moves_its_own_variables_alone,
    config,
    make,
    scaled,
    trained,
)
from tests.algorithms.states import restore, states

BURN_IN, T, N = 2, 5, 4
MEMORY = {"middleware_parameters": {"kind": "lstm", "scheme": [], "number_of_lstm_cells": 6}}
SEQUENCES = {"item": {"kind": "sequence", "burn_in_steps": BURN_IN}}


@pytest.fixture
def recurrent():
    """recurrent(name, …): an algorithm with memory and its networks; the statistics of observations are not trivial."""

    def make_it(name, **algorithm):
        made, networks = make(name, MEMORY, replay=SEQUENCES, **algorithm)
        for network in networks.values():
            network.statistics.observe(sequences(seed=9))
        return made, networks

    return make_it


def sequences(seed=0, **fields):
    """N sequences: one whole, one whose episode ends within, one truncated, one whose episode ends in the burn-in."""
    rng = np.random.default_rng(seed)
    steps = BURN_IN + T
    terminated, truncated, valid = (np.zeros((steps, N), bool) for _ in range(3))
    valid[:] = True
    terminated[3, 1], valid[4, 1] = True, False  # the step after the end resets the environment
    truncated[4, 2], valid[5, 2] = True, False
    terminated[0, 3], valid[1, 3] = True, False
    given = {
        "observations": {"observation": rng.standard_normal((steps + 1, N, 3)).astype("float32")},
        "actions": {"action": (LOW + rng.random((steps, N, 2)) * (HIGH - LOW)).astype("float32")},
        "rewards": np.where(valid, rng.standard_normal((steps, N)), 0.0).astype("float32"),
        "terminated": terminated,
        "truncated": truncated,
        "valid": valid,
        "behaviour_log_probabilities": np.zeros((steps, N), "float32"),
        "recurrent_state": {name: rng.standard_normal((N, 6)).astype("float32") for name in ("lstm_h", "lstm_c")},
        "importance_weights": np.linspace(0.2, 1.0, N, dtype="float32"),
    }
    return Batch(**(given | fields))


def stepped(copy, batch, sequence, state, actions=None):
    """Outputs of every row of a sequence, one step at a time; `actions`: of each row, scaled."""
    found = []
    for row in range(BURN_IN + T + 1):
        inputs = {"observation": batch.observations["observation"][row, sequence][None], **state}
        if actions is not None:
            inputs["action"] = np.float32(actions[row])[None]
        outputs = {name: np.array(value) for name, value in copy.model(inputs).items()}
        found.append({name: value[0] for name, value in outputs.items()})
        state = {name: outputs[f"next_{name}"] for name in state}
        if row < BURN_IN + T and not batch.valid[row, sequence]:
            state = {name: 0.0 * array for name, array in state.items()}
    return found


def zeros(copy):
    return {name: np.zeros((1, *spec.shape), "float32") for name, spec in copy.recurrent_state.items()}


def test_the_losses_are_those_of_networks_that_see_one_step_at_a_time(recurrent):
    """TD3's without noise. Memory restarts with episodes; the rows of the burn-in teach nothing."""
    algorithm, networks = recurrent("td3", target_noise=0.0)
    main, critic, batch = networks["main"], networks["critic"], sequences()
    algorithm.update(networks, batch)  # targets differ from what follows now
    steps, policy_loss, critic_loss, errors = 0, 0.0, 0.0, np.zeros((T, N))
    for i in range(N):
        stored = {name: array[i][None] for name, array in batch.recurrent_state.items()}
        policy, slow = (stepped(copy, batch, i, stored) for copy in (main.online, main.target))
        mine, theirs = ([scaled(row["deterministic_policy"]) for row in rows] for rows in (policy, slow))
        made = [*scaled(batch.actions["action"][:, i]), np.zeros(2)]
        names = [*critic.online.outputs]
        begin = zeros(critic.online)
        taken, own = (stepped(critic.online, batch, i, begin, actions) for actions in (made, mine))
        following = stepped(critic.target, batch, i, begin, theirs)
        for t in range(BURN_IN, BURN_IN + T):
            if not batch.valid[t, i]:
                continue
            y = SCALE * batch.rewards[t, i]
            if not batch.terminated[t, i]:
                y += GAMMA * min(following[t + 1][name] for name in names)
            weight = batch.importance_weights[i]
            critic_loss += weight * sum(0.5 * (y - taken[t][name]) ** 2 for name in names)
            policy_loss -= weight * own[t][names[0]]
            errors[t - BURN_IN, i] = np.mean([abs(y - taken[t][name]) for name in names])
            steps += 1
    update = algorithm.update(networks, batch)  # losses before the step
    assert update.metrics["critic_loss"] == pytest.approx(critic_loss / steps, rel=1e-4)
    assert update.metrics["policy_loss"] == pytest.approx(policy_loss / steps, rel=1e-4)
    valid = batch.valid[BURN_IN:]
    for i, found in enumerate(update.priorities):
        sizes = errors[valid[:, i], i]
        assert found == pytest.approx(0.9 * sizes.max() + 0.1 * sizes.mean(), rel=1e-4)


def test_what_the_loss_does_not_see_changes_nothing_in_it(recurrent):
    """Rewards and actions of the burn-in and of steps that only reset; but what memory saw there counts."""
    batch, rng = sequences(), np.random.default_rng(5)
    unseen = ~batch.valid
    unseen[:BURN_IN] = True
    others = {
        "rewards": np.where(unseen, rng.standard_normal(unseen.shape), batch.rewards).astype("float32"),
        "actions": {
            "action": np.where(unseen[..., None], LOW, batch.actions["action"]).astype("float32"),
        },
    }
    changed = {name: rows.copy() for name, rows in batch.observations.items()}
    changed["observation"][0] += 1.0

    algorithm, networks = recurrent("sac")
    saved = states(networks)

    def losses(given):
        restore(networks, saved)
        metrics = algorithm.update(networks, given).metrics
        return [metrics["policy_loss"], metrics["critic_loss"]]

    np.testing.assert_allclose(losses(batch._replace(**others)), losses(batch), rtol=1e-6)
    assert not np.allclose(losses(batch._replace(observations=changed)), losses(batch), rtol=1e-6)


@pytest.mark.long
@pytest.mark.slow
def test_each_loss_moves_its_own_variables_alone_and_weights_count_in_all(recurrent):
    algorithm, _ = recurrent("sac")
    batch = sequences()
    assert_each_loss_moves_its_own_variables_alone(algorithm, batch)
    half = batch._replace(importance_weights=0.5 * batch.importance_weights)
    gradients = [gradient_of(algorithm, given) for given in (batch, half)]
    for whole, halved in zip(*gradients, strict=True):
        np.testing.assert_allclose(halved, 0.5 * whole, rtol=1e-4, atol=1e-7)


def gradient_of(algorithm, batch):
    step = algorithm._step._compiled
    trainable = [variable for part in step._parts for variable in part.trainable]
    return Gradients(step._loss._function, trainable, step._loss.others)(batch)[2]


@pytest.mark.long
@pytest.mark.parametrize("name", ["tqc", "ddpg", "iql", "awac", "td3_bc"])
def test_everything_learns_and_a_restored_training_goes_on_bit_by_bit(recurrent, name):
    algorithm, networks = recurrent(name)
    before = {key: trained(network.online) for key, network in networks.items()}
    for seed in range(2):
        assert algorithm.update(networks, sequences(seed)).metrics["finite"]
    for key, network in networks.items():
        moved = [
            not np.array_equal(one, other) for one, other in zip(before[key], trained(network.online), strict=True)
        ]
        assert all(moved), key
    saved = states(networks)
    expected = algorithm.update(networks, sequences(7)).metrics
    restore(networks, saved)
    assert algorithm.update(networks, sequences(7)).metrics == expected


def test_an_action_is_judged_and_not_remembered(recurrent):
    _, networks = recurrent("sac")
    critic = networks["critic"].online
    observed, state = {"observation": np.ones((1, 3), "float32")}, zeros(critic)

    def seen(action):
        outputs = critic.model({**observed, **state, "action": np.float32([action])})
        return {name: np.array(value) for name, value in outputs.items()}

    one, other = seen([0.5, -0.5]), seen([-1.0, 0.2])
    for name in critic.outputs:
        assert one[name] != other[name]
    for name in critic.recurrent_state:
        np.testing.assert_array_equal(one[f"next_{name}"], other[f"next_{name}"])


def test_layers_behind_the_memory_of_critics(recurrent):
    _, as_wide = recurrent("sac")
    _, given = recurrent("sac", critic_layers=[5, 4])
    assert [array.shape for array in trained(as_wide["critic"].online)][-2:] == [(6, 1), (1,)]
    assert (6 + 2, 5) in [array.shape for array in trained(given["critic"].online)]  # the memory's 6 beside 2 numbers


@pytest.mark.parametrize(
    ("name", "replay", "network", "message"),
    [
        (
            "sac",
            {"item": {"kind": "sequence", "n_step": 3}},
            MEMORY,
            "replay.item.n_step: 3; sac learns from single steps",
        ),
        ("crossq", SEQUENCES, MEMORY, "replay.item.kind: sequence; crossq learns from single transitions"),
        ("sac", {}, MEMORY, "transition has no recurrent state, .*: lstm has memory; use sequence"),
        ("td3", SEQUENCES, {}, "burn_in_steps: 2 steps bring a recurrent state up to date, and the network has none"),
    ],
)
def test_what_does_not_fit_is_refused(name, replay, network, message):
    with pytest.raises(ValueError, match=message):
        config(name, network, replay=replay)


def test_an_embedder_of_an_action_is_refused_behind_memory():
    network = NetworkParameters.model_validate(MEMORY | {"input_embedders_parameters": {"action": {}}})
    with pytest.raises(ConfigError, match="'action', but actions enter behind the memory, in the heads; leave it out"):
        Network(network, SPEC, (QValueHeadParameters(),), "critic", seed=1)
